//! Batches, snapshots and transactions over several tables: what they refuse, and what concurrent
//! readers and writers see.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use siltstone::{Db, DbBatch, DbOptions, Durability, Error, Retry, Table, WriteBatch};
use siltstone_faults::{FaultKind, FaultyVfs, Survival};

const ENGINES: [&str; 3] = ["lsm", "trie", "silt"];
const MONEY: u64 = 1000;

fn store() -> (tempfile::TempDir, Db) {
    let scratch = tempfile::tempdir().unwrap();
    let db = Db::open_or_create(scratch.path().join("s"), DbOptions::default()).unwrap();
    (scratch, db)
}

fn table(db: &Db, name: &str, engine: &str) -> Table {
    db.table_or_create(name, engine, &BTreeMap::new()).unwrap()
}

fn number(value: Option<Vec<u8>>) -> u64 {
    value.map_or(0, |value| u64::from_le_bytes(*value.first_chunk().unwrap()))
}

#[test]
fn batch_is_in_every_table_and_after_a_reopen() {
    let (_scratch, db) = store();
    let mut batch = DbBatch::new();
    assert!(batch.is_empty());
    for engine in ENGINES {
        batch.table(&table(&db, engine, engine)).put(b"k", engine.as_bytes()).delete(b"other");
        batch.table(&table(&db, engine, engine)).put(b"l", b"");
    }
    assert_eq!(batch.len(), 9);
    db.write(&batch, Durability::Buffered).unwrap();
    let path = db.vfs().name();
    for _ in 0..2 {
        db.close().unwrap();
        let db = Db::open(&path, DbOptions::default()).unwrap();
        for engine in ENGINES {
            let table = db.table(engine).unwrap();
            assert_eq!(table.get(b"k").unwrap().as_deref(), Some(engine.as_bytes()));
        }
        db.close().unwrap();
    }
}

#[test]
fn engine_that_cannot_take_part_is_named_and_nothing_changes() {
    let (_scratch, db) = store();
    let (rows, cache) = (table(&db, "rows", "lsm"), table(&db, "cache", "mica"));
    let mut batch = DbBatch::new();
    batch.table(&rows).put(b"k", b"v");
    batch.table(&cache).put(b"k", b"v");
    let refused = db.write(&batch, Durability::Buffered);
    assert!(matches!(refused, Err(Error::Unsupported { engine: "mica", .. })), "{refused:?}");
    assert!(rows.get(b"k").unwrap().is_none() && cache.get(b"k").unwrap().is_none());
    assert!(db.catalogue().unwrap().ids.is_empty());
    // A batch of one table is a write to that table.
    let mut batch = DbBatch::new();
    batch.table(&cache).put(b"k", b"v");
    db.write(&batch, Durability::Buffered).unwrap();
    assert!(cache.get(b"k").unwrap().is_some());
}

#[test]
fn table_of_another_store_or_named_twice_is_refused() {
    let ((_one, db), (_two, other)) = (store(), store());
    let (mine, foreign) = (table(&db, "t", "lsm"), table(&other, "t", "lsm"));
    let mut batch = DbBatch::new();
    batch.table(&mine).put(b"k", b"v");
    batch.table(&foreign).put(b"k", b"v");
    assert!(matches!(db.write(&batch, Durability::Buffered), Err(Error::Invalid(_))));
    assert_eq!(mine.get(b"k").unwrap(), None);
    assert!(matches!(db.snapshot(&[&mine, &foreign]), Err(Error::Invalid(_))));
    assert!(matches!(db.transaction(&[&mine, &mine]), Err(Error::Invalid(_))));
    let third = table(&db, "u", "lsm");
    assert!(matches!(db.snapshot(&[&mine]).unwrap().table(&third), Err(Error::Invalid(_))));
}

#[test]
fn identities_survive_a_rename_and_end_with_a_drop() {
    let (_scratch, db) = store();
    let ids = || db.catalogue().unwrap().ids;
    let write = |names: [&str; 2]| {
        let mut batch = DbBatch::new();
        names.iter().for_each(|name| _ = batch.table(&db.table(name).unwrap()).put(b"k", b"v"));
        db.write(&batch, Durability::Synced).unwrap();
    };
    drop((table(&db, "a", "lsm"), table(&db, "b", "trie")));
    assert!(ids().is_empty());
    write(["a", "b"]);
    let before = ids();
    db.rename_table("a", "c").unwrap();
    write(["b", "c"]);
    assert_eq!((ids()["c"], ids()["b"]), (before["a"], before["b"]));
    db.drop_table("b").unwrap();
    drop(table(&db, "b", "trie"));
    write(["b", "c"]);
    assert!(ids()["b"] > before["b"] && ids()["b"] > before["a"]);
}

