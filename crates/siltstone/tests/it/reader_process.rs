//! A reader beside the process that writes the store.
//!
//! The writer is a process of its own: this test's program, which runs `writer_process` with the
//! directory in `SILTSTONE_READER_DIR`. It writes batches to two tables, with flushes, compactions
//! and removals of files, and prints the number of each batch that has returned. The reader catches
//! up again and again. Each time every table must have the rows of a prefix of the batches, the
//! same prefix in both tables, not shorter than the last one, and with all batches that had
//! returned before. Then the writer is killed. `SILTSTONE_KILLS` sets the number of writers.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use siltstone::{
    Change, Db, DbBatch, DbOptions, DbReader, Durability, Env, Error, ManualClock, Snapshot, Table,
};
use siltstone_faults::FaultyVfs;
use siltstone_testkit::{HookedVfs, Scale, TestRng};
use siltstone_vfs::Vfs;

const DIR: &str = "SILTSTONE_READER_DIR";
const KEYS: u64 = 400;
/// With their engines and options: so small that a few hundred batches flush and merge.
const TABLES: [(&str, &str, &str); 4] = [
    ("a", "lsm", "memtable=128KiB,target_file_size=64KiB,l0_capacity=256KiB"),
    ("b", "lsm", "memtable=128KiB,target_file_size=64KiB,l0_capacity=256KiB"),
    ("hashed", "trie", "htable_size=32KiB"),
    ("small", "silt", "log_store_slots=128,partitions=2,merge_trigger=2"),
];

fn table_options(text: &str) -> BTreeMap<String, String> {
    let pairs = text.split(',').map(|pair| pair.split_once('=').unwrap());
    pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

fn tables(db: &Db) -> [Table; 4] {
    TABLES
        .map(|(name, engine, text)| db.table_or_create(name, engine, &table_options(text)).unwrap())
}

/// The key that batch `n` writes in each table, and the number of bytes of its value.
fn write_of(n: u64) -> ([u8; 8], usize) {
    let mut rng = TestRng::of(n, 3);
    let len = if rng.one_in(20) { 9000 } else { rng.below(400) as usize };
    (rng.below(KEYS).to_be_bytes(), len)
}

fn value_of(n: u64, len: usize) -> Vec<u8> {
    let mut value = vec![n as u8; len + 8];
    value[..8].copy_from_slice(&n.to_be_bytes());
    value
}

#[test]
fn writer_process() {
    let Some(dir) = std::env::var_os(DIR) else { return };
    let db = Db::open_or_create(dir, DbOptions::default()).unwrap();
    let tables = tables(&db);
    let count = |table: &Table| table.get(b"count").unwrap().map_or(0, |count| number(&count));
    let first = count(&tables[0]);
    assert!(tables.iter().all(|table| count(table) == first), "a batch is whole");
    for n in first + 1.. {
        let (key, len) = write_of(n);
        let mut batch = DbBatch::new();
        for table in &tables {
            batch.table(table).put(&key, &value_of(n, len)).put(b"count", &n.to_be_bytes());
        }
        let durability = if n % 50 == 0 { Durability::Synced } else { Durability::Buffered };
        db.write(&batch, durability).unwrap();
        println!("written {n}");
    }
}

fn number(bytes: &[u8]) -> u64 {
    u64::from_be_bytes(*bytes.first_chunk().unwrap())
}

/// The rows after `count` batches.
fn expected(count: u64) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut rows = BTreeMap::new();
    for n in 1..=count {
        let (key, len) = write_of(n);
        rows.insert(key.to_vec(), (n, len));
    }
    let mut rows: BTreeMap<_, _> =
        rows.into_iter().map(|(key, (n, len))| (key, value_of(n, len))).collect();
    if count > 0 {
        rows.insert(b"count".to_vec(), count.to_be_bytes().to_vec());
    }
    rows
}

/// Checks what a reader shows; returns the number of batches.
fn check(reader: &DbReader, at_least: u64, what: &str) -> u64 {
    let rows = |table: &str| -> BTreeMap<_, _> {
        let rows = reader.table(table).unwrap().iter().unwrap().map(|row| row.unwrap());
        rows.map(|(key, entry)| (key, entry.value)).collect()
    };
    let (a, b) = (rows("a"), rows("b"));
    // Tables without order: key by key.
    let looked_up = |table: &str| -> BTreeMap<_, _> {
        let table = reader.table(table).unwrap();
        let keys = (0..KEYS).map(|key| key.to_be_bytes().to_vec()).chain([b"count".to_vec()]);
        keys.filter_map(|key| table.get(&key).unwrap().map(|value| (key, value))).collect()
    };
    for table in ["hashed", "small"] {
        assert!(looked_up(table) == a, "{what}: a part of a batch is missing in {table}");
    }
    let count = a.get(&b"count"[..]).map_or(0, |count| number(count));
    assert!(count >= at_least, "{what}: {count} batches, and {at_least} were there before");
    assert!(a == b, "{what}: a part of a batch is missing in one table");
    assert!(a == expected(count), "{what}: not the first {count} batches");
    count
}

