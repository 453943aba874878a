//! A table moves to another engine beside everything else that a store does: batches over several
//! tables with power cuts, two moves at once, failed requests, changed options, cursors and old
//! handles, verification, readers of other processes, the end of the store.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

use siltstone::{Db, DbBatch, DbOptions, Durability, Error, Table, TableMove, WriteBatch};
use siltstone_engine::ManualClock;
use siltstone_faults::{FaultKind, FaultyVfs, Survival};
use siltstone_runtime::Env;
use siltstone_testkit::stop_guard::RunFlag;
use siltstone_testkit::{HookedVfs, TestRng};
use siltstone_vfs::{Ram, Vfs};

pub(crate) type Given = BTreeMap<String, String>;

pub(crate) fn options() -> DbOptions {
    DbOptions { env: Env::replayable(Arc::new(ManualClock::at(1)), 1), ..DbOptions::default() }
}

pub(crate) fn given(pairs: &[(&str, &str)]) -> Given {
    pairs.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect()
}

pub(crate) fn create(db: &Db, name: &str) -> Table {
    db.table_or_create(name, "lsm", &given(&[("memtable", "64KiB")])).unwrap()
}

pub(crate) fn copy(moving: &mut TableMove) {
    assert!(moving.copy(&mut |_| ControlFlow::Continue(())).unwrap());
}

fn put_in_both(db: &Db, tables: [&Table; 2], n: u32) -> siltstone::Result<()> {
    let mut batch = DbBatch::new();
    for table in tables {
        batch.table(table).put(&n.to_be_bytes(), &n.to_le_bytes());
    }
    db.write(&batch, Durability::Buffered)
}

fn count(table: &Table) -> u32 {
    (0..).find(|n: &u32| !table.contains_key(&n.to_be_bytes()).unwrap()).unwrap()
}

#[test]
fn batches_over_tables_are_in_both_or_in_none_after_a_power_cut_anywhere_in_a_move() {
    const BEFORE: u32 = 6;
    let mut outcomes = BTreeMap::new();
    // The table that moves, from its engine to another one.
    for (moved, from, to) in [("a", "lsm", "silt"), ("b", "trie", "lsm"), ("a", "lsm", "lsm")] {
        let (mut cut, mut is_done) = (0, false);
        while !is_done {
            let disk = FaultyVfs::new(cut);
            let db = Db::create_vfs(Arc::new(disk.clone()), options()).unwrap();
            let engines = ["a", "b"].map(|name| if name == moved { from } else { "lsm" });
            let [a, b] = [0, 1]
                .map(|at| db.table_or_create(["a", "b"][at], engines[at], &Given::new()).unwrap());
            (0..BEFORE).for_each(|n| put_in_both(&db, [&a, &b], n).unwrap());
            disk.cut_power_at(disk.operations() + cut);
            let finished = db.begin_move(moved, to, &Given::new()).and_then(|mut moving| {
                moving.copy(&mut |_| ControlFlow::Continue(()))?;
                (BEFORE..2 * BEFORE).try_for_each(|n| put_in_both(&db, [&a, &b], n))?;
                moving.finish()
            });
            if let Ok(table) = &finished {
                // The new table takes part, unless the power is off.
                let pair = if moved == "a" { [table, &b] } else { [&a, table] };
                let _ = (2 * BEFORE..3 * BEFORE).try_for_each(|n| put_in_both(&db, pair, n));
            }
            is_done = !disk.power_is_off();
            drop((a, b, finished, db));
            let db = Db::open_vfs(Arc::new(disk.survivors(cut)), options()).unwrap();
            let counts = ["a", "b"].map(|name| count(&db.table(name).unwrap()));
            assert_eq!(counts[0], counts[1], "{moved} to {to}, cut at {cut}");
            let has_moved = !db.catalogue().unwrap().directories.is_empty();
            assert_eq!(db.spec_of(moved).unwrap().engine, if has_moved { to } else { from });
            // The switch syncs everything before it.
            assert!(!has_moved || counts[0] >= 2 * BEFORE, "{moved} to {to}, cut at {cut}");
            *outcomes.entry((has_moved, counts[0])).or_insert(0) += 1;
            cut += 1;
        }
    }
    println!("(moved, batches) in stores: {outcomes:?}");
    assert!(outcomes.len() > 4, "{outcomes:?}");
}

