//! A process that died leaves bytes and names that can be read and are not durable. Whether the next one
//! makes them so before it builds on them: else a power cut takes what it promised.

#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use siltstone::{Db, DbOptions, Durability, WriteBatch};
use siltstone_engine::ManualClock;
use siltstone_faults::Faulty;
use siltstone_runtime::Env;

const ENGINES: [&str; 4] = ["lsm", "silt", "trie", "skimpy"];
const SEEDS: u64 = 24;

fn options() -> DbOptions {
    DbOptions { env: Env::replayable(Arc::new(ManualClock::at(1)), 1), ..DbOptions::default() }
}

fn open(vfs: &Faulty) -> Db {
    Db::open_media(Arc::new(vfs.clone()), options()).unwrap()
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

/// Has a process die in each of the operations of `deed` in turn, and hands on what it leaves.
fn each_death(engine: &str, deed: impl Fn(&Db) -> bool, next: impl Fn(Faulty, u64)) {
    let (mut cut, mut is_done) = (0, false);
    while !is_done {
        let vfs = Faulty::new(cut);
        let db = Db::create_media(Arc::new(vfs.clone()), options()).unwrap();
        put_synced(&db, "old", engine, b"old");
        vfs.cut_power_at(vfs.operations() + cut);
        is_done = deed(&db);
        drop(db);
        next(vfs.after_death(cut), cut);
        cut += 1;
    }
}

#[test]
fn is_a_table_that_a_dead_process_made_there_for_good_once_it_was_written_to() {
    for engine in ENGINES {
        let make = |db: &Db| {
            let given = match engine {
                "skimpy" => [("capacity".to_owned(), "4MiB".to_owned())].into(),
                _ => Default::default(),
            };
            db.table_or_create("young", engine, &given).is_ok()
        };
        each_death(engine, make, |vfs, cut| {
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
fn is_a_table_that_a_dead_process_dropped_whole_or_not_there() {
    for engine in ENGINES {
        each_death(
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
