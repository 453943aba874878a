//! Options of existing tables that change: at a later open, while the table is open, or never.
//!
//! For each option of each engine there is another value. A table is opened with it and without it
//! in turn; it must keep its rows and stay intact. What never changes must be refused by name.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use siltstone::engines::{self, NAMES, option_change};
use siltstone::{Db, DbOptions, Error, OptionChange, Table};
use siltstone_faults::{FaultKind, FaultyVfs};

type Options = BTreeMap<String, String>;

/// Per engine: options so small that a few thousand rows reach all structures, and another valid
/// value of every option.
const ENGINES: [(&str, &str, &str); 5] = [
    (
        "lsm",
        "memtable=64KiB target_file_size=32KiB levels=256KiB:2MiB l0_capacity=0 \
         experimental.l0_compaction_trigger=2 bottommost_compression=zstd",
        "memtable=128KiB memtables=4 levels=64KiB:256KiB:1MiB target_file_size=16KiB cache=1MiB \
         log_retention=1MiB log_retention_time=1h blob_threshold=64 blob_gc_ratio=0.3 block_size=1KiB filter_bits_per_key=0 compression=zstd \
         bottommost_compression=zstd:3 compression_dict_size=1KiB max_compactions=1 max_subcompactions=1 l0_policy=columns l0_capacity=1MiB triad.log=off \
         triad.prefetch=64KiB triad.mem=on triad.hot_keys=0.1 triad.flush_threshold=0.2 \
         triad.disk=on triad.min_overlap=0.2 pmem.size=1MiB pmem.hints=off \
         experimental.l0_compaction_trigger=3 experimental.l0_slowdown_trigger=25 \
         experimental.l0_stop_trigger=40 experimental.level_sizes=model \
         experimental.compaction_pri=round_robin experimental.block_restart_interval=4 \
         experimental.range_filter=off",
    ),
    (
        "trie",
        "htable_size=64KiB",
        "htable_size=128KiB memtables=3 bucket_size=8KiB bucket_fill=0.8 fanout_bits=2 levels=4 \
         filter_bits_per_key=8 filter_memory=1KiB gc_trigger=4 gc_garbage_ratio=0.5 \
         dense_run_at=2 fast_dir=FAST fast_levels=1 max_compactions=1 slowdown_trigger=20 \
         stop_trigger=40 experimental.segment_buckets=16 experimental.cached_migrations=0.5 \
         experimental.table_layout=sorted experimental.weak_hash=20",
    ),
    (
        "silt",
        "log_store_slots=256 merge_trigger=3",
        "partitions=2 log_store_slots=512 max_load_factor=0.8 max_log_size=64KiB merge_trigger=2 \
         stop_trigger=50 block_size=1KiB inline_value_bytes=64 sort_memory=64KiB \
         index_memory=1KiB load_indexes=background experimental.stores=log-sorted \
         experimental.convert_rate=100000000 experimental.merge_rate=100000000",
    ),
    (
        "mica",
        "memory=16MiB partitions=4",
        "mode=cache memory=32MiB partitions=2 access=crcw eviction=lru expected_item_bytes=200 \
         overflow_ratio=0.2 cas=on mapping=plain prefetch_distance=4 experimental.hash_seed=7 \
         experimental.offset_bits=40 experimental.buckets=4096",
    ),
    (
        "skimpy",
        "capacity=16MiB",
        "capacity=32MiB page=8KiB block=64 mapping=semel buckets=1000 cache=100 buffer_delay=2ms \
         retention=1s reserved_space=0.2 read_compaction_after=4 channels=2",
    ),
];

fn parse(pairs: &str) -> Options {
    let pair = |text: &str| {
        let (name, value) = text.split_once('=').unwrap();
        (name.to_owned(), value.to_owned())
    };
    pairs.split_whitespace().map(pair).collect()
}

