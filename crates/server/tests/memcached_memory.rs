//! Memory of large retrievals. A separate test program, because the kernel counts pages per
//! process.

#![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

mod support;

use std::io::{Read, Write};
use std::sync::Mutex;

use siltstone::{Db, DbOptions};
use support::TestServer;

const MIB: usize = 1 << 20;

/// Held by each test, as the process has one memory.
static ALONE: Mutex<()> = Mutex::new(());

/// Resident memory of this process, in bytes.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/smaps_rollup").unwrap();
    let line = status.lines().find(|line| line.starts_with("Rss:")).unwrap().to_owned();
    line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() << 10
}

#[test]
fn line_of_24_mib_with_a_response_of_192_mib_uses_bounded_memory() {
    let _alone = ALONE.lock();
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
    for _ in 1..24 {
        memcached.stream.write_all(keys.as_bytes()).unwrap();
        most = most.max(resident());
    }
    memcached.stream.write_all(b"\r\n").unwrap();
    assert_eq!(reading.join().unwrap(), 24 * (MIB / 2) * "VALUE k 0 1\r\nx\r\n".len() + 5);
    let grown = most.saturating_sub(before);
    assert!(grown < 16 * MIB, "{} MiB more", grown / MIB);
}

/// Highest resident memory of this process so far, in bytes.
fn peak() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap().to_owned();
    line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() << 10
}

/// A small request that names the same value many times.
#[test]
fn command_that_names_a_value_many_times_uses_bounded_memory() {
    const TIMES: usize = 5000;
    let _alone = ALONE.lock();
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open_or_create(dir.path().join("store"), DbOptions::default()).unwrap();
    let table = db.table_or_create("t", "lsm", &Default::default()).unwrap();
    let server = TestServer::over(Some(table.engine().clone()), |options| {
        options.max_output_bytes = 256 << 10;
    });
    let mut client = server.client();
    let value = vec![b'x'; 32 << 10];
    assert_eq!(client.call_bytes(&[b"SET", b"k", &value]), "+OK");
    assert_eq!(client.call_bytes(&[b"HSET", b"h", b"f", &value]), ":1");
    assert_eq!(client.call("RPUSH l k"), ":1");
    let too_large = "-ERR the reply exceeds the limit of 262144 bytes";
    for (head, repeated, expected) in [
        ("HMGET h", " f", too_large),
        ("SORT l BY nosort", " GET *", too_large),
        ("BITOP OR d", " k", ":32768"),
    ] {
        let before = peak();
        let reply = client.call(&format!("{head}{}", repeated.repeat(TIMES)));
        assert!(reply.starts_with(expected), "{head}: {reply}");
        let grown = peak() - before;
        assert!(grown < 48 * MIB, "{head}: {} MiB more", grown / MIB);
    }
    server.finish().unwrap();
    db.close().unwrap();
}
