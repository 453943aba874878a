//! FLUSHALL, DBSIZE, INFO keyspace and RANDOMKEY over real engines: correct, and fast after many
//! operations.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

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

/// Duration of the fastest of 20 calls: on a loaded machine few run undisturbed.
fn fastest_call(client: &mut Client, command: &str) -> Duration {
    let time = |_| {
        let began = Instant::now();
        client.call(command);
        began.elapsed()
    };
    (0..20).map(time).min().expect("there were 20")
}

#[test]
fn flushed_table_is_as_fast_and_exact_as_a_new_one() {
    let lsm = engine("lsm", &[("memtable", "256KiB"), ("table", "256KiB")]);
    for engine in [lsm, mica("memory=67108864 partitions=2")] {
        let server = TestServer::over(Some(engine), |_| ());
        let mut client = server.client();
        fill(&mut client, 100_000);
        let walk = fastest_call(&mut client, "KEYS *none");
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
            let took = fastest_call(&mut client, command);
            assert!(took < walk / 4, "{command}: {took:?}, and {walk:?} for 100,000 keys");
        }
    }
}

/// Iterating over deleted keys costs up to two versions per key: the value and the deletion.
#[test]
fn iteration_over_deleted_keys_costs_two_versions_per_key() {
    let server = TestServer::over(Some(engine("lsm", &[])), |_| ());
    let mut client = server.client();
    fill(&mut client, 100_000);
    let alive = fastest_call(&mut client, "DBSIZE");
    for first in (0..100_000).step_by(1000) {
        let keys: Vec<_> = (first..first + 1000).map(|i| format!("key:{i:08}")).collect();
        assert_eq!(client.call(&format!("DEL {}", keys.join(" "))), ":1000");
    }
    client.expect(&[("DBSIZE", ":0"), ("SET zz v", "+OK")]);
    for command in ["DBSIZE", "SCAN 0 COUNT 10"] {
        let dead = fastest_call(&mut client, command);
        let most = 4 * alive + Duration::from_millis(30);
        assert!(dead < most, "{command}: {dead:?}, and {alive:?} while they were there");
    }
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
