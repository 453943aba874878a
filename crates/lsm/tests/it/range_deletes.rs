//! Range deletions: files that are removed unread, what is rewritten and forgotten, the cost of
//! iterating over a deleted range, and old formats. The conformance kit has range deletions in its
//! histories.

use std::collections::BTreeMap;
use std::sync::Arc;

use siltstone_engine::{Durability, Engine, Entry, Error, KeyRange, ManualClock, WriteBatch};
use siltstone_lsm::{Lsm, Options};
use siltstone_runtime::Env;
use siltstone_vfs::{MeteredVfs, Mode, Ram, Vfs};

/// Level 0 is compacted whole after a few flushes; tables are small.
const SMALL: &str = "memtable=16KiB target_file_size=8KiB levels=64KiB:256KiB:1MiB \
                     experimental.l0_compaction_trigger=2 l0_capacity=0 triad.log=off";

fn options(texts: &[&str]) -> Options {
    Options::from_map(&siltstone_testkit::engine_under_test::options(texts.iter().copied()))
        .unwrap()
}

fn open(vfs: &Arc<dyn Vfs>, texts: &[&str]) -> Lsm {
    let env = Env::replayable(Arc::new(ManualClock::at(1)), 1);
    Lsm::open(vfs.clone(), env, options(texts)).unwrap()
}

fn ram() -> Arc<dyn Vfs> {
    Arc::new(MeteredVfs::new(Arc::new(Ram::new())))
}

fn key(number: u64) -> Vec<u8> {
    format!("key:{number:06}").into_bytes()
}

fn fill(lsm: &Lsm, keys: std::ops::Range<u64>) {
    for number in keys {
        let mut batch = WriteBatch::new();
        batch.put(&key(number), &[b'v'; 60]);
        lsm.write(&batch, Durability::Buffered).unwrap();
    }
}

fn delete_range(lsm: &Lsm, keys: std::ops::Range<u64>) {
    let mut batch = WriteBatch::new();
    batch.delete_range(key(keys.start)..key(keys.end));
    lsm.write(&batch, Durability::Buffered).unwrap();
}

fn flush_and_maintain(lsm: &Lsm) {
    lsm.flush().unwrap();
    lsm.maintain().unwrap();
}

fn counter(lsm: &Lsm, name: &str) -> u64 {
    lsm.stats().counters[name]
}

/// The number of keys now, counted forwards and backwards.
fn count(lsm: &Lsm) -> u64 {
    let mut cursor = lsm.iter().unwrap();
    let mut forwards = u64::from(cursor.first().unwrap());
    while forwards > 0 && cursor.next().unwrap() {
        forwards += 1;
    }
    let mut backwards = u64::from(cursor.last().unwrap());
    while backwards > 0 && cursor.prev().unwrap() {
        backwards += 1;
    }
    assert_eq!(forwards, backwards);
    forwards
}

#[test]
fn covered_tables_are_removed_unread_and_the_deletion_is_forgotten() {
    for policy in ["", "triad.log=on l0_capacity=32KiB", "l0_policy=sliced pmem.size=256KiB"] {
        let (vfs, texts) = (ram(), [SMALL, policy]);
        let lsm = open(&vfs, &texts);
        fill(&lsm, 0..3000);
        flush_and_maintain(&lsm);
        let read_before = lsm.stats().io["compaction"].bytes_read;
        let space_before = lsm.stats().space_bytes;
        delete_range(&lsm, 0..3000);
        flush_and_maintain(&lsm);
        let read = lsm.stats().io["compaction"].bytes_read - read_before;
        assert!(counter(&lsm, "range_deleted_tables") > 10, "{policy}");
        assert_eq!(count(&lsm), 0);
        assert!(read < 32 << 10, "{policy}: {read} bytes were read to drop {space_before}");
        assert!(lsm.stats().space_bytes < space_before / 4, "{policy}");
        assert_eq!(counter(&lsm, "range_deletes"), 0, "{policy}: the deletion hides nothing");
        fill(&lsm, 10..20);
        lsm.close().unwrap();
        drop(lsm);
        assert_eq!(count(&open(&vfs, &texts)), 10, "{policy}");
    }
}

