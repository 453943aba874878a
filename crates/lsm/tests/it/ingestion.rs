//! Ingestion of sorted files: what is refused, where files go, and what reads see. The conformance
//! kit has ingestions in its histories.

use std::path::Path;
use std::sync::Arc;

use siltstone_engine::{
    Durability, Engine, Error, IngestMode, IngestOptions, IngestReport, KeyRange, ManualClock,
    MergeCounter, PrefixChange, Purpose, Result, WriteBatch,
};
use siltstone_lsm::{Lsm, Options, SortedFile, SortedFileWriter};
use siltstone_runtime::Env;
use siltstone_vfs::{Mode, Ram, Vfs};

/// Level 0 is compacted whole after a few flushes; tables are small.
pub(crate) const SMALL: &str = "memtable=16KiB target_file_size=8KiB levels=64KiB:256KiB:1MiB \
                     experimental.l0_compaction_trigger=2 l0_capacity=0 triad.log=off";

pub(crate) fn options(texts: &[&str]) -> Options {
    Options::from_map(&siltstone_testkit::engine_under_test::options(texts.iter().copied()))
        .unwrap()
}

pub(crate) fn open(vfs: &Arc<dyn Vfs>, texts: &[&str]) -> Lsm {
    let env = Env::replayable(Arc::new(ManualClock::at(1)), 1);
    Lsm::open(vfs.clone(), env, options(texts)).unwrap()
}

pub(crate) fn ram() -> Arc<dyn Vfs> {
    Arc::new(Ram::new())
}

pub(crate) fn key(number: u64) -> Vec<u8> {
    format!("key:{number:06}").into_bytes()
}

/// Writes a file that sets keys to `value`.
pub(crate) fn write_file(
    vfs: &Arc<dyn Vfs>,
    name: &str,
    keys: impl IntoIterator<Item = u64>,
    value: &[u8],
) -> SortedFile {
    let mut writer = SortedFileWriter::create(vfs.clone(), name, &options(&[SMALL])).unwrap();
    keys.into_iter().for_each(|number| writer.put(&key(number), value).unwrap());
    writer.finish().unwrap()
}

pub(crate) fn ingest(lsm: &Lsm, names: &[&str], mode: IngestMode) -> Result<IngestReport> {
    ingest_with(lsm, names, IngestOptions { mode, ..IngestOptions::default() })
}

fn ingest_with(lsm: &Lsm, names: &[&str], options: IngestOptions) -> Result<IngestReport> {
    let paths: Vec<&Path> = names.iter().map(|name| Path::new(*name)).collect();
    lsm.prepare_ingestion(&paths, options)?.commit()
}

pub(crate) fn put(lsm: &Lsm, number: u64, value: &[u8]) {
    lsm.write(WriteBatch::new().put(&key(number), value), Durability::Buffered).unwrap();
}

pub(crate) fn value(lsm: &Lsm, number: u64) -> Option<Vec<u8>> {
    lsm.get(&key(number)).unwrap().map(|entry| entry.value)
}

/// The files of the table itself that have to do with ingestions.
pub(crate) fn ingested_files(vfs: &Arc<dyn Vfs>) -> Vec<String> {
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
    for is_compacted in [false, true] {
        if is_compacted {
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
        for stage in 0..4 {
            match stage {
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
