//! Does space come back at the last level: of what was overwritten, from the share on that was asked for, and of
//! entries that have expired, though nobody writes their keys again?

#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use siltstone_engine::{Durability, Engine, ManualClock, WriteBatch};
use siltstone_runtime::Env;
use siltstone_testkit::subject;
use siltstone_trie::{Options, Trie};
use siltstone_vfs::Ram;

/// Keys written while the clock moves on by one.
const KEYS_A_TICK: u64 = 400;
/// For how long each of them lives.
const LIFE: u64 = 10;

/// Keys of one table each; 900 of 1,900 items are overwritten.
const TABLES: [std::ops::Range<u64>; 4] = [0..500, 500..1000, 0..500, 500..900];

#[test]
fn is_a_container_collected_from_the_share_of_garbage_on_that_was_asked_for() {
    for (garbage, collections) in [("0.4", 1), ("0.55", 0)] {
        let options = "table=1MiB bucket=512 levels=1 collect=4";
        let options = subject::options([options, &format!("garbage={garbage}")]);
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
fn is_a_store_of_entries_that_expire_no_larger_in_the_end() {
    let options = "table=16KiB bucket=512 fanout_bits=1 levels=2 collect=4 garbage=0.3";
    let options = Options::from_map(&subject::options([options])).unwrap();
    let clock = Arc::new(ManualClock::at(0));
    let trie =
        Trie::open(Arc::new(Ram::new()), Env::replayable(clock.clone(), 1), options).unwrap();
    let mut space = Vec::new();
    for tick in 0..200u64 {
        clock.set(tick);
        let mut batch = WriteBatch::new();
        for n in 0..KEYS_A_TICK {
            batch.put_until(&(tick * KEYS_A_TICK + n).to_le_bytes(), &[1; 40], tick + LIFE);
        }
        trie.write(&batch, Durability::Buffered).unwrap();
        trie.maintain().unwrap();
        space.push(trie.stats().space_bytes);
    }
    let most = |ticks: &[u64]| ticks.iter().copied().max().unwrap();
    let (early, late) = (most(&space[50..100]), most(&space[150..]));
    println!("{early} bytes, then {late}");
    assert!(late < early * 5 / 4, "{early} bytes, then {late}");
}
