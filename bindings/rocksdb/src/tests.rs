//! Random operations against an oracle, and transactions of several threads.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::mem::MaybeUninit;
use std::sync::Arc;
use std::thread::scope;

use store::{Db, DbOptions};

use crate::data::Pinned;
use crate::database::{Database, Wanted};
use crate::failure::Failure;
use crate::families::DEFAULT_NAME;
use crate::indexed::Indexed;
use crate::iterator::{self, Iterator};
use crate::layout::{TABLE, entry_key};
use crate::locks::Locks;
use crate::options::{self, Options};
use crate::read_options::ReadOptions;
use crate::scalars::{HasScalars, Plain};
use crate::transaction;

/// Numbers that repeat with each run.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.0 >> 33) % limit
    }

    fn key(&mut self) -> Vec<u8> {
        let len = self.below(3) as usize;
        (0..len).map(|_| b'a' + self.below(4) as u8).collect()
    }
}

fn open(path: &std::path::Path) -> Database {
    let mut options = Options::default();
    options.scalars_mut().set("create_if_missing", 1u8);
    let wanted = Wanted::default_family(&options);
    Database::open(&options, path.to_str().unwrap(), &wanted, false).unwrap().0
}

fn entry(iterator: &Iterator) -> Option<(Vec<u8>, Vec<u8>)> {
    let mut len = MaybeUninit::new(0);
    // SAFETY: the iterator lends as many bytes as it says until its next move.
    unsafe {
        if iterator::rocksdb_iter_valid(iterator) == 0 {
            return None;
        }
        let key = iterator::rocksdb_iter_key(iterator, &mut len).0;
        let key = shim::boundary::bytes(key, len.assume_init()).to_vec();
        let value = iterator::rocksdb_iter_value(iterator, &mut len).0;
        Some((key, shim::boundary::bytes(value, len.assume_init()).to_vec()))
    }
}

#[test]
fn iterator_with_changes_over_it_moves_like_a_map() {
    let scratch = tempfile::tempdir().unwrap();
    let db = open(&scratch.path().join("db"));
    let mut random = Random(7);
    for round in 0..60 {
        db.table().delete_range(entry_key(0, b"")..entry_key(0, b"\xff")).unwrap();
        let (mut indexed, mut oracle) = (Indexed::default(), BTreeMap::new());
        for _ in 0..random.below(12) {
            let key = random.key();
            db.table().put(&entry_key(0, &key), b"stored").unwrap();
            oracle.insert(key, b"stored".to_vec());
        }
        for _ in 0..random.below(12) {
            let key = random.key();
            if random.below(2) == 0 {
                indexed.delete(0, &key);
                oracle.remove(&key);
            } else {
                indexed.put(0, &key, b"changed");
                oracle.insert(key, b"changed".to_vec());
            }
        }
        let base = Iterator::new(&db, &ReadOptions::default(), 0);
        let mut iterator = base.with_overlay(indexed.overlay());
        let mut expected: Option<Vec<u8>> = None;
        for step in 0..40 {
            let key = random.key();
            let (data, len) = (key.as_ptr().cast(), key.len());
            let at = expected.take();
            let is_move = random.below(6);
            // SAFETY: the iterator lives, and the key is a slice.
            unsafe {
                match is_move {
                    0 => iterator::rocksdb_iter_seek_to_first(&mut iterator),
                    1 => iterator::rocksdb_iter_seek_to_last(&mut iterator),
                    2 => iterator::rocksdb_iter_seek(&mut iterator, data, len),
                    3 => iterator::rocksdb_iter_seek_for_prev(&mut iterator, data, len),
                    4 => iterator::rocksdb_iter_next(&mut iterator),
                    _ => iterator::rocksdb_iter_prev(&mut iterator),
                }
            }
            let mut keys = oracle.keys();
            expected = match (is_move, at) {
                (0, _) => keys.next().cloned(),
                (1, _) => keys.next_back().cloned(),
                (2, _) => keys.find(|known| **known >= key).cloned(),
                (3, _) => keys.rfind(|known| **known <= key).cloned(),
                (4, Some(at)) => keys.find(|known| **known > at).cloned(),
                (5, Some(at)) => keys.rfind(|known| **known < at).cloned(),
                _ => None,
            };
            let found = expected.clone().map(|key| (key.clone(), oracle[&key].clone()));
            assert_eq!(entry(&iterator), found, "round {round}, step {step}, move {is_move}");
        }
    }
}

/// Adds 1 to a counter in a transaction. Returns whether it was committed.
fn add_one(db: &Database, options: &ReadOptions) -> bool {
    let plain = Plain::default();
    let mut err = std::ptr::null_mut();
    let key = c"counter".as_ptr();
    // SAFETY: the objects live, the lengths are those of the strings, and the errors are freed.
    unsafe {
        let begun =
            transaction::rocksdb_transaction_begin(db, &plain, &plain, std::ptr::null_mut());
        let mut txn = Box::from_raw(begun.0);
        let pinned = transaction::rocksdb_transaction_get_pinned_for_update(
            &mut txn, options, key, 7, 1, &mut err,
        );
        if err.is_null() {
            let before = (!pinned.0.is_null()).then(|| Box::from_raw(pinned.0));
            let before = before.map_or(0, |pinned| number(&pinned));
            let value = (before + 1).to_le_bytes();
            let data = value.as_ptr().cast();
            transaction::rocksdb_transaction_put(&mut txn, key, 7, data, 8, &mut err);
        }
        if err.is_null() {
            transaction::rocksdb_transaction_commit(&mut txn, &mut err);
        }
        libc::free(err.cast());
        err.is_null()
    }
}