/// The options of an engine, as the message about an unknown one lists them.
fn known_options(engine: &str) -> BTreeSet<String> {
    let error = engines::check(engine, &parse("no_such=1")).unwrap_err().to_string();
    let listed = error.split("the options are ").nth(1).unwrap();
    listed.split(')').next().unwrap().split(", ").map(str::to_owned).collect()
}

/// Puts one row for each of `keys`, and checks all rows of before.
fn check_and_write(table: &Table, rows: &mut BTreeMap<String, String>, round: usize) {
    if !table.engine().capabilities().durable {
        rows.clear();
    }
    for (key, value) in rows.iter() {
        let found = table.get(key.as_bytes()).unwrap();
        assert_eq!(found.as_deref(), Some(value.as_bytes()), "{key}");
    }
    for number in 0..1500 {
        let key = format!("key-{:05}", number * 7 % 2000 + round * 100);
        let value = format!("{round}-{number}-{}", "x".repeat(100));
        table.put(key.as_bytes(), value.as_bytes()).unwrap();
        rows.insert(key, value);
    }
    table.flush().unwrap();
    table.maintain().unwrap();
    assert!(table.verify(&mut |_, _| ()).unwrap().is_intact());
}

fn open(dir: &Path) -> Db {
    Db::open_or_create(dir, DbOptions::default()).unwrap()
}

/// The mistakes of a refused call.
fn refused(result: siltstone::Result<impl Sized>) -> BTreeSet<String> {
    match result {
        Err(Error::InvalidOptions(mistakes)) => mistakes.into_iter().map(|m| m.option).collect(),
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("accepted"),
    }
}

#[test]
fn every_option_has_another_value_here() {
    for (engine, _, others) in ENGINES {
        let others: BTreeSet<_> = parse(others).into_keys().collect();
        assert_eq!(others, known_options(engine), "{engine}");
    }
    assert_eq!(ENGINES.map(|(engine, _, _)| engine), NAMES);
}

#[test]
fn option_that_differs_at_open_is_applied_or_refused_by_name() {
    let scratch = tempfile::tempdir().unwrap();
    let fast = scratch.path().join("fast");
    for (engine, base, others) in ENGINES {
        let (base, dir) = (parse(base), scratch.path().join(engine));
        let mut rows = BTreeMap::new();
        let db = open(&dir);
        check_and_write(&db.table_or_create("t", engine, &base).unwrap(), &mut rows, 0);
        db.close().unwrap();
        for (round, (option, value)) in parse(others).into_iter().enumerate() {
            let value = if value == "FAST" { fast.display().to_string() } else { value };
            let mut given = base.clone();
            given.insert(option.clone(), value.clone());
            let before = open(&dir).spec_of("t").unwrap().options;
            let db = open(&dir);
            let opened = db.table_or_create("t", engine, &given);
            if option_change(engine, &option) == OptionChange::Never {
                assert_eq!(refused(opened), [option.clone()].into(), "{engine}");
                assert_eq!(db.spec_of("t").unwrap().options, before);
                db.table("t").unwrap();
                db.close().unwrap();
                continue;
            }
            let table = opened.unwrap_or_else(|error| panic!("{engine} {option}: {error}"));
            assert_eq!(table.options()[&option], value, "{engine}");
            check_and_write(&table, &mut rows, round);
            db.close().unwrap();
            // The next open has it without options.
            let db = open(&dir);
            let table = db.table("t").unwrap();
            assert_eq!(table.stats().options[&option], value, "{engine}");
            db.close().unwrap();
            if option == "fast_dir" {
                continue;
            }
            // And back.
            let db = open(&dir);
            let back: Options = match base.get(&option) {
                Some(value) => [(option.clone(), value.clone())].into(),
                None => default_of(engine, &option),
            };
            let table = db
                .table_or_create("t", engine, &back)
                .unwrap_or_else(|error| panic!("{engine} {option} back: {error}"));
            check_and_write(&table, &mut rows, round);
            db.close().unwrap();
        }
    }
}

