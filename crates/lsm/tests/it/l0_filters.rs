//! Filters of level 0: keys of any run are found while runs come and go.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use siltstone_engine::{Durability, Engine, ManualClock, WriteBatch};
use siltstone_faults::FaultyVfs;
use siltstone_lsm::{Lsm, Options};
use siltstone_runtime::Env;
use siltstone_vfs::{MeteredVfs, Ram, Vfs};

const SMALL: [(&str, &str); 4] = [
    ("memtable", "32KiB"),
    ("target_file_size", "64KiB"),
    ("levels", "1MiB:8MiB"),
    ("l0_capacity", "2MiB"),
];

fn options(others: &[(&str, &str)]) -> Options {
    let all = SMALL.iter().chain(others).map(|&(k, v)| (k.to_owned(), v.to_owned()));
    Options::from_map(&all.collect()).unwrap()
}

fn key(i: u32) -> [u8; 8] {
    let mut key = [0; 8];
    key[..4].copy_from_slice(&i.wrapping_mul(2_654_435_761).to_be_bytes());
    key[4..].copy_from_slice(&i.to_be_bytes());
    key
}

fn put(lsm: &Lsm, i: u32, value: u32) {
    let (mut batch, mut bytes) = (WriteBatch::new(), [7; 60]);
    bytes[..4].copy_from_slice(&value.to_le_bytes());
    batch.put(&key(i), &bytes);
    lsm.write(&batch, Durability::Buffered).unwrap();
}

fn get(lsm: &Lsm, i: u32) -> Option<u32> {
    let entry = lsm.get(&key(i)).unwrap()?;
    Some(u32::from_le_bytes(entry.value[..4].try_into().unwrap()))
}

/// A thread writes, the background flushes and compacts, and readers find the last written value
/// of each key, or a newer one; before and after the table is opened again.
#[test]
fn key_of_any_run_is_found_during_flushes_and_compactions() {
    const KEYS: u32 = 20_000;
    let vfs: Arc<dyn Vfs> = Arc::new(Ram::new());
    let open = || Lsm::open(vfs.clone(), Env::system(2), options(&[])).unwrap();
    let written: Vec<AtomicU32> = (0..KEYS).map(|_| AtomicU32::new(0)).collect();
    for round in 0..2 {
        let lsm = open();
        let (ends, most_runs) = (AtomicBool::new(false), AtomicU32::new(0));
        std::thread::scope(|scope| {
            for reader in 0..2 {
                let (lsm, written, ends) = (&lsm, &written, &ends);
                scope.spawn(move || {
                    let mut rng = StdRng::seed_from_u64(reader);
                    while !ends.load(Ordering::Acquire) {
                        let i = rng.random_range(0..KEYS);
                        let least = written[i as usize].load(Ordering::Acquire);
                        let found = get(lsm, i).unwrap_or(0);
                        assert!(found >= least, "key {i}: {found}, but {least} was written");
                        assert_eq!(get(lsm, KEYS + i), None);
                    }
                });
            }
            let mut rng = StdRng::seed_from_u64(100 + round);
            for step in 0..60_000 {
                let i = rng.random_range(0..KEYS);
                let value = written[i as usize].load(Ordering::Relaxed) + 1;
                put(&lsm, i, value);
                written[i as usize].store(value, Ordering::Release);
                if step % 2000 == 0 {
                    let runs = lsm.stats().levels[0].files as u32;
                    most_runs.fetch_max(runs, Ordering::Relaxed);
                }
            }
            ends.store(true, Ordering::Release);
        });
        lsm.maintain().unwrap();
        let stats = lsm.stats();
        assert!(most_runs.into_inner() >= 16 && stats.counters["compactions"] > 2, "{stats:?}");
        for (i, written) in written.iter().enumerate() {
            assert_eq!(get(&lsm, i as u32).unwrap_or(0), written.load(Ordering::Relaxed), "{i}");
        }
        lsm.close().unwrap();
    }
    let lsm = open();
    for (i, written) in written.iter().enumerate() {
        assert_eq!(get(&lsm, i as u32).unwrap_or(0), written.load(Ordering::Relaxed), "{i}");
    }
}

