//! Memory of commands that remove two million elements at once, within a request of 64 MiB. A
//! program of its own, because the kernel counts pages per process. It takes half a minute in an
//! unoptimized build, so it runs with `SILTSTONE_LARGE_REMOVALS=1` only.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

mod support;

use support::{Client, TestServer};

const MIB: usize = 1 << 20;
const ELEMENTS: usize = 2_000_000;
/// What background flushes and compactions may take meanwhile.
const MAX_GROWTH: usize = 96 * MIB;

/// The largest resident memory of this process since the last call of `reset_peak`.
fn peak() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() << 10
}

fn reset_peak() {
    std::fs::write("/proc/self/clear_refs", "5").unwrap();
}

/// Adds [`ELEMENTS`] elements by a script that is called with their numbers in parts.
fn fill(client: &mut Client, key: &str, command: &str) {
    const PART: usize = 50_000;
    let script = format!("for i = ARGV[1] + 1, ARGV[1] + {PART} do redis.call({command}) end");
    for from in (0..ELEMENTS).step_by(PART) {
        let from = from.to_string();
        let words = [b"EVAL", script.as_bytes(), b"1", key.as_bytes(), from.as_bytes()];
        assert_eq!(client.call_bytes(&words), "nil");
    }
}

#[test]
fn removal_of_millions_of_elements_takes_bounded_memory() {
    if std::env::var_os("SILTSTONE_LARGE_REMOVALS").is_none() {
        println!("skipped: set SILTSTONE_LARGE_REMOVALS=1");
        return;
    }
    let scratch = tempfile::tempdir().unwrap();
    let db =
        siltstone::Db::open_or_create(scratch.path().join("s"), siltstone::DbOptions::default());
    let table = db.unwrap().table_or_create("t", "lsm", &Default::default()).unwrap();
    let server = TestServer::over(Some(table.engine().clone()), |options| {
        options.max_request_bytes = 64 * MIB;
    });
    let mut client = server.client();
    fill(&mut client, "l", "'RPUSH', KEYS[1], 'element-' .. i");
    fill(&mut client, "z", "'ZADD', KEYS[1], i, 'element-' .. i");
    fill(&mut client, "x", "'XADD', KEYS[1], i .. '-1', 'f', 'v'");
    for (command, expected) in [
        ("LTRIM l -10 -1", "+OK".to_owned()),
        ("XTRIM x MAXLEN 10", format!(":{}", ELEMENTS - 10)),
        ("ZREMRANGEBYRANK z 5 -6", format!(":{}", ELEMENTS - 10)),
    ] {
        reset_peak();
        let before = peak();
        assert_eq!(client.call(command), expected);
        let growth = peak().saturating_sub(before);
        println!("{command}: {} MiB", growth / MIB);
        assert!(growth < MAX_GROWTH, "{command}: {} MiB", growth / MIB);
    }
    client.expect(&[("LLEN l", ":10"), ("XLEN x", ":10"), ("ZCARD z", ":10")]);
    server.finish().unwrap();
}
