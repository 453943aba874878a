//! Ingestion of sorted files: what is refused, where files go, power cuts at every operation, and
//! threads. The conformance kit has ingestions in its histories.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use siltstone_engine::{
    Durability, Engine, Error, IngestMode, IngestOptions, IngestReport, KeyRange, ManualClock,
    MergeCounter, PrefixChange, Purpose, Result, WriteBatch,
};
use siltstone_faults::FaultyVfs;
use siltstone_lsm::{Lsm, Options, SortedFile, SortedFileWriter};
use siltstone_runtime::Env;
use siltstone_testkit::TestRng;
use siltstone_vfs::{Mode, Ram, Vfs};

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
    Arc::new(Ram::new())
}

fn key(number: u64) -> Vec<u8> {
    format!("key:{number:06}").into_bytes()
}

/// Writes a file that sets keys to `value`.
fn write_file(
    vfs: &Arc<dyn Vfs>,
    name: &str,
    keys: impl IntoIterator<Item = u64>,
    value: &[u8],
) -> SortedFile {
    let mut writer = SortedFileWriter::create(vfs.clone(), name, &options(&[SMALL])).unwrap();
    keys.into_iter().for_each(|number| writer.put(&key(number), value).unwrap());
    writer.finish().unwrap()
}

fn ingest(lsm: &Lsm, names: &[&str], mode: IngestMode) -> Result<IngestReport> {
    ingest_with(lsm, names, IngestOptions { mode, ..IngestOptions::default() })
}

fn ingest_with(lsm: &Lsm, names: &[&str], options: IngestOptions) -> Result<IngestReport> {
    let paths: Vec<&Path> = names.iter().map(|name| Path::new(*name)).collect();
    lsm.prepare_ingestion(&paths, options)?.commit()
}

fn put(lsm: &Lsm, number: u64, value: &[u8]) {
    lsm.write(WriteBatch::new().put(&key(number), value), Durability::Buffered).unwrap();
}

fn value(lsm: &Lsm, number: u64) -> Option<Vec<u8>> {
    lsm.get(&key(number)).unwrap().map(|entry| entry.value)
}

/// The files of the table itself that have to do with ingestions.
fn ingested_files(vfs: &Arc<dyn Vfs>) -> Vec<String> {
    let is_ingested = |name: &String| name.ends_with(".ingest") || name.contains('-');
    vfs.list().unwrap().into_iter().filter(is_ingested).filter(|it| !it.contains("MANI")).collect()
}

fn rejected(outcome: Result<IngestReport>) -> String {
    match outcome {
        Err(Error::Invalid(reason)) => reason,
        other => panic!("expected Invalid, got {other:?}"),
    }
}

#[test]
fn writer_refuses_keys_that_do_not_ascend_and_names_both() {
    let vfs = ram();
    let mut writer = SortedFileWriter::create(vfs.clone(), "a", &Options::default()).unwrap();
    writer.put(b"beta", b"1").unwrap();
    for key in [&b"beta"[..], b"alpha", b""] {
        let error = writer.put(key, b"2").unwrap_err().to_string();
        assert!(error.contains("beta") && error.contains(&*key.escape_ascii().to_string()));
    }
    writer.delete(b"gamma").unwrap();
    writer.put_until(b"zeta", b"3", 99).unwrap();
    let file = writer.finish().unwrap();
    assert_eq!((file.entries, file.deletions, file.expiring), (3, 1, 1));
    assert_eq!((&*file.first_key, &*file.last_key), (&b"beta"[..], &b"zeta"[..]));
    assert_eq!(file.bytes, vfs.open("a", Mode::Read).unwrap().len().unwrap());
}

#[test]
fn unfinished_or_empty_file_is_removed() {
    let vfs = ram();
    let mut writer = SortedFileWriter::create(vfs.clone(), "a", &Options::default()).unwrap();
    writer.put(b"k", b"v").unwrap();
    drop(writer);
    let writer = SortedFileWriter::create(vfs.clone(), "b", &Options::default()).unwrap();
    assert!(matches!(writer.finish(), Err(Error::Invalid(_))));
    assert!(vfs.list().unwrap().is_empty());
}

