//! Address validation of UDP clients: cookies, the password, and what an unverified client gets.

use std::net::SocketAddr;
use std::sync::Arc;

use crate::raw_udp::{ask, bound_socket, is_ignored, packet};
use crate::support::{mica, udp_server};
use siltstone_client::wire::{Header, Kind, hello, response};
use siltstone_client::{Action, Client, ClientError, ClientOptions, Outcome, Value};
use siltstone_engine::ManualClock;
use siltstone_mica::{Request, Store};

/// A packet with one lookup.
fn lookup(cookie: u64, hash: u64, sequence: u64) -> Vec<u8> {
    packet(cookie, sequence, 0, Request { hash, key: b"a", action: Action::Get })
}

#[test]
fn unverified_clients_get_no_more_bytes_than_they_send() {
    let server =
        udp_server("memory=32MiB partitions=2 hash_seed=5", |options| options.udp_ports = 2);
    let udp = server.udp.unwrap();
    let mut client = Client::connect(udp, ClientOptions::default()).unwrap();
    client.put(b"a", &[b'v'; 1000]).unwrap();
    let socket = bound_socket();
    let engine = mica("hash_seed=5 partitions=2");
    let store = engine.as_any().unwrap().downcast::<Store>().unwrap();
    let hash = store.hash(b"a");
    // A hello shorter than a welcome gets no response.
    let hello = hello::hello(9, b"");
    let mut short = hello[..100].to_vec();
    short[4..6].copy_from_slice(&100u16.to_le_bytes());
    assert!(is_ignored(&socket, udp, &short));
    // No cookie, a wrong one, or another version: a bare header.
    let mut other = lookup(0, hash, 1);
    other[2] = 9;
    for packet in [lookup(0, hash, 1), lookup(1, hash, 1), other] {
        let answer = ask(&socket, udp, &packet);
        assert!(answer.len() <= packet.len(), "{} for {}", answer.len(), packet.len());
        assert_eq!(Header::parse(&answer).unwrap().0.kind, Kind::Unverified);
    }
    assert!(is_ignored(&socket, udp, b"get a\r\n"));
    let welcome = ask(&socket, udp, &hello);
    assert!(welcome.len() <= hello.len());
    let (header, body) = Header::parse(&welcome).unwrap();
    let welcome = hello::Welcome::parse(body).unwrap();
    assert_eq!((header.sequence, welcome.ports.len()), (9, 2));
    // The cookie is valid for its address, at both ports; one of them owns the partition.
    let mut outcomes = Vec::new();
    for (number, port) in welcome.ports.iter().enumerate() {
        let to = SocketAddr::from(([127, 0, 0, 1], *port));
        let answer = ask(&socket, to, &lookup(header.cookie, hash, number as u64));
        let (_, mut body) = Header::parse(&answer).unwrap();
        let received = response::ResponseRef::take(&mut body).unwrap();
        assert_eq!(received.opaque, 3);
        outcomes.push(received.answer().unwrap().outcome);
    }
    outcomes.sort_by_key(|outcome| *outcome == Outcome::WrongPartition);
    assert_eq!(outcomes, [Outcome::Found, Outcome::WrongPartition]);
    // A wrong key hash has no owner.
    let answer = ask(&socket, udp, &lookup(header.cookie, hash ^ 1, 7));
    let (_, mut body) = Header::parse(&answer).unwrap();
    let received = response::ResponseRef::take(&mut body).unwrap();
    assert_eq!(received.answer().unwrap().outcome, Outcome::WrongPartition);
    let elsewhere = bound_socket();
    let answer = ask(&elsewhere, udp, &lookup(header.cookie, hash, 8));
    assert_eq!(Header::parse(&answer).unwrap().0.kind, Kind::Unverified);
}

#[test]
fn repeated_response_has_the_current_cookie() {
    let clock = Arc::new(ManualClock::at(36_000_000));
    let server = udp_server("memory=32MiB hash_seed=5", |options| options.clock = clock.clone());
    let udp = server.udp.unwrap();
    let socket = bound_socket();
    let engine = mica("hash_seed=5");
    let hash = engine.as_any().unwrap().downcast::<Store>().unwrap().hash(b"a");
    let cookie = || {
        let welcome = ask(&socket, udp, &hello::hello(9, b""));
        Header::parse(&welcome).unwrap().0.cookie
    };
    let put = |cookie: u64, attempt: u16| {
        let value = Value { bytes: b"once", ..Value::default() };
        let request = Request { hash, key: b"a", action: Action::Put(value) };
        ask(&socket, udp, &packet(cookie, 7, attempt, request))
    };
    let first = cookie();
    let before = put(first, 0);
    assert_eq!(Header::parse(&before).unwrap().0.cookie, first);
    clock.advance(3_600_000);
    let second = cookie();
    assert_ne!(second, first);
    let again = put(second, 5);
    let (header, body) = Header::parse(&again).unwrap();
    assert_eq!((header.kind, header.cookie, header.sequence), (Kind::Responses, second, 7));
    assert_eq!(body, Header::parse(&before).unwrap().1);
}

#[test]
fn handshake_requires_the_password() {
    let server =
        udp_server("memory=32MiB", |options| options.password = Some("open sesame".into()));
    let connect = |password: Option<&str>| {
        let password = password.map(str::to_owned);
        Client::connect(server.udp.unwrap(), ClientOptions { password, ..Default::default() })
    };
    for wrong in [None, Some("open"), Some("open sesame!")] {
        assert!(matches!(connect(wrong), Err(ClientError::Refused(None))), "{wrong:?}");
    }
    connect(Some("open sesame")).unwrap().put(b"a", b"1").unwrap();
}
