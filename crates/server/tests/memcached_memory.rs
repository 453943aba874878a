//! Memory of a retrieval. A separate test program, because the kernel counts pages per process.

#![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

mod support;

use std::io::{Read, Write};

use support::TestServer;

const MIB: usize = 1 << 20;

/// Resident memory of this process, in bytes.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/smaps_rollup").unwrap();
    let line = status.lines().find(|line| line.starts_with("Rss:")).unwrap().to_owned();
    line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() << 10
}

#[test]
fn line_of_64_mib_with_a_response_of_512_mib_uses_bounded_memory() {
    let server = TestServer::with(|options| {
        options.memcached = Some("127.0.0.1:0".parse().unwrap());
    });
    let mut memcached = server.memcached_client();
    memcached.request(b"set k 0 0 1\r\nx\r\n");
    let mut reader = memcached.stream.try_clone().unwrap();
    let reading = std::thread::spawn(move || {
        let (mut buffer, mut tail) = (vec![0; 1 << 16], Vec::new());
        let mut count = 0;
        while !tail.ends_with(b"END\r\n") {
            let read = reader.read(&mut buffer).unwrap();
            assert!(read > 0, "closed after {count} bytes");
            count += read;
            tail.extend_from_slice(&buffer[..read]);
            tail.drain(..tail.len().saturating_sub(5));
        }
        count
    });
    let keys = " k".repeat(MIB / 2);
    memcached.stream.write_all(b"get").unwrap();
    memcached.stream.write_all(keys.as_bytes()).unwrap();
    let before = resident();
    let mut most = 0;
    for _ in 1..64 {
        memcached.stream.write_all(keys.as_bytes()).unwrap();
        most = most.max(resident());
    }
    memcached.stream.write_all(b"\r\n").unwrap();
    assert_eq!(reading.join().unwrap(), 64 * (MIB / 2) * "VALUE k 0 1\r\nx\r\n".len() + 5);
    let grown = most.saturating_sub(before);
    assert!(grown < 16 * MIB, "{} MiB more", grown / MIB);
}
