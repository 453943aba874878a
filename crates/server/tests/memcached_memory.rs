//! What a retrieval takes of memory. A program of its own, because the kernel counts pages by process.

#![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

mod support;

use std::io::{Read, Write};

use support::Running;

const MIB: usize = 1 << 20;

/// Bytes of this process that are in memory.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/smaps_rollup").unwrap();
    let line = status.lines().find(|line| line.starts_with("Rss:")).unwrap().to_owned();
    line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() << 10
}

#[test]
fn line_of_64_mib_with_an_answer_of_512_mib_takes_no_memory() {
    let server = Running::with(|options| {
        options.memcached = Some("127.0.0.1:0".parse().unwrap());
    });
    let mut talk = server.talk();
    talk.say(b"set k 0 0 1\r\nx\r\n");
    let mut reader = talk.stream.try_clone().unwrap();
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
    talk.stream.write_all(b"get").unwrap();
    talk.stream.write_all(keys.as_bytes()).unwrap();
    let before = resident();
    let mut most = 0;
    for _ in 1..64 {
        talk.stream.write_all(keys.as_bytes()).unwrap();
        most = most.max(resident());
    }
    talk.stream.write_all(b"\r\n").unwrap();
    assert_eq!(reading.join().unwrap(), 64 * (MIB / 2) * "VALUE k 0 1\r\nx\r\n".len() + 5);
    let grown = most.saturating_sub(before);
    assert!(grown < 16 * MIB, "{} MiB more", grown / MIB);
}