#[test]
fn files_with_another_prefix_are_ingested_together_or_not_at_all() {
    let vfs = ram();
    let lsm = open(&vfs, &[]);
    put(&lsm, 1, b"before");
    let mut writer = SortedFileWriter::create(vfs.clone(), "a", &options(&[SMALL])).unwrap();
    writer.delete(b"x:000001").unwrap();
    (10..900).for_each(|n| writer.put(format!("x:{n:06}").as_bytes(), b"value").unwrap());
    writer.put_until(b"x:001000", b"soon", 5000).unwrap();
    writer.finish().unwrap();
    write_file(&vfs, "b", [5, 6], b"second");
    let change = |from: &[u8], to: &[u8]| PrefixChange { from: from.to_vec(), to: to.to_vec() };
    let with = |prefix, mode| IngestOptions { mode, prefix: Some(prefix), ..Default::default() };
    let before: Vec<String> = vfs.list().unwrap();
    let refused =
        rejected(ingest_with(&lsm, &["a", "b"], with(change(b"x:", b"key:"), IngestMode::Move)));
    assert!(refused.contains("key:000005") && refused.contains("x:"), "{refused}");
    let too_long = vec![b'k'; siltstone_engine::MAX_KEY_BYTES];
    let refused = ingest_with(&lsm, &["a"], with(change(b"x:", &too_long), IngestMode::Copy));
    assert!(refused.is_err());
    assert_eq!((ingested_files(&vfs), vfs.list().unwrap()), (Vec::new(), before));
    let report = ingest_with(&lsm, &["a"], with(change(b"x:", b"key:"), IngestMode::Move)).unwrap();
    assert_eq!((report.entries, report.copied_bytes), (892, report.bytes));
    assert!(!vfs.list().unwrap().contains(&"a".to_owned()), "the file was moved");
    for lsm in [lsm, open(&vfs, &[])] {
        assert_eq!(value(&lsm, 1), None);
        assert_eq!(
            (value(&lsm, 10), value(&lsm, 899)),
            (Some(b"value".into()), Some(b"value".into()))
        );
        assert_eq!(lsm.get(b"key:001000").unwrap().unwrap().expires_at, Some(5000));
        assert_eq!(lsm.get(b"x:000010").unwrap(), None);
        lsm.close().unwrap();
    }
}

#[test]
fn unsuitable_files_are_refused_and_leave_nothing() {
    let vfs = ram();
    let lsm = open(&vfs, &[SMALL]);
    put(&lsm, 5, b"old");
    write_file(&vfs, "one", 0..10, b"1");
    write_file(&vfs, "two", 9..20, b"2");
    let overlap = rejected(ingest(&lsm, &["two", "one"], IngestMode::Move));
    assert!(overlap.contains("one and two") && overlap.contains("key:000009"), "{overlap}");
    vfs.create("text").unwrap().write_at(0, &[b'x'; 500], Purpose::Maintenance).unwrap();
    let foreign = rejected(ingest(&lsm, &["text"], IngestMode::Move));
    assert!(foreign.contains("text is no complete sorted file"), "{foreign}");
    // A file that is cut off, and one with a flipped bit.
    let bytes = vfs.open("one", Mode::Read).unwrap().len().unwrap();
    let copy = |name: &str, len: u64| {
        let mut content = vec![0; len as usize];
        vfs.open("one", Mode::Read).unwrap().read_at(0, &mut content, Purpose::Scan).unwrap();
        let file = vfs.create(name).unwrap();
        file.write_at(0, &content, Purpose::Maintenance).unwrap();
        file
    };
    copy("short", bytes - 1);
    rejected(ingest(&lsm, &["short"], IngestMode::Link));
    copy("bad", bytes).write_at(7, b"\xff", Purpose::Maintenance).unwrap();
    let damaged = ingest(&lsm, &["bad"], IngestMode::Move).unwrap_err();
    assert!(matches!(&damaged, Error::Corruption { file, .. } if file == "bad"), "{damaged}");
    assert!(ingest(&lsm, &["missing"], IngestMode::Copy).unwrap_err().is_not_found());
    // A table's own file would be lost by a move.
    ingest(&lsm, &["one"], IngestMode::Copy).unwrap();
    let own = ingested_files(&vfs).pop().unwrap();
    assert!(rejected(ingest(&lsm, &[&own], IngestMode::Move)).contains("own file"));
    assert_eq!(ingested_files(&vfs), [own]);
    for name in ["one", "two", "text", "short", "bad"] {
        assert!(vfs.exists(name).unwrap(), "{name}");
    }
    assert_eq!(value(&lsm, 5).unwrap(), b"1");
}

