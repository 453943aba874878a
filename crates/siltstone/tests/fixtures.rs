//! Stores that earlier versions wrote open, hold every row, and accept writes.
//!
//! `tests/fixtures/README.md` lists the stores and how they were made.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use siltstone::{
    Db, DbBatch, DbOptions, Durability, IngestOptions, SortedFileWriter, Table, engines,
};

/// Tables with their engine and options, as in the README.
const TABLES: [(&str, &str, &str); 6] = [
    ("hashed", "trie", "table=64KiB"),
    ("history", "skimpy", "capacity=4MiB"),
    ("hot", "lsm", "memtable=64KiB,triad_mem=on,filter_bits=8"),
    ("ordered", "lsm", "memtable=64KiB,table=32KiB"),
    ("plain", "lsm", "memtable=64KiB,container=0,triad_log=off,compression=zstd,table=32KiB"),
    ("small", "silt", "slots=256,hash_stores=2,partitions=1"),
];
/// From 0.5.0: values in logs and in a blob file, files with a dictionary, and archived logs.
const LARGE: (&str, &str, &str) = (
    "large",
    "lsm",
    "memtable=64KiB,target_file_size=256KiB,blob_threshold=512B,blob_gc_ratio=0.1,\
     bottommost_compression=zstd,compression_dict_size=1KiB,log_retention=96KiB",
);
/// Tables that servers show in each other's places, from 0.5.0.
const EXCHANGED: [&str; 2] = ["hot", "plain"];
/// The table that has moved to another directory, from 0.6.0.
const MOVED: &str = "hashed";
/// Tables that a batch over tables wrote, from 0.3.0.
const BATCHED: [&str; 3] = ["hashed", "ordered", "small"];
/// Tables with a deletion of `gone:`, from 0.3.0.
const WITH_RANGE_DELETION: [&str; 2] = ["ordered", "plain"];
/// Tables that ingested a sorted file, from 0.4.0.
const WITH_INGESTION: [&str; 2] = ["ordered", "plain"];

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures")
}

/// The names of the directories of versions.
fn versions() -> Vec<PathBuf> {
    let entries = fs::read_dir(fixtures()).unwrap().map(|entry| entry.unwrap().path());
    let mut versions: Vec<_> = entries.filter(|path| path.is_dir()).collect();
    versions.sort();
    assert!(versions.len() >= 2, "fixtures are missing");
    versions
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

/// The tables of a version.
fn tables(version: &str) -> impl Iterator<Item = &'static str> {
    let large = (version >= "0.5.0").then_some(LARGE.0);
    TABLES.iter().map(|(name, ..)| *name).chain(large)
}

fn large_value(k: u32) -> String {
    format!("{k} is large ").repeat(100)
}

/// What a table of `store` holds.
fn expected(version: &str, store: &str, table: &str) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut rows = BTreeMap::new();
    for k in 1..3000_u32 {
        let value = if k == 1 { "changed".to_owned() } else { format!("{k} squared is {}", k * k) };
        rows.insert(format!("row:{k:04}").into_bytes(), value.into_bytes());
    }
    for k in 0..2000 {
        rows.insert(
            format!("new:{k:04}").into_bytes(),
            format!("{store} {k} ").repeat(4).into_bytes(),
        );
    }
    rows.insert(b"expiring".to_vec(), b"x".to_vec());
    if version >= "0.3.0" && BATCHED.contains(&table) {
        let batch = |n| (format!("batch:{n:02}").into_bytes(), table.as_bytes().to_vec());
        rows.extend((0..50).map(batch));
    }
    if version >= "0.3.0" && WITH_RANGE_DELETION.contains(&table) {
        rows.insert(b"gone:0250".to_vec(), b"written later".to_vec());
    }
    if version >= "0.4.0" && WITH_INGESTION.contains(&table) {
        rows.extend((0..200).map(|k| (format!("file:{k:04}").into_bytes(), b"ingested".to_vec())));
        rows.insert(b"file:0100".to_vec(), b"changed".to_vec());
    }
    if table == LARGE.0 {
        let large = |k| (format!("large:{k:02}").into_bytes(), large_value(k).into_bytes());
        rows.extend((0..60).map(large));
    }
    rows
}

