//! Valid, malformed, mutated and forged packets: no panics, no more response bytes than allowed,
//! bounded memory.
//!
//! `SILTSTONE_FUZZED=10000000` sets the number of packets.

#![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

use siltstone_client::coalesce;
use siltstone_client::wire::hello::{self, Welcome};
use siltstone_client::wire::request::RequestRef;
use siltstone_client::wire::{HEADER_BYTES, Header, Kind};
use siltstone_mica::{Access, Action, Request, Value};
use siltstone_server::fuzzing::UdpHarness;
use siltstone_testkit::TestRng;

/// A packet of some requests, as encoded by a client.
fn requests(rng: &mut TestRng, harness: &UdpHarness) -> Vec<u8> {
    let mut packet = vec![0; HEADER_BYTES];
    let count = rng.index(5) as u16;
    for opaque in 0..count {
        let key = format!("key-{}", rng.below(50));
        let len = rng.index(300);
        let bytes = rng.bytes(len);
        let expires_at = (rng.below(4) == 0).then(|| 1_800_000_000_000 + rng.below(100));
        let flags = if rng.below(4) == 0 { 7 } else { 0 };
        let value = Value { bytes: &bytes, expires_at, flags, marks: 0 };
        let action = match rng.below(11) {
            0 => Action::Put(value),
            1 => Action::Add(value),
            2 => Action::Replace(value),
            3 => Action::CompareAndSet(value, rng.below(9)),
            4 => Action::Delete((rng.below(2) == 0).then(|| rng.below(9))),
            5 => Action::Append(&bytes),
            6 => Action::Prepend(&bytes),
            7 => Action::Increment(rng.below(9)),
            8 => Action::Decrement(rng.below(9)),
            9 => Action::Touch(expires_at),
            _ => Action::Get,
        };
        let hash = if rng.below(20) == 0 { rng.below(99) } else { harness.hash(key.as_bytes()) };
        let request = Request { hash, key: key.as_bytes(), action };
        RequestRef { request, opaque, wants_meta: rng.below(3) == 0 }.write(&mut packet);
    }
    let header = Header {
        kind: Kind::Requests,
        length: 0,
        count,
        sequence: rng.below(200),
        cookie: rng.below(2),
        oldest_offset: rng.below(20) as u32,
        response_limit: if rng.below(2) == 0 { rng.below(700) as u16 } else { 1400 },
        attempt: rng.below(3) as u16,
    };
    header.write(&mut packet);
    packet
}

fn packet(rng: &mut TestRng, harness: &UdpHarness) -> Vec<u8> {
    let mut packet = match rng.below(12) {
        0 => hello::hello(rng.below(1 << 40), b"password").to_vec(),
        1 => {
            let welcome = Welcome {
                seed: 1,
                instance: 2,
                access: Access::Crew,
                any_port: true,
                partition_bits: 2,
                has_cas: true,
                max_value_bytes: 9,
                ports: vec![1, 2],
            };
            welcome.packet(rng.below(200), 7)
        }
        2 => {
            let len = rng.index(2000);
            rng.bytes(len)
        }
        _ => requests(rng, harness),
    };
    // In most packets a few bytes change; some are truncated or extended, with or without a
    // matching length.
    for _ in 0..rng.index(3) {
        if packet.is_empty() {
            break;
        }
        let at = rng.index(packet.len());
        match rng.below(5) {
            0 => packet.truncate(at),
            1 => packet.extend_from_slice(&[0; 9][..rng.index(9)]),
            2 if packet.len() >= HEADER_BYTES => packet[6] ^= 1,
            _ => packet[at] = rng.below(256) as u8,
        }
        if rng.below(2) == 0 && packet.len() >= 6 {
            let len = packet.len() as u16;
            packet[4..6].copy_from_slice(&len.to_le_bytes());
        }
    }
    packet
}

#[test]
fn fuzzed_packets_get_bounded_responses() {
    let wanted = std::env::var("SILTSTONE_FUZZED").map_or(100_000, |n| n.parse().unwrap());
    for two_ports in [false, true] {
        let mut harness = UdpHarness::new(two_ports).unwrap();
        let memory = harness.memory_bytes();
        let (mut done, mut answered, mut rng) = (0, 0, TestRng::new(u64::from(two_ports)));
        while done < wanted / 2 {
            let count = 1 + rng.index(8);
            let mut burst: Vec<_> = (0..count)
                .map(|_| {
                    let client = rng.below(300) as u16;
                    let mut datagram = packet(&mut rng, &harness);
                    // Some share their datagram.
                    while rng.below(4) == 0 {
                        datagram.extend(packet(&mut rng, &harness));
                    }
                    (datagram, client, rng.below(8) != 0)
                })
                .collect();
            if rng.below(4) == 0 {
                // A duplicate in the same burst.
                burst.push(burst[0].clone());
            }
            done += burst.iter().map(|(bytes, ..)| coalesce::packets(bytes).count()).sum::<usize>();
            answered += usize::from(harness.burst(&mut burst) > 0);
        }
        assert!(answered > done / 20, "{answered} of {done}: hardly anything was looked at");
        assert_eq!(harness.memory_bytes(), memory);
    }
}

#[test]
fn packets_round_trip() {
    let harness = UdpHarness::new(false).unwrap();
    let mut rng = TestRng::new(3);
    for _ in 0..2000 {
        let packet = requests(&mut rng, &harness);
        let (header, mut body) = Header::parse(&packet).unwrap();
        let mut again = vec![0; HEADER_BYTES];
        for _ in 0..header.count {
            let before = body.len();
            let asked = RequestRef::take(&mut body).unwrap();
            let Request { key, action, .. } = asked.request;
            let bytes = siltstone_client::wire::request::bytes_of(key, &action);
            assert_eq!(before - body.len(), bytes);
            asked.write(&mut again);
        }
        header.write(&mut again);
        assert!(body.is_empty());
        assert_eq!(packet, again);
        // Truncated anywhere, it is not a packet, even if its length field matches.
        let cut = rng.index(packet.len());
        let mut part = packet[..cut].to_vec();
        assert!(Header::parse(&part).is_err());
        if cut >= HEADER_BYTES {
            part[4..6].copy_from_slice(&(cut as u16).to_le_bytes());
            let (header, mut body) = Header::parse(&part).unwrap();
            let parsed: Result<Vec<_>, _> =
                (0..header.count).map(|_| RequestRef::take(&mut body)).collect();
            assert!(parsed.is_err());
        }
    }
}
