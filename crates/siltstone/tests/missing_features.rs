//! Stores that need an engine or a compression which this build lacks are refused, and stay as they
//! are.
//!
//! `cargo test -p siltstone --no-default-features --features lsm --test missing_features`. With all
//! features there is nothing to test.

#![cfg(not(all(
    feature = "lsm",
    feature = "mica",
    feature = "silt",
    feature = "skimpy",
    feature = "trie",
    feature = "zstd"
)))]
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use siltstone::catalogue::Catalogue;
use siltstone::{Db, DbOptions, Error, maintenance};
use siltstone_vfs::Disk;

/// Tables of the fixture and their engines.
const TABLES: [(&str, &str); 4] =
    [("hashed", "trie"), ("history", "skimpy"), ("ordered", "lsm"), ("small", "silt")];

fn fixture() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/0.5.0/killed")
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

/// The files below a directory with their bytes, but for the lock.
fn files(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut all = BTreeMap::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => all.extend(files(&path)),
            false if path.ends_with("LOCK") => {}
            false => _ = all.insert(path.clone(), fs::read(&path).unwrap()),
        }
    }
    all
}

/// A store with one table of the fixture, whose options are changed.
fn store_of(dir: &Path, table: &str, change: impl Fn(&mut BTreeMap<String, String>)) {
    fs::create_dir(dir).unwrap();
    let directory = format!("table-{table}");
    copy(&fixture().join(&directory), &dir.join(&directory));
    let mut spec = Catalogue::read(&Disk::open(fixture()).unwrap()).unwrap().tables[table].clone();
    change(&mut spec.options);
    let catalogue = Catalogue { tables: [(table.to_owned(), spec)].into(), ..Catalogue::default() };
    catalogue.write(&Disk::open(dir).unwrap()).unwrap();
}

fn is_present(engine: &str) -> bool {
    siltstone::engines::missing(engine).is_none()
}

fn refusal<T>(result: siltstone::Result<T>) -> String {
    match result.map(drop) {
        Err(error @ Error::Refused { .. }) => error.to_string(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn store_with_a_table_on_a_missing_engine_is_refused_and_unchanged() {
    for (table, engine) in TABLES.into_iter().filter(|(_, engine)| !is_present(engine)) {
        let scratch = tempfile::tempdir().unwrap();
        let dir = scratch.path().join("store");
        store_of(&dir, table, |_| {});
        let before = files(&dir);
        for read_only in [false, true] {
            let options = DbOptions { read_only, ..DbOptions::default() };
            let message = refusal(Db::open(&dir, options));
            for part in [table, engine, &format!("feature '{engine}'")] {
                assert!(message.contains(part), "{part}: {message}");
            }
        }
        refusal(maintenance::repair(&dir, None));
        assert_eq!(files(&dir), before, "{table}");
    }
}

#[test]
fn damaged_catalogue_of_a_missing_engine_is_not_rebuilt_without_its_options() {
    for (table, engine) in TABLES.into_iter().filter(|(_, engine)| !is_present(engine)) {
        let scratch = tempfile::tempdir().unwrap();
        let dir = scratch.path().join("store");
        store_of(&dir, table, |_| {});
        let catalogue = dir.join("CATALOG");
        let text = fs::read_to_string(&catalogue).unwrap().replacen("crc32c=", "crc32c=x", 1);
        fs::write(&catalogue, text).unwrap();
        let before = files(&dir);
        let message = refusal(maintenance::repair(&dir, None));
        assert!(message.contains(&format!("feature '{engine}'")), "{message}");
        assert_eq!(files(&dir), before, "{table}");
    }
}

#[test]
fn new_table_on_a_missing_engine_is_rejected_by_the_engines_name() {
    let scratch = tempfile::tempdir().unwrap();
    let db = Db::open_or_create(scratch.path().join("store"), DbOptions::default()).unwrap();
    for engine in siltstone::engines::NAMES.iter().filter(|engine| !is_present(engine)) {
        let error = db.table_or_create("t", engine, &Default::default()).unwrap_err();
        assert!(matches!(error, Error::InvalidOptions(_)), "{error}");
        assert!(error.to_string().contains(&format!("feature '{engine}'")), "{error}");
    }
    assert!(db.table_names().unwrap().is_empty());
}

/// The files of a drop that a crash interrupted may be in another directory, which only the engine
/// knows.
#[test]
#[cfg(not(feature = "trie"))]
fn pending_table_with_files_elsewhere_stays_pending() {
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path().join("store");
    fs::create_dir_all(dir.join("table-t")).unwrap();
    fs::write(dir.join("table-t/UPPER"), "somewhere else").unwrap();
    let catalogue = Catalogue { pending: ["t".to_owned()].into(), ..Catalogue::default() };
    catalogue.write(&Disk::open(&dir).unwrap()).unwrap();
    let db = Db::open(&dir, DbOptions::default()).unwrap();
    assert!(db.catalogue().unwrap().pending.contains("t"));
    assert!(dir.join("table-t/UPPER").exists());
}

#[test]
#[cfg(all(feature = "lsm", not(feature = "zstd")))]
fn option_of_a_missing_compression_is_refused() {
    for table in ["plain", "large"] {
        let scratch = tempfile::tempdir().unwrap();
        let dir = scratch.path().join("store");
        store_of(&dir, table, |_| {});
        let before = files(&dir);
        let message = refusal(Db::open(&dir, DbOptions::default()));
        assert!(message.contains("feature 'zstd'") && message.contains("compression"), "{message}");
        assert_eq!(files(&dir), before);
    }
}

/// Blocks that an earlier build has compressed are intact, not damaged: nothing gives them up.
#[test]
#[cfg(all(feature = "lsm", not(feature = "zstd")))]
fn block_of_a_missing_compression_is_refused_and_kept_by_repair() {
    for table in ["plain", "large"] {
        let scratch = tempfile::tempdir().unwrap();
        let dir = scratch.path().join("store");
        store_of(&dir, table, |options| options.retain(|name, _| !name.contains("compression")));
        let tables = || -> BTreeMap<PathBuf, Vec<u8>> {
            let is_table = |path: &Path| path.extension().is_some_and(|end| end == "sst");
            files(&dir).into_iter().filter(|(path, _)| is_table(path)).collect()
        };
        let before = tables();
        assert!(!before.is_empty());
        let db = Db::open(&dir, DbOptions { read_only: true, ..DbOptions::default() }).unwrap();
        let message = refusal(
            db.table(table).and_then(|table| table.iter()?.try_for_each(|entry| entry.map(drop))),
        );
        assert!(message.contains(".sst") && message.contains("feature 'zstd'"), "{message}");
        db.close().unwrap();
        refusal(maintenance::verify(&dir));
        refusal(maintenance::repair(&dir, None));
        assert_eq!(tables(), before, "{table}");
    }
}
