//! Transports over local sockets: order, refusals by name, restarts, and peers that do not read.

#![allow(clippy::unwrap_used)]

use std::io::{Read, Write};
use std::sync::mpsc::{self, Sender};
use std::time::Instant;

use super::*;
use crate::codec::{Answer, Hello, MAX_HELLO_BYTES, push_frame, read_frame};
use crate::packet::{ChunkAck, Packet, Start, StartId, StreamId};
use crate::publication::Publication;

const CLUSTER: u64 = 77;
const GROUP: u64 = 5;
const TIMEOUT: Duration = Duration::from_secs(60);

/// A transport of a test, and what it has received and reported.
struct Peer {
    transport: Arc<Transport>,
    packets: mpsc::Receiver<Packet>,
    /// Nodes of earlier versions.
    earlier: mpsc::Receiver<u64>,
    publications: mpsc::Receiver<Publication>,
    events: mpsc::Receiver<TransportEvent>,
}

struct Collector(Sender<Packet>, Sender<u64>);

impl Receiver for Collector {
    fn deliver(&self, envelope: Envelope) {
        // A test that does not read them has ended.
        let _ = self.0.send(envelope.packet);
    }

    fn report_unreachable(&self, _node: u64) {}

    fn report_earlier_version(&self, node: u64) {
        let _ = self.1.send(node);
    }
}

fn start(cluster: u64, node: u64, listen: SocketAddr) -> Peer {
    start_with(cluster, node, listen, 1)
}

fn start_with(cluster: u64, node: u64, listen: SocketAddr, groups: u32) -> Peer {
    let (event, events) = mpsc::channel();
    let (packet, packets) = mpsc::channel();
    let (of_earlier, earlier) = mpsc::channel();
    let (publication, publications) = mpsc::channel();
    let options = TransportOptions {
        client_address: Some(format!("client-of-{node}:6379")),
        listener: Arc::new(move |found| drop(event.send(found.clone()))),
        ping_interval: Duration::from_millis(50),
        max_queued_packets: 1000,
        // A busy machine is slow.
        ack_timeout: 3 * TIMEOUT,
        write_timeout: 3 * TIMEOUT,
        max_queued_publication_bytes: 1 << 20,
        publication_listener: Arc::new(move |found| drop(publication.send(found))),
        groups,
        ..TransportOptions::new(cluster, node, listen)
    };
    let transport = Transport::bind(options).unwrap();
    transport.attach(GROUP, Arc::new(Collector(packet, of_earlier)));
    Peer { transport, packets, earlier, publications, events }
}

fn peer(node: u64) -> Peer {
    start(CLUSTER, node, ([127, 0, 0, 1], 0).into())
}

impl Peer {
    fn knows(&self, node: u64, other: &Peer) {
        self.transport.set_peer(node, other.transport.address().to_string()).unwrap();
    }

    /// Waits for an event.
    fn sees(&self, is_expected: impl Fn(&TransportEvent) -> bool) -> TransportEvent {
        let deadline = Instant::now() + TIMEOUT;
        let mut others = Vec::new();
        while let Ok(event) = self.events.recv_timeout(deadline - Instant::now()) {
            if is_expected(&event) {
                return event;
            }
            others.push(event);
        }
        panic!("only {others:?}");
    }

    fn refuses(&self) -> HelloRefusal {
        match self.sees(|event| matches!(event, TransportEvent::Refused { .. })) {
            TransportEvent::Refused { refusal, .. } => refusal,
            other => panic!("{other:?}"),
        }
    }

    fn is_refused(&self) -> String {
        match self.sees(|event| matches!(event, TransportEvent::RefusedBy { .. })) {
            TransportEvent::RefusedBy { reason, .. } => reason,
            other => panic!("{other:?}"),
        }
    }

    fn is_connected(&self, to: u64) {
        self.sees(|event| matches!(event, TransportEvent::Connected { node, .. } if *node == to));
    }

