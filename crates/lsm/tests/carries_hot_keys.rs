//! TRIAD-MEM: are hot keys found as they are, wherever a flush has left their versions?

#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use siltstone_engine::{Durability, Engine, ManualClock, WriteBatch};
use siltstone_lsm::{Lsm, Options};
use siltstone_runtime::Env;
use siltstone_vfs::{Ram, Vfs};

fn open(vfs: &Arc<dyn Vfs>) -> Lsm {
    let options = [
        ("triad_mem", "on"),
        ("hot", "1"),
        ("flush_threshold", "0"),
        ("triad_log", "off"),
        ("container", "0"),
        ("l0_compact", "100"),
        ("l0_slow", "200"),
        ("l0_stop", "300"),
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

/// Writes `key` until a memtable more has been flushed.
fn fill_with(lsm: &Lsm, key: &str) {
    let flushes = || lsm.stats().counters["flushes"];
    let before = flushes();
    while flushes() == before {
        put(lsm, key, "again and again");
    }
}

/// A key that is carried leaves older versions behind where a snapshot reads them. Its own row may come
/// from a memtable whose other keys were all carried further: it must not pass for older than the first.
#[test]
fn is_a_key_that_was_carried_newer_than_what_it_left_behind() {
    let vfs: Arc<dyn Vfs> = Arc::new(Ram::new());
    let lsm = open(&vfs);
    put(&lsm, "hot", "old");
    let before = lsm.snapshot().unwrap();
    (0..50).for_each(|_| put(&lsm, "hot", "new"));
    (0..50).for_each(|_| put(&lsm, "warm", ""));
    (0..60).for_each(|i| put(&lsm, &format!("cold{i}"), ""));
    fill_with(&lsm, "also hot");
    assert!(lsm.stats().counters["hot_keys_carried"] > 0);
    fill_with(&lsm, "also hot");
    let read = |lsm: &Lsm| lsm.get(b"hot").unwrap().unwrap().value;
    assert_eq!(read(&lsm), b"new");
    assert_eq!(lsm.get_at(b"hot", &before).unwrap().unwrap().value, b"old");
    drop(before);
    lsm.close().unwrap();
    assert_eq!(read(&open(&vfs)), b"new");
}
