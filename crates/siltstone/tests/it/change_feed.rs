//! The change feed of a table: a replica that is fed with it equals the table, over flushes,
//! restarts, process crashes and power cuts. `SILTSTONE_POWER_CUTS` sets the number of stores.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use siltstone::{
    BatchOp, Change, ChangeBatch, ChangeOptions, Db, DbBatch, DbOptions, Durability, Env, Error,
    ManualClock, MergeCounter, Op, SortedFileWriter, Table, WriteBatch,
};
use siltstone_faults::{FaultKind, FaultyVfs};
use siltstone_testkit::{Scale, TestRng};
use siltstone_vfs::{Mode, Ram, Vfs};

const STEPS: usize = 150;
const LIVES: u64 = 3;

type Rows = BTreeMap<Vec<u8>, (Vec<u8>, Option<u64>)>;

fn options() -> DbOptions {
    DbOptions { env: Env::replayable(Arc::new(ManualClock::at(1)), 1), ..DbOptions::default() }
}

fn table_options(text: &str) -> BTreeMap<String, String> {
    let pairs = text.split(',').map(|pair| pair.split_once('=').unwrap());
    pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

fn store(text: &str) -> (Db, Table) {
    let db = Db::create_vfs(Arc::new(Ram::new()), options()).unwrap();
    let table = db.table_or_create("t", "lsm", &table_options(text)).unwrap();
    (db, table)
}

fn rows_of(table: &Table) -> Rows {
    let rows = table.iter().unwrap().map(|row| row.unwrap());
    rows.map(|(key, entry)| (key, (entry.value, entry.expires_at))).collect()
}

fn apply(rows: &mut Rows, change: &Change) {
    let Change::Write(batch) = change else {
        assert_eq!(*change, Change::Cleared);
        return rows.clear();
    };
    for op in batch.iter_all() {
        match op {
            BatchOp::Point(Op::Put { key, value, expires_at }) => {
                _ = rows.insert(key.to_vec(), (value.to_vec(), expires_at));
            }
            BatchOp::Point(Op::Delete { key }) => _ = rows.remove(key),
            BatchOp::DeleteRange { start, end } => {
                rows.retain(|key, _| !(start <= &key[..] && end.is_none_or(|end| &key[..] < end)));
            }
            BatchOp::Merge { .. } => panic!("no merges were written"),
        }
    }
}

/// A copy of a table that is made from its feed.
#[derive(Default)]
struct Replica {
    rows: Rows,
    position: u64,
    /// What was written, by the first sequence number.
    written: BTreeMap<u64, WriteBatch>,
    /// Times that it was copied from a snapshot, because the feed had a gap.
    copies: u64,
}

impl Replica {
    fn take(&mut self, change: &ChangeBatch, what: &str) {
        assert_eq!(change.first_sequence, self.position + 1, "{what}: a gap or a repetition");
        if let Change::Write(batch) = &change.change {
            let written = &self.written[&change.first_sequence];
            assert!(batch == written, "{what}: another batch than was written");
            assert_eq!(change.sequence, self.position + batch.len() as u64, "{what}");
        }
        apply(&mut self.rows, &change.change);
        self.position = change.sequence;
    }

    /// Resumes, and takes the changes that there are.
    fn resume(&mut self, table: &Table, what: &str) -> siltstone::Result<()> {
        let taken = table.changes(self.position).and_then(|changes| {
            for change in changes {
                self.take(&change?, what);
            }
            Ok(())
        });
        match taken {
            Err(Error::ChangesUnavailable { since, oldest, newest }) => {
                assert!(since == self.position && since < oldest && oldest <= newest, "{what}");
                let snapshot = table.snapshot().unwrap();
                self.rows = rows_of(table);
                self.position = snapshot.sequence();
                self.copies += 1;
            }
            taken => taken?,
        }
        Ok(())
    }
}

fn draw(rng: &mut TestRng) -> WriteBatch {
    let mut batch = WriteBatch::new();
    let key = |rng: &mut TestRng| format!("key-{:03}", rng.below(150));
    for _ in 0..1 + rng.below(4) {
        let key = key(rng);
        match rng.below(12) {
            0 => _ = batch.delete(key.as_bytes()),
            1 => _ = batch.delete_range(key.clone()..format!("{key}~")),
            2 => _ = batch.put_until(key.as_bytes(), b"expires", 1 << 40),
            // Several records.
            3 => _ = batch.put(key.as_bytes(), &rng.bytes(6000)),
            _ => {
                let len = rng.below(300) as usize;
                batch.put(key.as_bytes(), &rng.bytes(len));
            }
        }
    }
    batch
}

fn step(db: &Db, rng: &mut TestRng, replica: &mut Replica) -> siltstone::Result<()> {
    let (table, other) = (db.table("t")?, db.table("other")?);
    let durability = if rng.one_in(5) { Durability::Synced } else { Durability::Buffered };
    let first = table.snapshot()?.sequence() + 1;
    match rng.below(60) {
        0 | 1 => table.flush(),
        2 => table.clear(),
        3 => other.flush(),
        4 => table.sync(),
        // The power may be cut meanwhile.
        5 => replica.resume(&table, "live"),
        6..20 => {
            let mut batch = DbBatch::new();
            let writes = draw(rng);
            batch.table(&other).put(b"k", b"v");
            batch.table(&table).append(&writes);
            replica.written.insert(first, writes);
            db.write(&batch, durability)
        }
        _ => {
            let batch = draw(rng);
            replica.written.insert(first, batch.clone());
            table.write(&batch, durability)
        }
    }
}

#[test]
fn replica_equals_table_after_restarts_crashes_and_power_cuts() {
    const TABLES: [&str; 5] = [
        "memtable=64KiB,target_file_size=32KiB",
        "memtable=64KiB,triad.mem=on",
        "memtable=64KiB,l0_capacity=0,triad.log=off",
        "memtable=64KiB,l0_policy=columns",
        "memtable=64KiB,l0_policy=novelsm,pmem.size=512KiB",
    ];
    let scale = Scale::from_env();
    let (mut cuts, mut copies, mut changes) = (0, 0, 0);
    for case in 0..scale.power_cuts / 4 {
        let (mut disk, mut rng) = (FaultyVfs::new(case), TestRng::of(case, 2));
        let text = TABLES[case as usize % TABLES.len()];
        let db = Db::create_vfs(Arc::new(disk.clone()), options()).unwrap();
        let given = table_options(&format!("{text},log_retention=1GiB"));
        db.table_or_create("t", "lsm", &given).unwrap();
        db.table_or_create("other", "lsm", &table_options("memtable=64KiB")).unwrap();
        db.close().unwrap();
        let (mut replica, mut length) = (Replica::default(), 3000);
        for life in 0..=LIVES {
            let what = format!("case {case}, life {life}, {text}");
            let db = Db::open_vfs(Arc::new(disk.clone()), options()).unwrap();
            let table = db.table("t").unwrap();
            replica.resume(&table, &what).unwrap_or_else(|error| panic!("{what}: {error}"));
            assert_eq!(replica.position, table.snapshot().unwrap().sequence(), "{what}");
            assert!(replica.rows == rows_of(&table), "{what}: the replica differs");
            let (ending, begin) = (rng.below(3), disk.operations());
            if ending > 0 {
                disk.cut_power_at(begin + rng.below(length));
            }
            let outcome = (0..STEPS).try_for_each(|_| step(&db, &mut rng, &mut replica));
            let whole = outcome.is_ok();
            assert!(whole || disk.power_is_off(), "{what}: {outcome:?} without a power cut");
            cuts += u64::from(disk.power_is_off());
            length = (disk.operations() - begin).max(1);
            changes += replica.position;
            drop(table);
            let seed = rng.draw();
            if whole && ending == 0 {
                db.close().unwrap();
            }
            drop(db);
            disk = if ending == 1 { disk.after_crash(seed) } else { disk.survivors(seed) };
        }
        copies += replica.copies;
    }
    println!("{cuts} cuts, {copies} copies, {changes} sequence numbers");
    assert!(cuts > 0 && copies < cuts, "the log of a removal is lost only at a cut in it");
}

/// Otherwise later writes get the same numbers, and a consumer that has seen these misses them.
#[test]
fn sequence_numbers_of_writes_that_left_nothing_in_files_are_not_given_again() {
    let vfs: Arc<dyn Vfs> = Arc::new(Ram::new());
    let mut db = Db::create_vfs(vfs.clone(), options()).unwrap();
    let given = table_options("log_retention=1MiB");
    db.table_or_create("t", "lsm", &given).unwrap().put(b"k", b"v").unwrap();
    for (seen, key) in [(3, "a"), (5, "b")] {
        let table = db.table("t").unwrap();
        let mut batch = WriteBatch::new();
        batch.put(key.as_bytes(), b"v").delete_range::<&str>("a".."a");
        table.write(&batch, Durability::Buffered).unwrap();
        table.flush().unwrap();
        db.close().unwrap();
        db = Db::open_vfs(vfs.clone(), options()).unwrap();
        let table = db.table("t").unwrap();
        assert_eq!(table.snapshot().unwrap().sequence(), seen);
        assert!(table.changes(seen).unwrap().try_next().unwrap().is_none());
    }
    let table = db.table("t").unwrap();
    table.write(WriteBatch::new().put(b"k", b"w"), Durability::Synced).unwrap();
    let changes = table.changes(5).unwrap().map(|change| change.unwrap().sequence);
    assert_eq!(changes.collect::<Vec<_>>(), [6]);
}

#[test]
fn change_is_shown_once_it_is_durable_unless_all_are_asked_for() {
    let (db, table) = store("log_retention=1MiB");
    let mut durable = table.changes(0).unwrap();
    let all = ChangeOptions { since: 0, include_unsynced: true };
    let mut all = table.changes_with(all).unwrap();
    table.put(b"a", b"1").unwrap();
    assert_eq!(all.try_next().unwrap().unwrap().sequence, 1);
    assert!(durable.try_next().unwrap().is_none());
    table.sync().unwrap();
    assert_eq!(durable.try_next().unwrap().unwrap().sequence, 1);
    table.put(b"b", b"2").unwrap();
    table.flush().unwrap();
    assert_eq!(durable.try_next().unwrap().unwrap().sequence, 2);
    // A synced batch over tables, and one that becomes durable by a sync of the other table.
    let other = db.table_or_create("other", "lsm", &BTreeMap::new()).unwrap();
    let mut batch = DbBatch::new();
    batch.table(&table).put(b"c", b"3");
    batch.table(&other).put(b"c", b"3");
    db.write(&batch, Durability::Synced).unwrap();
    let change = durable.try_next().unwrap().unwrap();
    let part = change.part.clone().unwrap();
    assert_eq!((change.sequence, part.tables.len()), (3, 2));
    let theirs = other.changes(0).unwrap().try_next().unwrap().unwrap();
    assert_eq!(theirs.part, Some(part));
    assert_eq!(all.map(|change| change.unwrap().sequence).collect::<Vec<_>>(), [2, 3]);
}

#[test]
fn removed_log_is_an_error_with_the_oldest_position_that_is_left() {
    let (_db, table) = store("memtable=64KiB,log_retention=200KiB,l0_capacity=0,triad.log=off");
    let mut slow = table.changes(0).unwrap();
    for i in 0..2000u32 {
        table.put(&i.to_be_bytes(), &[7; 500]).unwrap();
    }
    table.flush().unwrap();
    let Err(Error::ChangesUnavailable { since: 0, oldest, newest: 2000 }) = table.changes(0) else {
        panic!("all of the log is there")
    };
    assert!((1400..1900).contains(&oldest), "{oldest}");
    let rest: Vec<_> = table.changes(oldest).unwrap().map(|change| change.unwrap()).collect();
    assert_eq!((rest[0].first_sequence, rest.len() as u64), (oldest + 1, 2000 - oldest));
    assert!(matches!(table.changes(oldest - 1), Err(Error::ChangesUnavailable { .. })));
    assert!(matches!(table.changes(2001), Err(Error::ChangesUnavailable { .. })));
    // The feed that was slow has its log open, and ends with an error behind it.
    let ended = slow.by_ref().find_map(|change| change.err()).unwrap();
    assert!(matches!(ended, Error::ChangesUnavailable { .. }), "{ended}");
    assert!(slow.position() < oldest);
    assert!(slow.try_next().is_err(), "it stays so");
    // A smaller limit takes effect at once.
    let archived = || counter(&table, "archived_log_bytes");
    assert!((100 << 10..=200 << 10).contains(&archived()), "{}", archived());
    table.set_options(&[("log_retention", "0")]).unwrap();
    assert_eq!(archived(), 0);
}

#[test]
fn log_is_kept_for_the_time_of_its_option_also_over_restarts() {
    let vfs = Arc::new(Ram::new());
    let clock = Arc::new(ManualClock::at(1_000_000));
    let options = || DbOptions { env: Env::replayable(clock.clone(), 1), ..DbOptions::default() };
    let db = Db::create_vfs(vfs.clone(), options()).unwrap();
    let given = table_options("memtable=64KiB,l0_capacity=0,triad.log=off,log_retention_time=1h");
    let table = db.table_or_create("t", "lsm", &given).unwrap();
    let mut slow = table.changes(0).unwrap();
    assert!(slow.try_next().unwrap().is_none());
    let write = |table: &Table| {
        for i in 0..300u32 {
            table.put(&i.to_be_bytes(), &[7; 500]).unwrap();
        }
        table.flush().unwrap();
    };
    write(&table);
    clock.advance(30 * 60_000);
    write(&table);
    assert_eq!(table.changes(0).unwrap().count(), 600);
    db.close().unwrap();
    drop((table, slow));
    let db = Db::open_vfs(vfs, options()).unwrap();
    let table = db.table("t").unwrap();
    clock.advance(30 * 60_000 - 1);
    table.maintain().unwrap();
    let mut slow = table.changes(0).unwrap();
    assert_eq!(slow.next().unwrap().unwrap().sequence, 1);
    clock.advance(1);
    table.maintain().unwrap();
    let Err(Error::ChangesUnavailable { oldest, newest: 600, .. }) = table.changes(0) else {
        panic!("the first logs are an hour old")
    };
    assert_eq!(oldest, 300);
    // Without times in the names again: feeds find the logs by their numbers.
    let mut open = table.changes(oldest).unwrap();
    assert_eq!(open.next().unwrap().unwrap().sequence, 301);
    table.set_options(&[("log_retention", "1GiB"), ("log_retention_time", "0s")]).unwrap();
    assert_eq!(open.map(|change| change.unwrap().sequence).last(), Some(600));
    assert_eq!(table.changes(oldest).unwrap().count(), 300);
    table.set_options(&[("log_retention", "0")]).unwrap();
    assert_eq!(counter(&table, "archived_log_bytes"), 0);
}

fn counter(table: &Table, name: &str) -> u64 {
    let counters = table.stats().counters;
    counters.into_iter().find(|(found, _)| *found == name).unwrap().1
}

#[test]
fn removal_of_all_keys_merges_and_ingestion_are_changes() {
    let scratch = tempfile::tempdir().unwrap();
    let db = Db::open_or_create(scratch.path().join("s"), options()).unwrap();
    let given = table_options("log_retention=1MiB");
    let table = db.table_or_create("t", "lsm", &given).unwrap();
    table.set_merge_operator(Some(Arc::new(MergeCounter))).unwrap();
    table.merge(b"n", &1u64.to_le_bytes()).unwrap();
    table.clear().unwrap();
    let path = scratch.path().join("sorted");
    let mut file = SortedFileWriter::create(&path, &BTreeMap::new()).unwrap();
    file.put(b"s", b"1").unwrap();
    file.finish().unwrap();
    table.ingest(&[&path], Default::default()).unwrap();
    table.put(b"k", b"v").unwrap();
    table.sync().unwrap();
    let changes = || table.changes(0).unwrap().map(|change| change.unwrap().change);
    let found: Vec<Change> = changes().collect();
    let mut merge = WriteBatch::new();
    merge.merge(b"n", &1u64.to_le_bytes());
    let mut put = WriteBatch::new();
    put.put(b"k", b"v");
    let expected = [Change::Write(merge), Change::Cleared, Change::Ingested, Change::Write(put)];
    assert_eq!(found, expected);
    db.close().unwrap();
    assert!(matches!(table.changes(0), Err(Error::Closed)));
    let db = Db::open(scratch.path().join("s"), options()).unwrap();
    let found = db.table("t").unwrap().changes(0).unwrap().map(|change| change.unwrap().change);
    assert_eq!(found.collect::<Vec<_>>(), expected);
}

#[test]
fn unlogged_removal_is_reported_as_a_gap() {
    let (_db, table) = store("memtable=64KiB");
    table.put(b"a", b"1").unwrap();
    let mut changes = table.changes(0).unwrap();
    table.clear().unwrap();
    table.put(b"b", b"2").unwrap();
    table.sync().unwrap();
    let ended = changes.find_map(|change| change.err()).unwrap();
    assert!(matches!(ended, Error::ChangesUnavailable { oldest: 2, newest: 3, .. }), "{ended}");
    assert_eq!(table.changes(2).unwrap().count(), 1);
}

#[test]
fn damaged_log_is_an_error() {
    let vfs = Arc::new(Ram::new());
    let db = Db::create_vfs(vfs.clone(), options()).unwrap();
    let given = table_options("memtable=64KiB,log_retention=1MiB,l0_capacity=0,triad.log=off");
    let table = db.table_or_create("t", "lsm", &given).unwrap();
    for i in 0..300u32 {
        table.put(&i.to_be_bytes(), &[7; 500]).unwrap();
    }
    table.flush().unwrap();
    let files = vfs.subdirectory("table-t").unwrap();
    let archived = files.list().unwrap().into_iter().find(|name| name.ends_with("archive"));
    let file = files.open(&archived.unwrap(), Mode::ReadWrite).unwrap();
    let purpose = siltstone_engine::Purpose::Log;
    for at in [100, 5000, file.len().unwrap() - 3] {
        let mut byte = [0];
        file.read_at(at, &mut byte, purpose).unwrap();
        file.write_at(at, &[byte[0] ^ 1], purpose).unwrap();
        let opened = table.changes(0);
        let error = opened.map_or_else(Some, |mut all| all.find_map(|change| change.err()));
        let error = error.unwrap();
        // A log whose first record is damaged is not recognized as a part of the chain.
        let is_named = matches!(error, Error::Corruption { .. } | Error::ChangesUnavailable { .. });
        assert!(is_named, "byte {at}: {error}");
        file.write_at(at, &byte, purpose).unwrap();
    }
    assert_eq!(table.changes(0).unwrap().filter(Result::is_ok).count(), 300);
}

#[test]
fn feed_follows_concurrent_writers_flushes_and_removals_of_logs() {
    const WRITES: u64 = 20_000;
    let scratch = tempfile::tempdir().unwrap();
    let db = Db::open_or_create(scratch.path().join("s"), DbOptions::default()).unwrap();
    let given = table_options("memtable=128KiB,log_retention=64MiB,target_file_size=64KiB");
    let table = db.table_or_create("t", "lsm", &given).unwrap();
    std::thread::scope(|scope| {
        for writer in 0..2u64 {
            let table = &table;
            scope.spawn(move || {
                for i in 0..WRITES / 2 {
                    let mut batch = WriteBatch::new();
                    batch.put(&(i % 900).to_be_bytes(), &i.to_le_bytes());
                    batch.put(&[writer as u8], &[1; 100]);
                    table.write(&batch, Durability::Buffered).unwrap();
                }
            });
        }
        let options = ChangeOptions { since: 0, include_unsynced: true };
        let mut changes = table.changes_with(options).unwrap();
        for i in 0..WRITES {
            if i % 4000 == 1234 {
                let options = ChangeOptions { since: changes.position(), ..options };
                changes = table.changes_with(options).unwrap();
            }
            let change = changes.next_timeout(Duration::from_secs(60)).unwrap().unwrap();
            assert_eq!((change.first_sequence, change.sequence), (2 * i + 1, 2 * i + 2));
        }
        assert!(changes.next_timeout(Duration::from_millis(1)).unwrap().is_none());
    });
    assert!(counter(&table, "flushes") > 5, "logs were not rotated");
    let mut replica = Rows::new();
    table.sync().unwrap();
    for change in table.changes(0).unwrap() {
        apply(&mut replica, &change.unwrap().change);
    }
    assert!(replica == rows_of(&table));
}

#[test]
fn engines_without_a_feed_say_so() {
    let db = Db::create_vfs(Arc::new(Ram::new()), options()).unwrap();
    for engine in ["trie", "silt", "mica"] {
        let table = db.table_or_create(engine, engine, &BTreeMap::new()).unwrap();
        assert!(!table.engine().capabilities().change_feed);
        assert!(matches!(table.changes(0), Err(Error::Unsupported { .. })), "{engine}");
    }
}

/// The refused part was in the log when the feed read the change before it.
#[test]
fn feed_does_not_show_a_refused_batch_in_place_of_a_later_one() {
    let disk = FaultyVfs::new(1);
    let db = Db::create_vfs(Arc::new(disk.clone()), options()).unwrap();
    let [table, other] =
        ["t", "other"].map(|name| db.table_or_create(name, "lsm", &BTreeMap::new()).unwrap());
    let write = |value: &[u8]| {
        let mut batch = DbBatch::new();
        // Gets the lower identity, so that its log is synced first.
        batch.table(&other).put(b"k", value);
        batch.table(&table).put(b"k", value);
        db.write(&batch, Durability::Synced)
    };
    write(b"synced").unwrap();
    table.put(b"k", b"before").unwrap();
    let since = table.snapshot().unwrap().sequence() - 1;
    let options = ChangeOptions { include_unsynced: true, ..ChangeOptions::since(since) };
    let feed = Arc::new(Mutex::new(table.changes_with(options).unwrap()));
    let shown = Arc::new(Mutex::new(None));
    disk.before_sync_error({
        let (feed, shown) = (feed.clone(), shown.clone());
        move || *shown.lock().unwrap() = feed.lock().unwrap().try_next().unwrap()
    });
    disk.fail_next(FaultKind::Sync, 1);
    write(b"refused").unwrap_err();
    assert!(shown.lock().unwrap().take().is_some_and(|change| change.sequence == since + 1));
    table.put(b"k", b"written").unwrap();
    let change = feed.lock().unwrap().try_next().unwrap().unwrap();
    let mut written = WriteBatch::new();
    written.put(b"k", b"written");
    assert_eq!((change.sequence, change.change), (since + 2, Change::Write(written)));
}
