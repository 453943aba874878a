//! Retrievals with more keys per line, and larger responses, than a connection may buffer: they are
//! streamed.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use crate::support::{MemcachedClient, TestServer, eventually, mica};
use siltstone::{Durability, Engine, WriteBatch};
use siltstone_server::ServerOptions;

const MIB: usize = 1 << 20;

fn server(change: impl FnOnce(&mut ServerOptions)) -> TestServer {
    TestServer::with(|options| {
        options.memcached = Some("127.0.0.1:0".parse().unwrap());
        change(options);
    })
}

/// Engines with flags in a trailer and in the item.
fn kinds() -> [(&'static str, TestServer); 2] {
    let address = Some("127.0.0.1:0".parse().unwrap());
    [
        ("map", server(|_| ())),
        (
            "mica",
            TestServer::over(Some(mica("memory=64MiB mode=cache")), |options| {
                options.memcached = address;
            }),
        ),
    ]
}

/// Sends bytes while reading the response, as needed for large requests. Returns the lines up to
/// `END`.
fn request_while_reading(memcached: &MemcachedClient, bytes: Vec<u8>) -> Vec<String> {
    let mut writer = memcached.stream.try_clone().unwrap();
    let writing = std::thread::spawn(move || writer.write_all(&bytes).unwrap());
    let mut lines = Vec::new();
    for line in BufReader::new(&memcached.stream).lines() {
        let line = line.unwrap();
        let is_last = line == "END" || line.contains("ERROR");
        lines.push(line);
        if is_last {
            break;
        }
    }
    writing.join().unwrap();
    lines
}

/// Stores values of `bytes` bytes under `big0`, `big1`, ….
fn fill(memcached: &mut MemcachedClient, count: usize, bytes: usize) {
    let value = "v".repeat(bytes);
    for number in 0..count {
        let set = format!("set big{number} 0 0 {bytes} noreply\r\n{value}\r\n");
        memcached.stream.write_all(set.as_bytes()).unwrap();
    }
    assert_eq!(memcached.request(b""), "");
}

/// Reads values of `bytes` bytes, and an `END` after every `each` of them.
fn expect_values(stream: &TcpStream, count: usize, bytes: usize, each: usize) {
    let mut reader = BufReader::new(stream);
    let (mut line, mut value) = (String::new(), vec![0; bytes + 2]);
    for number in 0..count {
        line.clear();
        reader.read_line(&mut line).unwrap();
        assert_eq!(line, format!("VALUE big{number} 0 {bytes}\r\n"));
        reader.read_exact(&mut value).unwrap();
        assert!(value.ends_with(b"v\r\n"));
        if (number + 1) % each == 0 {
            line.clear();
            reader.read_line(&mut line).unwrap();
            assert_eq!(line, "END\r\n");
        }
    }
}

#[test]
fn get_of_3000_long_keys_returns_each() {
    for (kind, server) in kinds() {
        let mut memcached = server.memcached_client();
        let key = |number: usize| format!("{number:0250}");
        for number in (0..3000).step_by(10) {
            memcached.request(format!("set {} 7 0 2\r\nok\r\n", key(number)).as_bytes());
        }
        let keys: Vec<_> = (0..3000).map(key).collect();
        let lines =
            request_while_reading(&memcached, format!("get {}\r\n", keys.join(" ")).into_bytes());
        assert_eq!(lines.len(), 300 * 2 + 1, "{kind}");
        for (at, lines) in lines.chunks_exact(2).enumerate() {
            assert_eq!(lines, [format!("VALUE {} 7 2", key(at * 10)), "ok".to_owned()], "{kind}");
        }
        assert_eq!(lines.last().unwrap(), "END", "{kind}");
        assert_eq!(memcached.request(b"get none\r\n"), "END\r\n", "{kind}: the connection goes on");
    }
}

#[test]
fn get_of_100000_keys_returns_each() {
    for (kind, server) in kinds() {
        let mut memcached = server.memcached_client();
        memcached.request(b"set k0 0 0 1\r\na\r\nset k99999 0 0 1\r\nz\r\n");
        let keys: Vec<_> = (0..100_000).map(|number| format!("k{number}")).collect();
        for command in ["get", "gets", "gat 100", "gats 100"] {
            let line = format!("{command} {}\r\n", keys.join(" "));
            let lines = request_while_reading(&memcached, line.into_bytes());
            assert_eq!(lines.len(), 5, "{kind}, {command}: {lines:?}");
            let words = 4 + usize::from(command.contains("ts"));
            assert!(lines[0].starts_with("VALUE k0 0 1"), "{kind}, {command}");
            assert_eq!(lines[2].split(' ').count(), words, "{kind}, {command}: {}", lines[2]);
            assert_eq!([&lines[1][..], &lines[3], &lines[4]], ["a", "z", "END"]);
        }
        assert_eq!(
            memcached.request(b"mg k99999 t\r\n"),
            "HD t100\r\n",
            "{kind}: gat has touched it"
        );
        let stats = memcached.request(b"stats\r\n");
        // One is of `mg`; `gat` counts as a touch.
        assert!(stats.contains("STAT cmd_get 200001\r\n"), "{kind}: {stats}");
        assert!(stats.contains("STAT get_hits 5\r\n"), "{kind}: {stats}");
    }
}

#[test]
fn response_above_the_output_limit_is_streamed() {
    let server = server(|options| options.max_output_bytes = 4 * MIB);
    let mut memcached = server.memcached_client();
    fill(&mut memcached, 30, MIB);
    let keys: Vec<_> = (0..30).map(|number| format!("big{number}")).collect();
    memcached.stream.write_all(format!("get {}\r\n", keys.join(" ")).as_bytes()).unwrap();
    expect_values(&memcached.stream, 30, MIB, 30);
    // The same holds for many lines of one key, sent at once, and for a client that starts reading
    // late.
    let lines: String = keys.iter().map(|key| format!("get {key}\r\n")).collect();
    memcached.stream.write_all(lines.as_bytes()).unwrap();
    std::thread::sleep(Duration::from_millis(300));
    expect_values(&memcached.stream, 30, MIB, 1);
    assert_eq!(memcached.request(b"get none\r\n"), "END\r\n");
}

#[test]
fn response_above_64_mib_is_streamed_with_default_limits() {
    let server = server(|_| ());
    let mut memcached = server.memcached_client();
    fill(&mut memcached, 100, MIB);
    let keys: Vec<_> = (0..100).map(|number| format!("big{number}")).collect();
    memcached.stream.write_all(format!("get {}\r\n", keys.join(" ")).as_bytes()).unwrap();
    expect_values(&memcached.stream, 100, MIB, 100);
    assert_eq!(memcached.request(b"get none\r\n"), "END\r\n");
}

#[test]
fn client_that_does_not_read_is_disconnected() {
    let server = server(|options| options.stall_timeout = Duration::from_millis(300));
    let mut memcached = server.memcached_client();
    fill(&mut memcached, 60, MIB);
    let keys: Vec<_> = (0..60).map(|number| format!("big{number}")).collect();
    memcached.stream.write_all(format!("get {}\r\n", keys.join(" ")).as_bytes()).unwrap();
    eventually("the client is cut off", || {
        server.memcached_client().request(b"stats\r\n").contains("STAT curr_connections 1\r\n")
    });
    let mut rest = Vec::new();
    let _ = memcached.stream.read_to_end(&mut rest);
    assert!(rest.len() < 60 * MIB, "all came");
}

#[test]
fn invalid_key_fails_a_short_line_completely_and_a_long_one_after_its_values() {
    let server = server(|_| ());
    let mut memcached = server.memcached_client();
    memcached.request(b"set k 0 0 1\r\nx\r\n");
    let bad = "b".repeat(251);
    let error = "CLIENT_ERROR bad command line format";
    memcached.expect(&[(&format!("get k {bad} k|get k|"), &format!("{error}|VALUE k 0 1|x|END|"))]);
    let many = " k".repeat(100_000);
    let lines =
        request_while_reading(&memcached, format!("get{many} {bad}{many}\r\n").into_bytes());
    assert_eq!(lines.len(), 200_001);
    assert_eq!(lines[200_000], error);
    // The rest of the line is not run.
    memcached.expect(&[("get k|", "VALUE k 0 1|x|END|")]);
    // An endless key is rejected before its end.
    memcached.stream.write_all(format!("get{many} {}", "b".repeat(100_000)).as_bytes()).unwrap();
    let mut last = String::new();
    for line in BufReader::new(&memcached.stream).lines().take(200_001) {
        last = line.unwrap();
    }
    assert_eq!(last, error);
    memcached.expect(&[("bbb|get k|", "VALUE k 0 1|x|END|")]);
}

#[test]
fn long_line_without_retrieval_closes_the_connection() {
    let server = server(|_| ());
    for begin in ["set", "gat x", "mg k", "getx", "gets2", "delete"] {
        let mut memcached = server.memcached_client();
        let _ = memcached
            .stream
            .write_all(format!("{begin}{}\r\nmn\r\n", " k".repeat(50_000)).as_bytes());
        assert_eq!(memcached.rest(), "", "{begin}");
    }
    // The line need not be complete, and nothing of it is run; leading spaces belong to the line.
    for line in [format!("incr k{}", " ".repeat(2048)), " ".repeat(14_000)] {
        let mut memcached = server.memcached_client();
        let _ = memcached.stream.write_all(line.as_bytes());
        assert_eq!(memcached.rest(), "");
    }
    let spaces = " ".repeat(100_000);
    server.memcached_client().expect(&[(&format!("get{spaces}k{spaces}|get k|"), "END|END|")]);
}

#[test]
fn value_too_large_for_a_reply_is_reported() {
    let server = server(|options| options.max_output_bytes = 4 * MIB);
    let mut memcached = server.memcached_client();
    let large = vec![b'x'; 5 * MIB];
    let set = [format!("set a 0 0 {}\r\n", large.len()).as_bytes(), &large, b"\r\n"].concat();
    assert_eq!(memcached.request(&set), "SERVER_ERROR object too large for cache\r\n");
    // Stored with other limits.
    let mut batch = WriteBatch::new();
    batch.put(b"a", &large);
    server.engine.write(&batch, Durability::Buffered).unwrap();
    let message = "SERVER_ERROR the value is too large for a reply; raise --max-output|";
    memcached.expect(&[("get a|mg a v|mg a s|", &format!("{message}{message}HD s5242880|"))]);
}

#[test]
fn response_does_not_depend_on_how_a_long_line_is_split() {
    let server = server(|_| ());
    let mut memcached = server.memcached_client();
    memcached.request(b"set k 0 0 1\r\nx\r\nset kk 0 0 2\r\nxx\r\n");
    let line = format!("  gets{} kk\r\nget kk k\r\nmn\r\n", "  k kk kkk".repeat(8000));
    let answer = |piece: usize| {
        let memcached = server.memcached_client();
        let (mut writer, line) = (memcached.stream.try_clone().unwrap(), line.clone());
        let writing = std::thread::spawn(move || {
            for part in line.as_bytes().chunks(piece) {
                writer.write_all(part).unwrap();
            }
        });
        let mut lines = Vec::new();
        for line in BufReader::new(&memcached.stream).lines() {
            lines.push(line.unwrap());
            if lines.last().unwrap() == "MN" {
                break;
            }
        }
        writing.join().unwrap();
        lines
    };
    let whole = answer(line.len());
    assert_eq!(whole.len(), 4 * 8000 + 2 + 1 + 4 + 1 + 1);
    for piece in [7, 1000, 65_537] {
        assert!(answer(piece) == whole, "pieces of {piece}");
    }
}
