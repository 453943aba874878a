//! A renamed table keeps its content on every engine with files, and an interrupted rename leaves
//! it under one of the names; the other calls on all tables.

use std::sync::Arc;

use siltstone::{Db, DbOptions, Durability, Error, WriteBatch};
use siltstone_engine::ManualClock;
use siltstone_faults::FaultyVfs;
use siltstone_runtime::Env;
use siltstone_vfs::{Ram, Vfs};

const ROWS: u32 = 300;

fn options() -> DbOptions {
    DbOptions { env: Env::replayable(Arc::new(ManualClock::at(1)), 1), ..DbOptions::default() }
}

fn filled(vfs: Arc<dyn Vfs>, engine: &str) -> Db {
    let db = Db::create_vfs(vfs, options()).unwrap();
    let given: &[(&str, &str)] = match engine {
        "lsm" => &[("memtable", "64KiB")],
        "skimpy" => &[("capacity", "16MiB")],
        _ => &[],
    };
    let given = given.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
    let table = db.table_or_create("before", engine, &given).unwrap();
    for n in 0..ROWS {
        let mut batch = WriteBatch::new();
        batch.put(&n.to_be_bytes(), &n.to_le_bytes());
        table.write(&batch, Durability::Synced).unwrap();
    }
    db
}

fn is_whole(db: &Db, name: &str) -> bool {
    let table = db.table(name).unwrap();
    let has = |n: u32| table.get(&n.to_be_bytes()).unwrap().is_some_and(|v| v == n.to_le_bytes());
    (0..ROWS).all(has) && table.len().unwrap() == u64::from(ROWS)
}

#[test]
fn renamed_table_has_its_content_after_a_reopen() {
    for engine in ["lsm", "trie", "silt", "skimpy"] {
        let vfs: Arc<dyn Vfs> = Arc::new(Ram::new());
        let db = filled(vfs.clone(), engine);
        db.rename_table("before", "after").unwrap();
        assert_eq!(db.table_names().unwrap(), ["after"]);
        assert!(matches!(db.table("before"), Err(Error::Invalid(_))));
        assert!(is_whole(&db, "after"), "{engine}");
        db.table("after").unwrap().put(b"more", b"").unwrap();
        db.table("after").unwrap().delete(b"more").unwrap();
        db.close().unwrap();
        drop(db);
        let db = Db::open_vfs(vfs.clone(), options()).unwrap();
        assert!(is_whole(&db, "after"), "{engine}");
        // The old name is free.
        db.table_or_create("before", "lsm", &Default::default()).unwrap();
        assert_eq!(vfs.subdirectories().unwrap(), ["table-after", "table-before"]);
    }
}

#[test]
fn rename_interrupted_anywhere_leaves_the_table_under_one_name() {
    let mut outcomes = [0, 0];
    let (mut cut, mut is_done) = (0, false);
    while !is_done {
        let vfs = FaultyVfs::new(cut);
        let db = filled(Arc::new(vfs.clone()), "lsm");
        vfs.cut_power_at(vfs.operations() + cut);
        is_done = db.rename_table("before", "after").is_ok();
        drop(db);
        let survivors: Arc<dyn Vfs> = Arc::new(vfs.survivors(cut));
        let db = Db::open_vfs(survivors.clone(), options()).unwrap();
        let names = db.table_names().unwrap();
        assert_eq!(names.len(), 1, "cut at {cut}: {names:?}");
        outcomes[usize::from(names[0] == "after")] += 1;
        assert!(is_whole(&db, &names[0]), "cut at {cut}");
        assert_eq!(survivors.subdirectories().unwrap(), [format!("table-{}", names[0])]);
        assert!(!is_done || names[0] == "after");
        cut += 1;
    }
    println!("{outcomes:?} renames not begun and completed");
    assert!(outcomes.iter().all(|&count| count > 3), "{outcomes:?}");
}

#[test]
fn rename_is_refused_with_the_reason() {
    let db = filled(Arc::new(Ram::new()), "lsm");
    let other = db.table_or_create("other", "lsm", &Default::default()).unwrap();
    let invalid = |from, to| matches!(db.rename_table(from, to), Err(Error::Invalid(_)));
    assert!(invalid("none", "after") && invalid("before", "other") && invalid("before", "a/b"));
    assert!(invalid("before", "before"));
    let snapshot = other.snapshot().unwrap();
    for _ in 0..2 {
        let refused = db.rename_table("other", "after");
        assert!(
            matches!(&refused, Err(Error::Refused { reason, .. }) if reason.contains("in use"))
        );
    }
    // The handles still work.
    other.put(b"k", b"v").unwrap();
    drop(other);
    assert!(db.rename_table("other", "after").is_err(), "the snapshot is still there");
    drop(snapshot);
    db.rename_table("other", "after").unwrap();
    assert!(db.table("after").unwrap().contains_key(b"k").unwrap());
    assert!(is_whole(&db, "before"));
}

#[test]
fn table_with_files_in_another_directory_is_not_renamed() {
    let scratch = tempfile::tempdir().unwrap();
    let db = Db::open_or_create(scratch.path().join("store"), options()).unwrap();
    let upper = scratch.path().join("upper");
    let given = [("upper".to_owned(), upper.to_str().unwrap().to_owned())].into();
    drop(db.table_or_create("before", "trie", &given).unwrap());
    let refused = db.rename_table("before", "after");
    assert!(matches!(refused, Err(Error::Refused { .. })), "{refused:?}");
    assert_eq!(db.table_names().unwrap(), ["before"]);
}

#[test]
fn sync_covers_every_table() {
    let vfs = FaultyVfs::new(1);
    let db = Db::create_vfs(Arc::new(vfs.clone()), options()).unwrap();
    for name in ["a", "b"] {
        let table = db.table_or_create(name, "lsm", &Default::default()).unwrap();
        table.put(b"k", b"v").unwrap();
    }
    db.sync().unwrap();
    vfs.cut_power_at(vfs.operations());
    drop(db);
    let db = Db::open_vfs(Arc::new(vfs.survivors(1)), options()).unwrap();
    for name in ["a", "b"] {
        assert!(db.table(name).unwrap().contains_key(b"k").unwrap(), "{name}");
    }
}

#[test]
fn disk_usage_names_every_table() {
    let db = filled(Arc::new(Ram::new()), "lsm");
    db.table_or_create("memory", "mica", &Default::default()).unwrap();
    let usage = db.disk_usage().unwrap();
    assert!(usage["before"] > u64::from(ROWS) * 8, "{usage:?}");
    assert_eq!((usage["memory"], usage.len()), (0, 2));
}
