//! Moments that cannot be restored: refused, with the reason and the nearest ones.

use std::sync::Arc;

use siltstone::{Clock, IngestOptions, ManualClock, SystemClock};
use siltstone_backup::{Archiver, format_time};

use crate::fixture::{Fixture, list, next_millisecond};

#[test]
fn moment_outside_of_the_archive_is_refused_with_its_range() {
    let (mut fixture, table) = Fixture::with_table();
    fixture.put(&table, "a");
    let last = fixture.put(&table, "b");
    let moments = fixture.repository().moments().unwrap();
    let [range] = &moments[..] else { panic!("{moments:?}") };
    assert_eq!(range.last, last);
    for time in [0, range.first - 1, last + 1] {
        let message = fixture.refusal(time);
        assert!(message.contains(&format_time(range.first)), "{message}");
        assert!(message.contains(&format_time(last)), "{message}");
    }
    assert_eq!(fixture.keys_at(last), ["a", "b"]);
}

#[test]
fn moment_between_marks_is_restored_as_of_the_mark_before() {
    let (mut fixture, table) = Fixture::with_table();
    let first = fixture.put(&table, "a");
    // Nothing changes: the archive still reaches further.
    let idle = fixture.step();
    assert_eq!((idle.segments, idle.mark > first), (0, true));
    let between = next_millisecond();
    fixture.put(&table, "b");
    let (restored, _) = fixture.restore(between);
    assert_eq!(restored.moment, idle.mark);
    assert_eq!(fixture.keys_at(between), ["a"]);
    assert_eq!(fixture.restore(idle.mark - 1).0.moment, idle.mark - 1);
}

#[test]
fn repository_without_an_archive_says_how_to_get_one() {
    let mut fixture = Fixture::new();
    fixture.table("stock");
    fixture.back_up();
    assert!(fixture.refusal(SystemClock.now()).contains("--backup-log-interval"));
    // A backup from before the archive is none of its beginnings.
    fixture.step();
    assert!(fixture.refusal(SystemClock.now()).contains("--backup-log-interval"));
}

#[test]
fn ingested_files_are_a_gap_until_the_next_backup() {
    let (mut fixture, table) = Fixture::with_table();
    let before = fixture.put(&table, "a");
    let file = fixture.path("rows.sst");
    let mut writer = siltstone::SortedFileWriter::create(&file, &Default::default()).unwrap();
    writer.put(b"ingested", b"value").unwrap();
    writer.finish().unwrap();
    table.ingest(&[&file], IngestOptions::default()).unwrap();
    let report = fixture.step();
    assert!(report.gap.as_deref().is_some_and(|gap| gap.contains("ingested")), "{report:?}");
    assert!(report.needs_backup && fixture.step().needs_backup);
    let within = next_millisecond();
    fixture.back_up();
    assert!(!fixture.step().needs_backup);
    let after = fixture.put(&table, "b");
    let message = fixture.refusal(within);
    assert!(message.contains("ingested") && message.contains(&format_time(before)), "{message}");
    assert_eq!(fixture.keys_at(before), ["a"]);
    assert_eq!(fixture.keys_at(after), ["a", "b", "ingested"]);
}

#[test]
fn log_that_was_removed_meanwhile_is_a_gap() {
    let (mut fixture, table) = Fixture::with_table();
    let before = fixture.put(&table, "a");
    table.set_options(&[("log_retention", "1")]).unwrap();
    for n in 0..40u32 {
        table.put(&n.to_be_bytes(), &[7; 8000]).unwrap();
        table.flush().unwrap();
    }
    table.compact_range::<&[u8]>(..).unwrap();
    let report = fixture.step();
    assert!(report.gap.as_deref().is_some_and(|gap| gap.contains("stock")), "{report:?}");
    assert_eq!(fixture.keys_at(before), ["a"]);
}

#[test]
fn table_without_retention_gets_one() {
    let mut fixture = Fixture::new();
    let table = fixture.db.table_or_create("stock", "lsm", &Default::default()).unwrap();
    let report = fixture.step();
    assert_eq!(report.retained, ["stock"]);
    assert_eq!(table.options()["log_retention"], siltstone_backup::DEFAULT_LOG_RETENTION);
    fixture.back_up();
    assert_eq!(fixture.step().retained, [""; 0]);
    table.put(b"a", b"value").unwrap();
    table.clear().unwrap();
    let (restored, content) = {
        let mark = fixture.step().mark;
        fixture.restore(mark)
    };
    assert!(content.tables["stock"].is_empty() && restored.changes == 2, "{restored:?}");
}