    /// Waits until published messages are counted.
    fn counts(&self, are_expected: impl Fn(PublicationCounts) -> bool) {
        let deadline = Instant::now() + TIMEOUT;
        while !are_expected(self.transport.publication_counts()) {
            assert!(Instant::now() < deadline, "{:?}", self.transport.publication_counts());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Sends until something arrives.
    fn reaches(&self, from: u64, to: u64, other: &Peer) {
        let deadline = Instant::now() + TIMEOUT;
        while Instant::now() < deadline {
            self.transport.send(packet(from, to, 0));
            if other.packets.recv_timeout(Duration::from_millis(20)).is_ok() {
                return;
            }
        }
        panic!("nothing arrives");
    }
}

fn envelope(packet: Packet) -> Envelope {
    Envelope { group: GROUP, directory: 1, packet }
}

fn packet(from: u64, to: u64, next: u64) -> Envelope {
    let stream = StreamId { node: to, incarnation: 1, number: 1 };
    envelope(Packet::Ack(ChunkAck { stream, from, next }))
}

#[test]
fn packets_arrive_in_order_and_client_addresses_are_known() {
    let (one, two) = (peer(1), peer(2));
    one.knows(2, &two);
    two.knows(1, &one);
    one.is_connected(2);
    two.is_connected(1);
    for number in 0..500 {
        one.transport.send(packet(1, 2, number));
        two.transport.send(packet(2, 1, number));
    }
    for number in 0..500 {
        assert_eq!(two.packets.recv_timeout(TIMEOUT).unwrap(), packet(1, 2, number).packet);
        assert_eq!(one.packets.recv_timeout(TIMEOUT).unwrap(), packet(2, 1, number).packet);
    }
    assert_eq!(one.transport.client_address(2).as_deref(), Some("client-of-2:6379"));
    assert_eq!(two.transport.client_address(1).as_deref(), Some("client-of-1:6379"));
    one.transport.send(packet(1, 3, 0));
    assert_eq!(one.transport.dropped_packets(), 1);
}

#[test]
fn other_cluster_is_refused_by_both_sides() {
    let one = peer(1);
    let other = start(CLUSTER + 1, 2, ([127, 0, 0, 1], 0).into());
    one.knows(2, &other);
    let refusal = HelloRefusal::OtherCluster { node: 2, own: CLUSTER, found: CLUSTER + 1 };
    assert_eq!(one.refuses(), refusal);
    let refusal = HelloRefusal::OtherCluster { node: 1, own: CLUSTER + 1, found: CLUSTER };
    assert_eq!(other.refuses(), refusal);
}

#[test]
fn other_number_of_groups_is_refused_by_both_sides() {
    let one = peer(1);
    let other = start_with(CLUSTER, 2, ([127, 0, 0, 1], 0).into(), 4);
    one.knows(2, &other);
    assert_eq!(one.refuses(), HelloRefusal::OtherGroups { node: 2, own: 1, found: 4 });
    let refusal = HelloRefusal::OtherGroups { node: 1, own: 4, found: 1 };
    assert_eq!(other.refuses(), refusal);
    assert_eq!(refusal.to_string(), "node 1 has 1 groups, this one 4; give both the same --groups");
}

#[test]
fn packets_reach_their_group_over_one_connection() {
    let (one, two) = (peer(1), peer(2));
    let (sender, of_other_group) = mpsc::channel();
    two.transport.attach(GROUP + 1, Arc::new(Collector(sender, mpsc::channel().0)));
    one.knows(2, &two);
    two.knows(1, &one);
    one.is_connected(2);
    for number in 0..200 {
        let sent = packet(1, 2, number);
        let group = GROUP + u64::from(number % 3 == 0);
        one.transport.send(Envelope { group, ..sent });
    }
    for number in 0..200 {
        let packets = if number % 3 == 0 { &of_other_group } else { &two.packets };
        assert_eq!(packets.recv_timeout(TIMEOUT).unwrap(), packet(1, 2, number).packet);
    }
    // What follows of a group that has gone is dropped.
    two.transport.detach(GROUP + 1);
    one.transport.send(Envelope { group: GROUP + 1, ..packet(1, 2, 1) });
    one.transport.send(packet(1, 2, 2));
    assert_eq!(two.packets.recv_timeout(TIMEOUT).unwrap(), packet(1, 2, 2).packet);
    assert!(of_other_group.try_recv().is_err());
}

#[test]
fn unknown_and_wrong_nodes_are_refused_by_name_at_both_sides() {
    let (one, two, three) = (peer(1), peer(2), peer(3));
    one.knows(2, &two);
    assert_eq!(two.refuses(), HelloRefusal::UnknownNode { node: 1 });
    assert!(one.is_refused().contains("node 1 is unknown here"));
    // What is known from then on is accepted.
    two.knows(1, &one);
    one.reaches(1, 2, &two);
    // Node 3 expects node 2 at the address of node 1.
    three.knows(2, &one);
    assert_eq!(one.refuses(), HelloRefusal::OtherNode { expected: 2, found: 1 });
    let expected = HelloRefusal::OtherNode { expected: 2, found: 1 };
    assert_eq!(three.refuses(), expected);
    // Another process takes the same id.
    let same = peer(1);
    same.knows(9, &one);
    assert_eq!(same.refuses(), HelloRefusal::OtherNode { expected: 9, found: 1 });
    assert!(matches!(
        one.sees(
            |event| matches!(event, TransportEvent::Refused { refusal, .. } if *refusal != expected)
        ),
        TransportEvent::Refused { refusal: HelloRefusal::OwnNode { node: 1 }, .. }
    ));
}

#[test]
fn newer_protocol_is_refused_by_name() {
    let one = peer(1);
    one.transport.set_peer(2, "127.0.0.1:1".into()).unwrap();
    let mut stream = TcpStream::connect(one.transport.address()).unwrap();
    let hello = Hello {
        versions: (9, 12),
        cluster: CLUSTER,
        from: 2,
        to: 1,
        process: 1,
        client_address: String::new(),
        groups: 1,
        directories: Vec::new(),
    };
    let mut out = Vec::new();
    push_frame(&mut out, |out| hello.push(out));
    stream.write_all(&out).unwrap();
    let refusal = HelloRefusal::Version { node: 2, own: (1, 5), found: (9, 12) };
    assert_eq!(one.refuses(), refusal);
    let mut body = Vec::new();
    read_frame(&mut stream, &mut body, MAX_HELLO_BYTES).unwrap();
    assert_eq!(Hello::decode(&body).unwrap().versions, (1, 5));
    read_frame(&mut stream, &mut body, MAX_HELLO_BYTES).unwrap();
    assert_eq!(Answer::decode(&body).unwrap().refusal, Some(refusal.to_string()));
    assert_eq!(stream.read(&mut [0]).unwrap(), 0);
}

#[test]
fn strangers_are_closed_and_others_served_on() {
    let (one, two) = (peer(1), peer(2));
    one.knows(2, &two);
    two.knows(1, &one);
    for bytes in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0xff; 64], &[0; 8]] {
        let mut stream = TcpStream::connect(one.transport.address()).unwrap();
        stream.write_all(bytes).unwrap();
        let own = stream.local_addr().unwrap();
        one.sees(
            |event| matches!(event, TransportEvent::Closed { address, .. } if *address == own),
        );
    }
    two.reaches(2, 1, &one);
    // A node that sends in the name of another one is closed.
    two.transport.shared.link(1).unwrap().push(packet(9, 1, 0));
    let event = one.sees(|event| matches!(event, TransportEvent::Closed { .. }));
    let TransportEvent::Closed { reason, .. } = event else { unreachable!() };
    assert_eq!(reason, "node 2 sends as node 9");
    two.reaches(2, 1, &one);
}