/// Both tables move at once, again and again, while batches write both.
#[test]
fn batches_over_two_moving_tables_are_never_seen_in_one_of_them() {
    let db = Db::create_vfs(Arc::new(Ram::new()), DbOptions::default()).unwrap();
    for name in ["a", "b"] {
        create(&db, name);
    }
    let running = RunFlag::default();
    let (db, running, written) = (&db, &running, &AtomicU64::new(0));
    let current = || ["a", "b"].map(|name| db.table(name).unwrap());
    std::thread::scope(|scope| {
        let stop = running.clear_on_drop();
        for id in 0..2u32 {
            scope.spawn(move || {
                let mut tables = current();
                let mut n = 0;
                while running.is_set() {
                    let mut batch = DbBatch::new();
                    for table in &tables {
                        batch.table(table).put(&id.to_be_bytes(), &u32::to_be_bytes(n));
                    }
                    match db.write(&batch, Durability::Buffered) {
                        // Not in one of them alone, either: that is checked below.
                        Err(Error::Closed) => tables = current(),
                        written => written.unwrap(),
                    }
                    // The engines differ, but for both the value that was written last counts.
                    let [a, b] = current().map(|table| table.get(&id.to_be_bytes()));
                    match (a, b) {
                        (Err(Error::Closed), _) | (_, Err(Error::Closed)) => {}
                        (a, b) => {
                            assert_eq!(a.unwrap(), b.unwrap(), "client {id}, {n}");
                            written.fetch_add(1, SeqCst);
                            n += 1;
                        }
                    }
                }
            });
        }
        let movers = ["a", "b"].map(|name| {
            scope.spawn(move || {
                for engine in ["silt", "lsm", "trie", "lsm"].repeat(2) {
                    db.begin_move(name, engine, &Given::new()).unwrap().finish().unwrap();
                }
            })
        });
        movers.into_iter().for_each(|mover| mover.join().unwrap());
        drop(stop);
    });
    assert!(written.load(SeqCst) > 0);
}

/// Writers do not wait for the copy of many rows, such as those of a long transaction.
#[test]
fn switch_is_put_off_while_many_keys_are_left() {
    const MANY: u32 = 5000;
    let db = Db::create_vfs(Arc::new(Ram::new()), options()).unwrap();
    let table = create(&db, "t");
    let write_many = |value: u8| {
        let mut batch = WriteBatch::new();
        (0..MANY).for_each(|n| _ = batch.put(&n.to_be_bytes(), &[value]));
        table.write(&batch, Durability::Buffered).unwrap();
    };
    let mut moving = db.begin_move("t", "silt", &Given::new()).unwrap();
    copy(&mut moving);
    write_many(1);
    let before = moving.progress().changes;
    assert!(moving.try_switch(&mut |_| Ok(())).unwrap().is_none());
    assert_eq!(moving.progress().changes, before, "the switch has copied them");
    copy(&mut moving);
    let moved = moving.try_switch(&mut |_| Ok(())).unwrap().unwrap();
    moving.retire().unwrap();
    assert_eq!(moved.len().unwrap(), u64::from(MANY));

    // Not for ever: a writer may be faster than the copy.
    let table = moved;
    let mut moving = db.begin_move("t", "trie", &Given::new()).unwrap();
    let mut attempts = 0;
    let moved = loop {
        copy(&mut moving);
        for n in 0..MANY {
            table.put(&n.to_be_bytes(), &[2]).unwrap();
        }
        attempts += 1;
        assert!(attempts < 50, "it never moves");
        if let Some(moved) = moving.try_switch(&mut |_| Ok(())).unwrap() {
            break moved;
        }
    };
    assert!(attempts > 1);
    assert_eq!(moved.get(&7u32.to_be_bytes()).unwrap().unwrap(), [2]);
}

