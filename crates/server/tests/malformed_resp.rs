//! Malformed RESP requests: no panics, no allocation by announced lengths, results independent of
//! splitting.

#![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

mod support;

use proptest::prelude::*;
use siltstone_server::resp::{fuzz_parse, parse_in_pieces};
use support::{TestServer, encode};

fn error_of(bytes: &[u8]) -> String {
    fuzz_parse(bytes);
    parse_in_pieces(bytes, bytes.len().max(1)).1.map_or_else(String::new, |e| e.to_string())
}

#[test]
fn protocol_errors_have_the_texts_of_redis() {
    let cases: &[(&[u8], &str)] = &[
        (b"*x\r\n", "Protocol error: invalid multibulk length"),
        (b"*1048577\r\n", "Protocol error: invalid multibulk length"),
        (b"*2147483648\r\n", "Protocol error: invalid multibulk length"),
        (b"*9223372036854775808\r\n", "Protocol error: invalid multibulk length"),
        (b"*18446744073709551616\r\n", "Protocol error: invalid multibulk length"),
        (b"*1\n", "Protocol error: invalid multibulk length"),
        (b"*11111111111111111111111111111111111111", "Protocol error: invalid multibulk length"),
        (b"*1\r\n$-1\r\n", "Protocol error: invalid bulk length"),
        (b"*1\r\n$x\r\n", "Protocol error: invalid bulk length"),
        (b"*1\r\n$2147483647\r\n", "Protocol error: invalid bulk length"),
        (b"*1\r\n$4294967296\r\n", "Protocol error: invalid bulk length"),
        (b"*1\r\n$9223372036854775807\r\n", "Protocol error: invalid bulk length"),
        (b"*1\r\nx", "Protocol error: expected '$', got 'x'"),
        (b"*2\r\n*1\r\n$1\r\na\r\n", "Protocol error: expected '$', got '*'"),
        (b"*1\r\n:1\r\n", "Protocol error: expected '$', got ':'"),
        (b"*1\r\n$1\r\nabc", "Protocol error: expected CRLF after a bulk string"),
        (b"get \"a\r\n", "Protocol error: unbalanced quotes in request"),
        (b"POST / HTTP/1.1\r\n", "Protocol error: this port does not speak HTTP"),
        (b"HOST: 127.0.0.1:6379\r\n", "Protocol error: this port does not speak HTTP"),
    ];
    for (bytes, words) in cases {
        assert_eq!(&error_of(bytes), words, "{}", bytes.escape_ascii());
    }
    assert_eq!(error_of(&[b'a'; 70_000]), "Protocol error: too big inline request");
    let over = "Protocol error: request exceeds the limit of 1048576 bytes";
    let two = [&b"*2\r\n$1048000\r\n"[..], &[0; 1_048_000], b"\r\n$1000\r\n"].concat();
    assert!(error_of(&two).starts_with(over));
}

#[test]
fn mutated_requests_parse_equally_however_they_are_split() {
    let seeds: [&[u8]; 6] = [
        b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$5\r\nvalue\r\n*1\r\n$4\r\nPING\r\n",
        b"*0\r\n*-1\r\n\r\nPING\r\n*1\r\n$0\r\n\r\n",
        b"set \"a b\" '\\'' \\x\r\nget x\n",
        b"*2\r\n$4\r\nECHO\r\n$2\r\n\r\n\r\n",
        b"$5\r\nhello\r\n+OK\r\n-ERR\r\n:1\r\n",
        b"*1\r\n$10\r\n*1\r\n$1\r\na\r\n\r\n",
    ];
    let mut variants = 0;
    for seed in seeds {
        for at in 0..seed.len() {
            fuzz_parse(&seed[..at]);
            for byte in [0, b'\r', b'\n', b'*', b'$', b'-', b'0', b'9', b'"', 0xff] {
                let mut changed = seed.to_vec();
                changed[at] = byte;
                fuzz_parse(&changed);
                changed.insert(at, byte);
                fuzz_parse(&changed);
                variants += 2;
            }
        }
    }
    assert!(variants > 500);
}

proptest! {
    #[test]
    fn arbitrary_bytes_do_not_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        fuzz_parse(&bytes);
    }

    #[test]
    fn request_like_bytes_do_not_panic(text in "[*$0-9a\"'\\\\ \r\n-]{0,200}") {
        fuzz_parse(text.as_bytes());
    }

    #[test]
    fn commands_round_trip(
        commands in proptest::collection::vec(
            proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..40), 1..6), 0..6),
        piece in 1usize..50,
    ) {
        let bytes: Vec<u8> = commands
            .iter()
            .flat_map(|args| encode(&args.iter().map(Vec::as_slice).collect::<Vec<_>>()))
            .collect();
        prop_assert_eq!(parse_in_pieces(&bytes, piece), (commands, None));
    }
}

/// Resident memory of this process, in bytes.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/statm").unwrap();
    status.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

/// Found by the fuzzer: the densest packing of arguments.
#[test]
fn memory_of_inline_arguments_is_bounded() {
    for arguments in [100, 133, 1000, 30_000] {
        fuzz_parse(&[&b"a ".repeat(arguments)[..], b"\r\n"].concat());
    }
}

#[test]
fn announced_lengths_allocate_nothing() {
    let server = TestServer::start();
    let before = resident();
    let mut clients = Vec::new();
    for _ in 0..50 {
        let mut client = server.client();
        client.send_raw(b"*1048576\r\n$400000000\r\nonly a few bytes");
        clients.push(client);
    }
    let mut other = server.client();
    for _ in 0..20 {
        assert_eq!(other.call("PING"), "+PONG");
    }
    let grown = resident().saturating_sub(before);
    assert!(grown < 64 << 20, "grown by {grown} bytes");
}

#[test]
fn protocol_error_follows_earlier_replies_and_closes_the_connection() {
    let server = TestServer::start();
    let mut client = server.client();
    client.send_raw(b"PING\r\n*3\r\n$3\r\nSET\r\n$1\r\na\r\n$1\r\nb\r\n*1\r\nx\r\nPING\r\n");
    assert_eq!(client.read(), "+PONG");
    assert_eq!(client.read(), "+OK");
    assert_eq!(client.read(), "-ERR Protocol error: expected '$', got 'x'");
    assert_eq!(client.try_read(), None);
    assert_eq!(server.client().call("GET a"), "\"b\"");
}

/// Any web page can make a browser send such requests to this machine, with commands in the body.
#[test]
fn http_request_runs_no_command() {
    let server =
        TestServer::with(|options| options.memcached = Some("127.0.0.1:0".parse().unwrap()));
    let resp = "SET page was-here\r\n";
    let memcached = "set page 0 0 8\r\nwas-here\r\n";
    for method in ["POST", "post", "PUT", "GET"] {
        for (address, body) in [(server.address, resp), (server.memcached.unwrap(), memcached)] {
            let mut client = support::Client::connect(address);
            let len = body.len();
            client.send_raw(
                format!("{method} / HTTP/1.1\r\nHost: x\r\nContent-Length: {len}\r\n\r\n{body}")
                    .as_bytes(),
            );
            client.stream().shutdown(std::net::Shutdown::Write).unwrap();
            let _ = std::io::Read::read_to_end(&mut client.reader, &mut Vec::new());
            assert_eq!(server.client().call("GET page"), "nil", "{method} to {address}");
        }
    }
}
