//! A store of 20 tables under `ulimit -n 64`: it is created, filled, served and verified, and no
//! table turns read-only.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used)]

mod server_process;

use std::path::Path;
use std::process::{Command, Output};

use server_process::Server;

const TABLES: usize = 20;
const KEYS: usize = 300;

/// The program under the limit.
fn limited(arguments: &[&str], dir: &Path) -> Command {
    let mut command = Command::new("sh");
    command
        .args(["-c", "ulimit -n 64; exec \"$@\"", "sh", env!("CARGO_BIN_EXE_siltstone")])
        .arg(arguments[0])
        .arg(dir)
        .args(&arguments[1..]);
    command
}

fn run(arguments: &[&str], dir: &Path) -> String {
    let Output { status, stdout, stderr } = limited(arguments, dir).output().unwrap();
    let errors = String::from_utf8_lossy(&stderr);
    assert!(status.success(), "{arguments:?}: {status}: {errors}");
    String::from_utf8(stdout).unwrap()
}

fn table(number: usize) -> String {
    // Small enough that each table has several files.
    let engine = match number {
        0 => "trie,htable_size=16KiB,bucket_size=512",
        1 => "silt,partitions=2,log_store_slots=64,max_log_size=64KiB",
        2 => "skimpy,capacity=4MiB,block=4,buckets=64",
        _ => "lsm,memtable=16KiB,target_file_size=16KiB,levels=64KiB:1MiB",
    };
    format!("t{number:02}={engine}")
}

fn value(table: usize, key: usize) -> String {
    format!("{table}-{key}-").repeat(20)
}

fn serve(dir: &Path) -> Server {
    let tables: Vec<_> = (0..TABLES).map(table).collect();
    let mut arguments = vec!["serve", "--listen", "127.0.0.1:0", "--threads", "1"];
    for table in &tables {
        arguments.extend(["--table", table]);
    }
    Server::start(&mut limited(&arguments, dir))
}

fn check(server: &mut Server) {
    for number in 0..TABLES {
        assert_eq!(server.send(&format!("SELECT {number}")), "+OK");
        for key in 0..KEYS {
            assert_eq!(server.send(&format!("GET key-{key}")), value(number, key), "{number}");
        }
    }
}

#[test]
fn store_of_twenty_tables_works_under_a_limit_of_64_descriptors() {
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path().join("store");
    let mut server = serve(&dir);
    // Round-robin, so that all tables are in use at once.
    for key in 0..KEYS {
        for number in 0..TABLES {
            server.send(&format!("SELECT {number}"));
            let reply = server.send(&format!("SET key-{key} {}", value(number, key)));
            assert_eq!(reply, "+OK", "key {key} of table {number}");
        }
    }
    check(&mut server);
    server.terminate();
    run(&["verify"], &dir);
    let mut server = serve(&dir);
    check(&mut server);
    server.terminate();
    let stats = run(&["stats", "--json"], &dir);
    let stats: serde_json::Value = serde_json::from_str(&stats).unwrap();
    let counters = &stats["tables"]["t05"]["counters"];
    assert_eq!(counters["store_max_open_files"], 32, "{counters}");
    let value_of = run(&["get", "key-7", "--table", "t19"], &dir);
    assert_eq!(value_of.trim_end(), value(19, 7));
}