#[test]
fn options_of_a_moving_table_do_not_change_and_old_handles_change_nothing() {
    let db = Db::create_vfs(Arc::new(Ram::new()), options()).unwrap();
    let (table, other) = (create(&db, "t"), create(&db, "other"));
    let mut moving = db.begin_move("t", "lsm", &given(&[("memtable", "1MiB")])).unwrap();
    // They would be lost with the old table.
    let refused = table.set_options(&[("memtable", "2MiB")]).unwrap_err();
    assert!(refused.to_string().contains("is moving to another engine"), "{refused}");
    let refused = db.table_or_create("t", "lsm", &given(&[("memtable", "2MiB")])).unwrap_err();
    assert!(refused.to_string().contains("is moving to another engine"), "{refused}");
    // Without a change it opens.
    db.table_or_create("t", "lsm", &given(&[("memtable", "64KiB")])).unwrap();
    copy(&mut moving);
    table.swap_places(&other).unwrap();
    // Before the old engine is closed, too.
    let moved = moving.try_switch(&mut |_| Ok(())).unwrap().unwrap();
    assert_eq!(db.catalogue().unwrap().in_place_of("other"), "t");
    assert_eq!(db.spec_of("t").unwrap().options, given(&[("memtable", "1MiB")]));
    let is_closed = |outcome| assert!(matches!(outcome, Err(Error::Closed)));
    is_closed(table.put(b"k", b"v"));
    is_closed(table.get(b"k").map(drop));
    moving.retire().unwrap();
    is_closed(table.set_options(&[("memtable", "2MiB")]).map(drop));
    is_closed(table.swap_places(&other));
    is_closed(table.snapshot().map(drop));
    is_closed(table.iter().map(drop));
    is_closed(table.clear());
    is_closed(table.delete_range("a".."b"));
    is_closed(table.compare_and_swap(b"k", None, Some(b"v")).map(drop));
    is_closed(table.transaction().and_then(|mut tx| {
        tx.put(b"k", b"v")?;
        tx.commit(Durability::Buffered).map(drop)
    }));
    assert_eq!(db.spec_of("t").unwrap().options, given(&[("memtable", "1MiB")]));
    moved.set_options(&[("memtable", "2MiB")]).unwrap();
    moved.swap_places(&other).unwrap();
    assert!(db.catalogue().unwrap().places.is_empty() && moved.is_empty().unwrap());
}

/// A cursor reads as of its opening, or fails: it never ends early.
#[test]
fn cursor_that_is_open_over_a_switch_returns_all_rows_or_an_error() {
    const ROWS: u32 = 3000;
    for (from, to) in [("lsm", "silt"), ("silt", "trie"), ("trie", "lsm"), ("skimpy", "lsm")] {
        let scratch = tempfile::tempdir().unwrap();
        let db = Db::open_or_create(scratch.path().join("s"), DbOptions::default()).unwrap();
        let options = match from {
            "skimpy" => given(&[("capacity", "16MiB")]),
            _ => Given::new(),
        };
        let table = db.table_or_create("t", from, &options).unwrap();
        (0..ROWS).for_each(|n| table.put(&n.to_be_bytes(), &[7; 100]).unwrap());
        table.flush().unwrap();
        let mut rows = table.iter().unwrap();
        let first = rows.by_ref().take(5).map(Result::unwrap).count();
        let mut moving = db.begin_move("t", to, &Given::new()).unwrap();
        copy(&mut moving);
        (0..ROWS).for_each(|n| table.put(&n.to_be_bytes(), &[8; 100]).unwrap());
        moving.finish().unwrap();
        match rows.collect::<Result<Vec<_>, _>>() {
            Ok(rest) => assert_eq!(first + rest.len(), ROWS as usize, "{from}"),
            Err(error) => println!("{from}: {error}"),
        }
    }
}

