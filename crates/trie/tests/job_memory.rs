//! The memory of compactions, collections and merges is independent of the size of the store.
//!
//! Every job counts its memory: input segments with their items, output segments and request
//! buffers, and the filters and indexes of unfinished tables. The counters include the maximum of
//! all jobs. A store ten times as large must not have larger jobs, whatever the layout of its last
//! level, and a job must need far less memory than the size of its container.

use std::sync::Arc;

use siltstone_engine::{Durability, Engine, ManualClock, WriteBatch};
use siltstone_runtime::Env;
use siltstone_trie::{Options, Trie};
use siltstone_vfs::Ram;

const VALUE_BYTES: usize = 100;

#[allow(clippy::unwrap_used, reason = "a helper of tests")]
fn open(options: &str) -> Trie {
    let all = format!(
        "htable_size=1MiB bucket_size=1KiB experimental.segment_buckets=32 fanout_bits=1 levels=2 slowdown_trigger=8 {options}"
    );
    let pairs = all.split(' ').filter_map(|pair| pair.split_once('='));
    let options = Options::from_map(&pairs.map(|(k, v)| (k.into(), v.into())).collect()).unwrap();
    let env = Env::replayable(Arc::new(ManualClock::at(0)), 1);
    Trie::open(Arc::new(Ram::new()), env, options).unwrap()
}

/// The maximum memory of a job after writes of `keys` distinct keys, and the largest container.
#[allow(clippy::unwrap_used, reason = "a helper of tests")]
fn job_memory(options: &str, keys: u32, passes: u32) -> (u64, u64) {
    let trie = open(options);
    let mut batch = WriteBatch::new();
    for n in 0..keys * passes {
        batch.put(&(n % keys).to_le_bytes(), &[n as u8; VALUE_BYTES]);
        if batch.len() == 50 {
            trie.write(&batch, Durability::Buffered).unwrap();
            trie.maintain().unwrap();
            batch.clear();
        }
    }
    let stats = trie.stats();
    let last = stats.levels.last().unwrap();
    (stats.counters["job_memory_bytes"], last.bytes / 2)
}

#[test]
fn job_memory_is_independent_of_the_size_of_the_store() {
    for (options, passes) in [
        ("gc_garbage_ratio=1", 1),
        ("dense_run_at=3", 1),
        ("experimental.table_layout=sorted", 1),
        ("gc_trigger=4 gc_garbage_ratio=0.3", 2),
    ] {
        let (small, _) = job_memory(options, 30_000, passes);
        let (large, container) = job_memory(options, 300_000, passes);
        println!("{options}: {small} bytes, ten times the store {large}; a container {container}");
        assert!(small > 100_000, "{options}: nothing was counted: {small}");
        // The resident memory of a table is allocated by its builder, and grows with it.
        let resident = 300_000 * 3 / 2;
        assert!(large < small * 5 / 4 + resident, "{options}: {small} bytes, then {large}");
        assert!(large < container / 3, "{options}: {large} bytes for a container of {container}");
    }
}