#[test]
fn tables_at_the_ends_of_a_range_keep_the_other_keys() {
    let vfs = ram();
    let lsm = open(&vfs, &[SMALL]);
    fill(&lsm, 0..3000);
    flush_and_maintain(&lsm);
    // Ends within tables at both ends.
    delete_range(&lsm, 1001..1999);
    flush_and_maintain(&lsm);
    assert_eq!(count(&lsm), 3000 - 998);
    assert!(counter(&lsm, "range_deleted_tables") > 0);
    // Less than half of the tables at the ends may be deleted: they are not rewritten for it.
    assert!(counter(&lsm, "range_deletes") <= 1);
    assert!(lsm.get(&key(1000)).unwrap().is_some() && lsm.get(&key(1001)).unwrap().is_none());
    assert!(lsm.get(&key(1998)).unwrap().is_none() && lsm.get(&key(1999)).unwrap().is_some());
    fill(&lsm, 1500..1501);
    lsm.close().unwrap();
    drop(lsm);
    assert_eq!(count(&open(&vfs, &[SMALL])), 3000 - 998 + 1);
}

#[test]
fn snapshot_keeps_the_range_until_it_is_dropped() {
    let vfs = ram();
    let lsm = open(&vfs, &[SMALL]);
    fill(&lsm, 0..1000);
    flush_and_maintain(&lsm);
    let before = lsm.snapshot().unwrap();
    delete_range(&lsm, 100..900);
    let after = lsm.snapshot().unwrap();
    fill(&lsm, 300..310);
    flush_and_maintain(&lsm);
    fill(&lsm, 0..50);
    flush_and_maintain(&lsm);
    let count_at = |point| {
        let mut cursor = lsm.range(KeyRange::all(), Some(point)).unwrap();
        let mut count = u64::from(cursor.first().unwrap());
        while cursor.next().unwrap() {
            count += 1;
        }
        count
    };
    assert_eq!((count_at(&before), count_at(&after), count(&lsm)), (1000, 200, 210));
    assert!(lsm.get_at(&key(500), &before).unwrap().is_some());
    assert!(lsm.get_at(&key(500), &after).unwrap().is_none());
    assert!(lsm.get(&key(305)).unwrap().is_some());
    assert_eq!(counter(&lsm, "range_deletes"), 1, "a snapshot sees older keys");
    drop((before, after));
    for _ in 0..3 {
        fill(&lsm, 0..1000);
        flush_and_maintain(&lsm);
    }
    assert_eq!(counter(&lsm, "range_deletes"), 0);
}

#[test]
fn unflushed_deletion_is_replayed_and_checkpointed() {
    let vfs = ram();
    let lsm = open(&vfs, &[SMALL]);
    fill(&lsm, 0..500);
    flush_and_maintain(&lsm);
    let mut batch = WriteBatch::new();
    batch.put(&key(1), b"gone").delete_range(key(0)..key(400)).put(&key(2), b"kept");
    lsm.write(&batch, Durability::Synced).unwrap();
    let kept = Entry { value: b"kept".to_vec(), expires_at: None };
    assert_eq!(lsm.multi_get(&[&key(1), &key(2)], None).unwrap(), [None, Some(kept.clone())]);
    // As after a crash.
    drop(lsm);
    let lsm = open(&vfs, &[SMALL]);
    assert_eq!(count(&lsm), 101);
    let copy = ram();
    lsm.checkpoint(&mut siltstone_testkit::sink::VfsSink::new(copy.clone())).unwrap();
    let copied = open(&copy, &[SMALL]);
    assert_eq!((count(&copied), copied.get(&key(2)).unwrap()), (101, Some(kept)));
    assert!(copied.verify(&mut |_, _| ()).unwrap().is_intact());
    drop(copied);
    assert!(siltstone_lsm::verify_closed(&copy).unwrap().is_intact());
}

