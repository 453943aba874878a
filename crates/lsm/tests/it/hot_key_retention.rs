//! TRIAD-MEM: hot keys read correctly, wherever flushes left their versions.

use std::sync::Arc;

use siltstone_engine::{Durability, Engine, ManualClock, WriteBatch};
use siltstone_lsm::{Lsm, Options};
use siltstone_runtime::Env;
use siltstone_vfs::{Ram, Vfs};

fn open(vfs: &Arc<dyn Vfs>) -> Lsm {
    let options = [
        ("triad.mem", "on"),
        ("triad.hot_keys", "1"),
        ("triad.flush_threshold", "0"),
        ("triad.log", "off"),
        ("l0_capacity", "0"),
        ("experimental.l0_compaction_trigger", "100"),
        ("experimental.l0_slowdown_trigger", "200"),
        ("experimental.l0_stop_trigger", "300"),
        ("memtable", "8KiB"),
    ];
    let options = options.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let env = Env::replayable(Arc::new(ManualClock::at(0)), 1);
    Lsm::open(vfs.clone(), env, Options::from_map(&options.into()).unwrap()).unwrap()
}

fn put(lsm: &Lsm, key: &str, value: &str) {
    let mut batch = WriteBatch::new();
    batch.put(key.as_bytes(), value.as_bytes());
    lsm.write(&batch, Durability::Buffered).unwrap();
    lsm.maintain().unwrap();
}

/// Writes `key` until another memtable was flushed.
fn fill_with(lsm: &Lsm, key: &str) {
    let flushes = || lsm.stats().counters["flushes"];
    let before = flushes();
    while flushes() == before {
        put(lsm, key, "again and again");
    }
}

/// A retained key leaves older versions behind for a snapshot, in an L0 run. Its newest version may
/// be in a memtable whose other keys were all retained again: its run must not be ordered before
/// the first.
#[test]
fn retained_key_is_newer_than_its_flushed_versions() {
    let vfs: Arc<dyn Vfs> = Arc::new(Ram::new());
    let lsm = open(&vfs);
    put(&lsm, "hot", "old");
    let before = lsm.snapshot().unwrap();
    (0..50).for_each(|_| put(&lsm, "hot", "new"));
    (0..50).for_each(|_| put(&lsm, "warm", ""));
    (0..60).for_each(|i| put(&lsm, &format!("cold{i}"), ""));
    fill_with(&lsm, "also hot");
    assert!(lsm.stats().counters["hot_keys_retained"] > 0);
    fill_with(&lsm, "also hot");
    let read = |lsm: &Lsm| lsm.get(b"hot").unwrap().unwrap().value;
    assert_eq!(read(&lsm), b"new");
    assert_eq!(lsm.get_at(b"hot", &before).unwrap().unwrap().value, b"old");
    drop(before);
    lsm.close().unwrap();
    assert_eq!(read(&open(&vfs)), b"new");
}
