//! A restored older catalogue lacks tables: their directories are never removed.

use std::path::Path;
use std::sync::Arc;

use siltstone::{Db, DbOptions, Error, catalogue};
use siltstone_engine::ManualClock;
use siltstone_faults::FaultyVfs;
use siltstone_runtime::Env;

fn open(dir: &Path) -> Db {
    Db::open(dir, DbOptions::default()).unwrap()
}

/// A store with the tables "old" and "young", whose catalogue lists only the first.
fn with_older_catalogue(dir: &Path) {
    let db = Db::open_or_create(dir, DbOptions::default()).unwrap();
    db.table_or_create("old", "lsm", &Default::default()).unwrap().put(b"k", b"old").unwrap();
    let backup = std::fs::read(dir.join("CATALOG")).unwrap();
    let options = [("memtable".to_owned(), "64KiB".to_owned())].into();
    db.table_or_create("young", "lsm", &options).unwrap().put(b"k", b"young").unwrap();
    db.close().unwrap();
    std::fs::write(dir.join("CATALOG"), backup).unwrap();
}

#[test]
fn unlisted_table_stays_and_a_repair_lists_it_again() {
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path().join("store");
    with_older_catalogue(&dir);
    let db = open(&dir);
    assert_eq!(db.table_names().unwrap(), ["old"]);
    assert_eq!(db.unlisted_tables().unwrap(), ["young"]);
    let Err(refused) = db.table_or_create("young", "lsm", &Default::default()) else {
        panic!("a new table would hide the existing one")
    };
    assert!(
        matches!(&refused, Error::Refused { reason, .. } if reason.contains("repair")),
        "{refused}"
    );
    db.close().unwrap();

    let log = catalogue::repair(&dir).unwrap();
    assert!(log.iter().any(|line| line.contains("young")), "{log:?}");
    let db = open(&dir);
    assert_eq!(db.unlisted_tables().unwrap(), [""; 0]);
    for name in ["old", "young"] {
        assert_eq!(db.table(name).unwrap().get(b"k").unwrap().as_deref(), Some(name.as_bytes()));
    }
}

#[test]
fn directory_that_is_no_table_is_left_alone_and_reported() {
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path().join("store");
    with_older_catalogue(&dir);
    std::fs::create_dir(dir.join("table-notes")).unwrap();
    std::fs::write(dir.join("table-notes/notes.txt"), "mine").unwrap();
    let log = catalogue::repair(&dir).unwrap();
    assert!(log.iter().any(|line| line.contains("notes")), "{log:?}");
    let db = open(&dir);
    assert_eq!(db.table_names().unwrap(), ["old", "young"]);
    assert_eq!(db.unlisted_tables().unwrap(), ["notes"]);
    assert_eq!(std::fs::read(dir.join("table-notes/notes.txt")).unwrap(), b"mine");
}

#[test]
fn table_whose_creation_failed_can_be_created_again() {
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path().join("store");
    let db = Db::open_or_create(&dir, DbOptions::default()).unwrap();
    // A file has the name of the table's directory.
    std::fs::write(dir.join("table-t"), "").unwrap();
    assert!(db.table_or_create("t", "lsm", &Default::default()).is_err());
    std::fs::remove_file(dir.join("table-t")).unwrap();
    db.table_or_create("t", "lsm", &Default::default()).unwrap().put(b"k", b"v").unwrap();
    db.close().unwrap();
    let db = open(&dir);
    assert_eq!(db.table("t").unwrap().get(b"k").unwrap().as_deref(), Some(&b"v"[..]));
    db.drop_table("t").unwrap();
    db.table_or_create("t", "lsm", &Default::default()).unwrap();
    assert_eq!(db.table("t").unwrap().get(b"k").unwrap(), None);
}

#[test]
fn interrupted_creation_or_drop_leaves_no_unlisted_table() {
    let options = || {
        let env = Env::replayable(Arc::new(ManualClock::at(1)), 1);
        DbOptions { env, ..DbOptions::default() }
    };
    let (mut cut, mut is_done, mut pending) = (0, false, 0);
    while !is_done {
        let vfs = FaultyVfs::new(cut);
        let db = Db::create_vfs(Arc::new(vfs.clone()), options()).unwrap();
        db.table_or_create("old", "lsm", &Default::default()).unwrap();
        vfs.cut_power_at(vfs.operations() + cut);
        is_done = db.table_or_create("young", "lsm", &Default::default()).is_ok()
            && db.drop_table("young").is_ok();
        drop(db);
        for seed in 0..4 {
            let survivors = vfs.survivors(seed);
            pending +=
                usize::from(!catalogue::Catalogue::read(&survivors).unwrap().pending.is_empty());
            let db = Db::open_vfs(Arc::new(survivors.clone()), options()).unwrap();
            assert_eq!(db.unlisted_tables().unwrap(), [""; 0], "cut at {cut}");
            assert!(db.catalogue().unwrap().pending.is_empty(), "cut at {cut}");
            assert!(db.table_names().unwrap().contains(&"old".to_owned()), "cut at {cut}");
        }
        cut += 1;
    }
    assert!(pending > 0, "no cut came while the table was pending");
}
