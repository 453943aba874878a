//! Compaction of a range of keys: what it frees, what it keeps, and what errors and power cuts
//! leave.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use siltstone_engine::{
    CompactionFilter, Durability, Engine, Error, FilterContent, FilterDecision, FilterPass,
    FilterRow, KeyRange, ManualClock, ReadPoint, WriteBatch,
};
use siltstone_faults::{FaultKind, FaultyVfs};
use siltstone_lsm::{Lsm, Options};
use siltstone_runtime::Env;

type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

/// Three levels of a few tables each. The policies of level 0 are tested in turn.
const POLICIES: [&[(&str, &str)]; 4] = [
    &[("l0_capacity", "0"), ("triad.log", "off"), ("experimental.l0_compaction_trigger", "3")],
    &[("l0_policy", "sliced"), ("l0_capacity", "64KiB")],
    &[("l0_policy", "columns"), ("l0_capacity", "64KiB"), ("triad.mem", "on")],
    &[("pmem.size", "256KiB"), ("l0_policy", "sliced")],
];

fn open(vfs: &FaultyVfs, policy: &[(&str, &str)], env: Env) -> siltstone_engine::Result<Lsm> {
    let small =
        [("memtable", "8KiB"), ("target_file_size", "8KiB"), ("levels", "32KiB:128KiB:1GiB")];
    let options = small.iter().chain(policy);
    let options = options.map(|&(name, value)| (name.to_owned(), value.to_owned())).collect();
    Lsm::open(Arc::new(vfs.clone()), env, Options::from_map(&options).unwrap())
}

fn replayable() -> Env {
    Env::replayable(Arc::new(ManualClock::at(0)), 1)
}

fn key(number: u32) -> Vec<u8> {
    format!("{number:06}").into_bytes()
}

fn range(from: u32, to: u32) -> KeyRange {
    KeyRange::new(key(from)..key(to))
}

fn put(lsm: &Lsm, rows: &mut Rows, number: u32, value: &str) {
    let value = format!("{value}-{number}-{}", "x".repeat(80)).into_bytes();
    lsm.write(WriteBatch::new().put(&key(number), &value), Durability::Buffered).unwrap();
    rows.insert(key(number), value);
}

fn delete(lsm: &Lsm, rows: &mut Rows, number: u32) {
    lsm.write(WriteBatch::new().delete(&key(number)), Durability::Buffered).unwrap();
    rows.remove(&key(number));
}

fn read_all(lsm: &Lsm, at: Option<&ReadPoint>) -> Rows {
    let mut cursor = lsm.range(KeyRange::all(), at).unwrap();
    let (mut rows, mut is_valid) = (Rows::new(), cursor.first().unwrap());
    while is_valid {
        rows.insert(cursor.key().to_vec(), cursor.value().to_vec());
        is_valid = cursor.next().unwrap();
    }
    rows
}

/// Several versions of `0..count` in shuffled order, in all levels.
fn fill(lsm: &Lsm, rows: &mut Rows, count: u32) {
    for round in 0..3u32 {
        for at in 0..count {
            put(lsm, rows, (at * 7 + round) % count, &round.to_string());
        }
    }
}

/// Entries in files, with all versions and tombstones.
fn entries(lsm: &Lsm) -> u64 {
    lsm.stats().levels.iter().map(|level| level.entries).sum()
}

#[test]
fn deleted_range_frees_its_space_and_leaves_no_tombstone() {
    for policy in POLICIES {
        let lsm = open(&FaultyVfs::new(1), policy, replayable()).unwrap();
        let mut rows = Rows::new();
        fill(&lsm, &mut rows, 2000);
        lsm.compact_range(&KeyRange::all()).unwrap();
        assert_eq!(entries(&lsm), 2000, "{policy:?}: one version per key");
        let full = lsm.stats().space_bytes;
        (200..1800).for_each(|number| delete(&lsm, &mut rows, number));
        lsm.compact_range(&range(200, 1800)).unwrap();
        assert_eq!(
            entries(&lsm),
            400,
            "{policy:?}: tombstones were kept: {:?}",
            lsm.stats().levels
        );
        assert!(lsm.stats().space_bytes < full / 3, "{policy:?}");
        assert_eq!(read_all(&lsm, None), rows, "{policy:?}");
        assert!(lsm.verify(&mut |_, _| ()).unwrap().is_intact());
    }
}

