//! A directory that cannot be opened as a store stays unchanged, and the error names the reason.

use std::path::Path;

use siltstone::{Db, DbOptions, Error};

fn listing(dir: &Path) -> Vec<(String, Vec<u8>)> {
    let mut files: Vec<_> = dir
        .read_dir()
        .unwrap()
        .map(|entry| {
            let path = entry.unwrap().path();
            let bytes = if path.is_file() { std::fs::read(&path).unwrap() } else { Vec::new() };
            (path.display().to_string(), bytes)
        })
        .collect();
    files.sort();
    files
}

/// The error with which both ways of opening refuse `dir`; asserts that they change nothing.
fn open_error(dir: &Path) -> String {
    let before = listing(dir);
    let message = |opened: siltstone::Result<Db>| opened.map(drop).unwrap_err().to_string();
    let opened = message(Db::open(dir, DbOptions::default()));
    assert_eq!(message(Db::open_or_create(dir, DbOptions::default())), opened);
    assert_eq!(listing(dir), before);
    opened
}

#[test]
fn directory_that_is_not_a_store_is_refused() {
    let scratch = tempfile::tempdir().unwrap();
    std::fs::write(scratch.path().join("letter.txt"), "dear").unwrap();
    assert!(open_error(scratch.path()).contains("not a siltstone store"));
}

#[test]
fn missing_directory_and_file_are_refused() {
    let scratch = tempfile::tempdir().unwrap();
    let open = |name: &str| Db::open(scratch.path().join(name), DbOptions::default()).map(drop);
    assert!(open("nowhere").unwrap_err().to_string().contains("no such directory"));
    std::fs::write(scratch.path().join("file"), "x").unwrap();
    assert!(open("file").unwrap_err().to_string().contains("not a directory"));
    assert!(!scratch.path().join("nowhere").exists());
}

#[test]
fn store_of_a_newer_format_is_refused() {
    let scratch = tempfile::tempdir().unwrap();
    Db::open_or_create(scratch.path(), DbOptions::default()).unwrap().close().unwrap();
    let catalogue = scratch.path().join("CATALOG");
    let newer = std::fs::read_to_string(&catalogue).unwrap().replace("catalogue 1", "catalogue 9");
    std::fs::write(&catalogue, newer).unwrap();
    assert!(open_error(scratch.path()).contains("format 9"));
}

#[test]
fn store_that_is_already_open_is_locked() {
    let scratch = tempfile::tempdir().unwrap();
    let db = Db::open_or_create(scratch.path(), DbOptions::default()).unwrap();
    let again = Db::open(scratch.path(), DbOptions::default());
    assert!(matches!(again, Err(Error::Locked { .. })));
    db.close().unwrap();
    Db::open(scratch.path(), DbOptions::default()).unwrap();
}

#[test]
fn invalid_options_are_all_reported_and_nothing_is_created() {
    let scratch = tempfile::tempdir().unwrap();
    let db = Db::open_or_create(scratch.path(), DbOptions::default()).unwrap();
    let before = listing(scratch.path());
    let options = [("memtable", "1"), ("colour", "red")].map(|(k, v)| (k.into(), v.into())).into();
    let error = db.table_or_create("t", "lsm", &options).map(drop).unwrap_err().to_string();
    assert!(error.contains("memtable") && error.contains("colour"), "{error}");
    let unknown = db.table_or_create("t", "btree", &Default::default()).map(drop);
    assert!(unknown.unwrap_err().to_string().contains("there are lsm"));
    assert!(db.table_or_create("a/b", "lsm", &Default::default()).is_err());
    assert_eq!(listing(scratch.path()), before);
    assert!(db.table_names().unwrap().is_empty());
}

#[test]
fn iterators_from_both_ends_meet_in_the_middle() {
    let scratch = tempfile::tempdir().unwrap();
    let db = Db::open_or_create(scratch.path(), DbOptions::default()).unwrap();
    let table = db.table_or_create("t", "lsm", &Default::default()).unwrap();
    for key in [b"a", b"b", b"c", b"d", b"e"] {
        table.put(key, key).unwrap();
    }
    let mut iter = table.iter().unwrap();
    let mut key = |back: bool| {
        let next = if back { iter.next_back() } else { iter.next() };
        next.map(|entry| entry.unwrap().0[0] as char)
    };
    let both_ends = [key(false), key(true), key(true), key(false), key(false)];
    assert_eq!(both_ends.map(Option::unwrap), ['a', 'e', 'd', 'b', 'c']);
    assert_eq!([key(false), key(true)], [None, None]);
}
