//! A table moves to another engine while it is written: no acknowledged write is lost, no read is
//! stale, a crash leaves the old table or the new one, and a refused or cancelled move leaves all
//! as before.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use siltstone::{
    CompactionFilter, Db, DbBatch, DbOptions, Durability, Error, FilterContent, FilterDecision,
    FilterPass, FilterRow, MergeCounter, Table, WriteBatch,
};
use siltstone_engine::ManualClock;
use siltstone_faults::FaultyVfs;
use siltstone_runtime::Env;
use siltstone_testkit::TestRng;
use siltstone_testkit::stop_guard::RunFlag;
use siltstone_vfs::{Ram, Vfs};

const ROWS: u32 = 60;

type Given = BTreeMap<String, String>;

fn options() -> DbOptions {
    DbOptions { env: Env::replayable(Arc::new(ManualClock::at(1)), 1), ..DbOptions::default() }
}

fn given(engine: &str) -> Given {
    let given: &[(&str, &str)] = match engine {
        "lsm" => &[("memtable", "64KiB")],
        "skimpy" => &[("capacity", "16MiB")],
        "mica" => &[("memory", "8MiB"), ("partitions", "2")],
        _ => &[],
    };
    given.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect()
}

fn create(vfs: Arc<dyn Vfs>, engine: &str) -> (Db, Table) {
    let db = Db::create_vfs(vfs, options()).unwrap();
    let table = db.table_or_create("t", engine, &given(engine)).unwrap();
    (db, table)
}

fn fill(table: &Table) {
    for n in 0..ROWS {
        let mut batch = WriteBatch::new();
        batch.put(&n.to_be_bytes(), &n.to_le_bytes());
        table.write(&batch, Durability::Synced).unwrap();
    }
}

fn is_whole(table: &Table) -> bool {
    let has = |n: u32| table.get(&n.to_be_bytes()).unwrap().is_some_and(|v| v == n.to_le_bytes());
    (0..ROWS).all(has) && table.len().unwrap() == u64::from(ROWS)
}

fn go_on(_: &siltstone::MoveProgress) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

fn directories(vfs: &dyn Vfs) -> Vec<String> {
    vfs.subdirectories().unwrap()
}

#[test]
fn moved_table_has_its_content_after_a_reopen() {
    for (from, to) in [("lsm", "silt"), ("silt", "trie"), ("trie", "skimpy"), ("skimpy", "lsm")] {
        let vfs: Arc<dyn Vfs> = Arc::new(Ram::new());
        let (db, table) = create(vfs.clone(), from);
        fill(&table);
        let moved = db.begin_move("t", to, &given(to)).unwrap().finish().unwrap();
        assert_eq!(moved.engine().name(), to);
        assert!(is_whole(&moved), "{from} to {to}");
        assert!(matches!(table.get(b"k"), Err(Error::Closed)));
        assert!(matches!(table.put(b"k", b"v"), Err(Error::Closed)));
        assert_eq!(directories(vfs.as_ref()), ["table-t.1"]);
        assert!(db.unlisted_tables().unwrap().is_empty() && db.disk_usage().unwrap()["t"] > 0);
        db.close().unwrap();
        let db = Db::open_vfs(vfs.clone(), options()).unwrap();
        assert_eq!(db.spec_of("t").unwrap().engine, to);
        assert!(is_whole(&db.table("t").unwrap()), "{from} to {to}");
        assert!(db.verify().unwrap().unlisted.is_empty());
        // And back, to the directory of its name.
        let moved = db.begin_move("t", from, &given(from)).unwrap().finish().unwrap();
        assert!(is_whole(&moved), "{to} to {from}");
        assert_eq!(directories(vfs.as_ref()), ["table-t"]);
        assert!(db.catalogue().unwrap().directories.is_empty());
    }
}