#[test]
fn tables_outside_of_the_range_are_not_written() {
    let lsm = open(&FaultyVfs::new(1), POLICIES[0], replayable()).unwrap();
    let mut rows = Rows::new();
    fill(&lsm, &mut rows, 4000);
    lsm.compact_range(&KeyRange::all()).unwrap();
    let before = lsm.stats().counters["compaction_entries_in"];
    (100..200).for_each(|number| delete(&lsm, &mut rows, number));
    lsm.compact_range(&range(100, 200)).unwrap();
    let read = lsm.stats().counters["compaction_entries_in"] - before;
    assert!((200..1500).contains(&read), "{read} of 4000 entries were merged");
    // Nothing is in the range, in memory or in files, that could be dropped.
    let before = lsm.stats();
    lsm.compact_range(&range(100, 199)).unwrap();
    lsm.compact_range(&KeyRange::new(&b"7"[..]..)).unwrap();
    assert_eq!(lsm.stats().counters["flushes"], before.counters["flushes"]);
    assert_eq!(read_all(&lsm, None), rows);
}

#[test]
fn snapshot_keeps_its_rows() {
    for policy in POLICIES {
        let lsm = open(&FaultyVfs::new(1), policy, replayable()).unwrap();
        let mut rows = Rows::new();
        fill(&lsm, &mut rows, 500);
        let (snapshot, then) = (lsm.snapshot().unwrap(), rows.clone());
        (0..500).for_each(|number| delete(&lsm, &mut rows, number));
        lsm.compact_range(&KeyRange::all()).unwrap();
        assert_eq!(read_all(&lsm, Some(&snapshot)), then, "{policy:?}");
        assert_eq!(read_all(&lsm, None), rows);
        drop(snapshot);
        lsm.compact_range(&KeyRange::all()).unwrap();
        assert_eq!(entries(&lsm), 0, "{policy:?}");
    }
}

/// Drops every row.
struct DropAll;

impl CompactionFilter for DropAll {
    fn begin<'a>(&'a self, _content: &'a dyn FilterContent) -> Box<dyn FilterPass + 'a> {
        Box::new(|_: FilterRow<'_>| FilterDecision::Drop)
    }
}

#[test]
fn filtered_and_expired_rows_of_the_deepest_level_are_dropped() {
    let clock = Arc::new(ManualClock::at(1000));
    let env = Env::replayable(clock.clone(), 1);
    let lsm = open(&FaultyVfs::new(1), POLICIES[0], env).unwrap();
    let mut rows = Rows::new();
    fill(&lsm, &mut rows, 600);
    for number in 600..700 {
        let mut batch = WriteBatch::new();
        batch.put_until(&key(number), b"soon", 2000);
        lsm.write(&batch, Durability::Buffered).unwrap();
    }
    lsm.compact_range(&KeyRange::all()).unwrap();
    assert_eq!(entries(&lsm), 700);
    clock.set(3000);
    lsm.compact_range(&KeyRange::all()).unwrap();
    assert_eq!(entries(&lsm), 600);
    lsm.set_compaction_filter(Some(Arc::new(DropAll))).unwrap();
    lsm.compact_range(&range(0, 300)).unwrap();
    let kept = read_all(&lsm, None);
    assert!(kept.len() <= 300 && range(300, 600).contains(kept.keys().next().unwrap()));
}

/// Replaces values that do not begin with '!' by '!' and their first bytes.
struct Shorten;

impl CompactionFilter for Shorten {
    fn begin<'a>(&'a self, _content: &'a dyn FilterContent) -> Box<dyn FilterPass + 'a> {
        Box::new(|row: FilterRow<'_>| match row.value.starts_with(b"!") {
            true => FilterDecision::Keep,
            false => FilterDecision::Change([b"!", &row.value[..row.value.len().min(9)]].concat()),
        })
    }
}

