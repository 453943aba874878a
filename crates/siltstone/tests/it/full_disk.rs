//! A store on a full disk gets space back by dropping or clearing a table. A drop or a clear that
//! fails leaves the table whole.

use std::collections::BTreeMap;
use std::sync::Arc;

use siltstone::{Db, DbOptions, Durability, Env, ManualClock, Table, WriteBatch};
use siltstone_faults::FaultyVfs;
use siltstone_vfs::Vfs;

const ROWS: u32 = 2_000;
const ENGINES: [&str; 3] = ["lsm", "trie", "silt"];

fn options() -> DbOptions {
    DbOptions { env: Env::replayable(Arc::new(ManualClock::at(1)), 1), ..DbOptions::default() }
}

/// How the table is when the disk is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Closed,
    Flushed,
    /// With rows in its memtable.
    Unflushed,
}

fn key(n: u32) -> [u8; 4] {
    n.to_be_bytes()
}

/// A store with the tables `large` and `other` on `engine`.
fn filled(vfs: &FaultyVfs, engine: &str, state: State) -> Db {
    let db = Db::create_vfs(Arc::new(vfs.clone()), options()).unwrap();
    for name in ["large", "other"] {
        let table = db.table_or_create(name, engine, &BTreeMap::new()).unwrap();
        for n in 0..ROWS {
            let durability = if n % 100 == 0 { Durability::Synced } else { Durability::Buffered };
            table.write(WriteBatch::new().put(&key(n), &[n as u8; 100]), durability).unwrap();
        }
        if state != State::Unflushed {
            table.flush().unwrap();
        }
    }
    if state != State::Closed {
        return db;
    }
    db.close().unwrap();
    Db::open_vfs(Arc::new(vfs.clone()), options()).unwrap()
}

fn is_whole(table: &Table) -> bool {
    (0..ROWS).all(|n| table.get(&key(n)).unwrap().as_deref() == Some(&[n as u8; 100][..]))
}

/// Fills what is left of the disk by writes to a table.
fn fill(vfs: &FaultyVfs, table: &Table) {
    vfs.set_capacity(vfs.space_used());
    for n in 0.. {
        let written = table.write(WriteBatch::new().put(b"fill", &[1; 3000]), Durability::Synced);
        match written {
            Ok(()) => assert!(n < 10_000, "the disk is never full"),
            Err(error) => return assert!(error.is_disk_full(), "{error}"),
        }
    }
}

/// Fills the disk, and drops or clears a table then, with or without the store's reserve.
fn check(engine: &str, state: State, clears: bool, has_reserve: bool) {
    let case = format!("{engine} {state:?}, clear: {clears}, reserve: {has_reserve}");
    let vfs = FaultyVfs::new(1);
    let db = filled(&vfs, engine, state);
    fill(&vfs, &db.table("other").unwrap());
    if !has_reserve {
        vfs.remove("RESERVE").unwrap();
    }
    let full = vfs.space_used();
    vfs.set_capacity(full);
    // It is written again when there is space.
    let full = full + if has_reserve { 0 } else { 256 << 10 };
    let free = |db: &Db| match clears {
        true => db.table("large")?.clear(),
        false => db.drop_table("large"),
    };
    let done = free(&db);
    if !has_reserve {
        let error = done.unwrap_err();
        assert!(error.is_disk_full(), "{case}: {error}");
        let text = error.to_string();
        assert!(text.contains("'large' is as before: free some"), "{case}: {text}");
        vfs.set_capacity(u64::MAX);
        assert!(is_whole(&db.table("large").unwrap()), "{case}");
        free(&db).unwrap();
    } else {
        done.unwrap_or_else(|error| panic!("{case}: {error}"));
    }
    // Files go with the last view that names them.
    let other = db.table("other").unwrap();
    assert!(vfs.space_used() + 100_000 < full, "{case}: {full} to {}", vfs.space_used());
    other.put(b"more", b"1").unwrap();
    assert!(is_whole(&other), "{case}");
    drop(other);
    db.close().unwrap();
    let db = Db::open_vfs(Arc::new(vfs.after_crash(1)), options()).unwrap();
    let expected: &[&str] = if clears { &["large", "other"] } else { &["other"] };
    assert_eq!(db.table_names().unwrap(), expected, "{case}");
    assert!(!clears || db.table("large").unwrap().is_empty().unwrap(), "{case}");
    assert!(is_whole(&db.table("other").unwrap()), "{case}");
}

#[test]
fn drop_or_clear_on_a_full_disk_frees_space() {
    for engine in ENGINES {
        for state in [State::Closed, State::Flushed, State::Unflushed] {
            for clears in [false, true] {
                check(engine, state, clears, true);
            }
        }
    }
}

#[test]
fn drop_or_clear_without_any_space_leaves_the_table_whole_and_says_what_to_do() {
    for engine in ENGINES {
        for state in [State::Closed, State::Flushed, State::Unflushed] {
            for clears in [false, true] {
                check(engine, state, clears, false);
            }
        }
    }
}