/// Threads write and read their own keys while the table moves to and fro.
#[test]
fn no_write_is_lost_and_no_read_is_stale_while_the_table_moves() {
    const ENGINES: [&str; 7] = ["trie", "mica", "silt", "lsm", "skimpy", "lsm", "mica"];
    const ROUNDS: usize = 3;
    let db = Db::create_vfs(Arc::new(Ram::new()), DbOptions::default()).unwrap();
    db.table_or_create("t", "lsm", &given("lsm")).unwrap();
    let running = RunFlag::default();
    let (db, running) = (&db, &running);
    let current = || db.table("t").unwrap();
    let models: Vec<BTreeMap<Vec<u8>, u64>> = std::thread::scope(|scope| {
        let writers: Vec<_> = (0..3u8)
            .map(|id| {
                scope.spawn(move || {
                    let mut rng = TestRng::new(u64::from(id));
                    let (mut table, mut model) = (current(), BTreeMap::new());
                    let mut step = 0u64;
                    while running.is_set() {
                        step += 1;
                        let key = vec![id, rng.below(200) as u8];
                        // A refused call has no effect, and is repeated with the new table.
                        let choice = rng.below(10);
                        let outcome = match choice {
                            0..2 => table.delete(&key),
                            2..6 => table.put(&key, &step.to_be_bytes()),
                            6 => {
                                table.fetch_and_update(&key, |_| Some(step.to_be_bytes())).map(drop)
                            }
                            _ => table.get(&key).map(|value| {
                                let model = model.get(&key).map(|step: &u64| step.to_be_bytes());
                                assert_eq!(value.as_deref(), model.as_ref().map(|v| &v[..]));
                            }),
                        };
                        match (outcome, choice) {
                            (Err(Error::Closed), _) => table = current(),
                            (Err(error), _) => panic!("{error}"),
                            (Ok(()), 0..2) => _ = model.remove(&key),
                            (Ok(()), 2..7) => _ = model.insert(key, step),
                            (Ok(()), _) => {}
                        }
                    }
                    model
                })
            })
            .collect();
        let stop = running.clear_on_drop();
        for engine in std::iter::repeat_n(ENGINES, ROUNDS).flatten() {
            db.begin_move("t", engine, &given(engine)).unwrap().finish().unwrap();
            assert_eq!(current().engine().name(), engine);
        }
        drop(stop);
        writers.into_iter().map(|writer| writer.join().unwrap()).collect()
    });
    let expected: BTreeMap<_, _> = models.into_iter().flatten().collect();
    let mut found = BTreeMap::new();
    let table = current();
    let mut rows = table.engine().iter().unwrap();
    let mut is_at_row = rows.first().unwrap();
    while is_at_row {
        found.insert(rows.key().to_vec(), u64::from_be_bytes(rows.value().try_into().unwrap()));
        is_at_row = rows.next().unwrap();
    }
    assert!(!expected.is_empty());
    assert_eq!(found, expected);
}

/// A power cut, or the end of the process, at each request of a move.
#[test]
fn move_interrupted_anywhere_leaves_one_whole_table() {
    for (from, to, stride) in [("lsm", "silt", 1), ("trie", "lsm", 3)] {
        let mut outcomes = [0, 0];
        let (mut cut, mut is_done) = (0, false);
        while !is_done {
            let vfs = FaultyVfs::new(cut);
            let (db, table) = create(Arc::new(vfs.clone()), from);
            fill(&table);
            vfs.cut_power_at(vfs.operations() + cut);
            let moved = db.begin_move("t", to, &given(to)).and_then(|mut moving| {
                moving.copy(&mut go_on)?;
                // While the move is in progress, to be copied by the switch.
                table.write(
                    WriteBatch::new().put(&0u32.to_be_bytes(), &[0; 4]),
                    Durability::Synced,
                )?;
                moving.finish()
            });
            is_done = moved.is_ok();
            drop((db, table, moved));
            let survivors: Arc<dyn Vfs> = Arc::new(vfs.survivors(cut));
            let db = Db::open_vfs(survivors.clone(), options()).unwrap();
            let engine = db.spec_of("t").unwrap().engine;
            assert!(is_whole(&db.table("t").unwrap()), "cut at {cut}, {engine}");
            let left = directories(survivors.as_ref());
            assert_eq!(left, [if engine == to { "table-t.1" } else { "table-t" }], "cut at {cut}");
            assert!(!is_done || engine == to);
            outcomes[usize::from(engine == to)] += 1;
            cut += stride;
        }
        println!("{from} to {to}: {outcomes:?} moves not switched and switched");
        assert!(outcomes.iter().all(|&count| count > 3), "{outcomes:?}");
    }
}