/// The default of an option, for those that have no name for it as a value: none.
fn default_of(engine: &str, option: &str) -> Options {
    let value = match (engine, option) {
        ("lsm", "memtables") => "2",
        ("lsm", "cache") => "64MiB",
        ("lsm", "compression") => "none",
        ("lsm", "compression_dict_size") => "0",
        ("lsm", "log_retention") => "0",
        ("lsm", "log_retention_time") => "0s",
        ("lsm", "l0_policy") => "whole",
        ("lsm", "pmem.size") => "0",
        ("lsm", "triad.mem") => "off",
        ("lsm", "triad.log") => "on",
        ("trie", "levels") => "5",
        ("trie", "bucket_size") => "4KiB",
        ("trie", "dense_run_at") => "0",
        ("trie", "experimental.table_layout") => "hash",
        ("silt", "experimental.stores") => "all",
        ("silt", "inline_value_bytes") => "0",
        ("skimpy", "channels") => "1",
        _ => return Options::new(),
    };
    [(option.to_owned(), value.to_owned())].into()
}

#[test]
fn same_option_in_another_form_is_no_change() {
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path().join("s");
    let db = open(&dir);
    let first = parse("memtable=8MiB l0_capacity=0");
    db.table_or_create("t", "lsm", &first).unwrap();
    db.close().unwrap();
    let db = open(&dir);
    // In bytes, by an old name, and a default.
    let same = parse("memtable=8388608 container=0 cache=64MiB");
    let table = db.table_or_create("t", "lsm", &same).unwrap();
    assert_eq!(table.options(), first);
    assert_eq!(db.spec_of("t").unwrap().options, first);
}

#[test]
fn options_of_an_open_table_change_live_or_are_refused() {
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path().join("s");
    let db = open(&dir);
    let table = db.table_or_create("t", "lsm", &parse("table=1MiB")).unwrap();
    let both = parse("target_file_size=2MiB levels=1MiB:10MiB");
    assert_eq!(refused(db.table_or_create("t", "lsm", &both)), ["levels".to_owned()].into());
    assert_eq!(table.options(), parse("table=1MiB"), "all or nothing");

    db.table_or_create("t", "lsm", &parse("target_file_size=2MiB")).unwrap();
    assert_eq!(table.options(), parse("target_file_size=2MiB"));
    // Recorded for the next open, beside one that is in force at once.
    let later = table.set_options(&[("levels", "1MiB:10MiB"), ("cache", "1MiB")]).unwrap();
    assert_eq!(later, ["levels"]);
    assert_eq!(table.options(), parse("target_file_size=2MiB cache=1MiB"));
    let stored = parse("target_file_size=2MiB cache=1MiB levels=1MiB:10MiB");
    assert_eq!(db.spec_of("t").unwrap().options, stored);
    db.close().unwrap();
    assert!(matches!(table.set_options(&[("cache", "2MiB")]), Err(Error::Closed)));
    let table = open(&dir).table("t").unwrap();
    assert_eq!(table.options(), stored);
}

#[test]
fn access_mode_of_mica_changes_while_it_is_open() {
    let scratch = tempfile::tempdir().unwrap();
    let db = open(&scratch.path().join("s"));
    let table = db.table_or_create("t", "mica", &parse("memory=16MiB partitions=2")).unwrap();
    table.put(b"k", b"v").unwrap();
    assert!(table.set_options(&[("access", "crcw"), ("cas", "on")]).unwrap() == ["cas"]);
    let store = table.engine().as_any().unwrap().downcast::<siltstone_mica::Store>().unwrap();
    assert_eq!(store.access().name(), "crcw");
    assert_eq!(table.get(b"k").unwrap().unwrap(), b"v");
}