#[test]
fn table_on_another_engine_is_as_of_the_backup_and_named() {
    let mut fixture = Fixture::new();
    let stock = fixture.table("stock");
    let silt = fixture.db.table_or_create("index", "silt", &Default::default()).unwrap();
    silt.put(b"k", b"before").unwrap();
    assert_eq!(fixture.step().without_feed, ["index"]);
    fixture.back_up();
    silt.put(b"k", b"after").unwrap();
    let mark = fixture.put(&stock, "a");
    let (restored, content) = fixture.restore(mark);
    assert_eq!(restored.as_of_backup, ["index"]);
    assert_eq!(content.tables["index"][&b"k"[..]].value, b"before");
    assert_eq!(content.tables["stock"].len(), 1);
    // Of a new one there is no backup.
    fixture.db.table_or_create("other", "trie", &Default::default()).unwrap();
    let report = fixture.step();
    assert!(report.gap.is_some_and(|gap| gap.contains("other")) && report.needs_backup);
}

#[test]
fn older_copy_of_the_store_begins_a_series_of_its_own() {
    let (mut fixture, table) = Fixture::with_table();
    fixture.put(&table, "a");
    drop(table);
    fixture.db.close().unwrap();
    let (store, copy) = (fixture.path("store"), fixture.path("copy"));
    let status = std::process::Command::new("cp").arg("-a").args([&store, &copy]).status();
    assert!(status.unwrap().success());
    fixture.reopen();
    let table = fixture.db.table("stock").unwrap();
    let last = fixture.put(&table, "b");
    // The store is set back, and goes on in another way.
    drop(table);
    fixture.db.close().unwrap();
    std::fs::remove_dir_all(&store).unwrap();
    std::fs::rename(&copy, &store).unwrap();
    fixture.reopen();
    let table = fixture.db.table("stock").unwrap();
    table.put(b"c", b"value").unwrap();
    table.put(b"d", b"value").unwrap();
    let report = fixture.step();
    assert!(report.gap.is_some_and(|gap| gap.contains("older copy")) && report.needs_backup);
    fixture.back_up();
    let other = fixture.step().mark;
    assert_eq!(fixture.keys_at(last), ["a", "b"]);
    assert_eq!(fixture.keys_at(other), ["a", "c", "d"]);
}

#[test]
fn restored_store_begins_a_series_of_its_own() {
    let (mut fixture, table) = Fixture::with_table();
    let mark = fixture.put(&table, "a");
    fixture.put(&table, "b");
    let target = fixture.path("again");
    let options = siltstone::DbOptions::default();
    fixture.repository().restore_at(None, mark, &target, &options, &mut |_| {}).unwrap();
    let db = siltstone::Db::open(&target, options).unwrap();
    let report = Archiver::new(db.clone(), fixture.repository()).step().unwrap();
    assert!(report.needs_backup && report.gap.is_none(), "{report:?}");
    assert_eq!(list(&fixture.path("backups/archive")).len(), 2);
    // Its backups are those of another store, which must be named.
    fixture.repository().back_up(&db, &mut |_, _| {}).unwrap();
    assert!(fixture.refusal(mark).contains("--store"));
    let store = fixture.path("store").display().to_string();
    let options = siltstone::DbOptions::default();
    let target = fixture.path("third");
    let restored =
        fixture.repository().restore_at(Some(&store), mark, target, &options, &mut |_| {});
    assert_eq!(restored.unwrap().changes, 1);
}

#[test]
fn clock_that_is_set_back_is_a_gap() {
    let (fixture, table) = Fixture::with_table();
    drop(fixture.archiver);
    let clock = Arc::new(ManualClock::at(SystemClock.now() + 1000));
    let repository = || siltstone_backup::Repository::open(fixture_path(&fixture.db)).unwrap();
    let mut archiver = Archiver::with_clock(fixture.db.clone(), repository(), clock.clone());
    table.put(b"a", b"value").unwrap();
    assert_eq!(archiver.step().unwrap().gap, None);
    // By a little: marks wait.
    clock.set(clock.now() - 500);
    table.put(b"b", b"value").unwrap();
    assert_eq!(archiver.step().unwrap().segments, 0);
    clock.set(clock.now() - 3_600_000);
    assert!(archiver.step().unwrap().gap.is_some_and(|gap| gap.contains("clock")));
}

fn fixture_path(db: &siltstone::Db) -> std::path::PathBuf {
    db.path().unwrap().with_file_name("backups")
}
