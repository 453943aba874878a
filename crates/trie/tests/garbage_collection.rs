//! Garbage collection of the last level: overwritten items from the configured garbage ratio on,
//! and expired items without new writes of their keys.

#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use siltstone_engine::{Durability, Engine, ManualClock, WriteBatch};
use siltstone_runtime::Env;
use siltstone_testkit::engine_under_test;
use siltstone_trie::{Options, Trie};
use siltstone_vfs::Ram;

/// The keys written per tick of the clock.
const KEYS_PER_TICK: u64 = 400;
/// The lifetime of each key in ticks.
const LIFETIME_TICKS: u64 = 10;

/// The keys of one table each; 900 of 1,900 items are overwritten.
const TABLES: [std::ops::Range<u64>; 4] = [0..500, 500..1000, 0..500, 500..900];

#[test]
fn container_is_collected_from_the_configured_garbage_ratio_on() {
    for (garbage, collections) in [("0.4", 1), ("0.55", 0)] {
        let options = "htable_size=1MiB bucket_size=512 levels=1 gc_trigger=4";
        let options = engine_under_test::options([options, &format!("gc_garbage_ratio={garbage}")]);
        let options = Options::from_map(&options).unwrap();
        let env = Env::replayable(Arc::new(ManualClock::at(0)), 1);
        let trie = Trie::open(Arc::new(Ram::new()), env, options).unwrap();
        for keys in TABLES {
            let mut batch = WriteBatch::new();
            for key in keys {
                batch.put(&key.to_le_bytes(), &[1; 40]);
            }
            trie.write(&batch, Durability::Buffered).unwrap();
            trie.flush().unwrap();
        }
        trie.maintain().unwrap();
        let stats = trie.stats();
        assert_eq!(stats.counters["collections"], collections, "{garbage}");
        let items = if collections == 1 { 1000 } else { 1900 };
        assert_eq!(stats.levels[0].entries, items, "{garbage}");
    }
}

#[test]
fn store_of_expiring_entries_stops_growing() {
    let options = "htable_size=16KiB bucket_size=512 fanout_bits=1 levels=2 gc_trigger=4 gc_garbage_ratio=0.3";
    let options = Options::from_map(&engine_under_test::options([options])).unwrap();
    let clock = Arc::new(ManualClock::at(0));
    let trie =
        Trie::open(Arc::new(Ram::new()), Env::replayable(clock.clone(), 1), options).unwrap();
    let mut space = Vec::new();
    for tick in 0..200u64 {
        clock.set(tick);
        let mut batch = WriteBatch::new();
        for n in 0..KEYS_PER_TICK {
            batch.put_until(
                &(tick * KEYS_PER_TICK + n).to_le_bytes(),
                &[1; 40],
                tick + LIFETIME_TICKS,
            );
        }
        trie.write(&batch, Durability::Buffered).unwrap();
        trie.maintain().unwrap();
        space.push(trie.stats().space_bytes);
    }
    let max = |ticks: &[u64]| ticks.iter().copied().max().unwrap();
    let (early, late) = (max(&space[50..100]), max(&space[150..]));
    println!("{early} bytes, then {late}");
    assert!(late < early * 5 / 4, "{early} bytes, then {late}");
}