#[test]
fn refused_or_cancelled_move_leaves_all_as_before() {
    let vfs: Arc<dyn Vfs> = Arc::new(Ram::new());
    let (db, table) = create(vfs.clone(), "lsm");
    fill(&table);
    let before = db.catalogue().unwrap();
    let is_as_before = |what: &str| {
        assert_eq!(db.catalogue().unwrap(), before, "{what}");
        assert_eq!(directories(vfs.as_ref()), ["table-t"], "{what}");
        table.put(b"later", b"").unwrap();
        table.delete(b"later").unwrap();
        assert!(is_whole(&table), "{what}");
    };
    let begin = |engine: &str, options: &Given| db.begin_move("t", engine, options);
    assert!(matches!(db.begin_move("none", "lsm", &Given::new()), Err(Error::Invalid(_))));
    assert!(matches!(begin("none", &Given::new()), Err(Error::InvalidOptions(_))));
    let wrong = [("memory".to_owned(), "1X".to_owned())].into();
    assert!(matches!(begin("mica", &wrong), Err(Error::InvalidOptions(_))));
    is_as_before("options");

    let mut moving = begin("silt", &Given::new()).unwrap();
    assert!(matches!(begin("silt", &Given::new()), Err(Error::Invalid(_))));
    assert!(matches!(db.drop_table("t"), Err(Error::Invalid(_))));
    assert!(matches!(db.rename_table("t", "u"), Err(Error::Invalid(_))));
    assert!(!moving.copy(&mut |_| ControlFlow::Break(())).unwrap());
    drop(moving);
    is_as_before("cancelled");
    assert!(begin("silt", &Given::new()).unwrap().copy(&mut go_on).unwrap());
    is_as_before("dropped after the copy");

    table.put(b"large", &vec![7; 1 << 20]).unwrap();
    let small = [("capacity".to_owned(), "8MiB".to_owned())].into();
    let refused = begin("skimpy", &small).unwrap().finish().unwrap_err();
    assert!(refused.to_string().contains("key 'large' has a value of 1048576"), "{refused}");
    table.delete(b"large").unwrap();
    is_as_before("too large a value");

    let tiny = [("mode", "cache"), ("memory", "1MiB"), ("partitions", "1")];
    let tiny = tiny.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
    for n in 0..3000u32 {
        table.put(&[&b"row"[..], &n.to_be_bytes()].concat(), &[1; 1000]).unwrap();
    }
    let refused = begin("mica", &tiny).unwrap().finish().unwrap_err();
    assert!(refused.to_string().contains("no room"), "{refused}");
    table.delete_range("row".."rox").unwrap();
    is_as_before("no room");

    let refused = begin("lsm", &given("lsm"))
        .unwrap()
        .with_conversion(|key, _| match key {
            [0, 0, 0, 9] => Err(Error::Invalid("not this row".to_owned())),
            _ => Ok(()),
        })
        .finish();
    assert!(matches!(refused, Err(Error::Invalid(_))));
    is_as_before("conversion");
    assert!(is_whole(&begin("silt", &Given::new()).unwrap().finish().unwrap()));
}

