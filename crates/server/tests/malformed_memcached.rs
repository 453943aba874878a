//! Valid, malformed and mutated memcached commands over TCP and UDP: no panics, responses
//! independent of how the input is split, bounded memory.
//!
//! `SILTSTONE_FUZZED=1000000` sets the number of inputs.

#![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

use siltstone_server::fuzzing::ProtocolHarness;
use siltstone_testkit::TestRng;

const WORDS: &[&str] = &[
    "get",
    "gets",
    "gat",
    "gats",
    "set",
    "add",
    "replace",
    "append",
    "prepend",
    "cas",
    "delete",
    "incr",
    "decr",
    "touch",
    "flush_all",
    "stats",
    "version",
    "verbosity",
    "quit",
    "mg",
    "ms",
    "md",
    "ma",
    "me",
    "mn",
    "noreply",
    "a",
    "b",
    "YQ==",
    "0",
    "1",
    "5",
    "-1",
    "100",
    "4294967295",
    "4294967296",
    "18446744073709551615",
    "99999999999999999999",
    "b",
    "c",
    "f",
    "k",
    "q",
    "s",
    "t",
    "v",
    "T30",
    "C1",
    "F7",
    "MS",
    "MA",
    "MP",
    "ME",
    "MR",
    "MI",
    "MD",
    "D5",
    "J9",
    "N0",
    "Oabc",
    "x",
    "I",
    "R50",
    "T4294967297",
    "cachedump",
    "detail",
    "GET",
    "/",
    "HTTP/1.1",
    "\u{80}",
    "",
    "\t",
];

fn input(rng: &mut TestRng) -> Vec<u8> {
    let mut bytes = Vec::new();
    for _ in 0..1 + rng.index(6) {
        for _ in 0..1 + rng.index(7) {
            bytes.extend_from_slice(WORDS[rng.index(WORDS.len())].as_bytes());
            bytes.push(b' ');
        }
        bytes.extend_from_slice(if rng.below(6) == 0 { b"\n" } else { b"\r\n" });
        if rng.below(2) == 0 {
            let len = rng.index(8);
            bytes.extend_from_slice(&rng.bytes(len));
            bytes.extend_from_slice(b"\r\n");
        }
    }
    for _ in 0..rng.index(4) {
        let at = rng.index(bytes.len());
        match rng.below(3) {
            0 => bytes[at] = rng.below(256) as u8,
            1 => bytes.truncate(at.max(1)),
            _ => bytes.insert(at, b"\r\n 0\0"[rng.index(5)]),
        }
    }
    bytes
}

/// Commands after a header that is usually valid.
fn datagram(rng: &mut TestRng, commands: &[u8]) -> Vec<u8> {
    let mut bytes = [&[rng.below(256) as u8, 7, 0, 0, 0, 1, 0, 0], commands].concat();
    match rng.below(6) {
        0 => bytes[rng.index(8)] = rng.below(3) as u8,
        1 => bytes.truncate(rng.index(bytes.len())),
        _ => {}
    }
    bytes
}

#[test]
fn fuzzed_commands_respond_equally_however_they_are_split() {
    let inputs = std::env::var("SILTSTONE_FUZZED").map_or(20_000, |n| n.parse().unwrap());
    let mut harness = ProtocolHarness::new().unwrap();
    let memory = harness.memory_bytes();
    for seed in 0..inputs {
        let mut rng = TestRng::new(seed);
        let bytes = input(&mut rng);
        match rng.below(4) {
            0 => harness.memcached_datagram(&datagram(&mut rng, &bytes)),
            _ => harness.memcached(&bytes, 1 + rng.index(5)),
        }
    }
    assert_eq!(harness.memory_bytes(), memory);
}
