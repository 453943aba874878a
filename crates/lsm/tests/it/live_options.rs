//! Options that change while the table is open: each changes what the table does, not only a
//! number.
//!
//! Every option has a check below that would fail if the option kept its old value.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use siltstone_engine::{Durability, Engine, Error, KeyRange, ManualClock, Stats, WriteBatch};
use siltstone_lsm::{LIVE_OPTIONS, Lsm, Options};
use siltstone_runtime::Env;
use siltstone_vfs::{MeteredVfs, Ram};

/// Level 0 is compacted whole and seldom, and level 1 is large.
const BASE: [(&str, &str); 8] = [
    ("memtable", "64KiB"),
    ("target_file_size", "64KiB"),
    ("levels", "64MiB:640MiB"),
    ("l0_capacity", "0"),
    ("triad.log", "off"),
    ("experimental.l0_compaction_trigger", "40"),
    ("experimental.l0_slowdown_trigger", "60"),
    ("experimental.l0_stop_trigger", "80"),
];

fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect()
}

/// A table with the base options and `others`, whose jobs run when somebody waits for them.
fn open(others: &[(&str, &str)]) -> Lsm {
    let mut options = map(&BASE);
    options.extend(map(others));
    let env = Env::replayable(Arc::new(ManualClock::at(0)), 1);
    let vfs = Arc::new(MeteredVfs::new(Arc::new(Ram::new())));
    Lsm::open(vfs, env, Options::from_map(&options).unwrap()).unwrap()
}

fn set(lsm: &Lsm, changes: &[(&str, &str)]) {
    lsm.set_options(&map(changes)).unwrap();
}

/// Writes compressible values of 1 KiB under shuffled keys, so that runs overlap.
fn write(lsm: &Lsm, keys: std::ops::Range<u32>) {
    for number in keys {
        let mut batch = WriteBatch::new();
        let key = number.wrapping_mul(2_654_435_761).to_be_bytes();
        batch.put(&key, &[number as u8; 1000]);
        lsm.write(&batch, Durability::Buffered).unwrap();
    }
}

/// Writes one run of level 0.
fn write_run(lsm: &Lsm, keys: std::ops::Range<u32>) {
    write(lsm, keys);
    lsm.flush().unwrap();
}

fn read(lsm: &Lsm, keys: std::ops::Range<u32>) {
    for number in keys {
        let key = number.wrapping_mul(2_654_435_761).to_be_bytes();
        assert_eq!(lsm.get(&key).unwrap().unwrap().value, [number as u8; 1000]);
    }
}

fn counter(lsm: &Lsm, name: &str) -> u64 {
    lsm.stats().counters[name]
}

/// Writes the same tables before and after `changes`: the statistics of both.
fn tables_before_and_after(changes: &[(&str, &str)]) -> [Stats; 2] {
    [false, true].map(|is_after| {
        let lsm = open(&[]);
        if is_after {
            set(&lsm, changes);
        }
        for round in 0..4 {
            write_run(&lsm, round * 40..round * 40 + 60);
        }
        set(&lsm, &[("experimental.l0_compaction_trigger", "1")]);
        lsm.maintain().unwrap();
        read(&lsm, 0..180);
        lsm.stats()
    })
}

fn files(stats: &Stats) -> u64 {
    stats.levels.iter().map(|level| level.files).sum()
}

fn memtable_size_changes_when_memtables_are_full() {
    let lsm = open(&[("memtable", "1MiB")]);
    write(&lsm, 0..200);
    assert_eq!(counter(&lsm, "flushes"), 0);
    set(&lsm, &[("memtable", "32KiB")]);
    write(&lsm, 0..200);
    assert!(counter(&lsm, "flushes") > 2);
    read(&lsm, 0..200);
}