fn files_of(dir: &Path) -> Vec<String> {
    let mut names = Vec::new();
    for entry in dir.read_dir().unwrap() {
        let entry = entry.unwrap();
        names.push(entry.path().display().to_string());
        if entry.path().is_dir() {
            names.extend(files_of(&entry.path()));
        }
    }
    names.sort();
    names
}

#[test]
fn reader_shows_a_growing_prefix_of_whole_batches_beside_a_writer_that_is_killed() {
    if std::env::var_os(DIR).is_some() {
        return;
    }
    let writers = Scale::from_env().kills.clamp(1, 2);
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path().join("s");
    let mut shown = 0;
    let mut catch_ups = 0;
    for writer in 0..writers {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "reader_process::writer_process", "--nocapture"])
            .env(DIR, &dir)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let returned = Arc::new(AtomicU64::new(0));
        let counted = returned.clone();
        let counter = std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                if let Some(n) = line.trim().strip_prefix("written ") {
                    counted.store(n.parse().unwrap(), Relaxed);
                }
            }
        });
        while returned.load(Relaxed) < shown + 20 {
            assert!(child.try_wait().unwrap().is_none(), "the writer has failed");
            std::thread::sleep(Duration::from_millis(5));
        }
        let reader = Db::open_reader(&dir, DbOptions::default()).unwrap();
        assert!(matches!(
            Db::open(&dir, DbOptions { read_only: true, ..DbOptions::default() }),
            Err(Error::Locked { .. })
        ));
        let old: Snapshot = reader.table("a").unwrap().snapshot().unwrap();
        let old_count = number(&old.get(b"count").unwrap().unwrap());
        let began = Instant::now();
        while began.elapsed() < Duration::from_millis(1500) {
            let at_least = returned.load(Relaxed).max(shown);
            reader.catch_up().unwrap();
            shown = check(&reader, at_least, &format!("writer {writer}"));
            catch_ups += 1;
        }
        // The files that an earlier catch-up has shown are gone, and still open.
        assert_eq!(number(&old.get(b"count").unwrap().unwrap()), old_count);
        assert_eq!(old.iter().unwrap().filter(Result::is_ok).count(), expected(old_count).len());
        child.kill().unwrap();
        child.wait().unwrap();
        counter.join().unwrap();
        let files = files_of(&dir);
        reader.catch_up().unwrap();
        shown = check(&reader, returned.load(Relaxed).max(shown), "after the kill");
        assert!(!reader.catch_up().unwrap(), "nobody writes");
        let fresh = Db::open_reader(&dir, DbOptions::default()).unwrap();
        assert_eq!(check(&fresh, shown, "a new reader"), shown);
        assert_eq!(files_of(&dir), files, "a reader changes nothing");
    }
    println!("{catch_ups} catch-ups, {shown} batches");
    assert!(catch_ups > 2 && shown > 100);
}

#[test]
fn reader_refuses_what_it_cannot_show_and_reports_damage() {
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path().join("s");
    assert!(matches!(Db::open_reader(&dir, DbOptions::default()), Err(Error::Refused { .. })));
    let db = Db::open_or_create(&dir, DbOptions::default()).unwrap();
    let [a, ..] = tables(&db);
    db.table_or_create("cache", "mica", &BTreeMap::new()).unwrap();
    a.put(b"k", b"v").unwrap();
    let reader = Db::open_reader(&dir, DbOptions::default()).unwrap();
    let refused = reader.table("cache");
    assert!(matches!(refused, Err(Error::Unsupported { engine: "mica", .. })), "{refused:?}");
    let table = reader.table("a").unwrap();
    assert_eq!(table.get(b"k").unwrap().as_deref(), Some(&b"v"[..]));
    assert!(matches!(table.put(b"k", b"w"), Err(Error::Refused { .. })));
    // New and dropped tables.
    db.table_or_create("c", "lsm", &BTreeMap::new()).unwrap().put(b"k", b"c").unwrap();
    db.drop_table("b").unwrap();
    assert!(reader.catch_up().unwrap());
    assert_eq!(reader.db().table_names().unwrap(), ["a", "c", "hashed", "small"]);
    assert_eq!(reader.table("c").unwrap().get(b"k").unwrap().as_deref(), Some(&b"c"[..]));
    assert!(!reader.catch_up().unwrap());
    // Damage in a log that the writer has synced, and in a manifest.
    for i in 0..100u32 {
        let mut batch = siltstone::WriteBatch::new();
        batch.put(&i.to_be_bytes(), &[7; 1000]);
        a.write(&batch, Durability::Synced).unwrap();
    }
    let files = dir.join("table-a");
    for prefix in ["0", "MANIFEST"] {
        let mut names: Vec<_> =
            files.read_dir().unwrap().map(|file| file.unwrap().path()).collect();
        names.retain(|path| path.file_name().unwrap().to_str().unwrap().starts_with(prefix));
        names.sort_by_key(|path| std::fs::metadata(path).unwrap().len());
        let path = names.last().unwrap();
        let whole = std::fs::read(path).unwrap();
        let mut damaged = whole.clone();
        let begin = whole.len().min(60);
        damaged[begin - 10] ^= 1;
        write_in_place(path, &damaged[..begin]);
        let error = reader
            .catch_up()
            .map(drop)
            .and_then(|()| Db::open_reader(&dir, DbOptions::default()).map(drop));
        assert!(matches!(error, Err(Error::Corruption { .. })), "{prefix}: {error:?}");
        // The reader stays as it was.
        assert_eq!(reader.table("a").unwrap().get(b"k").unwrap().as_deref(), Some(&b"v"[..]));
        write_in_place(path, &whole[..begin]);
    }
    assert!(reader.catch_up().unwrap());
    let last = 99u32.to_be_bytes();
    assert!(reader.table("a").unwrap().contains_key(&last).unwrap());
}

