//! Nodes over real connections, with certificates that fit and others.

#![allow(clippy::unwrap_used)]

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use siltstone_cluster::node::Network;
use siltstone_cluster::packet::{ChunkAck, Envelope, Packet, StreamId};
use siltstone_cluster::transport::{Encryption, Transport, TransportEvent, TransportOptions};

use super::nodes::NodeTls;
use super::options::NodeTlsFiles;

const TIMEOUT: Duration = Duration::from_secs(60);

fn file(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/certificates").join(name)
}

fn files(name: &str) -> NodeTlsFiles {
    NodeTlsFiles {
        certificate: file(&format!("{name}.pem")),
        key: file(&format!("{name}.key")),
        ca: file("node_authority.pem"),
    }
}

struct Peer {
    transport: Arc<Transport>,
    events: Receiver<TransportEvent>,
    packets: Receiver<Packet>,
}

struct Collector(mpsc::Sender<Packet>);

impl siltstone_cluster::network::Receiver for Collector {
    fn deliver(&self, envelope: Envelope) {
        // A test that does not read them has ended.
        let _ = self.0.send(envelope.packet);
    }

    fn report_unreachable(&self, _node: u64) {}
}

fn peer_with(node: u64, tls: Option<Arc<NodeTls>>) -> Peer {
    let (event, events) = mpsc::channel();
    let (packet, packets) = mpsc::channel();
    let listen = "127.0.0.1:0".parse().unwrap();
    let transport = Transport::bind(TransportOptions {
        encryption: tls.map(|tls| tls as Arc<dyn Encryption>),
        listener: Arc::new(move |found| drop(event.send(found.clone()))),
        ..TransportOptions::new(7, node, listen)
    });
    let transport = transport.unwrap();
    transport.attach(1, Arc::new(Collector(packet)));
    Peer { transport, events, packets }
}

fn peer(node: u64, certificate: &str) -> Peer {
    peer_with(node, Some(Arc::new(NodeTls::open(&files(certificate)).unwrap())))
}

impl Peer {
    fn knows(&self, node: u64, other: &Peer) {
        self.transport.set_peer(node, other.transport.address().to_string()).unwrap();
    }

    /// Waits for an event whose text has these words.
    fn reports(&self, words: &str) {
        let deadline = Instant::now() + TIMEOUT;
        let mut others = Vec::new();
        while let Ok(event) = self.events.recv_timeout(deadline - Instant::now()) {
            let text = format!("{event:?}");
            if text.contains(words) {
                return;
            }
            others.push(text);
        }
        panic!("no {words:?} in {others:#?}");
    }

    fn reaches(&self, from: u64, to: u64, other: &Peer) {
        let stream = StreamId { node: to, incarnation: 1, number: 1 };
        let packet = Packet::Ack(ChunkAck { stream, from, next: 1 });
        let deadline = Instant::now() + TIMEOUT;
        while Instant::now() < deadline {
            self.transport.send(Envelope { group: 1, directory: 1, packet: packet.clone() });
            if other.packets.recv_timeout(Duration::from_millis(20)).is_ok() {
                return;
            }
        }
        panic!("nothing arrives");
    }
}

fn pair(one: &Peer, two: &Peer) {
    one.knows(2, two);
    two.knows(1, one);
}

#[test]
fn nodes_of_one_authority_exchange_packets() {
    let (one, two) = (peer(1, "node"), peer(2, "node"));
    pair(&one, &two);
    one.reaches(1, 2, &two);
    two.reaches(2, 1, &one);
}

#[test]
fn expired_certificate_is_refused_by_both_sides_until_it_is_renewed() {
    let dir = tempfile::tempdir().unwrap();
    let own = NodeTlsFiles {
        certificate: dir.path().join("own.pem"),
        key: dir.path().join("own.key"),
        ca: file("node_authority.pem"),
    };
    let use_files_of = |name: &str| {
        std::fs::copy(file(&format!("{name}.pem")), &own.certificate).unwrap();
        std::fs::copy(file(&format!("{name}.key")), &own.key).unwrap();
    };
    use_files_of("expired_node");
    let tls = Arc::new(NodeTls::open(&own).unwrap());
    let (one, two) = (peer(1, "node"), peer_with(2, Some(tls.clone())));
    pair(&one, &two);
    one.reports("the certificate of the other node has expired; renew it there");
    two.reports("refuses the certificate of this node: it has expired");
    // Files that do not fit leave everything as it is.
    std::fs::write(&own.key, "no key").unwrap();
    assert!(tls.reload().unwrap_err().contains("the key"));
    use_files_of("node");
    tls.reload().unwrap();
    one.reaches(1, 2, &two);
    two.reaches(2, 1, &one);
}

#[test]
fn certificate_of_another_authority_is_refused_by_both_sides() {
    let (one, two) = (peer(1, "node"), peer(2, "foreign_node"));
    pair(&one, &two);
    one.reports("the certificate of the other node is not issued by an authority of --cluster-tls");
    two.reports("refuses the certificate of this node");
}

#[test]
fn node_without_tls_is_told_so_and_so_is_its_peer() {
    let (one, two) = (peer(1, "node"), peer_with(2, None));
    pair(&one, &two);
    one.reports("the other node does not speak TLS; start it with --cluster-tls-cert");
    two.reports("the other side speaks TLS, and this node has no certificate");
}

#[test]
fn other_cluster_other_number_and_second_process_are_refused_over_tls() {
    let (one, two) = (peer(1, "node"), peer(2, "node"));
    one.knows(2, &two);
    two.reports("UnknownNode { node: 1 }");
    one.reports("node 1 is unknown here");
    two.knows(1, &one);
    two.reaches(2, 1, &one);
    let second = peer(2, "node");
    second.knows(1, &one);
    second.reaches(2, 1, &one);
    one.reports("Duplicate { node: 2 }");
    two.reports("two processes run as node 2");
}

#[test]
fn connection_without_certificate_or_with_garbage_is_closed() {
    let one = peer(1, "node");
    for bytes in [&b"SILTNODE and no TLS"[..], &[0; 64], &[22, 3, 3, 0xff, 0xff]] {
        let mut socket = TcpStream::connect(one.transport.address()).unwrap();
        socket.set_read_timeout(Some(TIMEOUT)).unwrap();
        socket.write_all(bytes).unwrap();
        // An alert of TLS may come first.
        let mut answer = Vec::new();
        let _ = socket.read_to_end(&mut answer);
        assert!(answer.len() < 64, "{answer:?}");
        one.reports("Closed");
    }
}
