//! Merges at the engine: what flushes and compactions fold, threads that merge beside background
//! work, the refusal by earlier versions. The conformance kit has merges in its histories.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use siltstone_engine::{
    Durability, Engine, Error, KeyRange, ManualClock, MergeAppend, MergeCounter, MergeOperator,
    WriteBatch,
};
use siltstone_faults::{FaultKind, FaultyVfs};
use siltstone_lsm::{Lsm, Options};
use siltstone_runtime::Env;
use siltstone_table::{FileKind, FileNumber, TableOptions, TableWriter};
use siltstone_vfs::{MeteredVfs, Ram, Vfs};

/// Level 0 is compacted whole after a few flushes; tables are small.
const SMALL: &str = "memtable=16KiB target_file_size=8KiB levels=64KiB:256KiB:1MiB \
                     experimental.l0_compaction_trigger=4 l0_capacity=0 triad.log=off";

/// [`MergeAppend`] without its partial merge.
struct NoPartialMerge(MergeAppend);

impl MergeOperator for NoPartialMerge {
    fn name(&self) -> &str {
        "list"
    }

    fn full_merge(
        &self,
        key: &[u8],
        value: Option<&[u8]>,
        operands: &[&[u8]],
    ) -> Result<Vec<u8>, String> {
        self.0.full_merge(key, value, operands)
    }
}

fn ram() -> Arc<dyn Vfs> {
    Arc::new(MeteredVfs::new(Arc::new(Ram::new())))
}

fn open_in(vfs: &Arc<dyn Vfs>, env: Env, texts: &[&str]) -> Lsm {
    let options = siltstone_testkit::engine_under_test::options(texts.iter().copied());
    Lsm::open(vfs.clone(), env, Options::from_map(&options).unwrap()).unwrap()
}

fn open(vfs: &Arc<dyn Vfs>, texts: &[&str]) -> Lsm {
    open_in(vfs, Env::replayable(Arc::new(ManualClock::at(1)), 1), texts)
}

fn append(lsm: &Lsm, key: &[u8], operand: &[u8]) {
    lsm.write(WriteBatch::new().merge(key, operand), Durability::Buffered).unwrap();
}

fn value(lsm: &Lsm, key: &[u8]) -> Option<String> {
    lsm.get(key).unwrap().map(|entry| String::from_utf8(entry.value).unwrap())
}

/// Versions of all keys in files.
fn versions(lsm: &Lsm) -> u64 {
    lsm.verify(&mut |_, _| ()).unwrap().entries
}

#[test]
fn flush_and_compaction_fold_what_no_snapshot_separates() {
    for texts in [&[SMALL][..], &[SMALL, "pmem.size=256KiB"], &[SMALL, "triad.log=on"]] {
        let lsm = open(&ram(), texts);
        lsm.set_merge_operator(Some(Arc::new(MergeAppend::new(b"")))).unwrap();
        // Nothing overlaps below, so the first run is a table in every option set.
        append(&lsm, b"a", b"0");
        append(&lsm, b"z", b"0");
        lsm.flush().unwrap();
        append(&lsm, b"k", b"1");
        append(&lsm, b"k", b"2");
        let snapshot = lsm.snapshot().unwrap();
        append(&lsm, b"k", b"3");
        append(&lsm, b"k", b"4");
        lsm.flush().unwrap();
        let all = KeyRange::all();
        assert_eq!(versions(&lsm), 4, "two for each side of the snapshot: {texts:?}");
        lsm.compact_range(&all).unwrap();
        let at_snapshot = lsm.get_at(b"k", &snapshot).unwrap().unwrap();
        assert_eq!(
            (value(&lsm, b"k").as_deref(), &at_snapshot.value[..]),
            (Some("1234"), &b"12"[..])
        );
        assert_eq!(versions(&lsm), 4);
        drop(snapshot);
        append(&lsm, b"k", b"5");
        lsm.flush().unwrap();
        lsm.compact_range(&all).unwrap();
        assert_eq!(versions(&lsm), 3, "one value per key: {texts:?}");
        assert_eq!(value(&lsm, b"k").as_deref(), Some("12345"));
        assert!(lsm.stats().counters["merge_operands_folded"] >= 5);
    }
}