#[test]
fn feed_of_a_reader_goes_on_after_each_catch_up() {
    let scratch = tempfile::tempdir().unwrap();
    let db = Db::open_or_create(scratch.path(), DbOptions::default()).unwrap();
    let options = table_options("memtable=64KiB,log_retention=8MiB,l0_capacity=0");
    let table = db.table_or_create("t", "lsm", &options).unwrap();
    let reader = Db::open_reader(scratch.path(), DbOptions::default()).unwrap();
    let mut position = 0;
    for round in 1..=4u64 {
        for i in 0..300u64 {
            table.put(&(i % 70).to_be_bytes(), &[round as u8; 300]).unwrap();
        }
        assert!(reader.catch_up().unwrap());
        for change in reader.table("t").unwrap().changes(position).unwrap() {
            let change = change.unwrap();
            assert_eq!(change.first_sequence, position + 1);
            position = change.sequence;
        }
        assert_eq!(position, 300 * round);
    }
}

/// The writer flushes again and again while the reader reads a log, and compacts.
#[test]
fn writer_that_flushes_during_every_read_of_a_log_does_not_keep_a_reader_out() {
    let disk: Arc<dyn Vfs> = Arc::new(FaultyVfs::new(0));
    let db = Db::create_vfs(disk.clone(), DbOptions::default()).unwrap();
    let table = db.table_or_create("t", "lsm", &table_options("l0_capacity=0")).unwrap();
    let (flushes, writer) = (Arc::new(AtomicU64::new(0)), table.clone());
    let counted = flushes.clone();
    let beside_reads = HookedVfs::wrap(&disk, move |request| {
        if request.is("read", ".log") {
            let number = counted.fetch_add(1, Relaxed) + 1;
            writer.put(b"flushes", &number.to_be_bytes())?;
            writer.flush()?;
        }
        Ok(())
    });
    table.put(b"first", b"1").unwrap();
    let reader = Db::open_reader_vfs(beside_reads, DbOptions::default()).unwrap();
    for _ in 0..5 {
        let before = flushes.load(Relaxed);
        table.put(b"before", &before.to_be_bytes()).unwrap();
        assert!(reader.catch_up().unwrap());
        let table = reader.table("t").unwrap();
        assert_eq!(number(&table.get(b"before").unwrap().unwrap()), before);
        assert_eq!(table.get(b"first").unwrap().as_deref(), Some(&b"1"[..]));
        assert!(flushes.load(Relaxed) > before, "it has flushed meanwhile");
    }
}

/// The manifest has a removal of all keys before the log has its record.
#[test]
fn feed_of_a_reader_waits_for_the_record_of_a_removal_of_all_keys() {
    let options = || DbOptions {
        env: Env::replayable(Arc::new(ManualClock::at(1)), 1),
        ..DbOptions::default()
    };
    let (mut shown, mut not_logged) = (0, 0);
    for cut in 0.. {
        let disk = FaultyVfs::new(cut);
        let db = Db::create_vfs(Arc::new(disk.clone()), options()).unwrap();
        let table = db.table_or_create("t", "lsm", &table_options("log_retention=1MiB")).unwrap();
        table.put(b"k", b"v").unwrap();
        disk.cut_power_at(disk.operations() + cut);
        let cleared = table.clear();
        if !disk.power_is_off() {
            cleared.unwrap();
            break;
        }
        let reader = Db::open_reader_vfs(Arc::new(disk.after_crash(cut)), options()).unwrap();
        let table = reader.table("t").unwrap();
        let changes: Result<Vec<_>, Error> = table.changes(1).unwrap().collect();
        let changes = changes.unwrap_or_else(|error| panic!("cut {cut}: {error}"));
        let is_visible = table.snapshot().unwrap().sequence() == 2;
        match &changes[..] {
            [] => not_logged += u32::from(is_visible),
            [change] => {
                assert!(is_visible && matches!(change.change, Change::Cleared));
                shown += 1;
            }
            _ => panic!("cut {cut}: {changes:?}"),
        }
    }
    assert!(shown > 0 && not_logged > 0, "{shown} shown, {not_logged} not logged");
}

/// Overwrites the beginning of a file, which the writer has mapped.
fn write_in_place(path: &Path, bytes: &[u8]) {
    use std::os::unix::fs::FileExt;
    let file = std::fs::OpenOptions::new().write(true).open(path).unwrap();
    file.write_all_at(bytes, 0).unwrap();
}