/// Two tables that are always written together hold equal numbers in every snapshot.
#[test]
fn snapshot_shows_concurrent_batches_whole() {
    let (_scratch, db) = store();
    let (a, b) = (table(&db, "a", "lsm"), table(&db, "b", "lsm"));
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in 1..=2000_u64 {
                let mut batch = DbBatch::new();
                batch.table(&b).put(b"k", &number.to_le_bytes());
                batch.table(&a).put(b"k", &number.to_le_bytes());
                db.write(&batch, Durability::Buffered).unwrap();
            }
            is_done.store(true, Relaxed);
        });
        while !is_done.load(Relaxed) {
            let snapshot = db.snapshot(&[&b, &a]).unwrap();
            let of = |table| number(snapshot.table(table).unwrap().get(b"k").unwrap());
            assert_eq!(of(&a), of(&b));
        }
    });
}

/// Money moves between tables by transactions, while plain writes and batches write beside them.
#[test]
fn concurrent_transactions_over_tables_neither_lose_nor_create_money() {
    let (_scratch, db) = store();
    let tables = ["a", "b", "c"].map(|name| table(&db, name, "lsm"));
    for table in &tables {
        table.put(b"money", &MONEY.to_le_bytes()).unwrap();
    }
    let total = |values: [u64; 3]| values.iter().sum::<u64>();
    std::thread::scope(|scope| {
        for thread in 0..3 {
            let (db, tables) = (&db, &tables);
            scope.spawn(move || {
                let (from, to) = (&tables[thread], &tables[(thread + 1) % 3]);
                for round in 0..100_u64 {
                    let retry = Retry { tries: 1000, ..Retry::default() };
                    db.transact_with(&[to, from], retry, Durability::Buffered, |tx| {
                        let has = number(tx.table(from)?.get(b"money")?);
                        let amount = (round % 7).min(has);
                        tx.table(from)?.put(b"money", &(has - amount).to_le_bytes())?;
                        let has = number(tx.table(to)?.get(b"money")?);
                        tx.table(to)?.put(b"money", &(has + amount).to_le_bytes())
                    })
                    .unwrap();
                    let mut batch = DbBatch::new();
                    tables.iter().for_each(|table| _ = batch.table(table).put(b"beside", b"x"));
                    db.write(&batch, Durability::Buffered).unwrap();
                    from.put(b"plain", &round.to_le_bytes()).unwrap();
                }
            });
        }
        for _ in 0..100 {
            let snapshot = db.snapshot(&tables.each_ref()).unwrap();
            let of = |table| number(snapshot.table(table).unwrap().get(b"money").unwrap());
            assert_eq!(total(tables.each_ref().map(of)), 3 * MONEY);
        }
    });
    assert_eq!(total(tables.each_ref().map(|t| number(t.get(b"money").unwrap()))), 3 * MONEY);
}

#[test]
fn transaction_conflicts_with_writes_to_any_table_that_it_read() {
    let (_scratch, db) = store();
    let (a, b) = (table(&db, "a", "lsm"), table(&db, "b", "lsm"));
    let begin = || {
        let mut transaction = db.transaction(&[&a, &b]).unwrap();
        transaction.table(&b).unwrap().get(b"read").unwrap();
        transaction.table(&a).unwrap().put(b"written", b"1").unwrap();
        transaction
    };
    let is_conflict = |outcome| matches!(outcome, Err(Error::Conflict { key }) if key == b"read");

    let transaction = begin();
    b.put(b"read", b"plain").unwrap();
    assert!(is_conflict(transaction.commit(Durability::Buffered)));

    let transaction = begin();
    let mut batch = DbBatch::new();
    batch.table(&a).put(b"other", b"");
    batch.table(&b).put(b"read", b"batch");
    db.write(&batch, Durability::Buffered).unwrap();
    assert!(is_conflict(transaction.commit(Durability::Buffered)));
    assert_eq!(a.get(b"written").unwrap(), None);

    let transaction = begin();
    b.put(b"unread", b"").unwrap();
    transaction.commit(Durability::Synced).unwrap();
    assert!(a.contains_key(b"written").unwrap());

    // A batch is a conflict for transactions of one table, too.
    let mut single = a.transaction().unwrap();
    single.get(b"written").unwrap();
    single.put(b"x", b"").unwrap();
    let mut batch = DbBatch::new();
    batch.table(&a).delete(b"written");
    batch.table(&b).put(b"y", b"");
    db.write(&batch, Durability::Buffered).unwrap();
    assert!(matches!(single.commit(Durability::Buffered), Err(Error::Conflict { .. })));
    drop(begin());
    assert_eq!(a.stats().counters["transactions_open"], 0);
}