#[test]
fn failed_requests_of_a_move_lose_no_row_and_the_next_move_begins_anew() {
    const ROWS: u32 = 20;
    let synced = |table: &Table, key: &[u8]| {
        table.write(WriteBatch::new().put(key, b"v"), Durability::Synced)
    };
    let (mut failed, mut moved, mut repeated) = (0, 0, 0);
    for (in_a_row, stride) in [(1, 2), (3, 2), (8, 5)] {
        for nth in (0..).step_by(stride) {
            let what = format!("{nth}, {in_a_row} in a row");
            let disk = FaultyVfs::new(nth);
            let db = Db::create_vfs(Arc::new(disk.clone()), options()).unwrap();
            let table = create(&db, "t");
            (0..ROWS).for_each(|n| synced(&table, &n.to_be_bytes()).unwrap());
            synced(&table, b"removed").unwrap();
            let first = disk.requests() + nth;
            (first..first + in_a_row).for_each(|at| disk.fail_at(at, FaultKind::Any));
            let outcome = db.begin_move("t", "silt", &Given::new()).and_then(TableMove::finish);
            let has_failed = disk.requests() > first;
            disk.clear_faults();
            (failed, moved) =
                (failed + u64::from(outcome.is_err()), moved + u64::from(outcome.is_ok()));
            drop(table);
            // After an error of the catalogue the table may be closed, or read-only.
            let table = db.table("t").unwrap();
            let is_removed = table
                .delete(b"removed")
                .and_then(|()| synced(&table, b"later"))
                .inspect_err(|_| assert!(outcome.is_err(), "{what}"))
                .is_ok();
            let check = |table: &Table| {
                assert!((0..ROWS).all(|n| table.contains_key(&n.to_be_bytes()).unwrap()), "{what}");
                for (key, expected) in [(&b"later"[..], true), (b"removed", false)] {
                    let found = table.contains_key(key).unwrap();
                    assert!(!is_removed || found == expected, "{what}: {}", key.escape_ascii());
                }
            };
            if is_removed {
                check(&table);
                let again = db.begin_move("t", "trie", &Given::new()).and_then(TableMove::finish);
                again.iter().for_each(check);
                repeated += u64::from(again.is_ok());
            }
            drop((table, outcome));
            let _ = db.close();
            drop(db);
            for disk in [disk.survivors_as(Survival::LoseAll, nth), disk] {
                let vfs: Arc<dyn Vfs> = Arc::new(disk);
                let db = Db::open_vfs(vfs.clone(), options()).unwrap();
                check(&db.table("t").unwrap());
                assert_eq!(vfs.subdirectories().unwrap().len(), 1, "{what}");
            }
            if !has_failed {
                break;
            }
        }
    }
    println!("{failed} moves failed, {moved} did not, {repeated} were repeated");
    assert!(failed > 20 && moved > 1 && repeated > 20, "{failed} {moved} {repeated}");
}

/// What the last rows of a switch are is durable with it, in all tables of their batches.
#[test]
fn writes_between_copy_and_switch_are_durable_in_all_tables_with_the_switch() {
    let disk = FaultyVfs::new(1);
    let db = Db::create_vfs(Arc::new(disk.clone()), options()).unwrap();
    let [a, b] = ["a", "b"].map(|name| create(&db, name));
    let mut moving = db.begin_move("a", "silt", &Given::new()).unwrap();
    copy(&mut moving);
    put_in_both(&db, [&a, &b], 0).unwrap();
    a.write(WriteBatch::new().put(b"synced", b"v"), Durability::Synced).unwrap();
    put_in_both(&db, [&a, &b], 1).unwrap();
    moving.try_switch(&mut |_| Ok(())).unwrap().unwrap();
    let disk = disk.survivors_as(Survival::LoseAll, 1);
    let db = Db::open_vfs(Arc::new(disk), options()).unwrap();
    let [a, b] = ["a", "b"].map(|name| db.table(name).unwrap());
    assert_eq!(a.engine().name(), "silt");
    assert!(a.contains_key(b"synced").unwrap());
    assert_eq!([count(&a), count(&b)], [2, 2]);
}