fn check(table: &Table, rows: &BTreeMap<Vec<u8>, Vec<u8>>) {
    for (key, value) in rows {
        let found = table.get(key).unwrap();
        assert_eq!(found.as_deref(), Some(&value[..]), "{}", key.escape_ascii());
    }
    assert_eq!(table.get(b"row:0000").unwrap(), None);
    let mut count = 0;
    for entry in table.iter().unwrap() {
        let (key, entry) = entry.unwrap();
        assert_eq!(rows.get(&key[..]).map(Vec::as_slice), Some(&entry.value[..]));
        assert_eq!(entry.expires_at.is_some(), &key[..] == b"expiring");
        count += 1;
    }
    assert_eq!(count, rows.len());
}

fn with_each_store(test: impl Fn(&str, &str, &Path)) {
    for version in versions() {
        let name = version.file_name().unwrap().to_str().unwrap();
        for store in ["closed", "killed"] {
            let scratch = tempfile::tempdir().unwrap();
            let dir = scratch.path().join("store");
            copy(&version.join(store), &dir);
            test(name, store, &dir);
        }
    }
}

#[test]
fn store_of_earlier_version_opened_for_reading_holds_every_row() {
    with_each_store(|version, store, dir| {
        let options = DbOptions { read_only: true, ..DbOptions::default() };
        let db = Db::open(dir, options).unwrap();
        for name in tables(version) {
            check(&db.table(name).unwrap(), &expected(version, store, name));
        }
        let shown = EXCHANGED.map(|name| db.catalogue().unwrap().in_place_of(name).to_owned());
        let [first, second] = EXCHANGED;
        assert_eq!(shown, if version >= "0.5.0" { [second, first] } else { [first, second] });
    });
}

#[test]
fn store_of_earlier_version_opened_for_writing_keeps_old_and_new_rows() {
    with_each_store(|version, store, dir| {
        for round in 0..3_u32 {
            let db = Db::open(dir, DbOptions::default()).unwrap();
            for name in tables(version) {
                let table = db.table(name).unwrap();
                let mut rows = expected(version, store, name);
                if let Some(last) = round.checked_sub(1) {
                    rows.extend(later_rows(last));
                }
                check(&table, &rows);
                for (key, value) in later_rows(round) {
                    table.put(&key, &value).unwrap();
                }
            }
            db.close().unwrap();
        }
    });
}

/// Otherwise the stores would not show that their formats are read.
#[test]
fn store_of_0_5_0_has_blob_files_kept_logs_dictionaries_and_places() {
    let version = fixtures().join("0.5.0");
    for store in ["closed", "killed"] {
        let catalogue = fs::read_to_string(version.join(store).join("CATALOG")).unwrap();
        assert!(catalogue.starts_with("siltstone-catalogue 5 "), "{catalogue}");
        let directory = version.join(store).join("table-large");
        let files = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
        let (mut kinds, mut dictionaries, mut references) = (BTreeMap::new(), 0, 0);
        for path in files {
            let extension = path.extension().unwrap_or_default().to_str().unwrap().to_owned();
            *kinds.entry(extension).or_insert(0) += 1;
            let Some(shown) = engines::inspect(&path, 100_000).unwrap() else { continue };
            let is_used =
                |(name, value): &&(String, String)| name == "dictionary bytes" && value != "0";
            dictionaries += shown.properties.iter().filter(is_used).count();
            let is_reference = |item: &&String| item.contains(" Reference to ");
            references += shown.items.iter().filter(is_reference).count();
        }
        println!("{store}: {kinds:?}, {dictionaries} dictionaries, {references} references");
        for extension in ["archive", "blob", "log", "sst"] {
            assert!(kinds.contains_key(extension), "{kinds:?}");
        }
        assert!(dictionaries > 0 && references > 0);
    }
}

#[test]
fn store_of_0_6_0_has_a_table_that_has_moved() {
    for store in ["closed", "killed"] {
        let store = fixtures().join("0.6.0").join(store);
        let catalogue = fs::read_to_string(store.join("CATALOG")).unwrap();
        assert!(catalogue.starts_with("siltstone-catalogue 6 "), "{catalogue}");
        assert!(store.join(format!("table-{MOVED}.1")).is_dir());
        assert!(!store.join(format!("table-{MOVED}")).exists());
    }
}