#[test]
fn filter_changes_values_but_not_their_expiry_nor_what_snapshots_see() {
    for policy in POLICIES {
        for threshold in ["0", "64B"] {
            let policy = [policy, &[("blob_threshold", threshold)]].concat();
            if threshold != "0" && policy.iter().any(|(name, _)| *name == "pmem.size") {
                continue;
            }
            let clock = Arc::new(ManualClock::at(1000));
            let vfs = FaultyVfs::new(1);
            let lsm = open(&vfs, &policy, Env::replayable(clock.clone(), 1)).unwrap();
            let mut rows = Rows::new();
            fill(&lsm, &mut rows, 400);
            for number in 400..420 {
                let mut batch = WriteBatch::new();
                let value = vec![b'e'; 100];
                batch.put_until(&key(number), &value, 2000);
                lsm.write(&batch, Durability::Buffered).unwrap();
                rows.insert(key(number), value);
            }
            let (snapshot, then) = (lsm.snapshot().unwrap(), rows.clone());
            (0..50).for_each(|number| put(&lsm, &mut rows, number, "newer"));
            lsm.set_compaction_filter(Some(Arc::new(Shorten))).unwrap();
            lsm.compact_range(&KeyRange::all()).unwrap();
            assert_eq!(read_all(&lsm, Some(&snapshot)), then, "{policy:?}");
            // The snapshot sees all rows but the 50 newer ones.
            let changed = |value: &[u8]| [b"!", &value[..9]].concat();
            let newer = range(0, 50);
            for (key, value) in &mut rows {
                if newer.contains(key) {
                    *value = changed(value);
                }
            }
            assert_eq!(read_all(&lsm, None), rows, "{policy:?}");
            drop(snapshot);
            lsm.compact_range(&KeyRange::all()).unwrap();
            for value in rows.values_mut().filter(|value| !value.starts_with(b"!")) {
                *value = changed(value);
            }
            assert_eq!(read_all(&lsm, None), rows, "{policy:?}");
            assert_eq!(lsm.get(&key(410)).unwrap().unwrap().expires_at, Some(2000));
            assert!(lsm.stats().counters["compaction_filter_changes"] >= 420);
            assert_eq!(lsm.stats().counters["compaction_filter_drops"], 0);
            assert!(lsm.verify(&mut |_, _| ()).unwrap().is_intact());
            lsm.close().unwrap();
            let lsm = open(&vfs, &policy, Env::replayable(clock.clone(), 1)).unwrap();
            assert_eq!(read_all(&lsm, None), rows, "{policy:?}");
            clock.set(3000);
            rows.retain(|key, _| range(0, 400).contains(key));
            assert_eq!(read_all(&lsm, None), rows, "{policy:?}");
        }
    }
}

#[test]
fn changed_value_of_the_length_of_separated_values_leaves_the_table() {
    struct Grow;
    impl CompactionFilter for Grow {
        fn begin<'a>(&'a self, _content: &'a dyn FilterContent) -> Box<dyn FilterPass + 'a> {
            Box::new(|row: FilterRow<'_>| match row.value.len() {
                0..200 => FilterDecision::Change(vec![row.key[5]; 200]),
                _ => FilterDecision::Keep,
            })
        }
    }
    let vfs = FaultyVfs::new(1);
    let policy = [POLICIES[0], &[("blob_threshold", "150B")]].concat();
    let lsm = open(&vfs, &policy, replayable()).unwrap();
    let mut rows = Rows::new();
    fill(&lsm, &mut rows, 300);
    lsm.set_compaction_filter(Some(Arc::new(Grow))).unwrap();
    lsm.compact_range(&KeyRange::all()).unwrap();
    rows.iter_mut().for_each(|(key, value)| *value = vec![key[5]; 200]);
    assert_eq!(read_all(&lsm, None), rows);
    assert!(lsm.stats().counters["blob_values_written"] >= 300);
    assert!(lsm.verify(&mut |_, _| ()).unwrap().is_intact());
    lsm.close().unwrap();
    assert_eq!(read_all(&open(&vfs, &policy, replayable()).unwrap(), None), rows);
}

#[test]
fn inverted_range_is_refused() {
    let lsm = open(&FaultyVfs::new(1), POLICIES[0], replayable()).unwrap();
    assert!(matches!(lsm.compact_range(&range(2, 1)), Err(Error::Invalid(_))));
    lsm.close().unwrap();
    assert!(matches!(lsm.compact_range(&range(1, 2)), Err(Error::Closed)));
}