#[test]
fn one_bad_option_refuses_the_whole_call() {
    let scratch = tempfile::tempdir().unwrap();
    let db = open(&scratch.path().join("s"));
    let lsm = db.table_or_create("l", "lsm", &Options::new()).unwrap();
    let silt = db.table_or_create("s", "silt", &parse("partitions=1")).unwrap();
    type Call<'a> = (&'a Table, &'a [(&'a str, &'a str)], &'a [&'a str]);
    let calls: [Call<'_>; 6] = [
        (&lsm, &[("cache", "1MiB"), ("colour", "red")], &["colour"]),
        (&lsm, &[("cache", "1MiB"), ("memtables", "1")], &["memtables"]),
        (&lsm, &[("cache", "1MiB"), ("cache", "2MiB")], &["cache"]),
        (&lsm, &[("target_file_size", "1MiB"), ("table", "2MiB")], &["target_file_size"]),
        // This would change the policy of level 0, which changes at open.
        (&lsm, &[("cache", "1MiB"), ("l0_capacity", "0")], &["l0_capacity"]),
        (&silt, &[("merge_trigger", "3"), ("partitions", "8")], &["partitions"]),
    ];
    for (table, changes, mistakes) in calls {
        let (options, catalogue) = (table.options(), db.catalogue().unwrap());
        let named = refused(table.set_options(changes));
        assert_eq!(named, mistakes.iter().map(|&name| name.to_owned()).collect());
        assert_eq!((table.options(), db.catalogue().unwrap()), (options, catalogue));
    }
    let text = silt.set_options(&[("partitions", "8")]).unwrap_err().to_string();
    assert!(text.contains("created with 1") && text.contains("another table"), "{text}");
}

#[test]
fn size_of_the_shared_block_cache_is_not_an_option_of_a_table() {
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path().join("s");
    let db = open(&dir);
    db.table_or_create("t", "lsm", &parse("cache=1MiB")).unwrap();
    db.close().unwrap();
    let shared = DbOptions { cache_bytes: Some(8 << 20), ..DbOptions::default() };
    let db = Db::open(&dir, shared).unwrap();
    let table = db.table_or_create("t", "lsm", &parse("cache=1MiB")).unwrap();
    assert_eq!(table.options(), Options::new(), "it has no effect");
    assert_eq!(refused(table.set_options(&[("cache", "2MiB")])), ["cache".to_owned()].into());
}

#[test]
fn read_only_store_refuses_changes() {
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path().join("s");
    let db = open(&dir);
    db.table_or_create("t", "lsm", &Options::new()).unwrap();
    db.close().unwrap();
    let read_only = DbOptions { read_only: true, ..DbOptions::default() };
    let db = Db::open(&dir, read_only).unwrap();
    let table = db.table_or_create("t", "lsm", &parse("cache=64MiB")).unwrap();
    for refused in [
        table.set_options(&[("cache", "1MiB")]).map(drop),
        db.table_or_create("t", "lsm", &parse("cache=1MiB")).map(drop),
    ] {
        assert!(matches!(refused, Err(Error::Refused { .. })), "{refused:?}");
    }
}

#[test]
fn failed_write_of_the_catalogue_changes_nothing_in_force() {
    let vfs = FaultyVfs::new(1);
    let db = Db::create_vfs(Arc::new(vfs.clone()), DbOptions::default()).unwrap();
    let table = db.table_or_create("t", "lsm", &Options::new()).unwrap();
    let mut failures = 0;
    loop {
        vfs.fail_at(vfs.requests() + failures, FaultKind::Any);
        let changed = table.set_options(&[("cache", "1MiB")]);
        vfs.clear_faults();
        if changed.is_ok() {
            break;
        }
        assert_eq!(table.options(), Options::new());
        failures += 1;
    }
    assert!(failures > 2, "writing the catalogue takes several requests");
    assert_eq!(table.options(), parse("cache=1MiB"));
    // What has returned survives a power cut.
    vfs.cut_power();
    let after = Db::open_vfs(Arc::new(vfs.survivors(2)), DbOptions::default()).unwrap();
    assert_eq!(after.table("t").unwrap().options(), parse("cache=1MiB"));
}