/// It looks its tables up by name.
#[test]
fn switch_waits_for_a_checkpoint() {
    let [store, copies] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let (is_armed, refused) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let moving: Arc<parking_lot::Mutex<Option<TableMove>>> = Arc::default();
    let disk: Arc<dyn Vfs> = Arc::new(siltstone_vfs::Disk::open(store.path()).unwrap());
    let hook = (is_armed.clone(), refused.clone(), moving.clone());
    let vfs = HookedVfs::wrap(&disk, move |_| {
        let (is_armed, refused, moving) = &hook;
        if is_armed.swap(false, SeqCst)
            && let Some(moving) = moving.lock().as_mut()
        {
            let switched = moving.try_switch(&mut |_| Err(Error::Closed))?;
            refused.fetch_add(u64::from(switched.is_none()), SeqCst);
        }
        Ok(())
    });
    let db = Db::create_vfs(vfs, options()).unwrap();
    create(&db, "t").put(b"k", b"v").unwrap();
    let mut begun = db.begin_move("t", "silt", &Given::new()).unwrap();
    copy(&mut begun);
    *moving.lock() = Some(begun);
    is_armed.store(true, SeqCst);
    db.checkpoint(copies.path().join("copy")).unwrap();
    assert_eq!(refused.load(SeqCst), 1);
    let moved = moving.lock().take().unwrap().finish().unwrap();
    assert!(moved.contains_key(b"k").unwrap());
}

#[test]
fn store_that_is_closed_during_a_move_has_its_old_table() {
    for is_dropped_first in [true, false] {
        let vfs: Arc<dyn Vfs> = Arc::new(Ram::new());
        let db = Db::create_vfs(vfs.clone(), options()).unwrap();
        let table = create(&db, "t");
        table.put(b"k", b"v").unwrap();
        let mut moving = db.begin_move("t", "silt", &Given::new()).unwrap();
        copy(&mut moving);
        table.put(b"later", b"v").unwrap();
        let mut moving = Some(moving);
        if is_dropped_first {
            moving = None;
        }
        db.close().unwrap();
        if let Some(mut moving) = moving {
            assert!(moving.try_switch(&mut |_| Ok(())).is_err());
            assert!(moving.copy(&mut |_| ControlFlow::Continue(())).is_err());
        }
        drop((db, table));
        let db = Db::open_vfs(vfs.clone(), options()).unwrap();
        assert_eq!(db.spec_of("t").unwrap().engine, "lsm");
        assert_eq!(db.table("t").unwrap().len().unwrap(), 2);
        assert_eq!(vfs.subdirectories().unwrap(), ["table-t"]);
    }
}

/// Verification, statistics, sizes, checkpoints and copies beside moves: they find no damage, and
/// what they copy is whole.
#[test]
fn maintenance_beside_moves_finds_no_damage() {
    const ROWS: u32 = 2000;
    let scratch = tempfile::tempdir().unwrap();
    let db = Db::open_or_create(scratch.path().join("s"), DbOptions::default()).unwrap();
    let table = create(&db, "t");
    (0..ROWS).for_each(|n| table.put(&n.to_be_bytes(), &[3; 60]).unwrap());
    drop(table);
    let running = RunFlag::default();
    let (db, running, rounds) = (&db, &running, &AtomicU64::new(0));
    std::thread::scope(|scope| {
        let stop = running.clear_on_drop();
        let maintenance = scope.spawn(move || {
            while running.is_set() {
                let report = db.verify().unwrap();
                assert!(report.is_intact(), "{report:?}");
                assert!(db.disk_usage().unwrap()["t"] > 0);
                assert!(db.unlisted_tables().unwrap().is_empty());
                let table = db.table("t").unwrap();
                let _ = table.stats();
                assert!(matches!(table.maintain(), Ok(()) | Err(Error::Closed)));
                assert!(matches!(table.flush(), Ok(()) | Err(Error::Closed)));
                let round = rounds.fetch_add(1, SeqCst);
                let dir = scratch.path().join(format!("copy-{round}"));
                db.checkpoint(&dir).unwrap();
                let copy = Db::open(&dir, DbOptions::default()).unwrap();
                assert_eq!(copy.table("t").unwrap().len().unwrap(), u64::from(ROWS));
            }
        });
        for engine in ["silt", "trie", "lsm"].repeat(4) {
            if maintenance.is_finished() {
                break;
            }
            db.begin_move("t", engine, &Given::new()).unwrap().finish().unwrap();
        }
        drop(stop);
        maintenance.join().unwrap();
    });
    assert!(rounds.load(SeqCst) > 0);
}