fn number(pinned: &Pinned) -> u64 {
    u64::from_le_bytes(pinned.0[..].try_into().unwrap())
}

#[test]
fn committed_increments_of_several_threads_are_all_counted() {
    for is_locking in [false, true] {
        let scratch = tempfile::tempdir().unwrap();
        let mut db = open(&scratch.path().join("db"));
        db.locks = is_locking.then(|| Arc::new(Locks::new(2000, 2000)));
        let committed: u64 = scope(|threads| {
            let work = || (0..100).filter(|_| add_one(&db, &ReadOptions::default())).count() as u64;
            let running: Vec<_> = (0..4).map(|_| threads.spawn(work)).collect();
            running.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        let value = db.table().get(&entry_key(0, b"counter")).unwrap().unwrap();
        assert_eq!(u64::from_le_bytes(value.try_into().unwrap()), committed, "{is_locking}");
        assert!(committed > 0 && (!is_locking || committed == 400), "{is_locking}: {committed}");
    }
}

#[test]
fn store_of_another_version_or_with_other_tables_is_refused() {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("db");
    let db = open(&path);
    db.table().put(crate::layout::VERSION_KEY, &3u32.to_le_bytes()).unwrap();
    db.db().close().unwrap();
    let mut options = Options::default();
    options.scalars_mut().set("create_if_missing", 1u8);
    let wanted = Wanted::default_family(&options);
    let open_again = |path: &std::path::Path| {
        Database::open(&options, path.to_str().unwrap(), &wanted, false).map(|_| ())
    };
    let Err(Failure::Store(error)) = open_again(&path) else { panic!("not refused") };
    assert!(error.to_string().contains("version 3"), "{error}");
    let other = scratch.path().join("other");
    let store = Db::open_or_create(&other, DbOptions::default()).unwrap();
    store.table_or_create(DEFAULT_NAME, "lsm", &BTreeMap::new()).unwrap();
    store.close().unwrap();
    let Err(Failure::Store(error)) = open_again(&other) else { panic!("not refused") };
    assert!(error.to_string().contains("other tables") && TABLE != DEFAULT_NAME, "{error}");
}

/// Options with kinds of compression, and with the level and the size of the dictionary of each.
fn compressing(kinds: [i32; 2], general: (i32, i32), bottommost: Option<(i32, i32)>) -> Options {
    let mut options = Options::default();
    options.scalars_mut().set("create_if_missing", 1u8);
    for (name, kind) in ["compression", "bottommost_compression"].into_iter().zip(kinds) {
        if kind >= 0 {
            options.scalars_mut().set(name, kind);
        }
    }
    let (level, bytes) = general;
    // SAFETY: the options live for the calls.
    unsafe {
        options::rocksdb_options_set_compression_options(&mut options, -14, level, 0, bytes);
        if let Some((level, bytes)) = bottommost {
            let set = options::rocksdb_options_set_bottommost_compression_options;
            set(&mut options, -14, level, 0, bytes, 1);
        }
    }
    options
}

#[test]
fn compression_of_the_program_is_that_of_the_table() {
    // 1: Snappy, 4: LZ4, 7: Zstandard, 255: as other files.
    for (kinds, general, bottommost, expected) in [
        ([-1, -1], (0, 0), None, ["", "", ""]),
        ([1, 7], (0, 0), None, ["lz4", "zstd", ""]),
        ([1, 7], (9, 16 << 10), None, ["lz4", "zstd:9", "16384"]),
        ([7, 255], (32767, 2 << 20), None, ["zstd", "", "1048576"]),
        ([4, -1], (9, 1), None, ["lz4", "", ""]),
        ([7, -1], (3, 0), Some((12, 1)), ["zstd:3", "zstd:12", "256"]),
    ] {
        let given = compressing(kinds, general, bottommost).to_table_options();
        let names = ["compression", "bottommost_compression", "compression_dict_size"];
        assert_eq!(names.map(|name| given.get(name).map_or("", String::as_str)), expected);
    }
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("db");
    let created = compressing([1, 7], (3, 4096), None);
    let wanted = Wanted::default_family(&created);
    let (db, _) = Database::open(&created, path.to_str().unwrap(), &wanted, false).unwrap();
    let in_force = db.table().options();
    assert_eq!(in_force["bottommost_compression"], "zstd:3");
    assert_eq!(in_force["compression_dict_size"], "4096");
    db.db().close().unwrap();
    // Without dictionaries at a later open.
    drop(open(&path));
}

#[test]
fn log_is_kept_by_size_and_time_within_limits() {
    for (mebibytes, seconds, bytes, time) in [
        (0u64, 0u64, None, None),
        (3, 60, Some("3145728"), Some("60s")),
        (0, 60, None, Some("60s")),
        (u64::MAX, u64::MAX, Some("1099511627776"), Some("3153600000s")),
    ] {
        let mut options = Options::default();
        options.scalars_mut().set("WAL_size_limit_MB", mebibytes);
        options.scalars_mut().set("WAL_ttl_seconds", seconds);
        let given = options.to_table_options();
        assert_eq!(given.get("log_retention").map(String::as_str), bytes);
        assert_eq!(given.get("log_retention_time").map(String::as_str), time);
    }
}