#[test]
fn writers_readers_and_background_work_go_on_meanwhile() {
    for policy in POLICIES {
        let lsm = open(&FaultyVfs::new(1), policy, Env::system(2)).unwrap();
        let stop = AtomicBool::new(false);
        let all = std::thread::scope(|scope| {
            // Each writer has every fourth key, and knows what they must have.
            let writers: Vec<_> = (0..4u32)
                .map(|writer| {
                    let (lsm, stop) = (&lsm, &stop);
                    scope.spawn(move || {
                        let mut rows = Rows::new();
                        let mut at = 0u32;
                        while !stop.load(Relaxed) || at < 3000 {
                            let number = (at * 13 % 500) * 4 + writer;
                            match at % 5 {
                                0 => delete(lsm, &mut rows, number),
                                _ => put(lsm, &mut rows, number, &at.to_string()),
                            }
                            let found = lsm.get(&key(number)).unwrap().map(|entry| entry.value);
                            assert_eq!(found.as_ref(), rows.get(&key(number)));
                            at += 1;
                        }
                        rows
                    })
                })
                .collect();
            let second = scope.spawn(|| {
                for round in 0..10 {
                    lsm.compact_range(&range(round * 100, round * 100 + 300)).unwrap();
                }
            });
            for round in 0..15 {
                let snapshot = lsm.snapshot().unwrap();
                let before = read_all(&lsm, Some(&snapshot));
                lsm.compact_range(&range(round * 50, 2000)).unwrap();
                assert_eq!(read_all(&lsm, Some(&snapshot)), before, "{policy:?}");
            }
            second.join().unwrap();
            stop.store(true, Relaxed);
            writers.into_iter().flat_map(|writer| writer.join().unwrap()).collect::<Rows>()
        });
        lsm.compact_range(&KeyRange::all()).unwrap();
        assert_eq!(read_all(&lsm, None), all, "{policy:?}");
        assert_eq!(entries(&lsm), all.len() as u64, "{policy:?}");
        assert!(lsm.verify(&mut |_, _| ()).unwrap().is_intact());
        lsm.close().unwrap();
    }
}

/// A table with synced deletions, about to be compacted, and its rows.
fn before_compaction(vfs: &FaultyVfs, policy: &[(&str, &str)]) -> (Lsm, Rows) {
    let lsm = open(vfs, policy, replayable()).unwrap();
    let mut rows = Rows::new();
    fill(&lsm, &mut rows, 400);
    (100..300).for_each(|number| delete(&lsm, &mut rows, number));
    lsm.sync().unwrap();
    (lsm, rows)
}

#[test]
fn power_cut_meanwhile_loses_nothing() {
    for policy in POLICIES {
        let mut cuts = 0;
        for step in 0u64.. {
            let vfs = FaultyVfs::new(step);
            let (lsm, rows) = before_compaction(&vfs, policy);
            // Every operation at first, then some.
            vfs.cut_power_at(vfs.operations() + step * step / 4);
            let done = lsm.compact_range(&range(50, 350));
            if done.is_ok() {
                break;
            }
            cuts += 1;
            let after = vfs.survivors(step);
            drop(lsm);
            let lsm = open(&after, policy, replayable()).unwrap();
            assert_eq!(read_all(&lsm, None), rows, "{policy:?} {step}");
            lsm.compact_range(&range(50, 350)).unwrap();
            assert_eq!(read_all(&lsm, None), rows, "{policy:?} {step}");
            assert!(lsm.verify(&mut |_, _| ()).unwrap().is_intact());
        }
        assert!(cuts > 5, "{policy:?}: {cuts} cuts");
    }
}

#[test]
fn failed_request_meanwhile_changes_no_row() {
    for policy in POLICIES {
        for kind in [FaultKind::Read, FaultKind::Write, FaultKind::Sync, FaultKind::Names] {
            let mut failures = 0;
            for step in 0u64.. {
                let vfs = FaultyVfs::new(step);
                let (lsm, rows) = before_compaction(&vfs, policy);
                let requests = vfs.requests();
                vfs.fail_at(requests + step * step / 4, kind);
                let done = lsm.compact_range(&range(50, 350));
                let is_over = vfs.requests() <= requests + step * step / 4;
                vfs.clear_faults();
                assert_eq!(read_all(&lsm, None), rows, "{policy:?} {kind:?} {step}");
                failures += u64::from(done.is_err());
                if matches!(done, Err(Error::Io { operation: "read", .. })) {
                    // Nothing is in doubt: it succeeds now.
                    lsm.compact_range(&range(50, 350)).unwrap();
                    assert_eq!(lsm.trouble(), None);
                }
                drop(lsm);
                let lsm = open(&vfs.after_crash(step), policy, replayable()).unwrap();
                assert_eq!(read_all(&lsm, None), rows, "{policy:?} {kind:?} {step}");
                lsm.compact_range(&range(50, 350)).unwrap();
                assert_eq!(read_all(&lsm, None), rows, "{policy:?} {kind:?} {step}");
                if is_over {
                    break;
                }
            }
            assert!(failures > 0, "{policy:?} {kind:?}");
        }
    }
}