/// The writer removes the old table's files while a reader pins them.
#[test]
fn reader_beside_the_writer_shows_all_rows_when_the_table_moves() {
    let vfs: Arc<dyn Vfs> = Arc::new(Ram::new());
    let db = Db::create_vfs(vfs.clone(), options()).unwrap();
    let table = create(&db, "t");
    table.put(b"flushed", b"1").unwrap();
    table.flush().unwrap();
    table.put(b"logged", b"1").unwrap();
    let mut moving = db.begin_move("t", "silt", &Given::new()).unwrap();
    copy(&mut moving);
    let moving = parking_lot::Mutex::new(moving);
    let (is_first, old) = (AtomicBool::new(true), vfs.subdirectory("table-t").unwrap());
    let hooked = HookedVfs::wrap(&vfs, move |request| {
        // The reader has the catalogue and the manifest.
        if request.is("open", ".log") && is_first.swap(false, SeqCst) {
            moving.lock().try_switch(&mut |_| Ok(()))?.unwrap();
            // The removal of a directory is not atomic.
            for name in old.list()?.iter().filter(|name| name.ends_with(".log")) {
                old.remove(name)?;
            }
        }
        Ok(())
    });
    let reader = Db::open_reader_vfs(hooked, options()).unwrap();
    for key in ["flushed", "logged"] {
        assert!(reader.table("t").unwrap().contains_key(key.as_bytes()).unwrap(), "{key}");
    }
    assert_eq!(reader.db().spec_of("t").unwrap().engine, "silt");
}

#[test]
fn reader_that_catches_up_during_moves_never_shows_less() {
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path().join("s");
    let db = Db::open_or_create(&dir, DbOptions::default()).unwrap();
    create(&db, "t").put(&0u32.to_be_bytes(), b"v").unwrap();
    let reader = Db::open_reader(&dir, DbOptions::default()).unwrap();
    let running = RunFlag::default();
    let (db, running) = (&db, &running);
    let written = &AtomicU64::new(1);
    std::thread::scope(|scope| {
        let stop = running.clear_on_drop();
        scope.spawn(move || {
            let mut table = db.table("t").unwrap();
            let mut rng = TestRng::new(1);
            while running.is_set() {
                let n = written.load(SeqCst) as u32;
                match table.put(&n.to_be_bytes(), &rng.bytes(50)) {
                    Ok(()) => _ = written.fetch_add(1, SeqCst),
                    Err(Error::Closed) => table = db.table("t").unwrap(),
                    Err(error) => panic!("{error}"),
                }
                if n.is_multiple_of(20) {
                    std::thread::sleep(std::time::Duration::from_millis(1));
                }
            }
        });
        let reading = scope.spawn(move || {
            while running.is_set() {
                let before = written.load(SeqCst) as u32;
                reader.catch_up().unwrap();
                let shown = count(&reader.table("t").unwrap());
                assert!(shown >= before, "{shown} of {before}");
            }
        });
        for engine in ["silt", "trie", "lsm"].repeat(4) {
            if reading.is_finished() {
                break;
            }
            db.begin_move("t", engine, &Given::new()).unwrap().finish().unwrap();
        }
        drop(stop);
        reading.join().unwrap();
    });
}