#[test]
fn removals_of_all_keys_and_of_ranges_during_a_move_take_effect() {
    let (db, table) = create(Arc::new(Ram::new()), "lsm");
    fill(&table);
    let mut moving = db.begin_move("t", "silt", &Given::new()).unwrap();
    assert!(moving.copy(&mut go_on).unwrap());
    table.delete_range(&5u32.to_be_bytes()[..]..&100u32.to_be_bytes()[..]).unwrap();
    assert!(moving.try_switch(&mut |_| Ok(())).unwrap().is_none());
    assert!(moving.copy(&mut go_on).unwrap());
    table.clear().unwrap();
    table.put(b"k", b"v").unwrap();
    let moved = moving.finish().unwrap();
    assert_eq!(moved.len().unwrap(), 1);
    assert_eq!(moved.get(b"k").unwrap().unwrap(), b"v");
}

#[test]
fn batches_over_tables_and_transactions_during_a_move_are_whole() {
    let vfs: Arc<dyn Vfs> = Arc::new(Ram::new());
    let (db, table) = create(vfs.clone(), "lsm");
    let other = db.table_or_create("other", "lsm", &Given::new()).unwrap();
    let write = |n: u8| {
        let mut batch = DbBatch::new();
        batch.table(&table).put(&[n], b"1");
        batch.table(&other).put(&[n], b"1");
        db.write(&batch, Durability::Buffered)
    };
    write(1).unwrap();
    let mut moving = db.begin_move("t", "trie", &Given::new()).unwrap();
    moving.copy(&mut go_on).unwrap();
    write(2).unwrap();
    db.transact(&[&table, &other], |tx| {
        tx.table(&table)?.put(&[3], b"1")?;
        tx.table(&other)?.put(&[3], b"1")
    })
    .unwrap();
    let mut open = table.transaction().unwrap();
    open.put(&[4], b"1").unwrap();
    let moved = moving.finish().unwrap();
    assert!(matches!(open.commit(Durability::Buffered), Err(Error::Closed)));
    assert!(matches!(write(5), Err(Error::Closed)));
    for n in 1..6 {
        assert_eq!(moved.contains_key(&[n]).unwrap(), n < 4, "{n}");
        assert_eq!(other.contains_key(&[n]).unwrap(), n < 4, "{n}");
    }
    // The new table takes part in batches, too.
    let mut batch = DbBatch::new();
    batch.table(&moved).put(&[6], b"1");
    batch.table(&other).put(&[6], b"1");
    db.write(&batch, Durability::Synced).unwrap();
    drop((table, moved, other));
    db.close().unwrap();
    let db = Db::open_vfs(vfs, options()).unwrap();
    for name in ["t", "other"] {
        let table = db.table(name).unwrap();
        for n in 1..7 {
            assert_eq!(table.contains_key(&[n]).unwrap(), n != 4 && n != 5, "{name} {n}");
        }
    }
}