#[test]
fn file_goes_to_the_deepest_level_without_an_overlap_above() {
    let vfs = ram();
    let lsm = open(&vfs, &[SMALL]);
    let add = |keys: std::ops::Range<u64>, value: &[u8]| {
        write_file(&vfs, "f", keys, value);
        ingest(&lsm, &["f"], IngestMode::Move).unwrap().levels[0]
    };
    assert_eq!(add(0..10, b"1"), 3);
    assert_eq!(add(20..30, b"1"), 3);
    // Over the last one, over both of them, and between them.
    assert_eq!(add(25..26, b"2"), 2);
    assert_eq!(add(0..30, b"3"), 1);
    assert_eq!(add(12..14, b"4"), 0);
    assert_eq!(add(13..14, b"5"), 0);
    assert_eq!(add(40..50, b"1"), 3);
    let expect = |lsm: &Lsm| {
        let found = [5, 12, 13, 15, 25, 45].map(|number| value(lsm, number).unwrap()[0]);
        assert_eq!(&found, b"345331");
    };
    expect(&lsm);
    lsm.compact_range(&KeyRange::all()).unwrap();
    expect(&lsm);
    assert!(lsm.verify(&mut |_, _| ()).unwrap().is_intact());
    lsm.close().unwrap();
    drop(lsm);
    expect(&open(&vfs, &[SMALL]));
}

#[test]
fn snapshot_and_cursor_of_before_do_not_see_the_files() {
    let vfs = ram();
    let lsm = open(&vfs, &[SMALL]);
    (0..10).for_each(|number| put(&lsm, number, b"old"));
    let before = lsm.snapshot().unwrap();
    let mut cursor = lsm.iter().unwrap();
    assert!(cursor.first().unwrap());
    let mut writer = SortedFileWriter::create(vfs.clone(), "f", &Options::default()).unwrap();
    writer.put(&key(1), b"new").unwrap();
    writer.delete(&key(2)).unwrap();
    writer.put(&key(77), b"new").unwrap();
    writer.finish().unwrap();
    ingest(&lsm, &["f"], IngestMode::Link).unwrap();
    let mut keys = 1;
    while cursor.next().unwrap() {
        assert_eq!(cursor.value(), b"old");
        keys += 1;
    }
    assert_eq!(keys, 10);
    for settle in [false, true] {
        if settle {
            lsm.flush().unwrap();
            lsm.maintain().unwrap();
            lsm.compact_range(&KeyRange::all()).unwrap();
        }
        for (number, old, new) in
            [(1, Some(b"old"), Some(b"new")), (2, Some(b"old"), None), (77, None, Some(b"new"))]
        {
            let at = |found: Option<siltstone_engine::Entry>| found.map(|entry| entry.value);
            let found = at(lsm.get_at(&key(number), &before).unwrap());
            assert_eq!(found.as_deref(), old.map(|value| &value[..]), "{number}");
            assert_eq!(value(&lsm, number).as_deref(), new.map(|value| &value[..]), "{number}");
        }
        let mut at_snapshot = lsm.range(KeyRange::all(), Some(&before)).unwrap();
        let mut count = u64::from(at_snapshot.last().unwrap());
        while at_snapshot.prev().unwrap() {
            count += 1;
        }
        assert_eq!(count, 10);
    }
}

#[test]
fn later_writes_and_range_deletions_win_and_earlier_ones_lose() {
    for policy in ["", "triad.mem=on triad.log=on", "l0_policy=sliced pmem.size=256KiB"] {
        let vfs = ram();
        let lsm = open(&vfs, &[SMALL, policy]);
        let delete = |keys: std::ops::Range<u64>| {
            let mut batch = WriteBatch::new();
            batch.delete_range(key(keys.start)..key(keys.end));
            lsm.write(&batch, Durability::Buffered).unwrap();
        };
        // Hot keys, which a flush would keep in memory.
        (0..2000).for_each(|round| put(&lsm, round % 7, &round.to_be_bytes()));
        delete(100..200);
        write_file(&vfs, "f", (0..300).step_by(2), b"file");
        ingest(&lsm, &["f"], IngestMode::Move).unwrap();
        put(&lsm, 4, b"later");
        delete(250..260);
        for settle in 0..4 {
            match settle {
                1 => lsm.flush().unwrap(),
                2 => lsm.maintain().unwrap(),
                3 => lsm.compact_range(&KeyRange::all()).unwrap(),
                _ => {}
            }
            assert_eq!(value(&lsm, 0).unwrap(), b"file", "{policy}");
            assert_eq!(value(&lsm, 1).unwrap(), 1996u64.to_be_bytes());
            assert_eq!(value(&lsm, 4).unwrap(), b"later");
            assert_eq!(value(&lsm, 150).unwrap(), b"file");
            assert_eq!((value(&lsm, 151), value(&lsm, 252)), (None, None));
        }
        drop(lsm);
        let lsm = open(&vfs, &[SMALL, policy]);
        assert_eq!(value(&lsm, 0).unwrap(), b"file", "{policy}");
        assert_eq!(value(&lsm, 4).unwrap(), b"later");
    }
}

