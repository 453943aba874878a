//! A store and its checkpoint are independent, whatever options their tables have.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use siltstone::{Db, DbOptions, Durability, MergeOperator, WriteBatch};

/// Writes 4,000 rows of this round, enough for tables on the upper levels.
fn write(dir: &Path, round: u8) {
    let db = Db::open(dir, DbOptions::default()).unwrap();
    let table = db.table("t").unwrap();
    for chunk in 0..8u32 {
        let mut batch = WriteBatch::new();
        for key in chunk * 500..(chunk + 1) * 500 {
            batch.put(&key.to_le_bytes(), &[round; 20]);
        }
        table.write(&batch, Durability::Synced).unwrap();
    }
    db.close().unwrap();
}

fn check(dir: &Path, round: u8) {
    let db = Db::open(dir, DbOptions::default()).unwrap();
    let table = db.table("t").unwrap();
    for key in 0..4000u32 {
        assert_eq!(table.get(&key.to_le_bytes()).unwrap().unwrap(), [round; 20], "key {key}");
    }
    assert!(table.verify(&mut |_, _| {}).unwrap().is_intact());
    db.close().unwrap();
}

#[test]
fn checkpoint_does_not_share_the_second_directory_of_a_trie() {
    let scratch = tempfile::tempdir().unwrap();
    let path = |name: &str| scratch.path().join(name);
    let upper = path("upper").display().to_string();
    let options = [("htable_size", "16KiB".to_owned()), ("fast_dir", upper)];
    let options = options.map(|(name, value)| (name.to_owned(), value)).into();
    let db = Db::open_or_create(path("store"), DbOptions::default()).unwrap();
    db.table_or_create("t", "trie", &options).unwrap();
    db.close().unwrap();
    write(&path("store"), 1);

    let db = Db::open(path("store"), DbOptions::default()).unwrap();
    db.checkpoint(path("copy")).unwrap();
    db.close().unwrap();
    // In a shared directory each would remove the other's files.
    write(&path("copy"), 2);
    check(&path("store"), 1);
    check(&path("copy"), 2);
    write(&path("store"), 3);
    check(&path("copy"), 2);
    check(&path("store"), 3);
}

/// A copy that lists a table created during the checkpoint would report its files as missing.
#[test]
fn table_created_during_a_checkpoint_is_whole_or_absent_in_the_copy() {
    let scratch = tempfile::tempdir().unwrap();
    let path = |name: String| scratch.path().join(name);
    let db = Db::open_or_create(path("store".into()), DbOptions::default()).unwrap();
    db.table_or_create("t", "lsm", &Default::default()).unwrap().put(b"k", b"v").unwrap();
    let is_done = std::sync::atomic::AtomicBool::new(false);
    let mut copies = 0;
    std::thread::scope(|scope| {
        let (db, is_done) = (&db, &is_done);
        scope.spawn(move || {
            for number in 0..40 {
                db.table_or_create(&format!("new{number}"), "trie", &Default::default()).unwrap();
            }
            is_done.store(true, std::sync::atomic::Ordering::SeqCst);
        });
        while !is_done.load(std::sync::atomic::Ordering::SeqCst) {
            db.checkpoint(path(format!("copy{copies}"))).unwrap();
            copies += 1;
        }
    });
    for number in 0..copies {
        let copy = Db::open(path(format!("copy{number}")), DbOptions::default()).unwrap();
        assert_eq!(copy.unlisted_tables().unwrap(), [""; 0]);
        for name in copy.table_names().unwrap() {
            copy.table(&name).unwrap();
        }
    }
}

/// Drops a table of its store when it merges a value, as in a flush.
#[derive(Default)]
struct DropsTable(OnceLock<Db>);

impl MergeOperator for DropsTable {
    fn name(&self) -> &str {
        "drops"
    }

    fn full_merge(
        &self,
        _key: &[u8],
        _value: Option<&[u8]>,
        _operands: &[&[u8]],
    ) -> Result<Vec<u8>, String> {
        if let Some(db) = self.0.get() {
            let _ = db.drop_table("dropped");
        }
        Ok(Vec::new())
    }
}

/// The checkpoint would otherwise leave an empty directory, which the catalogue does not list.
#[test]
fn name_of_a_table_dropped_during_a_checkpoint_is_free() {
    let scratch = tempfile::tempdir().unwrap();
    let db = Db::open_or_create(scratch.path().join("store"), DbOptions::default()).unwrap();
    let [copied, _] = ["copied", "dropped"]
        .map(|name| db.table_or_create(name, "lsm", &Default::default()).unwrap());
    let operator = Arc::new(DropsTable::default());
    copied.set_merge_operator(Some(operator.clone())).unwrap();
    copied.put(b"k", b"v").unwrap();
    copied.merge(b"k", b"w").unwrap();
    operator.0.set(db.clone()).unwrap();
    db.checkpoint(scratch.path().join("copy")).unwrap_err();
    assert_eq!(db.table_names().unwrap(), ["copied"]);
    assert_eq!(db.unlisted_tables().unwrap(), [""; 0]);
    db.table_or_create("dropped", "lsm", &Default::default()).unwrap();
    copied.set_merge_operator(None).unwrap();
    db.close().unwrap();
}

/// The space that the files of a table take.
fn allocated_bytes(store: &Path) -> u64 {
    let files = std::fs::read_dir(store.join("table-t")).unwrap();
    files.map(|file| file.unwrap().metadata().unwrap().blocks() * 512).sum()
}

#[test]
fn checkpoint_of_a_device_takes_no_more_space_than_the_device() {
    let scratch = tempfile::tempdir().unwrap();
    let path = |name: &str| scratch.path().join(name);
    let db = Db::open_or_create(path("store"), DbOptions::default()).unwrap();
    let options = [("capacity".to_owned(), "64MiB".to_owned())].into();
    db.table_or_create("t", "skimpy", &options).unwrap();
    db.close().unwrap();
    write(&path("store"), 1);
    let db = Db::open(path("store"), DbOptions::default()).unwrap();
    db.checkpoint(path("copy")).unwrap();
    db.close().unwrap();
    check(&path("copy"), 1);
    let [store, copy] = ["store", "copy"].map(|name| allocated_bytes(&path(name)));
    assert!(copy <= store + (1 << 20) && store < 32 << 20, "{copy} bytes of {store}");
}
