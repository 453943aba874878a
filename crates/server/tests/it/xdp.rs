//! A server over AF_XDP responds like one over sockets.
//!
//! Client and server are in separate network namespaces, connected by a pair of virtual interfaces.
//! Requires root, `ip` and a kernel with AF_XDP; otherwise the tests are skipped with the reason.

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use siltstone::{Env, Table};
use siltstone_client::xdp::veth::{INTERFACE, Side, VethPair};
use siltstone_client::{Action, Client, ClientError, ClientOptions, Outcome, Reply, Value};
use siltstone_mica::{Mica, Options};
use siltstone_server::{Server, ServerOptions, StopHandle};
use siltstone_testkit::TestRng;

const PASSWORD: &str = "bypass the kernel";

/// A server in the other namespace.
struct RemoteServer {
    wire: VethPair,
    stop: StopHandle,
    udp: SocketAddr,
    running: Option<JoinHandle<()>>,
}

impl Drop for RemoteServer {
    fn drop(&mut self) {
        self.stop.stop();
        self.running.take().unwrap().join().unwrap();
    }
}

/// `None`, with the reason printed, where unsupported.
fn start(any_port: bool, bypass: bool) -> Option<RemoteServer> {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let name = format!("siltstone-{}-{}", std::process::id(), NUMBER.fetch_add(1, Relaxed));
    let wire = match VethPair::new(&name) {
        Ok(wire) => wire,
        Err(error) => {
            println!("skipped: a pair of virtual interfaces is not to be had ({error})");
            return None;
        }
    };
    let bound = thread::scope(|scope| {
        let there = scope.spawn(|| {
            wire.enter(Side::B).unwrap();
            let given = [("memory", "16MiB"), ("partitions", "1"), ("cas", "on")];
            let given = given.map(|(name, value)| (name.to_owned(), value.to_owned()));
            let options = Options::from_map(&given.into_iter().collect()).unwrap();
            let mica = Mica::open(Env::system(1), options).unwrap();
            let options = ServerOptions {
                listen: "127.0.0.1:0".parse().unwrap(),
                udp: Some((Side::B.address(), 0).into()),
                udp_ports: 1,
                udp_any_port: any_port,
                udp_xdp: bypass.then(|| (INTERFACE.to_owned(), 0)),
                password: Some(PASSWORD.to_owned()),
                ..ServerOptions::default()
            };
            Server::bind(vec![Table::new("t", Arc::new(mica))], options)
        });
        there.join().unwrap()
    });
    let server = match bound {
        Ok(server) => server,
        Err(error) => {
            println!("skipped: AF_XDP is not to be had ({error})");
            return None;
        }
    };
    let (stop, udp) = (server.stop_handle(), server.udp_addr().unwrap());
    let running = thread::spawn(move || server.run().unwrap());
    Some(RemoteServer { wire, stop, udp, running: Some(running) })
}

impl RemoteServer {
    /// Runs `work` in the client's namespace.
    fn here<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        thread::scope(|scope| {
            let here = scope.spawn(|| {
                self.wire.enter(Side::A).unwrap();
                work()
            });
            here.join().unwrap()
        })
    }

    fn client(&self, bypass: bool) -> Client {
        self.client_with(bypass, ClientOptions::default())
    }

    fn client_with(&self, bypass: bool, options: ClientOptions) -> Client {
        self.connect(bypass, options).unwrap()
    }

    fn connect(&self, bypass: bool, options: ClientOptions) -> Result<Client, ClientError> {
        let options = ClientOptions {
            password: Some(PASSWORD.to_owned()),
            xdp: bypass.then(|| (INTERFACE.to_owned(), 0)),
            deadline: Duration::from_secs(10),
            ..options
        };
        Client::connect(self.udp, options)
    }
}

/// A UDP counter of the kernel in this namespace: 1 for delivered datagrams, 4 for sent ones.
fn datagrams(field: usize) -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/net/snmp").unwrap();
    let line = text.lines().rfind(|line| line.starts_with("Udp:")).unwrap().to_owned();
    line.split_whitespace().nth(field).unwrap().parse().unwrap()
}

/// Puts, gets, increments and deletes keys, with values from empty to larger than a frame.
fn exercise(client: &mut Client, from: u32) {
    let keys: Vec<_> = (from..from + 2000).map(u32::to_be_bytes).collect();
    let value = |key: &[u8; 4]| -> Vec<u8> {
        let number = u32::from_be_bytes(*key);
        let len = if number.is_multiple_of(500) { 20_000 } else { number as usize % 300 };
        vec![number as u8; len]
    };
    let values: Vec<_> = keys.iter().map(value).collect();
    let put = |(key, value): (&'static [u8; 4], &'static Vec<u8>)| {
        (&key[..], Action::Put(Value { bytes: &value[..], ..Value::default() }))
    };
    let (keys, values): (&'static [[u8; 4]], &'static [Vec<u8>]) = (keys.leak(), values.leak());
    let puts: Vec<_> = keys.iter().zip(values).map(put).collect();
    let mut stored = 0;
    client
        .execute(&puts, |_, reply| stored += usize::from(reply.answer.outcome == Outcome::Stored))
        .unwrap();
    assert_eq!(stored, keys.len());
    let gets: Vec<_> = keys.iter().map(|key| (&key[..], Action::Get)).collect();
    let mut found = 0;
    client
        .execute(&gets, |place, reply| {
            assert_eq!(reply.answer.outcome, Outcome::Found);
            assert_eq!(reply.value, values[place]);
            found += 1;
        })
        .unwrap();
    assert_eq!(found, keys.len());
    assert_eq!(client.delete(&keys[7]).unwrap(), Outcome::Deleted);
    assert_eq!(client.get(&keys[7]).unwrap(), None);
}