#[test]
fn operands_without_partial_merge_are_read_from_many_runs() {
    let vfs = ram();
    let lsm = open(&vfs, &[SMALL, "triad.log=on"]);
    let operator = || Arc::new(NoPartialMerge(MergeAppend::new(b"")));
    lsm.set_merge_operator(Some(operator())).unwrap();
    let mut expected = "=".to_owned();
    lsm.write(WriteBatch::new().put(b"k", b"="), Durability::Buffered).unwrap();
    for round in 0..30 {
        for digit in 0..7 {
            append(&lsm, b"k", digit.to_string().as_bytes());
            expected.push_str(&digit.to_string());
        }
        append(&lsm, format!("other {round}").as_bytes(), &[b'x'; 900]);
        if round % 3 == 0 {
            lsm.flush().unwrap();
        }
        assert_eq!(value(&lsm, b"k").as_ref(), Some(&expected));
    }
    drop(lsm);
    let lsm = open(&vfs, &[SMALL]);
    lsm.set_merge_operator(Some(operator())).unwrap();
    assert_eq!(value(&lsm, b"k"), Some(expected));
}

#[test]
fn range_deletion_is_a_missing_value_for_later_operands() {
    for is_flushed in [false, true] {
        let lsm = open(&ram(), &[SMALL]);
        lsm.set_merge_operator(Some(Arc::new(MergeAppend::new(b"")))).unwrap();
        append(&lsm, b"k", b"1");
        if is_flushed {
            lsm.flush().unwrap();
        }
        let mut batch = WriteBatch::new();
        batch.merge(b"k", b"2").delete_range("a".."z").merge(b"k", b"3").merge(b"k", b"4");
        lsm.write(&batch, Durability::Buffered).unwrap();
        for _ in 0..2 {
            assert_eq!(value(&lsm, b"k").as_deref(), Some("34"));
            lsm.flush().unwrap();
            lsm.compact_range(&KeyRange::all()).unwrap();
        }
        assert_eq!(versions(&lsm), 1);
    }
}

#[test]
fn no_increment_of_concurrent_threads_is_lost_or_counted_twice() {
    const THREADS: u64 = 4;
    const MERGES: u64 = 3_000;
    for texts in [&[SMALL][..], &[SMALL, "triad.log=on triad.mem=on l0_capacity=32KiB"]] {
        let vfs = ram();
        let lsm = open_in(&vfs, Env::system(2), texts);
        lsm.set_merge_operator(Some(Arc::new(MergeCounter))).unwrap();
        let sum = |lsm: &Lsm, key: &[u8]| {
            lsm.get(key).unwrap().map_or(0, |e| u64::from_le_bytes(e.value.try_into().unwrap()))
        };
        let is_done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| {
                let mut last = 0;
                while !is_done.load(Ordering::Relaxed) {
                    // A counter that only grows is never read smaller; a snapshot stays as it is.
                    let point = lsm.snapshot().unwrap();
                    let at_point = lsm.get_at(b"hot", &point).unwrap();
                    let now = sum(&lsm, b"hot");
                    assert!(now >= last, "{now} after {last}");
                    last = now;
                    assert_eq!(lsm.get_at(b"hot", &point).unwrap(), at_point);
                }
            });
            let writers: Vec<_> = (0..THREADS)
                .map(|thread| {
                    let lsm = &lsm;
                    scope.spawn(move || {
                        for at in 0..MERGES {
                            let mut batch = WriteBatch::new();
                            batch.merge(b"hot", &1u64.to_le_bytes());
                            batch.merge(format!("{:03}", at % 200).as_bytes(), &2u64.to_le_bytes());
                            batch.put(format!("fill {thread} {}", at % 50).as_bytes(), &[7; 40]);
                            lsm.write(&batch, Durability::Buffered).unwrap();
                        }
                    })
                })
                .collect();
            writers.into_iter().for_each(|writer| writer.join().unwrap());
            is_done.store(true, Ordering::Relaxed);
            reader.join().unwrap();
        });
        let check = |lsm: &Lsm| {
            assert_eq!(sum(lsm, b"hot"), THREADS * MERGES);
            for at in 0..200 {
                assert_eq!(sum(lsm, format!("{at:03}").as_bytes()), 2 * THREADS * MERGES / 200);
            }
        };
        check(&lsm);
        assert!(lsm.stats().counters["flushes"] > 3);
        lsm.maintain().unwrap();
        check(&lsm);
        drop(lsm);
        check(&open(&vfs, texts));
    }
}

#[test]
fn table_with_operands_has_a_newer_format_version() {
    let vfs = ram();
    for (number, kind) in [(1, siltstone_table::Kind::Put), (2, siltstone_table::Kind::Merge)] {
        let (number, options) = (FileNumber(number), TableOptions::default());
        let name = FileKind::Table.name(number);
        let purpose = siltstone_engine::Purpose::Flush;
        let mut writer =
            TableWriter::create(vfs.as_ref(), &name, number, options, purpose).unwrap();
        let entry =
            siltstone_table::EntryRef { key: b"k", sequence: 9, kind, expires_at: 0, value: b"v" };
        writer.add(entry).unwrap();
        let bytes = writer.finish().unwrap().bytes;
        let file = vfs.open(&name, siltstone_vfs::Mode::Read).unwrap();
        let mut version = [0; 4];
        file.read_at(bytes - 16, &mut version, purpose).unwrap();
        assert_eq!(u32::from_le_bytes(version), number.0 as u32, "{kind:?}");
    }
}