fn later_rows(round: u32) -> impl Iterator<Item = (Vec<u8>, Vec<u8>)> {
    (0..500).map(move |k| (format!("later:{k:04}").into_bytes(), round.to_string().into_bytes()))
}

/// Writes the stores of the present formats into the directory that `SILTSTONE_NEW_FIXTURE` names.
#[test]
#[ignore = "writes a new fixture"]
fn write_fixture() {
    let dir = PathBuf::from(std::env::var_os("SILTSTONE_NEW_FIXTURE").unwrap());
    fs::create_dir_all(&dir).unwrap();
    for store in ["closed", "killed"] {
        let db = Db::open_or_create(dir.join(store), DbOptions::default()).unwrap();
        write_store(&db, store);
        match store {
            "closed" => db.close().unwrap(),
            // The process ends under it.
            _ => std::mem::forget(db),
        }
    }
}

fn write_store(db: &Db, store: &str) {
    let put = |table: &Table, key: &str, value: &str| {
        table.put(key.as_bytes(), value.as_bytes()).unwrap();
    };
    let create = |(name, engine, options): &(&str, &str, &str)| {
        let options = options.split(',').map(|option| option.split_once('=').unwrap());
        let options = options.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        db.table_or_create(name, engine, &options).unwrap()
    };
    let tables: Vec<Table> = TABLES.iter().chain([&LARGE]).map(create).collect();
    let table = |name: &str| tables.iter().find(|table| table.name() == name).unwrap();
    table(EXCHANGED[0]).swap_places(table(EXCHANGED[1])).unwrap();
    for table in &tables {
        put(table, "row:0001", "before the clear");
        table.clear().unwrap();
        for k in 0..3000_u32 {
            put(table, &format!("row:{k:04}"), &format!("{k} squared is {}", k * k));
        }
        if WITH_RANGE_DELETION.contains(&table.name()) {
            for k in 0..500 {
                put(table, &format!("gone:{k:04}"), "deleted");
            }
            table.flush().unwrap();
            table.delete_range("gone:".."gone;").unwrap();
            put(table, "gone:0250", "written later");
        }
    }
    for table in tables.iter().filter(|table| WITH_INGESTION.contains(&table.name())) {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("file");
        let mut file = SortedFileWriter::create(&path, &table.options()).unwrap();
        (0..200).for_each(|k| file.put(format!("file:{k:04}").as_bytes(), b"ingested").unwrap());
        file.finish().unwrap();
        put(table, "file:0150", "before the file");
        table.ingest(&[path], IngestOptions::default()).unwrap();
        put(table, "file:0100", "changed");
    }
    let large = table(LARGE.0);
    (0..60).for_each(|k| put(large, &format!("large:{k:02}"), &"old ".repeat(300)));
    large.flush().unwrap();
    (0..50).for_each(|k| put(large, &format!("large:{k:02}"), &large_value(k)));
    // Twice: what is garbage is known after the first time, and its files are collected then.
    for _ in 0..2 {
        large.compact_range::<&[u8]>(..).unwrap();
    }
    (50..60).for_each(|k| put(large, &format!("large:{k:02}"), &large_value(k)));
    large.flush().unwrap();
    let mut batch = DbBatch::new();
    for table in tables.iter().filter(|table| BATCHED.contains(&table.name())) {
        for n in 0..50 {
            let key = format!("batch:{n:02}");
            batch.table(table).put(key.as_bytes(), table.name().as_bytes());
        }
    }
    db.write(&batch, Durability::Synced).unwrap();
    for table in &tables {
        for k in 0..2000 {
            put(table, &format!("new:{k:04}"), &format!("{store} {k} ").repeat(4));
        }
        table.delete(b"row:0000").unwrap();
        put(table, "row:0001", "changed");
        // In the year 2096.
        table.put_until(b"expiring", b"x", 4_000_000_000_000).unwrap();
    }
    let moved = table(MOVED);
    db.begin_move(MOVED, moved.engine().name(), &moved.options()).unwrap().finish().unwrap();
    db.sync().unwrap();
}
