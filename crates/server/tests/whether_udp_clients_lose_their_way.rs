//! Does a client of the UDP port learn the truth when a packet, the server, or the client before it is gone?

#![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

mod support;

use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};

use siltstone_client::wire::hello;
use siltstone_client::wire::request::Asked;
use siltstone_client::wire::{HEADER_BYTES, Header, Kind};
use siltstone_client::{Action, Client, ClientError, ClientOptions, Outcome};
use siltstone_mica::Request;
use support::{Running, mica};

fn server() -> Running {
    Running::over(Some(mica("memory=32MiB partitions=1")), |options| {
        options.udp = Some("127.0.0.1:0".parse().unwrap());
    })
}

/// While a client looks for its server the time may be over: that is no word about its requests.
#[test]
fn a_deadline_tells_how_many_requests_have_no_answer() {
    let server = server();
    let mut client = Client::connect(server.udp.unwrap(), ClientOptions::default()).unwrap();
    assert_eq!(client.put(b"a", b"1").unwrap(), Outcome::Stored);
    server.finish().unwrap();
    let asks: Vec<(&[u8], _)> = vec![(b"a", Action::Increment(1)); 3];
    let told = client.ask(&asks, |_, _| panic!("nobody can answer"));
    assert!(matches!(told, Err(ClientError::Deadline { unanswered: 3 })), "{told:?}");
}

/// Sends a packet and returns the answer, if there is one in time.
fn ask(socket: &UdpSocket, server: SocketAddr, packet: &[u8]) -> Option<Vec<u8>> {
    socket.send_to(packet, server).unwrap();
    let mut buffer = [0; 2048];
    let count = socket.recv(&mut buffer).ok()?;
    Some(buffer[..count].to_vec())
}

#[test]
fn a_client_is_served_at_the_address_of_one_before_it() {
    let server = server();
    let udp = server.udp.unwrap();
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
    // The same port twice: what the first client has done must not make its number the second one's.
    for first in [1 << 62, 5] {
        let welcome = ask(&socket, udp, &hello::hello(first, b"")).unwrap();
        let cookie = Header::parse(&welcome).unwrap().0.cookie;
        for sequence in first..first + 3 {
            let mut packet = vec![0; HEADER_BYTES];
            let request = Request { hash: 1, key: b"a", action: Action::Get };
            Asked { request, opaque: 0, wants_meta: false }.write(&mut packet);
            let (kind, room) = (Kind::Requests, 1400);
            Header { kind, length: 0, count: 1, sequence, cookie, behind: 0, room, attempt: 0 }
                .write(&mut packet);
            let answer = ask(&socket, udp, &packet);
            assert!(answer.is_some(), "no answer to packet {sequence} of a client");
        }
    }
}

/// A network that loses the first packet of requests again and again for this long, and no other. Clients are told
/// that the server is here.
fn lose_one(
    server: SocketAddr,
    stop: &AtomicBool,
    inside: &UdpSocket,
    outside: &UdpSocket,
    wait: Duration,
) {
    let here = outside.local_addr().unwrap();
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
                buffer[58..60].copy_from_slice(&here.port().to_le_bytes());
            }
            let to = client.lock().unwrap();
            outside.send_to(&buffer[..count], to).unwrap();
        }
    });
}

/// A server remembers so many packets of a client. The one that is lost must not be older than those.
#[test]
fn a_packet_that_is_lost_for_long_is_answered_though_thousands_went_after_it() {
    let server = server();
    let [inside, outside] = [0, 0].map(|_| UdpSocket::bind("127.0.0.1:0").unwrap());
    let (here, stop) = (outside.local_addr().unwrap(), AtomicBool::new(false));
    let told = std::thread::scope(|scope| {
        scope.spawn(|| {
            let wait = Duration::from_millis(400);
            lose_one(server.udp.unwrap(), &stop, &inside, &outside, wait);
        });
        let deadline = Duration::from_secs(5);
        let options = ClientOptions { batch: 1, train: 1, deadline, ..ClientOptions::default() };
        let keys: Vec<_> = (0..6000u32).map(u32::to_le_bytes).collect();
        let value = siltstone_client::Value { bytes: b"v", ..Default::default() };
        let asks: Vec<(&[u8], _)> = keys.iter().map(|key| (&key[..], Action::Put(value))).collect();
        let mut stored = 0;
        let told = Client::connect(here, options).and_then(|mut client| {
            client.ask(&asks, |_, reply| {
                stored += usize::from(reply.answer.outcome == Outcome::Stored);
            })
        });
        stop.store(true, SeqCst);
        told.map(|()| stored)
    });
    assert_eq!(told.unwrap(), 6000);
}
