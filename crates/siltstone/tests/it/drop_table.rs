//! A drop removes all files of a table, in its own and its second directory, and no others,
//! wherever it is interrupted.

use std::path::Path;
use std::sync::Arc;

use siltstone::{Db, DbOptions, Durability, Error, WriteBatch};
use siltstone_engine::ManualClock;
use siltstone_faults::FaultyVfs;
use siltstone_runtime::Env;
use siltstone_vfs::Vfs;

const ROWS: u32 = 600;

fn options() -> DbOptions {
    DbOptions { env: Env::replayable(Arc::new(ManualClock::at(1)), 1), ..DbOptions::default() }
}

/// A store with a table whose upper levels are in `upper`, filled and not closed.
fn filled(vfs: &FaultyVfs, upper: &Path) -> Db {
    let db = Db::create_vfs(Arc::new(vfs.clone()), options()).unwrap();
    fill(&db, "numbers", upper);
    db
}

fn fill(db: &Db, name: &str, upper: &Path) {
    let given =
        [("htable_size", "4KiB"), ("bucket_size", "512"), ("fast_dir", upper.to_str().unwrap())];
    let given = given.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    let table = db.table_or_create(name, "trie", &given).unwrap();
    for n in 0..ROWS {
        let mut batch = WriteBatch::new();
        batch.put(&n.to_be_bytes(), &n.to_le_bytes());
        table.write(&batch, Durability::Synced).unwrap();
    }
    table.engine().maintain().unwrap();
    assert!(files(upper).len() > 1, "nothing is in the second directory");
}

/// The files of a directory, without the lock, which cannot be removed safely.
fn files(directory: &Path) -> Vec<String> {
    let entries = directory.read_dir().unwrap().map(|entry| entry.unwrap().file_name());
    let mut names: Vec<_> = entries.map(|name| name.into_string().unwrap()).collect();
    names.retain(|name| name != "LOCK");
    names
}

fn is_whole(db: &Db) -> bool {
    let table = db.table("numbers").unwrap();
    (0..ROWS)
        .all(|n| table.get(&n.to_be_bytes()).unwrap().is_some_and(|value| value == n.to_le_bytes()))
}

#[test]
fn drop_interrupted_anywhere_leaves_all_or_nothing() {
    let scratch = tempfile::tempdir().unwrap();
    let mut outcomes = [0, 0];
    let (mut cut, mut is_done) = (0, false);
    while !is_done {
        let upper = scratch.path().join(cut.to_string());
        let vfs = FaultyVfs::new(cut);
        let db = filled(&vfs, &upper);
        vfs.cut_power_at(vfs.operations() + cut);
        is_done = db.drop_table("numbers").is_ok();
        drop(db);
        let survivors = vfs.survivors(cut);
        let db = Db::open_vfs(Arc::new(survivors), options()).unwrap();
        let exists = !db.table_names().unwrap().is_empty();
        outcomes[usize::from(exists)] += 1;
        assert_eq!(exists, !files(&upper).is_empty(), "cut at {cut}");
        assert!(!exists || is_whole(&db), "cut at {cut}");
        assert!(!(is_done && exists));
        cut += 1;
    }
    println!("{outcomes:?} drops completed and not begun");
    assert!(outcomes.iter().all(|&count| count > 3), "{outcomes:?}");
}

#[test]
fn second_directory_is_free_for_another_table_after_a_drop() {
    let scratch = tempfile::tempdir().unwrap();
    let (dir, upper) = (scratch.path().join("store"), scratch.path().join("upper"));
    let db = Db::open_or_create(&dir, options()).unwrap();
    fill(&db, "one", &upper);
    // A handle to the dropped table does not keep the directory in use.
    let handle = db.table("one").unwrap();
    db.drop_table("one").unwrap();
    assert_eq!(files(&upper), Vec::<String>::new());
    fill(&db, "other", &upper);
    assert!(matches!(handle.get(b"key"), Err(Error::Closed)));
    // Two tables of one store cannot share the directory, open or closed.
    let given = [("fast_dir".to_owned(), upper.to_str().unwrap().to_owned())].into();
    assert!(matches!(db.table_or_create("third", "trie", &given), Err(Error::Locked { .. })));
    db.table("other").unwrap().engine().close().unwrap();
    assert!(matches!(db.table_or_create("third", "trie", &given), Err(Error::Refused { .. })));
    drop(db);
    let db = Db::open(&dir, options()).unwrap();
    assert_eq!(db.table_names().unwrap(), ["other"]);
    assert_eq!(
        db.table("other").unwrap().get(&7u32.to_be_bytes()).unwrap().unwrap(),
        7u32.to_le_bytes()
    );
}

#[test]
fn drop_with_an_unreachable_directory_is_completed_by_a_later_open() {
    let scratch = tempfile::tempdir().unwrap();
    let (dir, upper) = (scratch.path().join("store"), scratch.path().join("upper"));
    let db = Db::open_or_create(&dir, options()).unwrap();
    fill(&db, "numbers", &upper);
    db.table("numbers").unwrap().engine().close().unwrap();
    let lock = siltstone_vfs::Disk::open(&upper).unwrap().lock("LOCK").unwrap();
    assert!(matches!(db.drop_table("numbers"), Err(Error::Locked { .. })));
    assert_eq!(db.table_names().unwrap(), Vec::<String>::new());
    drop(db);
    // The store opens anyway; a new table of that name would find the old table's files.
    let db = Db::open(&dir, options()).unwrap();
    let again = || db.table_or_create("numbers", "lsm", &Default::default());
    assert!(matches!(again(), Err(Error::Locked { .. })));
    drop(lock);
    again().unwrap();
    assert_eq!(files(&upper), Vec::<String>::new());
}