fn number_of_memtables_changes_how_much_waits_for_flushes() {
    let lsm = open(&[]);
    // Flushes run when a writer waits, so memtables pile up to their number.
    let most = |lsm: &Lsm, from: u32| {
        let bytes = (from..from + 600).map(|number| {
            write(lsm, number..number + 1);
            lsm.stats().memory["memtable"]
        });
        bytes.max().unwrap()
    };
    let two = most(&lsm, 0);
    set(&lsm, &[("memtables", "6")]);
    let six = most(&lsm, 600);
    assert!(six > 2 * two, "{six} {two}");
    set(&lsm, &[("memtables", "2")]);
    write(&lsm, 1200..1300);
    assert!(most(&lsm, 1300) < 2 * two);
}

fn block_cache_shrinks_at_once_and_grows() {
    let lsm = open(&[("cache", "1MiB"), ("experimental.l0_compaction_trigger", "1")]);
    write_run(&lsm, 0..400);
    lsm.maintain().unwrap();
    let resident = |lsm: &Lsm| {
        (0..3).for_each(|_| read(lsm, 0..400));
        lsm.stats().memory["block_cache"]
    };
    let before = resident(&lsm);
    assert!(before > 100 << 10);
    set(&lsm, &[("cache", "40KiB")]);
    assert!(lsm.stats().memory["block_cache"] <= 40 << 10);
    assert!(resident(&lsm) <= 40 << 10);
    set(&lsm, &[("cache", "1MiB")]);
    assert_eq!(resident(&lsm), before);
}

fn formats_apply_to_new_files() {
    let [before, after] = tables_before_and_after(&[("target_file_size", "16KiB")]);
    assert!(files(&after) > 2 * files(&before));
    let [before, after] = tables_before_and_after(&[("block_size", "16KiB")]);
    assert!(after.memory["index"] < before.memory["index"]);
    let [before, after] = tables_before_and_after(&[("filter_bits_per_key", "0")]);
    assert!(before.memory["filter"] > 0 && after.memory["filter"] == 0);
    let [before, after] = tables_before_and_after(&[("compression", "lz4")]);
    assert!(after.space_bytes < before.space_bytes / 2);
    let [before, after] = tables_before_and_after(&[("bottommost_compression", "zstd")]);
    assert!(after.space_bytes < before.space_bytes / 2);
    assert_eq!(after.memory["dictionary"], 0);
    let dictionary = [("bottommost_compression", "zstd"), ("compression_dict_size", "512")];
    let [before, after] = tables_before_and_after(&dictionary);
    assert_eq!(before.memory["dictionary"], 0);
    assert!(after.memory["dictionary"] > 0);
    let interval = [("experimental.block_restart_interval", "1")];
    let [before, after] = tables_before_and_after(&interval);
    assert!(after.space_bytes > before.space_bytes, "more restart points");
}

fn range_filters_are_left_out_of_new_files() {
    // The deepest level has none: the runs of level 0 do.
    let [with, without] = ["on", "off"].map(|value| {
        let lsm = open(&[]);
        set(&lsm, &[("experimental.range_filter", value)]);
        write_run(&lsm, 0..60);
        lsm.stats().memory["filter"]
    });
    assert!(without < with, "{without} {with}");
}

fn compaction_trigger_of_level_0_changes() {
    let lsm = open(&[]);
    for round in 0..5 {
        write_run(&lsm, round * 10..round * 10 + 50);
    }
    lsm.maintain().unwrap();
    assert_eq!(lsm.stats().levels[0].files, 5);
    set(&lsm, &[("experimental.l0_compaction_trigger", "4")]);
    lsm.maintain().unwrap();
    assert_eq!(lsm.stats().levels[0].files, 0);
}

