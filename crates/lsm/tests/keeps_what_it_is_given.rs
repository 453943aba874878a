//! Does the tree keep what it is given, through flushes, compactions and reopening?

#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use siltstone_engine::{Durability, Engine, Error, KeyRange, ManualClock, ReadPoint, WriteBatch};
use siltstone_lsm::{Lsm, Options};
use siltstone_runtime::Env;
use siltstone_vfs::{Metered, Ram, Vfs};

fn options() -> Options {
    let pairs = [
        ("memtable", "8KiB"),
        ("table", "8KiB"),
        ("levels", "32KiB:128KiB:512KiB"),
        ("block", "512B"),
        ("container", "64KiB"),
    ];
    Options::from_map(&pairs.map(|(k, v)| (k.to_owned(), v.to_owned())).into()).unwrap()
}

fn open(vfs: &Arc<dyn Vfs>, clock: &Arc<ManualClock>) -> Lsm {
    Lsm::open(vfs.clone(), Env::replayable(clock.clone(), 1), options()).unwrap()
}

fn fixture() -> (Arc<dyn Vfs>, Arc<ManualClock>) {
    (Arc::new(Metered::new(Arc::new(Ram::new()))), Arc::new(ManualClock::at(1_000)))
}

fn put(lsm: &Lsm, key: &str, value: &str) {
    let mut batch = WriteBatch::new();
    batch.put(key.as_bytes(), value.as_bytes());
    lsm.write(&batch, Durability::Buffered).unwrap();
}

fn get(lsm: &Lsm, key: &str) -> Option<String> {
    lsm.get(key.as_bytes()).unwrap().map(|entry| String::from_utf8(entry.value).unwrap())
}

fn all(lsm: &Lsm, at: Option<&ReadPoint>, forward: bool) -> Vec<(String, String)> {
    let mut cursor = lsm.range(KeyRange::all(), at).unwrap();
    let mut there = if forward { cursor.first() } else { cursor.last() }.unwrap();
    let mut entries = Vec::new();
    while there {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        entries.push((text(cursor.key()), text(cursor.value())));
        there = if forward { cursor.next() } else { cursor.prev() }.unwrap();
    }
    entries
}

#[test]
fn many_writes_come_back_from_every_level() {
    let (vfs, clock) = fixture();
    let lsm = open(&vfs, &clock);
    for round in 0..5 {
        for i in 0..2000 {
            put(&lsm, &format!("key{:05}", i * 7919 % 2000), &format!("value-{round}-{i}"));
        }
    }
    lsm.maintain().unwrap();
    let stats = lsm.stats();
    let deep: u64 = stats.levels.iter().skip(1).map(|level| level.files).sum();
    assert!(deep > 5, "{stats:#?}");
    for i in 0..2000 {
        let key = format!("key{:05}", i * 7919 % 2000);
        assert_eq!(get(&lsm, &key), Some(format!("value-4-{i}")), "{key}");
    }
    assert_eq!(get(&lsm, "key99999"), None);
    let forward = all(&lsm, None, true);
    assert_eq!(forward.len(), 2000);
    assert!(forward.is_sorted());
    let mut backward = all(&lsm, None, false);
    backward.reverse();
    assert_eq!(forward, backward);
    assert!(lsm.verify(&mut |_, _| ()).unwrap().is_sound());
    lsm.close().unwrap();
    assert!(matches!(lsm.get(b"k"), Err(Error::Closed)));

    let lsm = open(&vfs, &clock);
    assert_eq!(all(&lsm, None, true), forward);
}

#[test]
fn a_store_that_was_not_closed_loses_nothing_but_its_process() {
    let (vfs, clock) = fixture();
    for round in 0..20 {
        let lsm = open(&vfs, &clock);
        for i in 0..100 {
            put(&lsm, &format!("{round}-{i}"), "x");
        }
        drop(lsm);
    }
    let lsm = open(&vfs, &clock);
    assert_eq!(all(&lsm, None, true).len(), 2000);
}

#[test]
fn opening_and_closing_often_leaves_few_logs() {
    let (vfs, clock) = fixture();
    for round in 0..50 {
        let lsm = open(&vfs, &clock);
        put(&lsm, &format!("{round:02}"), "x");
        assert_eq!(all(&lsm, None, true).len(), round + 1);
        lsm.close().unwrap();
        let logs = vfs.list().unwrap().into_iter().filter(|name| name.ends_with(".log"));
        assert!(logs.count() <= 9, "round {round}");
    }
}