#[test]
fn walking_over_a_deleted_range_does_not_read_it() {
    for policy in ["", "triad.log=on l0_capacity=1MiB", "l0_policy=sliced pmem.size=1MiB"] {
        // No compaction can remove the range: a snapshot sees it.
        let lsm = open(&ram(), &[SMALL, "cache=0", policy]);
        fill(&lsm, 0..3000);
        flush_and_maintain(&lsm);
        fill(&lsm, 1000..1500);
        let _before = lsm.snapshot().unwrap();
        delete_range(&lsm, 10..2990);
        let reads = || lsm.stats().io.get("scan").map_or(0, |io| io.bytes_read);
        let before = reads();
        let mut cursor = lsm.iter().unwrap();
        assert!(cursor.seek(&key(10)).unwrap());
        assert_eq!(cursor.key(), key(2990), "{policy}");
        assert!(cursor.prev().unwrap());
        assert_eq!(cursor.key(), key(9), "{policy}");
        assert!(cursor.seek_back(&key(2000)).unwrap());
        assert_eq!(cursor.key(), key(9), "{policy}");
        // One block per table that is passed.
        let read = reads() - before;
        assert!(read < 1 << 20, "{policy}: {read} bytes");
        assert_eq!(count(&lsm), 20);
    }
}

#[test]
fn many_deletions_in_a_row_are_merged_and_bounded() {
    let lsm = open(&ram(), &[SMALL]);
    fill(&lsm, 0..3000);
    flush_and_maintain(&lsm);
    for number in 0..1500 {
        delete_range(&lsm, 2 * number..2 * number + 1);
        if number % 100 == 0 {
            assert_eq!(count(&lsm), 3000 - number - 1);
        }
    }
    flush_and_maintain(&lsm);
    assert_eq!(count(&lsm), 1500);
    let left = counter(&lsm, "range_deletes");
    assert!(left <= 256, "{left} range deletions are left");
    delete_range(&lsm, 0..3000);
    flush_and_maintain(&lsm);
    assert_eq!((count(&lsm), counter(&lsm, "range_deletes")), (0, 0));
}

#[test]
fn empty_and_inverted_ranges_change_nothing() {
    let lsm = open(&ram(), &[SMALL]);
    fill(&lsm, 0..10);
    let mut batch = WriteBatch::new();
    batch.delete_range(key(3)..key(3));
    lsm.write(&batch, Durability::Buffered).unwrap();
    batch.delete_range(key(5)..key(4));
    let refused = lsm.write(&batch, Durability::Buffered);
    assert!(matches!(refused, Err(Error::Invalid(_))), "{refused:?}");
    flush_and_maintain(&lsm);
    assert_eq!((count(&lsm), counter(&lsm, "range_deletes")), (10, 0));
}

#[test]
fn repair_keeps_range_deletions_of_the_manifest_and_of_logs() {
    let vfs = ram();
    let lsm = open(&vfs, &[SMALL]);
    fill(&lsm, 0..1000);
    flush_and_maintain(&lsm);
    let snapshot = lsm.snapshot().unwrap();
    delete_range(&lsm, 0..400);
    flush_and_maintain(&lsm);
    delete_range(&lsm, 600..1000);
    assert_eq!(counter(&lsm, "range_deletes"), 1);
    drop((snapshot, lsm));
    // A damaged block of a table in the middle.
    let tables: BTreeMap<u64, String> = vfs
        .list()
        .unwrap()
        .into_iter()
        .filter(|name| name.ends_with(".sst"))
        .map(|name| (vfs.open(&name, Mode::Read).unwrap().len().unwrap(), name))
        .collect();
    let (_, name) = tables.last_key_value().unwrap();
    vfs.open(name, Mode::ReadWrite)
        .unwrap()
        .write_at(100, b"damage", siltstone_engine::Purpose::Maintenance)
        .unwrap();
    let report = siltstone_lsm::repair(&vfs).unwrap();
    assert!(!report.losses.is_empty());
    let lsm = open(&vfs, &[SMALL]);
    for number in (0..400).chain(600..1000) {
        assert!(lsm.get(&key(number)).unwrap().is_none(), "{number} reappears");
    }
    assert!(count(&lsm) <= 200);
}