fn writers_are_delayed_and_stopped_by_the_changed_triggers() {
    let lsm = open(&[]);
    for round in 0..12 {
        write_run(&lsm, round * 10..round * 10 + 50);
    }
    assert_eq!(counter(&lsm, "compactions"), 0);
    // At 12 of 11 runs, writers wait for the compaction that is due then.
    let triggers = [
        ("experimental.l0_compaction_trigger", "5"),
        ("experimental.l0_slowdown_trigger", "8"),
        ("experimental.l0_stop_trigger", "11"),
    ];
    set(&lsm, &triggers);
    write(&lsm, 0..200);
    assert!(counter(&lsm, "compactions") > 0);
    // The maximum number of runs from now on.
    for round in 0..40 {
        write(&lsm, round * 60..round * 60 + 70);
        assert!(lsm.stats().levels[0].files <= 12);
    }
}

fn slowdown_trigger_changes_the_delay() {
    let slowdown = |trigger: &str| {
        let lsm = open(&[("experimental.l0_stop_trigger", "100")]);
        for round in 0..30 {
            write_run(&lsm, round * 10..round * 10 + 50);
        }
        let triggers = [
            ("experimental.l0_compaction_trigger", "5"),
            ("experimental.l0_slowdown_trigger", trigger),
        ];
        set(&lsm, &triggers);
        let before = lsm.stats().stall.slowdown_us;
        write(&lsm, 0..50);
        lsm.stats().stall.slowdown_us - before
    };
    assert_eq!(slowdown("60"), 0);
    assert!(slowdown("8") > 0);
}

fn capacity_of_level_0_changes_when_slices_are_compacted() {
    let lsm = open(&[("l0_capacity", "64MiB")]);
    write_run(&lsm, 0..600);
    lsm.maintain().unwrap();
    assert_eq!(counter(&lsm, "compactions"), 0);
    set(&lsm, &[("l0_capacity", "256KiB")]);
    lsm.maintain().unwrap();
    assert!(counter(&lsm, "compactions") > 0);
    read(&lsm, 0..600);
}

fn prefetch_memory_changes_the_number_of_reads() {
    let reads = |bytes: &str| {
        let lsm = open(&[("triad.log", "on")]);
        set(&lsm, &[("triad.prefetch", bytes)]);
        for round in 0..4 {
            write(&lsm, round * 40..round * 40 + 60);
            lsm.flush().unwrap();
        }
        let count = |lsm: &Lsm| lsm.stats().io.values().map(|io| io.reads).sum::<u64>();
        let before = count(&lsm);
        set(&lsm, &[("experimental.l0_compaction_trigger", "1")]);
        lsm.maintain().unwrap();
        count(&lsm) - before
    };
    let (none, all) = (reads("0"), reads("1MiB"));
    assert!(none > 2 * all, "{none} {all}");
}

fn logs_are_archived_up_to_the_changed_limit() {
    let lsm = open(&[("triad.log", "off")]);
    let run = || {
        write(&lsm, 0..60);
        lsm.flush().unwrap();
        counter(&lsm, "archived_log_bytes")
    };
    assert_eq!(run(), 0);
    set(&lsm, &[("log_retention", "1MiB")]);
    assert!(run() > 60_000);
    assert!(run() > 120_000);
    set(&lsm, &[("log_retention", "100KiB")]);
    assert!((60_000..100 << 10).contains(&counter(&lsm, "archived_log_bytes")));
    set(&lsm, &[("log_retention", "0")]);
    assert_eq!(counter(&lsm, "archived_log_bytes"), 0);
}

fn garbage_of_large_values_is_collected_at_the_changed_ratio() {
    let lsm = open(&[("blob_threshold", "512"), ("blob_gc_ratio", "0.95")]);
    // A file of which nothing is alive would be removed without a collection.
    for keys in [0..60, 0..40] {
        write_run(&lsm, keys);
        lsm.compact_range(&KeyRange::all()).unwrap();
    }
    let garbage_ratio =
        || counter(&lsm, "blob_garbage_bytes") as f64 / counter(&lsm, "blob_bytes") as f64;
    assert!(garbage_ratio() > 0.3, "{}", garbage_ratio());
    set(&lsm, &[("blob_gc_ratio", "0.1")]);
    lsm.maintain().unwrap();
    assert!(garbage_ratio() <= 0.1, "{}", garbage_ratio());
    read(&lsm, 0..60);
}

