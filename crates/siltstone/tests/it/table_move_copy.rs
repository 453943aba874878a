//! What the copy of a moving table writes: ranges that are deleted or ingested meanwhile, and rows
//! as sorted files.

use std::collections::BTreeMap;
use std::sync::Arc;

use siltstone::{Db, DbOptions, Durability, Error, Table, WriteBatch};
use siltstone_testkit::TestRng;
use siltstone_testkit::stop_guard::RunFlag;
use siltstone_vfs::Ram;

use crate::table_move_beside::{Given, copy, create, given, options};

/// A target that deletes ranges follows them.
#[test]
fn ranges_that_are_deleted_or_ingested_during_a_move_do_not_begin_it_again() {
    let scratch = tempfile::tempdir().unwrap();
    let db = Db::open_or_create(scratch.path().join("s"), DbOptions::default()).unwrap();
    let table = create(&db, "t");
    let key = |n: u32| n.to_be_bytes();
    (0..3000).for_each(|n| table.put(&key(n), b"v").unwrap());
    let mut moving = db.begin_move("t", "lsm", &Given::new()).unwrap();
    copy(&mut moving);
    table.put(&key(1200), b"copied").unwrap();
    copy(&mut moving);
    table.delete_range(&key(1000)[..]..&key(2000)[..]).unwrap();
    table.put(&key(1500), b"later").unwrap();
    let mut batch = WriteBatch::new();
    batch
        .put(&key(150), b"lost")
        .delete_range(&key(100)[..]..&key(200)[..])
        .put(&key(160), b"kept");
    table.write(&batch, Durability::Buffered).unwrap();
    // Not under the pause.
    assert!(moving.try_switch(&mut |_| Ok(())).unwrap().is_none());
    let path = scratch.path().join("sorted");
    let mut file = siltstone::SortedFileWriter::create(&path, &Given::new()).unwrap();
    (5000..5010).for_each(|n| file.put(&key(n), b"ingested").unwrap());
    file.finish().unwrap();
    table.ingest(&[path], siltstone::IngestOptions::default()).unwrap();
    table.delete_range(&key(2990)[..]..&key(5000)[..]).unwrap();
    table.put(&key(2995), b"end").unwrap();
    copy(&mut moving);
    assert_eq!(moving.progress().restarts, 0);
    let rows = |table: &Table| table.iter().unwrap().map(Result::unwrap).collect::<Vec<_>>();
    let expected = rows(&table);
    assert_eq!(expected.len(), 3000 - 1000 + 1 - 100 + 1 - 10 + 1 + 10);
    let moved = moving.finish().unwrap();
    assert_eq!(rows(&moved), expected);
    drop((table, moved));
    db.close().unwrap();
    let db = Db::open(scratch.path().join("s"), DbOptions::default()).unwrap();
    assert_eq!(rows(&db.table("t").unwrap()), expected);
}

#[test]
fn range_deletions_of_concurrent_writers_are_followed() {
    let db = Db::create_vfs(Arc::new(Ram::new()), DbOptions::default()).unwrap();
    create(&db, "t");
    let running = RunFlag::default();
    let (db, running) = (&db, &running);
    let expected: BTreeMap<Vec<u8>, Vec<u8>> = std::thread::scope(|scope| {
        let stop = running.clear_on_drop();
        let writers: Vec<_> = (0..3u8)
            .map(|id| {
                scope.spawn(move || {
                    let (mut table, mut model) = (db.table("t").unwrap(), BTreeMap::new());
                    let mut rng = TestRng::new(u64::from(id));
                    while running.is_set() {
                        let (from, len) = (rng.below(200) as u8, rng.below(20) as u8);
                        let (from, to) = (vec![id, from], vec![id, from.saturating_add(len)]);
                        let value = rng.bytes(20);
                        let is_range = rng.one_in(20);
                        let outcome = match is_range {
                            true => table.delete_range(from.clone()..to.clone()),
                            false => table.put(&from, &value),
                        };
                        match outcome {
                            Err(Error::Closed) => table = db.table("t").unwrap(),
                            Err(error) => panic!("{error}"),
                            Ok(()) if is_range => {
                                model.retain(|key, _| !(&from..&to).contains(&key))
                            }
                            Ok(()) => _ = model.insert(from, value),
                        }
                    }
                    model
                })
            })
            .collect();
        // The moves of an empty table may end before a writer has begun.
        while db.table("t").unwrap().first().unwrap().is_none() {
            std::thread::yield_now();
        }
        for memtable in ["64KiB", "128KiB"].repeat(6) {
            let given = given(&[("memtable", memtable)]);
            db.begin_move("t", "lsm", &given).unwrap().finish().unwrap();
        }
        drop(stop);
        writers.into_iter().flat_map(|writer| writer.join().unwrap()).collect()
    });
    let rows = db.table("t").unwrap().iter().unwrap().map(Result::unwrap);
    let found: BTreeMap<_, _> = rows.map(|(key, entry)| (key, entry.value)).collect();
    assert_eq!(found, expected);
}

/// As sorted files: not to the log, and not again by compactions.
#[test]
fn rows_of_an_ordered_table_are_written_once() {
    const ROWS: u32 = 30_000;
    let scratch = tempfile::tempdir().unwrap();
    let db = Db::open_or_create(scratch.path().join("s"), options()).unwrap();
    let table = create(&db, "t");
    let mut rng = TestRng::new(9);
    for n in 0..ROWS {
        // Some expire, later.
        let until = (n % 3 == 0).then_some(1_000_000);
        match until {
            Some(until) => table.put_until(&n.to_be_bytes(), &rng.bytes(100), until).unwrap(),
            None => table.put(&n.to_be_bytes(), &rng.bytes(100)).unwrap(),
        }
    }
    let given = given(&[("memtable", "256KiB"), ("compression", "none")]);
    let mut moving = db.begin_move("t", "lsm", &given).unwrap();
    copy(&mut moving);
    moving.target().maintain().unwrap();
    let per_row = |bytes: u64| bytes as f64 / f64::from(ROWS);
    let engine = per_row(moving.target().stats().media_bytes_written());
    // The files that were ingested, which the engine has not written.
    let space = per_row(moving.target().stats().space_bytes);
    println!("per row of 104 bytes: the engine writes {engine:.1} bytes, and has {space:.1}");
    assert!(engine < 2.0 && (104.0..130.0).contains(&space), "{engine} {space}");
    let expected: Vec<_> = table.iter().unwrap().map(Result::unwrap).collect();
    let moved = moving.finish().unwrap();
    let found: Vec<_> = moved.iter().unwrap().map(Result::unwrap).collect();
    assert!(found == expected && found.len() == ROWS as usize);
}
