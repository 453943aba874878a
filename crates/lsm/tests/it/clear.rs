//! Clearing all keys: snapshots and cursors from before, and the cost. The conformance kit clears
//! in its histories, power cuts and faults, and concurrently with writers.

use std::collections::BTreeMap;
use std::sync::Arc;

use siltstone_engine::{Durability, Engine, KeyRange, ManualClock, WriteBatch};
use siltstone_lsm::{Lsm, Options};
use siltstone_runtime::Env;
use siltstone_vfs::{Ram, Vfs};

const SMALL: &str = "memtable=8KiB target_file_size=4KiB levels=12KiB:48KiB:256KiB experimental.l0_compaction_trigger=2 l0_capacity=0";

fn options(text: &str) -> Options {
    let pairs = text.split(' ').map(|pair| pair.split_once('=').unwrap());
    let map: BTreeMap<_, _> = pairs.map(|(k, v)| (k.to_owned(), v.to_owned())).collect();
    Options::from_map(&map).unwrap()
}

fn put(engine: &dyn Engine, key: &str, value: &str) {
    let mut batch = WriteBatch::new();
    batch.put(key.as_bytes(), value.as_bytes());
    engine.write(&batch, Durability::Buffered).unwrap();
}

fn keys(engine: &dyn Engine) -> Vec<String> {
    let mut cursor = engine.iter().unwrap();
    let mut keys = Vec::new();
    let mut is_valid = cursor.first().unwrap();
    while is_valid {
        keys.push(String::from_utf8(cursor.key().to_vec()).unwrap());
        is_valid = cursor.next().unwrap();
    }
    keys
}

fn replayable() -> Env {
    Env::replayable(Arc::new(ManualClock::at(1)), 1)
}

#[test]
fn older_snapshots_and_cursors_keep_their_view_until_they_are_dropped() {
    for policy in ["whole", "sliced", "columns", "novelsm"] {
        let vfs: Arc<dyn Vfs> = Arc::new(Ram::new());
        let pool = if policy == "whole" { "triad.log=on" } else { "pmem.size=256KiB" };
        let options = options(&format!("{SMALL} l0_policy={policy} {pool}"));
        let lsm = Lsm::open(vfs.clone(), replayable(), options).unwrap();
        for i in 0..500 {
            put(&lsm, &format!("key:{i:04}"), &"v".repeat(60));
        }
        lsm.flush().unwrap();
        put(&lsm, "key:0000", "newest");
        let before = lsm.snapshot().unwrap();
        let mut cursor = lsm.iter().unwrap();
        assert!(cursor.first().unwrap());

        lsm.clear().unwrap();
        let between = lsm.snapshot().unwrap();
        assert_eq!(keys(&lsm), Vec::<String>::new());
        assert_eq!(lsm.stats().keys_estimate, Some(0));
        for i in 0..300 {
            put(&lsm, &format!("key:{i:04}"), "after");
        }
        lsm.flush().unwrap();
        lsm.maintain().unwrap();

        let entry = lsm.get_at(b"key:0000", &before).unwrap().unwrap();
        assert_eq!(entry.value, b"newest");
        let mut scan = lsm.range(KeyRange::all(), Some(&before)).unwrap();
        let mut count = u32::from(scan.first().unwrap());
        while scan.next().unwrap() {
            count += 1;
        }
        assert_eq!(count, 500);
        let mut count = 1;
        while cursor.next().unwrap() {
            count += 1;
        }
        assert_eq!(count, 500);
        assert!(lsm.get_at(b"key:0000", &between).unwrap().is_none());
        assert!(lsm.get_at(b"key:0400", &between).unwrap().is_none());
        assert_eq!(lsm.get(b"key:0000").unwrap().unwrap().value, b"after");

        // A second clear, with snapshots from before and after the first.
        lsm.clear().unwrap();
        assert_eq!(lsm.get_at(b"key:0000", &before).unwrap().unwrap().value, b"newest");
        assert!(lsm.get_at(b"key:0000", &between).unwrap().is_none());
        drop((before, between, cursor, scan));
        let tables = || vfs.list().unwrap().iter().filter(|name| name.ends_with(".sst")).count();
        assert_eq!(tables(), 0, "{policy}: {:?}", vfs.list().unwrap());
        lsm.close().unwrap();
        drop(lsm);
    }
}

#[test]
fn cost_of_a_clear_is_independent_of_the_number_of_keys() {
    let vfs: Arc<dyn Vfs> = Arc::new(siltstone_vfs::MeteredVfs::new(Arc::new(Ram::new())));
    let options = options("memtable=64KiB target_file_size=64KiB levels=256KiB:1MiB:8MiB");
    let lsm = Lsm::open(vfs, replayable(), options).unwrap();
    for i in 0..20_000 {
        put(&lsm, &format!("key:{i:06}"), &"v".repeat(100));
    }
    lsm.flush().unwrap();
    lsm.maintain().unwrap();
    let written = || lsm.stats().media_bytes_written();
    let before = written();
    lsm.clear().unwrap();
    let cost = written() - before;
    assert!(cost < 64 << 10, "{cost} bytes were written to remove 2 MiB");
    let mut cursor = lsm.iter().unwrap();
    assert!(!cursor.first().unwrap());
    assert!(lsm.stats().space_bytes < 64 << 10, "{}", lsm.stats().space_bytes);
}