#[test]
fn merge_before_an_operator_is_set_is_refused() {
    let lsm = open(&ram(), &[SMALL]);
    let refused = lsm.write(WriteBatch::new().merge(b"k", b"1"), Durability::Buffered);
    assert!(matches!(refused, Err(Error::Invalid(_))), "{refused:?}");
    assert!(lsm.capabilities().merge && lsm.merge_operator().is_none());
}

/// The logs of a NoveLSM overlay contain what is in tables already, and are replayed after a crash.
/// A table that was flushed beside the overlay is folded with the older value by a compaction.
/// The next open finds the name, and what expires must not be beside it.
#[test]
fn table_is_read_only_once_the_name_of_its_operator_is_in_doubt() {
    let disk = FaultyVfs::new(1);
    let vfs: Arc<dyn Vfs> = Arc::new(disk.clone());
    let lsm = open(&vfs, &[]);
    disk.fail_next(FaultKind::Sync, 1);
    lsm.set_merge_operator(Some(Arc::new(MergeCounter))).unwrap_err();
    disk.clear_faults();
    let written = lsm.write(WriteBatch::new().put_until(b"k", b"v", 1 << 40), Durability::Synced);
    assert!(matches!(written, Err(Error::ReadOnly { .. })), "{written:?}");
    drop(lsm);
    let lsm = open(&vfs, &[]);
    assert!(lsm.merge_operator().is_some(), "the name is there");
    let written = lsm.write(WriteBatch::new().put_until(b"k", b"v", 1 << 40), Durability::Synced);
    assert!(matches!(written, Err(Error::Invalid(_))), "{written:?}");

    // Without space nothing is in doubt.
    let disk = FaultyVfs::new(1);
    let lsm = open(&(Arc::new(disk.clone()) as Arc<dyn Vfs>), &[]);
    disk.set_errors_full(true);
    disk.fail_next(FaultKind::Write, 1);
    lsm.set_merge_operator(Some(Arc::new(MergeCounter))).unwrap_err();
    lsm.write(WriteBatch::new().put_until(b"k", b"v", 1 << 40), Durability::Synced).unwrap();
}

#[test]
fn operands_replayed_beside_their_tables_count_once() {
    let texts = [SMALL, "memtable=4KiB l0_policy=novelsm pmem.size=128KiB"];
    let (mut random, mut overlaid, mut compacted) = (1u64, 0, 0);
    let mut draw = |below: u64| {
        random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        (random >> 33) % below
    };
    for _ in 0..12 {
        let (vfs, mut expected) = (ram(), [0u64; 8]);
        for life in 0..40 {
            // Now and then with another policy, which has to cope with what the overlay left.
            let texts = if life % 4 == 3 { &texts[..1] } else { &texts[..] };
            let lsm = open_in(&vfs, Env::system(2), texts);
            lsm.set_merge_operator(Some(Arc::new(MergeCounter))).unwrap();
            for (at, sum) in expected.iter().enumerate() {
                let found = lsm.get(&[at as u8]).unwrap();
                let found = found.map_or(0, |e| u64::from_le_bytes(e.value.try_into().unwrap()));
                assert_eq!(found, *sum, "counter {at} in life {life}");
            }
            for _ in 0..20 + draw(1_500) {
                let (at, by) = (draw(8), 1 + draw(9));
                let mut batch = WriteBatch::new();
                batch.put(&draw(1_000).to_be_bytes(), &[7; 50]);
                let key = [at as u8];
                let sum = &mut expected[at as usize];
                *sum = match draw(200) {
                    0..3 => {
                        batch.put(&key, &by.to_le_bytes());
                        by
                    }
                    3..6 => {
                        batch.delete(&key);
                        0
                    }
                    6 => {
                        batch.delete_range(key..[key[0] + 1]);
                        0
                    }
                    _ => {
                        batch.merge(&key, &by.to_le_bytes());
                        *sum + by
                    }
                };
                lsm.write(&batch, Durability::Buffered).unwrap();
            }
            if draw(4) == 0 {
                lsm.maintain().unwrap();
            }
            let counters = lsm.stats().counters;
            overlaid += counters["large_memtable_writes"];
            compacted += counters["compactions"];
        }
    }
    assert!(
        overlaid > 0 && compacted > 0,
        "{overlaid} writes to overlays, {compacted} compactions"
    );
}
