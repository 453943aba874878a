//! The pace of collection: a full device has room for further writes in time.
//!
//! Before the first sweep all buckets begin in the same pages of the log, and no block can be freed
//! until most of them were relocated: with few keys per bucket, and with many.

use std::collections::BTreeMap;
use std::sync::Arc;

use siltstone_engine::{Durability, Engine, ManualClock, WriteBatch};
use siltstone_runtime::Env;
use siltstone_skimpy::{Options, Skimpy};
use siltstone_testkit::TestRng;
use siltstone_vfs::Ram;

/// A third of the device's records of 512 bytes, as in the paper.
const KEYS: u64 = 40_000;
const VALUE_BYTES: usize = 440;

fn open(keys_per_bucket: u64, channels: u32) -> Skimpy {
    let map = [
        ("capacity", format!("{}", KEYS * 512 * 335 / 100)),
        ("buckets", (KEYS / keys_per_bucket).to_string()),
        ("channels", channels.to_string()),
        ("reserved_space", "0.1".to_owned()),
    ];
    let map: BTreeMap<String, String> = map.map(|(k, v)| (k.to_owned(), v)).into();
    let env = Env::replayable(Arc::new(ManualClock::at(10_000)), 1);
    Skimpy::open(Arc::new(Ram::new()), env, Options::from_map(&map).unwrap()).unwrap()
}

fn put(engine: &Skimpy, key: u64, number: u64) {
    let mut value = vec![7; VALUE_BYTES];
    value[..8].copy_from_slice(&number.to_le_bytes());
    let key = key.to_be_bytes();
    let written = engine.write(WriteBatch::new().put(&key, &value), Durability::Buffered);
    written.unwrap_or_else(|error| panic!("put {number}: {error}"));
}

#[test]
fn full_device_stays_writable_for_any_number_of_keys_per_bucket() {
    for keys_per_bucket in [1, 2, 40] {
        let engine = open(keys_per_bucket, 16);
        let mut newest: Vec<u64> = (0..KEYS).collect();
        (0..KEYS).for_each(|key| put(&engine, key, key));
        let mut rng = TestRng::of(keys_per_bucket, 5);
        let mut min_free = u64::MAX;
        for number in KEYS..5 * KEYS {
            // Skewed: fewer keys get more writes.
            let key = rng.below(KEYS) >> rng.below(16);
            put(&engine, key, number);
            newest[key as usize] = number;
            if number % 64 == 0 {
                min_free = min_free.min(engine.stats().counters["blocks_free"]);
            }
        }
        // More than the open blocks of the channels: no write waits for a block to be freed.
        assert!(min_free >= 16, "{keys_per_bucket} keys per bucket: {min_free} blocks free");
        for key in (0..KEYS).step_by(7) {
            let found = engine.get(&key.to_be_bytes()).unwrap().unwrap();
            assert_eq!(found.value[..8], newest[key as usize].to_le_bytes());
        }
    }
}

/// Buckets are not relocated more often than the oldest pages of the log require.
#[test]
fn bucket_is_relocated_once_per_pass_of_the_log() {
    let engine = open(5, 4);
    (0..KEYS).for_each(|key| put(&engine, key, key));
    let mut rng = TestRng::of(1, 6);
    let mut run = |from: u64, count: u64| {
        let before = engine.stats();
        (from..from + count).for_each(|number| put(&engine, rng.below(KEYS), number));
        let after = engine.stats();
        let more = |name: &str| (after.counters[name] - before.counters[name]) as f64;
        let reads = (after.io["compaction"].reads - before.io["compaction"].reads) as f64;
        let collected = more("buckets_collected");
        (collected / (KEYS / 5) as f64, more("pages_programmed"), reads / collected)
    };
    run(KEYS, 4 * KEYS);
    let (sweeps, pages, reads) = run(5 * KEYS, 2 * KEYS);
    // 8.7; 20.0 without cached records, 18.6 if hidden ones are cached as well.
    assert!(reads < 10.0, "{reads:.1} pages read per bucket");
    let kept = engine.stats().memory["collection cache"];
    assert!((4096..=2 * 128 * 4096).contains(&kept), "collection caches {kept} bytes of pages");
    // A pass takes about nine tenths of the device: the rest is free, open, retired, or
    // checkpoints.
    let rounds = pages / (KEYS as f64 * 3.35 / 8.0);
    assert!(sweeps < 1.35 * rounds, "{sweeps:.2} sweeps in {rounds:.2} passes");
}

/// Few buckets on a large device: relocating one copies more than the pace requires, and copies are
/// log pages that make more copies due.
#[test]
fn copies_do_not_fill_a_nearly_empty_device() {
    let map = [("capacity", "16MiB"), ("block", "4"), ("buckets", "2"), ("reserved_space", "0.9")];
    let map: BTreeMap<String, String> = map.map(|(k, v)| (k.to_owned(), v.to_owned())).into();
    let clock = Arc::new(ManualClock::at(10_000));
    let env = Env::replayable(clock, 1);
    let engine = Skimpy::open(Arc::new(Ram::new()), env, Options::from_map(&map).unwrap()).unwrap();
    (0..1500).for_each(|key| put(&engine, key, key));
    for number in 1500..3000 {
        put(&engine, number % 1500, number);
    }
    assert!(engine.stats().counters["blocks_free"] > 100);
}

/// Opening determines the last page of each block; else the tail would wait for buckets without
/// pages there.
#[test]
fn table_that_is_reopened_often_frees_space() {
    let map = [("capacity", "16MiB"), ("block", "4"), ("buckets", "8"), ("reserved_space", "0.9")];
    let map: BTreeMap<String, String> = map.map(|(k, v)| (k.to_owned(), v.to_owned())).into();
    let vfs = Arc::new(Ram::new());
    let mut free = 0;
    for opening in 0..150 {
        let env = Env::replayable(Arc::new(ManualClock::at(10_000)), 1);
        let engine = Skimpy::open(vfs.clone(), env, Options::from_map(&map).unwrap()).unwrap();
        for key in 0..40 {
            let key = (opening * 40 + key) % 300;
            put(&engine, key, key);
            engine.flush().unwrap();
        }
        free = engine.stats().counters["blocks_free"];
    }
    assert!(free > 512, "{free} of 1024 blocks are free");
}
