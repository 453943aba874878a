//! Does a store that is opened for reading alone give every entry of every durable engine, however it was left,
//! refuse what would change it, and stay byte for byte as it was?

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::path::Path;

use siltstone::{Db, DbOptions, Error};

const ROWS: u32 = 3000;

fn reading() -> DbOptions {
    DbOptions { read_only: true, ..DbOptions::default() }
}

/// Every file and directory with what is in it.
fn tree(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in dir.read_dir().unwrap() {
        let path = entry.unwrap().path();
        let name = path.display().to_string();
        if path.is_dir() {
            found.extend(tree(&path));
            found.insert(name, Vec::new());
        } else {
            found.insert(name, std::fs::read(&path).unwrap());
        }
    }
    found
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir(to).unwrap();
    for entry in from.read_dir().unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).unwrap();
        }
    }
}

fn key(n: u32) -> Vec<u8> {
    format!("key{n:05}").into_bytes()
}

/// A table with overwrites, files of levels, and entries that are in the log alone.
fn fill(dir: &Path, engine: &str, options: &[(&str, &str)]) -> Db {
    let options = options.iter().map(|(name, value)| (name.to_string(), value.to_string()));
    let db = Db::open_or_create(dir, DbOptions::default()).unwrap();
    let table = db.table_or_create("t", engine, &options.collect()).unwrap();
    for round in 0..3u32 {
        for n in 0..ROWS {
            table.put(&key(n), format!("{n} in round {round}").as_bytes()).unwrap();
        }
        if round < 2 {
            table.flush().unwrap();
        }
    }
    // Nothing is under way while it is copied.
    table.maintain().unwrap();
    table.delete(&key(7)).unwrap();
    db
}

/// Looks at all of it in every way.
fn look(dir: &Path) {
    let db = Db::open(dir, reading()).unwrap();
    let table = db.table("t").unwrap();
    for n in 0..ROWS {
        let expected = (n != 7).then(|| format!("{n} in round 2").into_bytes());
        assert_eq!(table.get(&key(n)).unwrap(), expected);
    }
    assert_eq!(table.iter().unwrap().map(Result::unwrap).count(), ROWS as usize - 1);
    assert!(table.verify(&mut |_, _| {}).unwrap().is_sound());
    assert!(table.stats().space_bytes > 0);

    let refused = |error: Error| {
        assert!(
            matches!(&error, Error::Refused { path, .. } if *path == dir.display().to_string())
        );
    };
    refused(table.put(b"new", b"value").unwrap_err());
    refused(db.drop_table("t").unwrap_err());
    refused(db.table_or_create("other", "lsm", &BTreeMap::new()).map(drop).unwrap_err());
    assert_eq!(table.get(b"new").unwrap(), None);
    // What only moves bytes has nothing to do.
    table.flush().unwrap();
    table.sync().unwrap();
    table.maintain().unwrap();
    db.close().unwrap();
}

/// Looks at it as it was closed, and as the death of the process would leave it.
fn looked_at(engine: &str, options: &[(&str, &str)], elsewhere: Option<&Path>) {
    let scratch = tempfile::tempdir().unwrap();
    let (dir, cut) = (scratch.path().join("store"), scratch.path().join("cut"));
    let db = fill(&dir, engine, options);
    copy(&dir, &cut);
    if elsewhere.is_none() {
        let before = tree(&cut);
        look(&cut);
        assert!(tree(&cut) == before, "{engine}, not closed: it was changed");
    }
    db.close().unwrap();
    drop(db);
    let all = || (tree(&dir), elsewhere.map(tree));
    let before = all();
    look(&dir);
    // A copy is a look, too.
    let db = Db::open(&dir, reading()).unwrap();
    let target = scratch.path().join("copy");
    db.checkpoint(&target).unwrap();
    drop(db);
    assert!(all() == before, "{engine}, closed: it was changed");
    look(&target);
    // And whoever may write goes on.
    let db = Db::open(&dir, DbOptions::default()).unwrap();
    db.table("t").unwrap().put(b"new", b"value").unwrap();
    db.close().unwrap();
}

#[test]
fn lsm() {
    looked_at("lsm", &[("memtable", "64KiB")], None);
}

#[test]
fn lsm_with_rows_in_persistent_memory() {
    looked_at("lsm", &[("memtable", "64KiB"), ("nvm", "4MiB")], None);
}

#[test]
fn trie() {
    looked_at("trie", &[("table", "64KiB")], None);
}

#[test]
fn trie_with_upper_levels_elsewhere() {
    let upper = tempfile::tempdir().unwrap();
    let name = upper.path().to_str().unwrap();
    looked_at("trie", &[("table", "64KiB"), ("upper", name)], Some(upper.path()));
}

#[test]
fn silt() {
    looked_at("silt", &[], None);
}

#[test]
fn skimpy() {
    looked_at("skimpy", &[("capacity", "16MiB")], None);
}

#[test]
fn nothing_is_made_where_nothing_is() {
    let scratch = tempfile::tempdir().unwrap();
    let none = scratch.path().join("none");
    assert!(matches!(Db::open_or_create(&none, reading()), Err(Error::Refused { .. })));
    assert!(!none.exists());
}

/// It has no lock of its own making yet, and what a writer removes would be missing.
#[test]
fn whoever_reads_a_copy_that_is_new_keeps_writers_out() {
    let scratch = tempfile::tempdir().unwrap();
    let (dir, target) = (scratch.path().join("store"), scratch.path().join("copy"));
    fill(&dir, "lsm", &[]).checkpoint(&target).unwrap();
    let reader = Db::open(&target, reading()).unwrap();
    assert!(matches!(Db::open(&target, DbOptions::default()), Err(Error::Locked { .. })));
    reader.close().unwrap();
    Db::open(&target, DbOptions::default()).unwrap().close().unwrap();
}

/// What a crash left of a table that was being made, or dropped, waits for whoever may write.
#[test]
fn garbage_stays() {
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path().join("store");
    let db = fill(&dir, "lsm", &[]);
    // Its making fails half-way, at a file where the directory would be.
    std::fs::write(dir.join("table-left"), "").unwrap();
    assert!(db.table_or_create("left", "lsm", &Default::default()).is_err());
    db.close().unwrap();
    std::fs::remove_file(dir.join("table-left")).unwrap();
    std::fs::create_dir(dir.join("table-left")).unwrap();
    std::fs::write(dir.join("table-left/000001.log"), "half").unwrap();
    let before = tree(&dir);
    look(&dir);
    assert!(tree(&dir) == before);
    Db::open(&dir, DbOptions::default()).unwrap().close().unwrap();
    assert!(!dir.join("table-left").exists(), "whoever may write removes it");
}