/// A table with `runs` runs in level 0 and none below, whose keys are in no order; run `r` has the
/// keys from `1000 * r` on.
fn with_runs(vfs: &Arc<dyn Vfs>, runs: u32) -> Lsm {
    let env = Env::replayable(Arc::new(ManualClock::at(0)), 1);
    let large = [("memtable", "1MiB"), ("l0_capacity", "64MiB")];
    let lsm = Lsm::open(vfs.clone(), env, options(&large)).unwrap();
    for run in 0..runs {
        // The number of keys varies a little.
        (1000 * run..1000 * run + 960 + run / 2).for_each(|i| put(&lsm, i, i));
        lsm.flush().unwrap();
    }
    assert_eq!(lsm.stats().levels[0].files, u64::from(runs));
    lsm
}

#[test]
fn get_asks_one_filter_for_many_runs() {
    for (runs, queries) in [(7, 7), (8, 1), (24, 1), (30, 7), (64, 1), (72, 2)] {
        let vfs: Arc<dyn Vfs> = Arc::new(Ram::new());
        let lsm = with_runs(&vfs, runs);
        let check = |lsm: &Lsm| {
            assert_eq!(lsm.stats().counters["l0_filter_queries"], queries, "{runs} runs");
            for run in 0..runs {
                assert!((1000 * run..1000 * run + 960).all(|i| get(lsm, i) == Some(i)), "{run}");
                assert_eq!(get(lsm, 1000 * run + 999), None);
            }
        };
        check(&lsm);
        lsm.close().unwrap();
        drop(lsm);
        let env = Env::replayable(Arc::new(ManualClock::at(0)), 1);
        check(&Lsm::open(vfs, env, options(&[("l0_capacity", "64MiB")])).unwrap());
    }
}

#[test]
fn memory_of_sliced_filters_is_that_of_the_filters() {
    let memory = |runs| {
        let lsm = with_runs(&(Arc::new(Ram::new()) as Arc<dyn Vfs>), runs);
        lsm.stats().memory["filter"] as f64 / f64::from(runs)
    };
    let (single, sliced) = (memory(7), memory(64));
    assert!(sliced < 1.05 * single, "{sliced} bytes per run, {single} of single filters");
}

/// The filter of a run is read again when the run is moved to level 1.
#[test]
fn moved_run_keeps_its_filter() {
    let vfs = Arc::new(MeteredVfs::new(Arc::new(FaultyVfs::new(1))));
    let env = Env::replayable(Arc::new(ManualClock::at(0)), 1);
    let given = [("l0_capacity", "64KiB"), ("cache", "0")];
    let lsm = Lsm::open(vfs, env, options(&given)).unwrap();
    for i in 0..20_000u32 {
        let mut batch = WriteBatch::new();
        batch.put(&i.to_be_bytes(), &[1; 20]);
        lsm.write(&batch, Durability::Buffered).unwrap();
    }
    lsm.maintain().unwrap();
    let stats = lsm.stats();
    assert!(stats.counters["table_moves"] > 5, "{stats:?}");
    let filter_bytes = stats.memory["filter"];
    assert!(filter_bytes > 20_000 * 9 / 8, "{filter_bytes} bytes for 20 000 keys");
    let reads = || lsm.stats().io.values().map(|io| io.reads).sum::<u64>();
    let before = reads();
    for i in 0..2000u32 {
        let absent = [&(7 * i).to_be_bytes()[..], b"0"].concat();
        assert!(lsm.get(&absent).unwrap().is_none());
    }
    let read = reads() - before;
    assert!(read < 100, "{read} reads for 2000 absent keys");
}