#[test]
fn expiries_and_hooks_move_with_the_table() {
    struct DropsX;
    impl CompactionFilter for DropsX {
        fn begin<'a>(&'a self, _content: &'a dyn FilterContent) -> Box<dyn FilterPass + 'a> {
            Box::new(|row: FilterRow<'_>| match row.key {
                b"x" => FilterDecision::Drop,
                _ => FilterDecision::Keep,
            })
        }
    }
    let clock = Arc::new(ManualClock::at(1000));
    let mut options = options();
    options.env.clock = clock.clone();
    options.compaction_filters.insert("filtered".to_owned(), Arc::new(DropsX));
    let db = Db::create_vfs(Arc::new(Ram::new()), options).unwrap();
    let table = db.table_or_create("t", "lsm", &Given::new()).unwrap();
    table.put_until(b"k", b"v", 2000).unwrap();
    let moved = db.begin_move("t", "silt", &Given::new()).unwrap().finish().unwrap();
    assert!(moved.contains_key(b"k").unwrap());
    clock.set(2001);
    assert!(!moved.contains_key(b"k").unwrap());

    let counters = db.table_or_create("counters", "lsm", &Given::new()).unwrap();
    counters.set_merge_operator(Some(Arc::new(MergeCounter))).unwrap();
    counters.merge(b"n", &1u64.to_le_bytes()).unwrap();
    let refused = db.begin_move("counters", "silt", &Given::new());
    assert!(matches!(refused, Err(Error::Unsupported { .. })));
    let mut moving = db.begin_move("counters", "lsm", &given("lsm")).unwrap();
    moving.copy(&mut go_on).unwrap();
    counters.merge(b"n", &2u64.to_le_bytes()).unwrap();
    let moved = moving.finish().unwrap();
    moved.merge(b"n", &4u64.to_le_bytes()).unwrap();
    assert_eq!(moved.get(b"n").unwrap().unwrap(), 7u64.to_le_bytes());

    let filtered = db.table_or_create("filtered", "lsm", &Given::new()).unwrap();
    filtered.put(b"x", b"").unwrap();
    assert!(db.begin_move("filtered", "silt", &Given::new()).is_err());
    let moved = db.begin_move("filtered", "lsm", &given("lsm")).unwrap().finish().unwrap();
    moved.put(b"y", b"").unwrap();
    moved.compact_range::<&[u8]>(..).unwrap();
    assert!(!moved.contains_key(b"x").unwrap() && moved.contains_key(b"y").unwrap());
}

#[test]
fn checkpoint_of_a_moved_table_has_the_directory_of_its_name() {
    let scratch = tempfile::tempdir().unwrap();
    let db = Db::open_or_create(scratch.path().join("s"), DbOptions::default()).unwrap();
    fill(&db.table_or_create("t", "lsm", &Given::new()).unwrap());
    let mut moving = db.begin_move("t", "silt", &Given::new()).unwrap();
    moving.copy(&mut go_on).unwrap();
    db.checkpoint(scratch.path().join("during")).unwrap();
    let moved = moving.finish().unwrap();
    db.checkpoint(scratch.path().join("after")).unwrap();
    for (copy, engine) in [("during", "lsm"), ("after", "silt")] {
        let copy = scratch.path().join(copy);
        let db = Db::open(&copy, DbOptions::default()).unwrap();
        assert_eq!(db.spec_of("t").unwrap().engine, engine);
        assert!(is_whole(&db.table("t").unwrap()));
        assert!(copy.join("table-t").is_dir() && !copy.join("table-t.1").exists());
    }
    drop(moved);
    // A moved table that is renamed or dropped leaves nothing.
    db.rename_table("t", "u").unwrap();
    assert!(is_whole(&db.table("u").unwrap()));
    let dirs = || directories(db.vfs().as_ref());
    assert_eq!(dirs(), ["table-u"]);
    db.begin_move("u", "trie", &Given::new()).unwrap().finish().unwrap();
    assert_eq!(dirs(), ["table-u.1"]);
    db.drop_table("u").unwrap();
    assert!(dirs().is_empty() && db.catalogue().unwrap().directories.is_empty());
}

#[test]
fn repair_finds_the_directory_of_a_moved_table() {
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path().join("s");
    let db = Db::open_or_create(&dir, DbOptions::default()).unwrap();
    fill(&db.table_or_create("t", "lsm", &Given::new()).unwrap());
    db.begin_move("t", "silt", &Given::new()).unwrap().finish().unwrap();
    db.close().unwrap();
    drop(db);
    std::fs::write(dir.join("CATALOG"), b"damaged").unwrap();
    siltstone::catalogue::repair(&dir).unwrap();
    let db = Db::open(&dir, DbOptions::default()).unwrap();
    assert_eq!(db.spec_of("t").unwrap().engine, "silt");
    assert!(is_whole(&db.table("t").unwrap()));
}
