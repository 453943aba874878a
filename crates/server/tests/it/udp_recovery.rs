//! The UDP client's view when a packet is lost, the server is gone, or its address was used before.

use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};

use crate::raw_udp::{ask, bound_socket, packet};
use crate::support::{TestServer, udp_server};
use siltstone_client::wire::{Header, hello};
use siltstone_client::{Action, Client, ClientError, ClientOptions, Outcome};
use siltstone_mica::Request;

fn server() -> TestServer {
    udp_server("memory=32MiB partitions=1", |_| ())
}

/// A deadline during a handshake still reports the unanswered requests.
#[test]
fn deadline_error_has_the_number_of_unanswered_requests() {
    let server = server();
    let mut client = Client::connect(server.udp.unwrap(), ClientOptions::default()).unwrap();
    assert_eq!(client.put(b"a", b"1").unwrap(), Outcome::Stored);
    server.finish().unwrap();
    let requests: Vec<(&[u8], _)> = vec![(b"a", Action::Increment(1)); 3];
    let result = client.execute(&requests, |_, _| panic!("nobody can answer"));
    assert!(matches!(result, Err(ClientError::Deadline { unanswered: 3 })), "{result:?}");
}

#[test]
fn client_at_a_reused_address_is_served() {
    let server = server();
    let udp = server.udp.unwrap();
    let socket = bound_socket();
    // The same port twice: the first client's sequence numbers must not apply to the second one.
    for first in [1 << 62, 5] {
        let welcome = ask(&socket, udp, &hello::hello(first, b""));
        let cookie = Header::parse(&welcome).unwrap().0.cookie;
        for sequence in first..first + 3 {
            let request = Request { hash: 1, key: b"a", action: Action::Get };
            let packet = packet(cookie, sequence, 0, request);
            ask(&socket, udp, &packet);
        }
    }
}

/// A network that loses one packet of requests repeatedly for this time, and no other. It acts as
/// the server.
fn lose_first_packet(
    server: SocketAddr,
    stop: &AtomicBool,
    inside: &UdpSocket,
    outside: &UdpSocket,
    wait: Duration,
) {
    let address = outside.local_addr().unwrap();
    let client = parking_lot::Mutex::new(None);
    for socket in [inside, outside] {
        socket.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
    }
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (mut buffer, mut lost) = ([0; 2048], None);
            while !stop.load(SeqCst) {
                let Ok((count, from)) = outside.recv_from(&mut buffer) else { continue };
                *client.lock() = Some(from);
                let packet = &buffer[..count];
                if packet[3] == 3 {
                    let number = packet[8..16].to_vec();
                    let (first, since) = lost.get_or_insert((number.clone(), Instant::now()));
                    if *first == number && since.elapsed() < wait {
                        continue;
                    }
                }
                inside.send_to(packet, server).unwrap();
            }
        });
        let mut buffer = [0; 2048];
        while !stop.load(SeqCst) {
            let Ok(count) = inside.recv(&mut buffer) else { continue };
            if buffer[3] == 2 {
                buffer[58..60].copy_from_slice(&address.port().to_le_bytes());
            }
            let to = client.lock().unwrap();
            outside.send_to(&buffer[..count], to).unwrap();
        }
    });
}

/// A server remembers a limited number of packets per client. The lost one must not fall behind
/// that.
#[test]
fn packet_lost_for_long_is_answered_after_thousands_of_others() {
    let server = server();
    let [inside, outside] = [0, 0].map(|_| UdpSocket::bind("127.0.0.1:0").unwrap());
    let (address, stop) = (outside.local_addr().unwrap(), AtomicBool::new(false));
    let result = std::thread::scope(|scope| {
        scope.spawn(|| {
            let wait = Duration::from_millis(400);
            lose_first_packet(server.udp.unwrap(), &stop, &inside, &outside, wait);
        });
        let deadline = Duration::from_secs(60);
        let options =
            ClientOptions { batch: 1, gso_segments: 1, deadline, ..ClientOptions::default() };
        let keys: Vec<_> = (0..6000u32).map(u32::to_le_bytes).collect();
        let value = siltstone_client::Value { bytes: b"v", ..Default::default() };
        let requests: Vec<(&[u8], _)> =
            keys.iter().map(|key| (&key[..], Action::Put(value))).collect();
        let mut stored = 0;
        let result = Client::connect(address, options).and_then(|mut client| {
            client.execute(&requests, |_, reply| {
                stored += usize::from(reply.answer.outcome == Outcome::Stored);
            })
        });
        stop.store(true, SeqCst);
        result.map(|()| stored)
    });
    assert_eq!(result.unwrap(), 6000);
}
