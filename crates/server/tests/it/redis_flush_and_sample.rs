//! FLUSHALL, DBSIZE, INFO keyspace and RANDOMKEY over real engines: correct, and no dearer after
//! many operations, by the engine's own counters.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::support::{Client, TestServer, mica};
use siltstone::{Engine, Env};
use siltstone_vfs::Ram;

fn engine(name: &str, options: &[(&str, &str)]) -> Arc<dyn Engine> {
    let options = options.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    let (vfs, env) = (Arc::new(Ram::new()), Env::system(1));
    siltstone::engines::open(name, vfs, &env, &options.collect()).expect("opens in memory")
}

fn fill(client: &mut Client, keys: u32) {
    for first in (0..keys).step_by(1000) {
        let pairs: Vec<_> =
            (first..keys.min(first + 1000)).map(|i| format!("key:{i:08} v{i}")).collect();
        assert_eq!(client.call(&format!("MSET {}", pairs.join(" "))), "+OK");
    }
}

/// How much a call adds to a sum of counters of an `lsm` table; nothing for other engines.
fn count(client: &mut Client, engine: &dyn Engine, counters: &[&str], call: &str) -> u64 {
    let sum = || {
        let stats = engine.stats();
        counters.iter().filter_map(|name| stats.counters.get(*name)).sum::<u64>()
    };
    let before = sum();
    client.call(call);
    sum() - before
}

/// The blocks that a call reads: the least of 20 calls, because compactions count, too.
fn blocks(client: &mut Client, engine: &dyn Engine, call: &str) -> u64 {
    let counters = ["block_cache_hits", "block_cache_misses"];
    (0..20).map(|_| count(client, engine, &counters, call)).min().expect("there were 20")
}

#[test]
fn flushed_table_is_as_cheap_and_exact_as_a_new_one() {
    let lsm = engine("lsm", &[("memtable", "256KiB"), ("table", "256KiB")]);
    for engine in [lsm, mica("memory=67108864 partitions=2")] {
        let server = TestServer::over(Some(engine.clone()), |_| ());
        let mut client = server.client();
        fill(&mut client, 100_000);
        let walk = blocks(&mut client, &*engine, "KEYS *none");
        assert!(walk > 100 || engine.name() != "lsm", "{walk} blocks for 100,000 keys");
        assert_eq!(client.call("FLUSHALL"), "+OK");
        client.expect(&[("DBSIZE", ":0"), ("RANDOMKEY", "nil"), ("KEYS *", "[]")]);
        for i in 0..300 {
            let expiry = if i % 3 == 0 { " EX 1000" } else { "" };
            client.call(&format!("SET new:{i:03} v{expiry}"));
        }
        client.expect(&[("DBSIZE", ":300")]);
        let keyspace = client.call("INFO keyspace");
        assert!(keyspace.contains("db0:keys=300,expires=100,avg_ttl="), "{keyspace}");
        assert!(client.call("INFO tables").contains(",keys=300,keys_exact=yes,"));
        for command in ["DBSIZE", "SCAN 0 COUNT 10", "KEYS new:00*", "RANDOMKEY"] {
            let read = blocks(&mut client, &*engine, command);
            assert!(read <= walk / 10, "{command}: {read} blocks, and {walk} for 100,000 keys");
        }
    }
}

#[test]
fn iteration_over_deleted_keys_passes_each_once() {
    let engine = engine("lsm", &[]);
    let server = TestServer::over(Some(engine.clone()), |_| ());
    let mut client = server.client();
    fill(&mut client, 100_000);
    for first in (0..100_000).step_by(1000) {
        let keys: Vec<_> = (first..first + 1000).map(|i| format!("key:{i:08}")).collect();
        assert_eq!(client.call(&format!("DEL {}", keys.join(" "))), ":1000");
    }
    let mut passed = |call| count(&mut client, &*engine, &["tombstones_passed"], call);
    assert_eq!(passed("DBSIZE"), 100_000);
    // Compactions remove tombstones from now on.
    assert!(passed("SCAN 0 COUNT 10") <= 100_000);
    client.expect(&[("DBSIZE", ":0"), ("SET zz v", "+OK"), ("DBSIZE", ":1")]);
}

#[test]
fn randomkey_is_roughly_uniform() {
    const KEYS: usize = 200;
    for (name, engine) in [
        ("lsm", engine("lsm", &[("memtable", "64KiB")])),
        ("mica", mica("memory=16777216 partitions=2")),
    ] {
        let server = TestServer::over(Some(engine), |_| ());
        let mut client = server.client();
        // Many deleted keys, four with a common prefix, and the rest far apart.
        fill(&mut client, 2000);
        for first in (0..2000).step_by(100) {
            let keys: Vec<_> = (first..first + 100).map(|i| format!("key:{i:08}")).collect();
            client.call(&format!("DEL {}", keys.join(" ")));
        }
        for i in 0..KEYS {
            let key = match i {
                0..4 => format!("a{i}"),
                _ => format!("{:x}-{i}", (i as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)),
            };
            client.call(&format!("SET {key} v"));
        }
        let mut counts: BTreeMap<String, u32> = BTreeMap::new();
        for _ in 0..KEYS * 25 {
            *counts.entry(client.call("RANDOMKEY")).or_default() += 1;
        }
        assert_eq!(counts.len(), KEYS, "{name}: keys that came");
        // 25 are expected of each, with a standard deviation of five.
        assert!(counts.values().all(|count| (3..=60).contains(count)), "{name}: {counts:?}");
        // A transaction draws its own keys only.
        client.expect(&[
            ("MULTI", "+OK"),
            ("FLUSHALL", "+QUEUED"),
            ("SET mine v", "+QUEUED"),
            ("RANDOMKEY", "+QUEUED"),
            ("EXEC", "[+OK, +OK, \"mine\"]"),
        ]);
    }
}

#[test]
fn flushall_invalidates_watches_of_existing_keys_only() {
    let server = TestServer::over(Some(engine("lsm", &[])), |_| ());
    let (mut client, mut other) = (server.client(), server.client());
    client.expect(&[("SET a 1", "+OK"), ("WATCH a", "+OK")]);
    assert_eq!(other.call("FLUSHALL"), "+OK");
    client.expect(&[("MULTI", "+OK"), ("SET b 1", "+QUEUED"), ("EXEC", "nil")]);
    client.expect(&[("WATCH none", "+OK")]);
    assert_eq!(other.call("FLUSHALL"), "+OK");
    client.expect(&[
        ("MULTI", "+OK"),
        ("SET b 1", "+QUEUED"),
        ("EXEC", "[+OK]"),
        ("GET b", "\"1\""),
    ]);
}