#[test]
fn table_with_a_merge_operator_takes_no_expiring_entries_and_merges_over_ingested_values() {
    let vfs = ram();
    let lsm = open(&vfs, &[SMALL]);
    lsm.set_merge_operator(Some(Arc::new(MergeCounter))).unwrap();
    let mut writer = SortedFileWriter::create(vfs.clone(), "f", &Options::default()).unwrap();
    writer.put_until(b"a", &1u64.to_le_bytes(), 1 << 40).unwrap();
    writer.finish().unwrap();
    assert!(rejected(ingest(&lsm, &["f"], IngestMode::Move)).contains("expire"));
    assert!(vfs.exists("f").unwrap() && ingested_files(&vfs).is_empty());
    let merge = |operand: u64| {
        let mut batch = WriteBatch::new();
        batch.merge(&key(1), &operand.to_le_bytes());
        lsm.write(&batch, Durability::Buffered).unwrap();
    };
    merge(100);
    write_file(&vfs, "g", 0..3, &5u64.to_le_bytes());
    ingest(&lsm, &["g"], IngestMode::Move).unwrap();
    merge(7);
    for _ in 0..2 {
        assert_eq!(value(&lsm, 1).unwrap(), 12u64.to_le_bytes());
        lsm.compact_range(&KeyRange::all()).unwrap();
    }
}

#[test]
fn overlay_of_novelsm_refuses_by_name() {
    let vfs = ram();
    let lsm = open(&vfs, &[SMALL, "l0_policy=novelsm pmem.size=64KiB"]);
    write_file(&vfs, "f", 0..3, b"1");
    assert!(rejected(ingest(&lsm, &["f"], IngestMode::Move)).contains("novelsm"));
}

/// Cuts power at each operation of an ingestion of two files in turn.
#[test]
fn power_cut_leaves_all_files_or_none_and_loses_no_source() {
    for mode in [IngestMode::Copy, IngestMode::Link, IngestMode::Move] {
        let (mut is_complete, mut cut, mut there) = (false, 0, 0);
        while !is_complete {
            let disk = FaultyVfs::new(cut);
            let vfs: Arc<dyn Vfs> = Arc::new(disk.clone());
            let lsm = open(&vfs, &[SMALL]);
            (0..20).for_each(|number| put(&lsm, number, b"old"));
            write_file(&vfs, "one", 0..10, b"new");
            write_file(&vfs, "two", 10..30, b"new");
            disk.cut_power_at(disk.operations() + cut);
            let outcome = ingest(&lsm, &["one", "two"], mode);
            is_complete = !disk.power_is_off();
            disk.cut_power();
            drop(lsm);
            let disk = disk.survivors(cut);
            let vfs: Arc<dyn Vfs> = Arc::new(disk.clone());
            let sources = ["one", "two"].map(|name| vfs.exists(name).unwrap());
            let lsm = open(&vfs, &[SMALL]);
            let found: Vec<_> = (0..30).filter_map(|number| value(&lsm, number)).collect();
            let is_ingested = found.len() == 30;
            assert!(found.iter().all(|value| (value == b"new") == is_ingested), "{mode:?} {cut}");
            assert!(is_ingested || outcome.is_err(), "{mode:?} {cut}");
            // Before the ingestion is durable, nothing is moved.
            let are_all_there = sources.iter().all(|is_there| *is_there);
            assert!(are_all_there || (mode == IngestMode::Move && is_ingested), "{mode:?} {cut}");
            assert_eq!(ingested_files(&vfs).len(), if is_ingested { 2 } else { 0 });
            assert!(lsm.verify(&mut |_, _| ()).unwrap().is_intact());
            if !is_ingested {
                ingest(&lsm, &["one", "two"], mode).unwrap();
                assert_eq!(value(&lsm, 29).unwrap(), b"new");
            }
            there += u64::from(is_ingested);
            cut += 1;
        }
        assert!(cut > 10 && there > 1 && there < cut, "{mode:?}: {there} of {cut}");
    }
}