#[test]
fn each_live_option_changes_what_the_table_does() {
    type Check = (&'static [&'static str], fn());
    let checks: [Check; 14] = [
        (&["memtable"], memtable_size_changes_when_memtables_are_full),
        (&["memtables"], number_of_memtables_changes_how_much_waits_for_flushes),
        (&["cache"], block_cache_shrinks_at_once_and_grows),
        (
            &[
                "target_file_size",
                "block_size",
                "filter_bits_per_key",
                "compression",
                "bottommost_compression",
                "compression_dict_size",
                "experimental.block_restart_interval",
            ],
            formats_apply_to_new_files,
        ),
        (&["experimental.range_filter"], range_filters_are_left_out_of_new_files),
        (&["experimental.l0_compaction_trigger"], compaction_trigger_of_level_0_changes),
        (
            &["experimental.l0_stop_trigger"],
            writers_are_delayed_and_stopped_by_the_changed_triggers,
        ),
        (&["experimental.l0_slowdown_trigger"], slowdown_trigger_changes_the_delay),
        (&["l0_capacity"], capacity_of_level_0_changes_when_slices_are_compacted),
        // The time is changed in `crates/siltstone/tests/it/change_feed.rs`.
        (&["log_retention", "log_retention_time"], logs_are_archived_up_to_the_changed_limit),
        (&["triad.prefetch"], prefetch_memory_changes_the_number_of_reads),
        (&["blob_gc_ratio"], garbage_of_large_values_is_collected_at_the_changed_ratio),
        // A test beside the code, in `blob_tests.rs`.
        (&["blob_threshold"], || ()),
        // Tests beside the code, in `live_options.rs`: they see what is selected.
        (&["max_compactions", "max_subcompactions", "experimental.compaction_pri"], || ()),
    ];
    let checked: BTreeSet<_> = checks.iter().flat_map(|(names, _)| *names).copied().collect();
    assert_eq!(checked, LIVE_OPTIONS.iter().copied().collect());
    for (names, check) in checks {
        eprintln!("{names:?}");
        check();
    }
}

#[test]
fn option_that_does_not_change_while_open_is_refused_with_all_mistakes() {
    let lsm = open(&[]);
    let bad = [("memtable", "128KiB"), ("levels", "1MiB:2MiB"), ("nvm", "1MiB")];
    let Err(Error::InvalidOptions(mistakes)) = lsm.set_options(&map(&bad)) else {
        panic!("accepted")
    };
    let named: Vec<_> = mistakes.iter().map(|mistake| mistake.option.as_str()).collect();
    assert_eq!(named, ["levels", "nvm"]);
    // Nothing has changed: a memtable of 64 KiB is full.
    write(&lsm, 0..300);
    assert!(counter(&lsm, "flushes") > 2);
    lsm.close().unwrap();
    assert!(matches!(lsm.set_options(&map(&[("cache", "1MiB")])), Err(Error::Closed)));
}

#[test]
fn writers_continue_while_options_change() {
    let lsm = open(&[]);
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for size in (0..60).map(|round| ["8KiB", "256KiB", "32KiB"][round % 3]) {
                set(&lsm, &[("memtable", size), ("memtables", "3"), ("cache", size)]);
                set(&lsm, &[("memtables", "2"), ("experimental.l0_compaction_trigger", "3")]);
            }
            stop.store(true, std::sync::atomic::Ordering::Relaxed);
        });
        let mut rounds = 0;
        while rounds < 2 || !stop.load(std::sync::atomic::Ordering::Relaxed) {
            write(&lsm, 0..400);
            rounds += 1;
        }
    });
    read(&lsm, 0..400);
    lsm.maintain().unwrap();
    assert!(lsm.verify(&mut |_, _| ()).unwrap().is_intact());
}