#[test]
fn a_snapshot_sees_neither_later_writes_nor_compactions() {
    let (vfs, clock) = fixture();
    let lsm = open(&vfs, &clock);
    for i in 0..500 {
        put(&lsm, &format!("{i:04}"), "old");
    }
    let snapshot = lsm.snapshot().unwrap();
    let before = all(&lsm, Some(&snapshot), true);
    for i in 0..500 {
        put(&lsm, &format!("{i:04}"), "new");
        let mut batch = WriteBatch::new();
        batch.delete(format!("{:04}", i / 2).as_bytes());
        lsm.write(&batch, Durability::Buffered).unwrap();
    }
    lsm.flush().unwrap();
    lsm.maintain().unwrap();
    assert_eq!(all(&lsm, Some(&snapshot), true), before);
    let mut backward = all(&lsm, Some(&snapshot), false);
    backward.reverse();
    assert_eq!(backward, before);
    assert_eq!(lsm.get_at(b"0001", &snapshot).unwrap().unwrap().value, b"old");
    let other = open(&fixture().0, &clock);
    assert!(matches!(other.get_at(b"0001", &snapshot), Err(Error::Invalid(_))));
}

#[test]
fn entries_expire_everywhere_and_leave_no_older_version_behind() {
    let (vfs, clock) = fixture();
    let lsm = open(&vfs, &clock);
    put(&lsm, "k", "old");
    lsm.flush().unwrap();
    let mut batch = WriteBatch::new();
    batch.put_until(b"k", b"young", 2_000);
    lsm.write(&batch, Durability::Buffered).unwrap();
    assert_eq!(get(&lsm, "k").as_deref(), Some("young"));
    lsm.flush().unwrap();
    assert_eq!(all(&lsm, None, true), [("k".to_owned(), "young".to_owned())]);
    clock.set(2_000);
    assert_eq!(get(&lsm, "k"), None);
    assert_eq!(all(&lsm, None, true), []);
    assert_eq!(all(&lsm, None, false), []);
    for i in 0..4 {
        put(&lsm, &format!("other{i}"), "x");
        lsm.flush().unwrap();
    }
    lsm.maintain().unwrap();
    assert_eq!(get(&lsm, "k"), None);
    let entries: u64 = lsm.stats().levels.iter().map(|level| level.entries).sum();
    assert_eq!(entries, 4, "the expired entry and what it hid are gone");
}

#[test]
fn bad_input_changes_nothing() {
    let (vfs, clock) = fixture();
    let lsm = open(&vfs, &clock);
    let mut batch = WriteBatch::new();
    batch.put(b"fine", b"x").put(b"", b"x");
    assert!(matches!(lsm.write(&batch, Durability::Synced), Err(Error::EmptyKey)));
    batch.clear();
    batch.put(b"fine", b"x").put(&vec![7; (64 << 10) + 1], b"x");
    assert!(matches!(lsm.write(&batch, Durability::Synced), Err(Error::TooLarge { .. })));
    assert_eq!(all(&lsm, None, true), []);
    assert_eq!(lsm.stats().counters["sequence"], 0);
}

#[test]
fn logs_go_when_tables_have_what_is_in_them() {
    for (options, most) in [("container=0 triad_log=off", 3), ("container=64KiB", 40)] {
        let vfs: Arc<dyn Vfs> = Arc::new(Ram::new());
        let pairs = format!("memtable=8KiB table=8KiB levels=32KiB:128KiB:512KiB {options}");
        let pairs = pairs.split(' ').filter_map(|pair| pair.split_once('='));
        let options = Options::from_map(&pairs.map(|(k, v)| (k.into(), v.into())).collect());
        let env = Env::replayable(Arc::new(ManualClock::at(1)), 1);
        let lsm = Lsm::open(vfs.clone(), env, options.unwrap()).unwrap();
        for i in 0..20_000u32 {
            let mut batch = WriteBatch::new();
            batch.put(&i.wrapping_mul(0x9e37_79b9).to_be_bytes(), &[7; 100]);
            lsm.write(&batch, Durability::Buffered).unwrap();
        }
        lsm.maintain().unwrap();
        let logs = vfs.list().unwrap().iter().filter(|name| name.ends_with(".log")).count();
        assert!((1..=most).contains(&logs), "{logs} logs");
    }
}