/// Each ingestion sets all keys of two files to its number, among writers and readers.
#[test]
fn reader_among_threads_sees_an_ingestion_whole() {
    const KEYS: u64 = 60;
    for texts in [&[SMALL, "triad.mem=on triad.log=on"][..], &[SMALL, "l0_capacity=32KiB"]] {
        let vfs = ram();
        let lsm = Lsm::open(vfs.clone(), Env::system(2), options(texts)).unwrap();
        let (lsm, is_done) = (&lsm, &AtomicBool::new(false));
        let all = |lsm: &Lsm| {
            let mut batch = WriteBatch::new();
            (0..KEYS).for_each(|number| _ = batch.put(&key(number), &0u64.to_be_bytes()));
            lsm.write(&batch, Durability::Buffered).unwrap();
        };
        all(lsm);
        std::thread::scope(|scope| {
            for writer in 0..2u64 {
                scope.spawn(move || {
                    let mut rng = TestRng::of(writer, 1);
                    while !is_done.load(SeqCst) {
                        put(lsm, 1000 + rng.below(3000), &rng.bytes(100));
                        // Overwrites what is ingested, too, whole.
                        if rng.one_in(500) {
                            all(lsm);
                        }
                    }
                });
            }
            scope.spawn(move || {
                let mut last_scan = 0;
                while !is_done.load(SeqCst) {
                    let range = KeyRange::new(key(0)..key(KEYS));
                    let mut cursor = lsm.range(range, None).unwrap();
                    let (mut values, mut is_valid) = (Vec::new(), cursor.first().unwrap());
                    while is_valid {
                        values.push(cursor.value().to_vec());
                        is_valid = cursor.next().unwrap();
                    }
                    assert_eq!(values.len() as u64, KEYS);
                    assert!(values.iter().all(|value| *value == values[0]), "{values:?}");
                    last_scan += 1;
                }
                assert!(last_scan > 0);
            });
            for round in 1..40u64 {
                let half = KEYS / 2;
                write_file(&vfs, "a", 0..half, &round.to_be_bytes());
                write_file(&vfs, "b", half..KEYS, &round.to_be_bytes());
                let mode = [IngestMode::Move, IngestMode::Copy][round as usize % 2];
                ingest(lsm, &["b", "a"], mode).unwrap();
                let _ = (vfs.remove("a"), vfs.remove("b"));
            }
            is_done.store(true, SeqCst);
        });
        assert!(lsm.verify(&mut |_, _| ()).unwrap().is_intact());
        lsm.close().unwrap();
    }
}

/// Files go into gaps of levels while compactions that span the gaps are running.
#[test]
fn ingestion_among_compactions_keeps_levels_disjoint_and_every_entry() {
    let vfs = ram();
    let lsm = Lsm::open(vfs.clone(), Env::system(3), options(&[SMALL, "max_compactions=3"]));
    let lsm = lsm.unwrap();
    let (mut rng, mut expected) = (TestRng::of(3, 1), BTreeMap::new());
    for round in 0..60u64 {
        for _ in 0..120 {
            let (number, value) = (rng.below(4000), rng.bytes(60));
            put(&lsm, number, &value);
            expected.insert(number, value);
        }
        let from = rng.below(4000);
        let keys: Vec<u64> = (from..from + 1 + rng.below(6)).collect();
        let value = round.to_be_bytes();
        write_file(&vfs, "f", keys.iter().copied(), &value);
        ingest(&lsm, &["f"], IngestMode::Move).unwrap();
        expected.extend(keys.into_iter().map(|number| (number, value.to_vec())));
        if round % 10 == 9 {
            lsm.compact_range(&KeyRange::new(key(0)..key(rng.below(4000)))).unwrap();
        }
    }
    let check = |lsm: &Lsm| {
        expected.iter().for_each(|(number, value)| {
            assert_eq!(self::value(lsm, *number).as_ref(), Some(value), "{number}");
        });
    };
    check(&lsm);
    lsm.maintain().unwrap();
    check(&lsm);
    lsm.close().unwrap();
    drop(lsm);
    check(&open(&vfs, &[SMALL]));
}

