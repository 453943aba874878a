//! An older catalogue that is put back forgets tables: no directory of theirs is removed.

#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::sync::Arc;

use siltstone::{Db, DbOptions, Error, catalogue};
use siltstone_engine::ManualClock;
use siltstone_faults::Faulty;
use siltstone_runtime::Env;

fn open(dir: &Path) -> Db {
    Db::open(dir, DbOptions::default()).unwrap()
}

/// A store with the tables "old" and "young", whose catalogue knows the first alone.
fn forgetful(dir: &Path) {
    let db = Db::open_or_create(dir, DbOptions::default()).unwrap();
    db.table_or_create("old", "lsm", &Default::default()).unwrap().put(b"k", b"old").unwrap();
    let backup = std::fs::read(dir.join("CATALOG")).unwrap();
    let options = [("memtable".to_owned(), "64KiB".to_owned())].into();
    db.table_or_create("young", "lsm", &options).unwrap().put(b"k", b"young").unwrap();
    db.close().unwrap();
    std::fs::write(dir.join("CATALOG"), backup).unwrap();
}

#[test]
fn what_is_not_named_stays_and_is_named_again_by_a_repair() {
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path().join("store");
    forgetful(&dir);
    let db = open(&dir);
    assert_eq!(db.table_names().unwrap(), ["old"]);
    assert_eq!(db.unnamed_tables().unwrap(), ["young"]);
    let Err(refused) = db.table_or_create("young", "lsm", &Default::default()) else {
        panic!("it would hide what is there")
    };
    assert!(
        matches!(&refused, Error::Refused { reason, .. } if reason.contains("repair")),
        "{refused}"
    );
    db.close().unwrap();

    let story = catalogue::repair(&dir).unwrap();
    assert!(story.iter().any(|line| line.contains("young")), "{story:?}");
    let db = open(&dir);
    assert_eq!(db.unnamed_tables().unwrap(), [""; 0]);
    for name in ["old", "young"] {
        assert_eq!(db.table(name).unwrap().get(b"k").unwrap().as_deref(), Some(name.as_bytes()));
    }
}

#[test]
fn what_is_no_table_is_left_alone_and_told() {
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path().join("store");
    forgetful(&dir);
    std::fs::create_dir(dir.join("table-notes")).unwrap();
    std::fs::write(dir.join("table-notes/notes.txt"), "mine").unwrap();
    let story = catalogue::repair(&dir).unwrap();
    assert!(story.iter().any(|line| line.contains("notes")), "{story:?}");
    let db = open(&dir);
    assert_eq!(db.table_names().unwrap(), ["old", "young"]);
    assert_eq!(db.unnamed_tables().unwrap(), ["notes"]);
    assert_eq!(std::fs::read(dir.join("table-notes/notes.txt")).unwrap(), b"mine");
}

#[test]
fn a_table_whose_making_failed_is_made_again() {
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path().join("store");
    let db = Db::open_or_create(&dir, DbOptions::default()).unwrap();
    // A file stands where the table's directory would.
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
fn whatever_cuts_off_the_making_or_the_dropping_of_a_table_leaves_nothing_unnamed() {
    let options = || {
        let env = Env::replayable(Arc::new(ManualClock::at(1)), 1);
        DbOptions { env, ..DbOptions::default() }
    };
    let (mut cut, mut is_done, mut passing) = (0, false, 0);
    while !is_done {
        let vfs = Faulty::new(cut);
        let db = Db::create_media(Arc::new(vfs.clone()), options()).unwrap();
        db.table_or_create("old", "lsm", &Default::default()).unwrap();
        vfs.cut_power_at(vfs.operations() + cut);
        is_done = db.table_or_create("young", "lsm", &Default::default()).is_ok()
            && db.drop_table("young").is_ok();
        drop(db);
        for seed in 0..4 {
            let survivors = vfs.survivors(seed);
            passing +=
                usize::from(!catalogue::Catalogue::read(&survivors).unwrap().passing.is_empty());
            let db = Db::open_media(Arc::new(survivors.clone()), options()).unwrap();
            assert_eq!(db.unnamed_tables().unwrap(), [""; 0], "cut at {cut}");
            assert!(db.catalogue().unwrap().passing.is_empty(), "cut at {cut}");
            assert!(db.table_names().unwrap().contains(&"old".to_owned()), "cut at {cut}");
        }
        cut += 1;
    }
    assert!(passing > 0, "no cut came while the table was passing");
}