/// Two tables that are always written together hold equal numbers in every copy.
#[test]
fn checkpoint_holds_concurrent_batches_whole() {
    let (scratch, db) = store();
    let (a, b) = (table(&db, "a", "lsm"), table(&db, "b", "silt"));
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in 1.. {
                let mut batch = DbBatch::new();
                batch.table(&a).put(b"k", &u64::to_le_bytes(number));
                batch.table(&b).put(b"k", &u64::to_le_bytes(number));
                db.write(&batch, Durability::Buffered).unwrap();
                if is_done.load(Relaxed) {
                    break;
                }
            }
        });
        for copy in 0..5 {
            let dir = scratch.path().join(format!("copy-{copy}"));
            db.checkpoint(&dir).unwrap();
            let copy = Db::open(&dir, DbOptions::default()).unwrap();
            let of = |name| number(copy.table(name).unwrap().get(b"k").unwrap());
            assert_eq!(of("a"), of("b"));
            // The copy takes batches, too.
            let mut batch = DbBatch::new();
            for name in ["a", "b"] {
                batch.table(&copy.table(name).unwrap()).put(b"l", b"");
            }
            copy.write(&batch, Durability::Synced).unwrap();
            copy.close().unwrap();
        }
        is_done.store(true, Relaxed);
    });
}

#[test]
fn batch_that_a_failed_sync_left_readable_is_made_durable_at_the_next_opening() {
    for engine in ENGINES {
        let disk = FaultyVfs::new(1);
        let options = DbOptions::default;
        let db = Db::create_vfs(Arc::new(disk.clone()), options()).unwrap();
        let (first, second) = (table(&db, "first", engine), table(&db, "second", engine));
        db.sync().unwrap();
        let mut batch = DbBatch::new();
        batch.table(&first).put(b"batch", b"");
        batch.table(&second).put(b"batch", b"");
        db.write(&batch, Durability::Buffered).unwrap();
        // From now on the part can be read, and no sync of its file makes it durable.
        disk.fail_next(FaultKind::Sync, 1);
        assert!(second.sync().is_err());
        let crashed = disk.after_crash(1);
        drop((db, first, second));
        // The next process opens one of the tables, and writes to it durably.
        let db = Db::open_vfs(Arc::new(crashed.clone()), options()).unwrap();
        let first = db.table("first").unwrap();
        assert!(first.contains_key(b"batch").unwrap());
        let mut synced = WriteBatch::new();
        synced.put(b"synced", b"");
        first.write(&synced, Durability::Synced).unwrap();
        let survivors = crashed.survivors_as(Survival::LoseAll, 1);
        drop((db, first));
        let db = Db::open_vfs(Arc::new(survivors), options()).unwrap();
        let has = |name: &str, key: &[u8]| db.table(name).unwrap().contains_key(key).unwrap();
        assert!(has("first", b"synced"), "{engine}: the synced write is lost");
        assert!(has("first", b"batch") && has("second", b"batch"), "{engine}: part of a batch");
        db.close().unwrap();
    }
}

#[test]
fn range_deletion_in_a_batch_is_applied_with_the_parts_of_other_tables_or_refused_with_them() {
    let (_scratch, db) = store();
    let (rows, index) = (table(&db, "rows", "lsm"), table(&db, "index", "lsm"));
    let hashed = table(&db, "hashed", "trie");
    for key in ["a", "b", "c"] {
        rows.put(key.as_bytes(), b"1").unwrap();
        hashed.put(key.as_bytes(), b"1").unwrap();
    }
    let mut refused = DbBatch::new();
    refused.table(&rows).put(b"z", b"2");
    refused.table(&hashed).delete_range("a".."c");
    let outcome = db.write(&refused, Durability::Buffered);
    assert!(matches!(outcome, Err(Error::Unsupported { engine: "trie", .. })), "{outcome:?}");
    assert!(!rows.contains_key(b"z").unwrap() && hashed.contains_key(b"a").unwrap());

    // A transaction that has read in the range conflicts with it.
    let mut reader = rows.transaction().unwrap();
    assert!(reader.contains_key(b"b").unwrap());
    reader.put(b"y", b"").unwrap();
    let mut batch = DbBatch::new();
    batch.table(&rows).delete_range("a".."c").put(b"b2", b"3");
    batch.table(&index).put(b"deleted", b"a..c");
    db.write(&batch, Durability::Buffered).unwrap();
    assert!(matches!(reader.commit(Durability::Buffered), Err(Error::Conflict { .. })));
    let path = db.vfs().name();
    drop((rows, index, hashed, db));
    for _ in 0..2 {
        let db = Db::open(&path, DbOptions::default()).unwrap();
        let keys = db.table("rows").unwrap().keys().unwrap();
        let keys: Vec<_> = keys.map(Result::unwrap).collect();
        assert_eq!(keys, [b"b2".to_vec(), b"c".to_vec()]);
        assert!(db.table("index").unwrap().contains_key(b"deleted").unwrap());
        db.close().unwrap();
    }
}