#[test]
fn checkpoint_and_statistics_know_ingested_files() {
    let vfs = ram();
    let lsm = open(&vfs, &[SMALL]);
    let file = write_file(&vfs, "f", 0..50, b"1");
    let report = ingest(&lsm, &["f"], IngestMode::Copy).unwrap();
    assert_eq!((report.entries, report.bytes, report.copied_bytes), (50, file.bytes, file.bytes));
    let stats = lsm.stats();
    assert_eq!(
        (stats.counters["ingested_files"], stats.counters["sequence"]),
        (1, report.sequence)
    );
    let copy = ram();
    lsm.checkpoint(&mut siltstone_testkit::sink::VfsSink::new(copy.clone())).unwrap();
    assert_eq!(ingested_files(&copy), ingested_files(&vfs));
    let copied = open(&copy, &[SMALL]);
    assert_eq!(value(&copied, 49).unwrap(), b"1");
    // The same file again, into another table.
    ingest(&lsm, &["f"], IngestMode::Link).unwrap();
    let name = &ingested_files(&vfs)[0];
    let shown = siltstone_lsm::inspect(&vfs, name, 3).unwrap().unwrap();
    assert!(shown.damage.is_none() && shown.items[0].contains(&format!("@{}", report.sequence)));
}

/// Without its manifest a table orders ingested entries among the others by the names of the files.
#[test]
fn repair_without_a_manifest_keeps_ingested_entries_in_their_order() {
    for is_compacted in [false, true] {
        let vfs = ram();
        let lsm = open(&vfs, &[SMALL]);
        (0..30).for_each(|number| put(&lsm, number, b"old"));
        write_file(&vfs, "f", 0..20, b"file");
        ingest(&lsm, &["f"], IngestMode::Move).unwrap();
        (0..10).for_each(|number| put(&lsm, number, b"new"));
        write_file(&vfs, "f", 5..6, b"last");
        ingest(&lsm, &["f"], IngestMode::Move).unwrap();
        put(&lsm, 40, b"new");
        if is_compacted {
            lsm.maintain().unwrap();
        }
        lsm.close().unwrap();
        drop(lsm);
        for name in vfs.list().unwrap() {
            if name == "CURRENT" || name.starts_with("MANIFEST") {
                vfs.remove(&name).unwrap();
            }
        }
        siltstone_lsm::repair(&vfs).unwrap();
        let lsm = open(&vfs, &[SMALL]);
        let found = [2, 5, 15, 25, 40].map(|number| value(&lsm, number).unwrap());
        assert_eq!(found, ["new", "last", "file", "old", "new"].map(|it| it.as_bytes().to_vec()));
        assert!(lsm.verify(&mut |_, _| ()).unwrap().is_intact());
    }
}

/// The state would otherwise lack the files and have the write after them: no power cut leaves it.
#[test]
fn manifest_that_lost_an_ingestion_is_refused_and_repaired() {
    let vfs = ram();
    let lsm = open(&vfs, &[SMALL]);
    let manifest = vfs.list().unwrap().into_iter().find(|it| it.starts_with("MANIFEST")).unwrap();
    let before = vfs.open(&manifest, Mode::Read).unwrap().len().unwrap();
    write_file(&vfs, "f", 0..5, b"file");
    ingest(&lsm, &["f"], IngestMode::Move).unwrap();
    put(&lsm, 9, b"later");
    drop(lsm);
    vfs.open(&manifest, Mode::ReadWrite).unwrap().set_len(before).unwrap();
    let env = Env::replayable(Arc::new(ManualClock::at(1)), 1);
    let refused = Lsm::open(vfs.clone(), env, options(&[SMALL])).err().unwrap().to_string();
    assert!(refused.contains("lacks the files that @1 ingested"), "{refused}");
    assert!(!siltstone_lsm::verify_closed(&vfs).unwrap().is_intact());
    let report = siltstone_lsm::repair(&vfs).unwrap();
    assert!(!report.is_lossless(), "the order of writes is in doubt");
    let lsm = open(&vfs, &[SMALL]);
    assert_eq!(value(&lsm, 4).unwrap(), b"file");
    assert_eq!(value(&lsm, 9).unwrap(), b"later");
}