#[test]
fn xdp_and_socket_ends_interoperate() {
    for (there, here) in [(true, true), (true, false), (false, true)] {
        let Some(server) = start(false, there) else { return };
        server.here(|| {
            let mut client = server.client(here);
            exercise(&mut client, 0);
            // The interface is released, and can be used again.
            drop(client);
            exercise(&mut server.client(here), 5000);
        });
    }
}

#[test]
fn interface_in_use_is_reported() {
    let Some(server) = start(false, false) else { return };
    server.here(|| {
        let first = server.client(true);
        let second = server.connect(true, ClientOptions::default());
        let error = second.err().unwrap().to_string();
        assert!(error.contains("another program is attached"), "{error}");
        drop(first);
        exercise(&mut server.client(true), 0);
    });
}

/// Checked by the kernel's datagram counters.
#[test]
fn packets_bypass_the_kernel() {
    let Some(server) = start(false, true) else { return };
    server.here(|| {
        let mut client = server.client(true);
        client.put(b"a", b"1").unwrap();
        let before = [datagrams(1), datagrams(4)];
        for _ in 0..1000 {
            assert_eq!(client.get(b"a").unwrap().as_deref(), Some(&b"1"[..]));
        }
        assert_eq!([datagrams(1), datagrams(4)], before, "packets went by the kernel");
    });
}

/// Each packet has its own frame here, and there are more than frames of memory.
#[test]
fn more_packets_than_frames_bypass_the_kernel() {
    let Some(server) = start(false, true) else { return };
    server.here(|| {
        let options =
            ClientOptions { gso_segments: 1, window: 1000, batch: 1, ..Default::default() };
        let mut client = server.client_with(true, options);
        let keys: Vec<_> = (0..5000u32).map(u32::to_be_bytes).collect();
        let gets: Vec<_> = keys.iter().map(|key| (&key[..], Action::Get)).collect();
        client.get(b"a").unwrap();
        let before = datagrams(4);
        client
            .execute(&gets, |_, reply| assert_eq!(reply.answer.outcome, Outcome::Missing))
            .unwrap();
        assert_eq!(datagrams(4), before, "packets went by the kernel");
    });
}

/// Counted by the interface's frame counters: of 8 packets in flight 4 share a frame. Responses are
/// shorter, and share frames no longer than those of the requests.
#[test]
fn packets_share_frames_up_to_the_batch_size() {
    let Some(server) = start(false, true) else { return };
    server.here(|| {
        let frames = || -> [u64; 2] {
            let text = std::fs::read_to_string("/proc/thread-self/net/dev").unwrap();
            let line = text.lines().find(|line| line.contains(INTERFACE)).unwrap().to_owned();
            let fields: Vec<_> = line.split_whitespace().collect();
            // Received and sent.
            [2, 10].map(|field| fields[field].parse().unwrap())
        };
        for (gso_segments, shares) in [(1, [0.5..1.1, 1.0..1.1]), (64, [0.12..0.5, 0.25..0.5])] {
            let options = ClientOptions { gso_segments, ..Default::default() };
            let mut client = server.client_with(true, options);
            let keys: Vec<_> = (0..20_000u32).map(u32::to_be_bytes).collect();
            let gets: Vec<_> = keys.iter().map(|key| (&key[..], Action::Get)).collect();
            let (packets, before) = (client.counters().packets, frames());
            let missing = |_, reply: Reply<'_>| assert_eq!(reply.answer.outcome, Outcome::Missing);
            client.execute(&gets, missing).unwrap();
            let packets = (client.counters().packets - packets) as f64;
            for ((before, after), expected) in before.into_iter().zip(frames()).zip(shares) {
                let share = (after - before) as f64 / packets;
                assert!(
                    expected.contains(&share),
                    "{share} frames per packet, batches of {gso_segments}"
                );
            }
        }
    });
}

/// A kernel socket sends malformed packets, packets too large for a frame, and packets to a nearby
/// port.
#[test]
fn malformed_datagrams_do_not_harm_the_server() {
    let Some(server) = start(false, true) else { return };
    server.here(|| {
        let socket = UdpSocket::bind((Side::A.address(), 0)).unwrap();
        let mut rng = TestRng::new(7);
        for round in 0..3000 {
            let len = if round % 100 == 0 { 20_000 } else { rng.below(3000) as usize };
            let mut bytes = rng.bytes(len);
            if round % 2 == 0 && len > 4 {
                bytes[..4].copy_from_slice(b"Sm\x03\x03");
            }
            let _ = socket.send_to(&bytes, server.udp);
            if round % 500 == 0 {
                let mut other = server.udp;
                other.set_port(server.udp.port() ^ 1);
                let _ = socket.send_to(&bytes, other);
            }
        }
        exercise(&mut server.client(true), 0);
    });
}

#[test]
fn unusable_interface_is_rejected() {
    let given = |udp: &str, name: &str| {
        let mica = Mica::open(Env::system(1), Options::default()).unwrap();
        let options = ServerOptions {
            listen: "127.0.0.1:0".parse().unwrap(),
            udp: Some(udp.parse().unwrap()),
            udp_xdp: Some((name.to_owned(), 0)),
            password: Some(PASSWORD.to_owned()),
            ..ServerOptions::default()
        };
        match Server::bind(vec![Table::new("t", Arc::new(mica))], options) {
            Err(error) => error.to_string(),
            Ok(_) => panic!("taken"),
        }
    };
    let error = given("127.0.0.1:0", "no-such-one");
    assert!(error.contains("no-such-one") && error.contains("number of the interface"), "{error}");
    let error = given("0.0.0.0:0", "lo");
    assert!(error.contains("udp_xdp"), "{error}");
}
