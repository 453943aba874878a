//! A store of many tables within a budget of open files and one block cache.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test")]

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use siltstone::catalogue::{Catalogue, TableSpec};
use siltstone::{Db, DbOptions, Env, Error, ManualClock, Table};
use siltstone_faults::FaultyVfs;

const TABLES: u32 = 200;
const FLUSHES: u32 = 3;
const KEYS_PER_FLUSH: u32 = 20;
const BUDGET: usize = 32;

/// The durable engines besides `lsm`, small enough that the keys reach their files.
const OTHERS: [(&str, &[(&str, &str)]); 3] = [
    ("trie", &[("htable_size", "4KiB"), ("bucket_size", "512")]),
    ("silt", &[("partitions", "2"), ("log_store_slots", "64")]),
    ("skimpy", &[("capacity", "4MiB"), ("block", "4"), ("buckets", "64")]),
];

fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

fn key(number: u32) -> Vec<u8> {
    format!("key-{number:04}").into_bytes()
}

fn value(table: &str, number: u32) -> Vec<u8> {
    format!("{table}/{number}").repeat(20).into_bytes()
}

fn fill(table: &Table, flush: u32) {
    for number in flush * KEYS_PER_FLUSH..(flush + 1) * KEYS_PER_FLUSH {
        table.put(&key(number), &value(table.name(), number)).unwrap();
    }
    table.flush().unwrap();
}

fn check(table: &Table) {
    for number in 0..FLUSHES * KEYS_PER_FLUSH {
        let found = table.get(&key(number)).unwrap();
        assert_eq!(found, Some(value(table.name(), number)), "{} of {}", number, table.name());
    }
    assert_eq!(table.get(&key(u32::MAX)).unwrap(), None);
    assert_eq!(table.iter().unwrap().count() as u32, FLUSHES * KEYS_PER_FLUSH);
}

fn options() -> DbOptions {
    DbOptions { max_open_files: BUDGET, cache_bytes: Some(1 << 20), ..DbOptions::default() }
}

/// The descriptors of this process for files of the store.
fn descriptors(store: &Path) -> usize {
    let all = std::fs::read_dir("/proc/self/fd").unwrap();
    let targets = all.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
    targets.filter(|target| target.starts_with(store) && target.is_file()).count()
}

#[test]
fn two_hundred_tables_are_readable_within_a_budget_of_open_files() {
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path().canonicalize().unwrap().join("store");
    let is_bounded = || {
        if cfg!(target_os = "linux") {
            // Logs with unsynced bytes may need as many again; the lock and skimpy's files are
            // kept, and files that another thread just uses.
            let open = descriptors(&dir);
            assert!(open <= 2 * BUDGET + 8, "{open} files are open");
        }
    };
    {
        let db = Db::open_or_create(&dir, options()).unwrap();
        let mut tables = Vec::new();
        for number in 0..TABLES {
            let small = map(&[("memtable", "16KiB"), ("target_file_size", "8KiB")]);
            tables.push(db.table_or_create(&format!("lsm-{number}"), "lsm", &small).unwrap());
            is_bounded();
        }
        for (engine, small) in OTHERS {
            tables.push(db.table_or_create(engine, engine, &map(small)).unwrap());
        }
        for flush in 0..FLUSHES {
            for table in &tables {
                fill(table, flush);
                is_bounded();
            }
        }
        tables.iter().for_each(check);
        is_bounded();
        let counts = db.vfs().open_files().unwrap();
        println!("{counts:?}");
        assert!(counts.evictions > u64::from(TABLES) && counts.reopens > u64::from(TABLES));
        // A table that is dropped while it is in use.
        let iter = tables[0].iter().unwrap();
        db.drop_table("lsm-0").unwrap();
        drop(iter);
        db.close().unwrap();
    }
    assert_eq!(descriptors(&dir), 0);
    let db = Db::open(&dir, options()).unwrap();
    for name in db.table_names().unwrap() {
        check(&db.table(&name).unwrap());
        is_bounded();
    }
    let stats = db.table("lsm-1").unwrap().stats();
    assert_eq!(stats.memory["block_cache"], 0);
    let cached = stats.counters["store_block_cache"];
    assert!(cached > 0 && cached <= 1 << 20, "{cached}");
    assert_eq!(stats.counters["store_max_open_files"], BUDGET as u64);
    db.close().unwrap();
}

#[test]
fn shared_block_cache_replaces_the_cache_of_tables_and_new_tables_must_not_have_one() {
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path().join("store");
    let own = map(&[("cache", "8MiB")]);
    let db = Db::open_or_create(&dir, DbOptions::default()).unwrap();
    fill(&db.table_or_create("old", "lsm", &own).unwrap(), 0);
    db.close().unwrap();
    let db = Db::open(&dir, options()).unwrap();
    let refused = db.table_or_create("new", "lsm", &own).map(drop).unwrap_err();
    assert!(
        matches!(&refused, Error::InvalidOptions(all) if all[0].option == "cache"),
        "{refused}"
    );
    assert_eq!(db.table_names().unwrap(), ["old"]);
    // The same options name an existing table.
    let old = db.table_or_create("old", "lsm", &own).unwrap();
    assert!(old.get(&key(0)).unwrap().is_some());
    assert!(old.stats().counters.contains_key("store_block_cache"));
    // Other engines have other caches.
    db.table_or_create("history", "skimpy", &map(&[("cache", "100"), ("capacity", "4MiB")]))
        .unwrap();
}

/// Requests to the file system for opening a store with a catalogue of `tables` tables, of creating
/// one more, and of opening that one again.
fn requests(tables: u32) -> [u64; 3] {
    let vfs = FaultyVfs::new(1);
    let options =
        || DbOptions { env: Env::replayable(Arc::new(ManualClock::at(1)), 1), ..options() };
    drop(Db::create_vfs(Arc::new(vfs.clone()), options()).unwrap());
    let spec = TableSpec { engine: "lsm".into(), options: BTreeMap::new() };
    let specs = (0..tables).map(|number| (format!("table-{number}"), spec.clone()));
    let catalogue = Catalogue { tables: specs.collect(), ..Catalogue::default() };
    catalogue.write(&vfs).unwrap();
    let count = |act: &mut dyn FnMut()| {
        let before = vfs.requests();
        act();
        vfs.requests() - before
    };
    let mut db = None;
    let open = count(&mut || db = Some(Db::open_vfs(Arc::new(vfs.clone()), options()).unwrap()));
    let mut db = db.unwrap();
    let create = count(&mut || {
        db.table_or_create("new", "lsm", &BTreeMap::new()).unwrap();
    });
    db.close().unwrap();
    db = Db::open_vfs(Arc::new(vfs.clone()), options()).unwrap();
    let open_table = count(&mut || drop(db.table("new").unwrap()));
    [open, create, open_table]
}

#[test]
fn store_of_ten_thousand_tables_opens_and_creates_with_as_few_requests_as_an_empty_one() {
    assert_eq!(requests(10_000), requests(0));
}
