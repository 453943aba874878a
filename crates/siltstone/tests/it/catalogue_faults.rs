//! Failed changes of the catalogue: what is written to a table afterwards is not removed with the
//! files of a table that the next open takes for dropped or renamed.

use std::sync::Arc;

use siltstone::{Db, DbBatch, DbOptions, Durability, Env, ManualClock, WriteBatch};
use siltstone_faults::{FaultKind, FaultyVfs, Survival};

fn options() -> DbOptions {
    DbOptions { env: Env::replayable(Arc::new(ManualClock::at(1)), 1), ..DbOptions::default() }
}

fn open(disk: &FaultyVfs) -> Db {
    Db::open_vfs(Arc::new(disk.clone()), options()).unwrap()
}

/// Calls `change` with one failed request after the other, and with several in a row. Afterwards
/// each table that opens takes a synced write, which must be there after the next open.
fn fail_each_request(change: impl Fn(&Db) -> siltstone::Result<()>) {
    let mut written = 0;
    for in_a_row in [1, 3, 20] {
        for nth in 0.. {
            let disk = FaultyVfs::new(nth);
            let db = Db::create_vfs(Arc::new(disk.clone()), options()).unwrap();
            let table = db.table_or_create("before", "lsm", &Default::default()).unwrap();
            table.write(WriteBatch::new().put(b"k", b"1"), Durability::Synced).unwrap();
            drop(table);
            let first = disk.requests() + nth;
            (first..first + in_a_row).for_each(|at| disk.fail_at(at, FaultKind::Any));
            let changed = change(&db);
            let has_failed = disk.requests() > first;
            disk.clear_faults();

            let mut names = Vec::new();
            for name in db.table_names().unwrap() {
                let put = db.table(&name).and_then(|table| {
                    table.write(WriteBatch::new().put(b"later", b"2"), Durability::Synced)
                });
                put.unwrap_or_else(|error| panic!("{error} at {nth}, {in_a_row} in a row"));
                names.push(name);
            }
            let _ = db.close();
            drop(db);
            for disk in [disk.survivors_as(Survival::LoseAll, nth), disk] {
                let db = open(&disk);
                for name in &names {
                    let found = db.table(name).and_then(|table| table.get(b"later"));
                    let found = found.unwrap_or_else(|error| {
                        panic!("{error} at {nth}, {in_a_row} in a row, {changed:?}")
                    });
                    assert_eq!(found.as_deref(), Some(&b"2"[..]), "at {nth}, {in_a_row} in a row");
                }
            }
            written += names.len();
            if !has_failed {
                break;
            }
        }
    }
    assert!(written > 10, "{written}");
}

#[test]
fn table_whose_drop_has_failed_is_not_removed_with_later_writes() {
    fail_each_request(|db| db.drop_table("before"));
}

#[test]
fn table_whose_renaming_has_failed_is_not_removed_with_later_writes() {
    fail_each_request(|db| db.rename_table("before", "after"));
}

/// Recovery would remove the batch from the other table, too.
#[test]
fn batch_is_not_durable_without_a_table_whose_drop_has_failed() {
    let disk = FaultyVfs::new(1);
    let db = Db::create_vfs(Arc::new(disk.clone()), options()).unwrap();
    let [one, other] =
        ["one", "other"].map(|name| db.table_or_create(name, "lsm", &Default::default()).unwrap());
    let mut batch = DbBatch::new();
    batch.table(&one).put(b"k", b"v");
    batch.table(&other).put(b"k", b"v");
    db.write(&batch, Durability::Buffered).unwrap();
    disk.fail_next(FaultKind::Sync, 1);
    one.sync().unwrap_err();
    disk.fail_next(FaultKind::Write, 1);
    db.drop_table("one").unwrap_err();
    disk.clear_faults();
    let is_durable = other.sync().is_ok();
    drop((db, one, other));
    let db = open(&disk.survivors_as(Survival::LoseAll, 1));
    let found = db.table("other").unwrap().get(b"k").unwrap();
    assert!(found.is_some() || !is_durable, "a synced write is lost");
}
