//! Process crash followed by a power cut. A crashed process leaves bytes and names that are
//! readable but not durable. The next process must sync them before it builds on them; else a
//! power cut takes synced writes.

use std::sync::Arc;

use siltstone::{Db, DbOptions, Durability, WriteBatch};
use siltstone_engine::ManualClock;
use siltstone_faults::FaultyVfs;
use siltstone_runtime::Env;

const ENGINES: [&str; 4] = ["lsm", "silt", "trie", "skimpy"];
const SEEDS: u64 = 24;

fn options() -> DbOptions {
    DbOptions { env: Env::replayable(Arc::new(ManualClock::at(1)), 1), ..DbOptions::default() }
}

fn open(vfs: &FaultyVfs) -> Db {
    Db::open_vfs(Arc::new(vfs.clone()), options()).unwrap()
}

fn put_synced(db: &Db, table: &str, engine: &str, value: &[u8]) {
    let given = match engine {
        "skimpy" => [("capacity".to_owned(), "4MiB".to_owned())].into(),
        _ => Default::default(),
    };
    let table = db.table_or_create(table, engine, &given).unwrap();
    let mut batch = WriteBatch::new();
    batch.put(b"k", value);
    table.write(&batch, Durability::Synced).unwrap();
}

fn value_of(db: &Db, table: &str) -> Option<Vec<u8>> {
    db.table(table).unwrap().get(b"k").unwrap()
}

/// Crashes the process in each operation of `change` in turn, and calls `next` with what it left.
fn crash_at_each_operation(
    engine: &str,
    change: impl Fn(&Db) -> bool,
    next: impl Fn(FaultyVfs, u64),
) {
    let (mut cut, mut is_done) = (0, false);
    while !is_done {
        let vfs = FaultyVfs::new(cut);
        let db = Db::create_vfs(Arc::new(vfs.clone()), options()).unwrap();
        put_synced(&db, "old", engine, b"old");
        vfs.cut_power_at(vfs.operations() + cut);
        is_done = change(&db);
        drop(db);
        next(vfs.after_crash(cut), cut);
        cut += 1;
    }
}

#[test]
fn table_created_before_a_crash_survives_a_power_cut_after_a_synced_write() {
    for engine in ENGINES {
        let create = |db: &Db| {
            let given = match engine {
                "skimpy" => [("capacity".to_owned(), "4MiB".to_owned())].into(),
                _ => Default::default(),
            };
            db.table_or_create("young", engine, &given).is_ok()
        };
        crash_at_each_operation(engine, create, |vfs, cut| {
            let db = open(&vfs);
            put_synced(&db, "young", engine, b"young");
            drop(db);
            for seed in 0..SEEDS {
                let db = open(&vfs.survivors(seed));
                let names = db.table_names().unwrap();
                assert_eq!(names, ["old", "young"], "{engine}: cut at {cut}, {seed}");
                assert_eq!(value_of(&db, "young").unwrap(), b"young", "{engine}: {cut}, {seed}");
                assert_eq!(value_of(&db, "old").unwrap(), b"old", "{engine}: {cut}, {seed}");
            }
        });
    }
}

#[test]
fn table_dropped_before_a_crash_is_whole_or_absent_after_a_power_cut() {
    for engine in ENGINES {
        crash_at_each_operation(
            engine,
            |db| db.drop_table("old").is_ok(),
            |vfs, cut| {
                drop(open(&vfs));
                for seed in 0..SEEDS {
                    let db = open(&vfs.survivors(seed));
                    if db.table_names().unwrap() == ["old"] {
                        assert_eq!(
                            value_of(&db, "old").unwrap(),
                            b"old",
                            "{engine}: {cut}, {seed}"
                        );
                    }
                }
            },
        );
    }
}
