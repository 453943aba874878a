//! Memory stays within the budget. A separate program, because the kernel counts per process.

#![cfg(all(target_os = "linux", not(siltstone_portable)))]
#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use siltstone_engine::{Durability, Engine, ManualClock, WriteBatch};
use siltstone_mica::{Mica, Options};
use siltstone_runtime::Env;
use siltstone_testkit::TestRng;

/// Compares the statistics, the resident set size, and the budget.
#[test]
fn memory_stays_within_budget() {
    let resident = || {
        let status = std::fs::read_to_string("/proc/self/smaps_rollup").unwrap();
        let line = status.lines().find(|line| line.starts_with("Rss:")).unwrap().to_owned();
        let kib: u64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
        kib << 10
    };
    for (mode, mapping) in [("cache", "plain"), ("cache", "mirrored"), ("store", "plain")] {
        let memory = 32u64 << 20;
        let before = resident();
        let env = Env::replayable(Arc::new(ManualClock::at(1000)), 1);
        let text = format!(
            "mode={mode} mapping={mapping} memory={memory} partitions=2 expected_item_bytes=250"
        );
        let pairs = text.split(' ').filter_map(|pair| pair.split_once('='));
        let map = pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        let options = Options::from_map(&map).unwrap();
        let mica = Mica::open(env, options).unwrap();
        let mut rng = TestRng::new(3);
        let mut batch = WriteBatch::new();
        for number in 0..300_000u64 {
            let len = rng.index(500);
            batch.clear();
            batch.put(&(number % 200_000).to_le_bytes(), &vec![1; len]);
            // A store becomes full.
            let _ = mica.write(&batch, Durability::Buffered);
        }
        let stats = mica.stats();
        assert!(stats.memory_bytes() <= memory, "{:?}", stats.memory);
        assert!(stats.memory_bytes() > memory * 9 / 10, "{:?}", stats.memory);
        // A mirror's pages are counted at both addresses.
        let mirror = if mapping == "mirrored" { stats.memory["log"] } else { 0 };
        let grown = resident().saturating_sub(before);
        assert!(grown < memory + mirror + (8 << 20), "{mode} {mapping} took {grown}");
        let expected = if mode == "cache" { "evictions" } else { "full_errors" };
        assert!(stats.counters[expected] > 0, "{:?}", stats.counters);
        drop(mica);
    }
}