#[test]
fn restarted_peer_is_connected_again_and_its_predecessor_is_refused() {
    let (one, two) = (peer(1), peer(2));
    one.knows(2, &two);
    two.knows(1, &one);
    one.reaches(1, 2, &two);
    two.reaches(2, 1, &one);
    let address = two.transport.address();
    drop(two);
    let two = start(CLUSTER, 2, address);
    two.knows(1, &one);
    one.reaches(1, 2, &two);
    two.reaches(2, 1, &one);
    // A second process runs as node 2. Node 1 accepts it, and closes the first one's connection.
    let second = peer(2);
    second.knows(1, &one);
    second.reaches(2, 1, &one);
    assert_eq!(one.refuses(), HelloRefusal::Duplicate { node: 2 });
    assert!(two.is_refused().contains("two processes run as node 2"));
    one.transport.remove_peer(2);
    assert_eq!(one.refuses(), HelloRefusal::UnknownNode { node: 2 });
}

#[test]
fn strangers_that_introduce_themselves_slowly_do_not_keep_nodes_away() {
    let options = TransportOptions {
        max_incoming: 8,
        ..TransportOptions::new(CLUSTER, 1, ([127, 0, 0, 1], 0).into())
    };
    let transport = Transport::bind(options).unwrap();
    let mut strangers: Vec<_> =
        (0..8).map(|_| TcpStream::connect(transport.address()).unwrap()).collect();
    // The length of a first frame.
    strangers.iter_mut().for_each(|stream| stream.write_all(&1000u32.to_le_bytes()).unwrap());
    while transport.shared.incoming() < 8 {
        std::thread::sleep(Duration::from_millis(1));
    }
    let two = peer(2);
    transport.set_peer(2, two.transport.address().to_string()).unwrap();
    two.transport.set_peer(1, transport.address().to_string()).unwrap();
    let deadline = Instant::now() + TIMEOUT;
    let is_connected =
        |event: TransportEvent| matches!(event, TransportEvent::Connected { node: 1, .. });
    while !two.events.try_iter().any(is_connected) {
        assert!(Instant::now() < deadline, "strangers keep the node away");
        for stream in &mut strangers {
            // One of them is closed.
            let _ = stream.write_all(&[0]);
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    assert!(transport.shared.incoming() <= 8);
}

#[cfg(target_os = "linux")]
#[test]
fn links_of_nodes_with_a_short_election_timeout_are_tried_again_soon() {
    use socket2::{Domain, SockRef, Socket, Type};

    // A listener whose queue is full answers nothing, like a node that is cut off.
    let silent = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    silent.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
    silent.listen(0).unwrap();
    let address = silent.local_addr().unwrap().as_socket().unwrap();
    let connect = || TcpStream::connect_timeout(&address, Duration::from_millis(200)).ok();
    let waiting: Vec<_> = std::iter::from_fn(connect).take(100).collect();
    assert!(waiting.len() < 100, "the listener answers on");
    let (event, events) = mpsc::channel();
    let options = TransportOptions {
        listener: Arc::new(move |found| drop(event.send(found.clone()))),
        ..TransportOptions::new(CLUSTER, 1, ([127, 0, 0, 1], 0).into())
            .with_election_timeout(Duration::from_millis(100))
    };
    assert_eq!(options.max_backoff, Duration::from_millis(100));
    assert_eq!(options.connect_timeout, Duration::from_millis(250));
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    outgoing::prepare(&stream, &options).unwrap();
    let ack_timeout = SockRef::from(&stream).tcp_user_timeout().unwrap();
    assert_eq!(ack_timeout, Some(Duration::from_secs(1)));
    let transport = Transport::bind(options).unwrap();
    transport.set_peer(2, address.to_string()).unwrap();
    let failed = events.recv_timeout(TIMEOUT).unwrap();
    assert!(matches!(failed, TransportEvent::Disconnected { node: 2, .. }), "{failed:?}");
}

/// Connects node 1 to a node 2 that is a socket of the test and speaks these versions.
fn connect_by_hand(one: &Peer, versions: (u16, u16)) -> TcpStream {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    one.transport.set_peer(2, listener.local_addr().unwrap().to_string()).unwrap();
    let (mut stream, _) = listener.accept().unwrap();
    let mut body = Vec::new();
    read_frame(&mut stream, &mut body, MAX_HELLO_BYTES).unwrap();
    let hello = Hello { from: 2, to: 1, versions, ..Hello::decode(&body).unwrap() };
    let mut out = Vec::new();
    push_frame(&mut out, |out| hello.push(out));
    push_frame(&mut out, |out| Answer { refusal: None }.push(out));
    stream.write_all(&out).unwrap();
    one.is_connected(2);
    stream
}

#[test]
fn peer_that_does_not_read_neither_blocks_nor_takes_memory() {
    let one = peer(1);
    let _stream = connect_by_hand(&one, super::shared::VERSIONS);
    let row = crate::packet::Row { key: vec![0; 50], value: vec![0; 50_000], expires_at: None };
    let chunk = crate::packet::Chunk {
        stream: StreamId { node: 1, incarnation: 1, number: 1 },
        to: 2,
        term: 1,
        sequence: 0,
        rows: vec![row],
        last: None,
    };
    for _ in 0..4000 {
        one.transport.send(envelope(Packet::Chunk(chunk.clone())));
    }
    let dropped = one.transport.dropped_packets();
    assert!(dropped > 1000, "only {dropped} packets were dropped");
}

fn publication(number: u32, bytes: usize) -> Publication {
    Publication { channel: number.to_le_bytes().to_vec(), message: vec![7; bytes] }
}

#[test]
fn published_messages_reach_all_nodes_in_order() {
    let (one, two, three) = (peer(1), peer(2), peer(3));
    for (node, other) in [(2, &two), (3, &three)] {
        one.knows(node, other);
        other.knows(1, &one);
        one.is_connected(node);
    }
    for number in 0..200 {
        one.transport.publish(publication(number, 1000));
        one.transport.send(packet(1, 2, number.into()));
    }
    for number in 0..200 {
        for other in [&two, &three] {
            let received = other.publications.recv_timeout(TIMEOUT).unwrap();
            assert_eq!(received, publication(number, 1000));
        }
        let received = two.packets.recv_timeout(TIMEOUT).unwrap();
        assert_eq!(received, packet(1, 2, number.into()).packet);
    }
    one.counts(|counts| counts == PublicationCounts { sent: 400, received: 0, dropped: 0 });
    let expected = PublicationCounts { sent: 0, received: 200, dropped: 0 };
    assert_eq!(two.transport.publication_counts(), expected);
    // Without a connection to node 3 the others still get them.
    drop(three);
    one.sees(|event| matches!(event, TransportEvent::Disconnected { node: 3, .. }));
    one.transport.publish(publication(7, 0));
    assert_eq!(two.publications.recv_timeout(TIMEOUT).unwrap(), publication(7, 0));
    assert_eq!(one.transport.publication_counts().dropped, 1);
}

#[test]
fn published_messages_for_a_peer_that_does_not_read_are_dropped_and_others_get_them() {
    let (one, three) = (peer(1), peer(3));
    let stream = connect_by_hand(&one, super::shared::VERSIONS);
    one.knows(3, &three);
    three.knows(1, &one);
    one.is_connected(3);
    for number in 0..400 {
        one.transport.publish(publication(number, 100_000));
        let received = three.publications.recv_timeout(TIMEOUT).unwrap();
        assert_eq!(received, publication(number, 100_000));
    }
    let waiting: usize =
        one.transport.connections().iter().map(|connection| connection.waiting_bytes).sum();
    assert!(waiting <= 1 << 20, "{waiting} bytes wait");
    let dropped = one.transport.publication_counts().dropped;
    assert!(dropped > 100, "only {dropped} were dropped");
    // They have taken no place of packets.
    let before = one.transport.dropped_packets();
    one.transport.send(packet(1, 2, 0));
    assert_eq!(one.transport.dropped_packets(), before);
    drop(stream);
    // What has been queued or written is counted when the connection ends.
    one.counts(|counts| counts.sent + counts.dropped == 800);
}

#[test]
fn peer_of_an_earlier_version_gets_no_packets_that_it_does_not_know() {
    let one = peer(1);
    let mut stream = connect_by_hand(&one, (1, 1));
    let mut body = Vec::new();
    let register = crate::packet::Register { from: 1, to: 2 };
    one.transport.send(envelope(Packet::Register(register)));
    one.transport.publish(publication(1, 10));
    let id = StreamId { node: 2, incarnation: 1, number: 1 };
    let ack = Packet::Ack(ChunkAck { stream: id, from: 1, next: 1 });
    one.transport.send(envelope(ack.clone()));
    read_frame(&mut stream, &mut body, MAX_HELLO_BYTES).unwrap();
    assert_eq!(crate::codec::decode_packet(&body).unwrap().packet, ack);
    assert_eq!(one.transport.publication_counts().dropped, 1);
    // It is reported that this packet gets no answer.
    let id = StartId { number: 1, random: 2 };
    let start = Start { from: 1, to: 2, id, process: 2, term: 1, vote: 0, last: 1 };
    assert!(one.earlier.try_recv().is_err());
    one.transport.send(envelope(Packet::Start(start)));
    assert_eq!(one.earlier.recv_timeout(TIMEOUT), Ok(2));
}

#[test]
fn node_that_nobody_knows_hears_that_it_was_created_again() {
    let (one, two) = (peer(1), peer(2));
    // Node 1 was created again as the first node of a group of its own: it knows no other.
    one.transport.set_directories(GROUP, 11, &BTreeMap::new());
    two.transport.set_directories(GROUP, 20, &BTreeMap::from([(1, 10), (2, 20)]));
    two.knows(1, &one);
    assert_eq!(one.refuses(), HelloRefusal::UnknownNode { node: 2 });
    let answer = crate::packet::Registered { from: 2, to: 1, directory: 10, is_committed: true };
    assert_eq!(one.packets.recv_timeout(TIMEOUT).unwrap(), Packet::Registered(answer));
}
