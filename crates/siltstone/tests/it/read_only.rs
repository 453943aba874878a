//! A read-only store of every durable engine, closed or crashed, returns every entry, refuses
//! changes, and stays byte for byte as it was.

use std::collections::BTreeMap;
use std::path::Path;

use siltstone::{Db, DbOptions, Error};

const ROWS: u32 = 3000;

fn read_only() -> DbOptions {
    DbOptions { read_only: true, ..DbOptions::default() }
}

/// Every file and directory with its content.
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

/// A table with overwrites, files on several levels, and entries only in the log.
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
    // No job runs while the directory is copied.
    table.maintain().unwrap();
    table.delete(&key(7)).unwrap();
    db
}

/// Reads everything in every way, and tries every kind of change.
fn check_read_only(dir: &Path) {
    let db = Db::open(dir, read_only()).unwrap();
    let table = db.table("t").unwrap();
    for n in 0..ROWS {
        let expected = (n != 7).then(|| format!("{n} in round 2").into_bytes());
        assert_eq!(table.get(&key(n)).unwrap(), expected);
    }
    assert_eq!(table.iter().unwrap().map(Result::unwrap).count(), ROWS as usize - 1);
    assert!(table.verify(&mut |_, _| {}).unwrap().is_intact());
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
    // Maintenance does nothing and succeeds.
    table.flush().unwrap();
    table.sync().unwrap();
    table.maintain().unwrap();
    db.close().unwrap();
}

/// Checks a store after a clean close, and after a process crash.
fn check_closed_and_crashed(engine: &str, options: &[(&str, &str)], elsewhere: Option<&Path>) {
    let scratch = tempfile::tempdir().unwrap();
    let (dir, crashed) = (scratch.path().join("store"), scratch.path().join("crashed"));
    let db = fill(&dir, engine, options);
    copy(&dir, &crashed);
    if elsewhere.is_none() {
        let before = tree(&crashed);
        check_read_only(&crashed);
        assert!(tree(&crashed) == before, "{engine}, not closed: it was changed");
    }
    db.close().unwrap();
    drop(db);
    let all = || (tree(&dir), elsewhere.map(tree));
    let before = all();
    check_read_only(&dir);
    // A checkpoint changes nothing either.
    let db = Db::open(&dir, read_only()).unwrap();
    let target = scratch.path().join("copy");
    db.checkpoint(&target).unwrap();
    drop(db);
    assert!(all() == before, "{engine}, closed: it was changed");
    check_read_only(&target);
    // The store can be opened for writing afterwards.
    let db = Db::open(&dir, DbOptions::default()).unwrap();
    db.table("t").unwrap().put(b"new", b"value").unwrap();
    db.close().unwrap();
}

#[test]
fn lsm() {
    check_closed_and_crashed("lsm", &[("memtable", "64KiB")], None);
}

#[test]
fn lsm_with_runs_in_persistent_memory() {
    check_closed_and_crashed("lsm", &[("memtable", "64KiB"), ("pmem.size", "4MiB")], None);
}

#[test]
fn trie() {
    check_closed_and_crashed("trie", &[("htable_size", "64KiB")], None);
}

#[test]
fn trie_with_upper_levels_elsewhere() {
    let upper = tempfile::tempdir().unwrap();
    let name = upper.path().to_str().unwrap();
    check_closed_and_crashed(
        "trie",
        &[("htable_size", "64KiB"), ("fast_dir", name)],
        Some(upper.path()),
    );
}

#[test]
fn silt() {
    check_closed_and_crashed("silt", &[], None);
}

#[test]
fn skimpy() {
    check_closed_and_crashed("skimpy", &[("capacity", "16MiB")], None);
}

#[test]
fn missing_store_is_not_created() {
    let scratch = tempfile::tempdir().unwrap();
    let none = scratch.path().join("none");
    assert!(matches!(Db::open_or_create(&none, read_only()), Err(Error::Refused { .. })));
    assert!(!none.exists());
}

/// A new copy has never been opened, so it has no lock file of its own yet.
#[test]
fn read_only_open_of_a_new_copy_keeps_writers_out() {
    let scratch = tempfile::tempdir().unwrap();
    let (dir, target) = (scratch.path().join("store"), scratch.path().join("copy"));
    fill(&dir, "lsm", &[]).checkpoint(&target).unwrap();
    let reader = Db::open(&target, read_only()).unwrap();
    assert!(matches!(Db::open(&target, DbOptions::default()), Err(Error::Locked { .. })));
    reader.close().unwrap();
    Db::open(&target, DbOptions::default()).unwrap().close().unwrap();
}

/// What a crash left of a pending table stays until the store is opened for writing.
#[test]
fn pending_table_is_removed_only_by_an_open_for_writing() {
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path().join("store");
    let db = fill(&dir, "lsm", &[]);
    // The creation fails half-way, because a file has the directory's name.
    std::fs::write(dir.join("table-left"), "").unwrap();
    assert!(db.table_or_create("left", "lsm", &Default::default()).is_err());
    db.close().unwrap();
    std::fs::remove_file(dir.join("table-left")).unwrap();
    std::fs::create_dir(dir.join("table-left")).unwrap();
    std::fs::write(dir.join("table-left/000001.log"), "half").unwrap();
    let before = tree(&dir);
    check_read_only(&dir);
    assert!(tree(&dir) == before);
    Db::open(&dir, DbOptions::default()).unwrap().close().unwrap();
    assert!(!dir.join("table-left").exists(), "an open for writing removes it");
}
