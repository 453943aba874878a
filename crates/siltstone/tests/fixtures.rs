//! Stores that earlier versions wrote open, hold every row, and accept writes.
//!
//! `tests/fixtures/README.md` lists the stores and how they were made.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use siltstone::{Db, DbOptions, Table};

const TABLES: [&str; 6] = ["hashed", "history", "hot", "ordered", "plain", "small"];

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

/// What every table of `store` holds.
fn expected(store: &str) -> BTreeMap<Vec<u8>, Vec<u8>> {
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

fn with_each_store(test: impl Fn(&str, &Path)) {
    for version in versions() {
        for store in ["closed", "killed"] {
            let scratch = tempfile::tempdir().unwrap();
            let dir = scratch.path().join("store");
            copy(&version.join(store), &dir);
            test(store, &dir);
        }
    }
}

#[test]
fn store_of_earlier_version_opened_for_reading_holds_every_row() {
    with_each_store(|store, dir| {
        let options = DbOptions { read_only: true, ..DbOptions::default() };
        let db = Db::open(dir, options).unwrap();
        for name in TABLES {
            check(&db.table(name).unwrap(), &expected(store));
        }
    });
}

#[test]
fn store_of_earlier_version_opened_for_writing_keeps_old_and_new_rows() {
    with_each_store(|store, dir| {
        let mut rows = expected(store);
        for round in 0..2 {
            let db = Db::open(dir, DbOptions::default()).unwrap();
            for name in TABLES {
                let table = db.table(name).unwrap();
                check(&table, &rows);
                for k in 0..500 {
                    let (key, value) = (format!("later:{k:04}"), format!("{round}"));
                    table.put(key.as_bytes(), value.as_bytes()).unwrap();
                }
            }
            for k in 0..500 {
                let (key, value) = (format!("later:{k:04}"), format!("{round}"));
                rows.insert(key.into_bytes(), value.into_bytes());
            }
            db.close().unwrap();
        }
    });
}
