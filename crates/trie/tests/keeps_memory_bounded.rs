//! Does the memory of compactions, collections and merges stay where it is while the store grows?
//!
//! Every job counts what it holds: segments that it read, their items, segments and request buffers
//! that it writes, and the filters and indexes of tables under way. The most that any job has held is
//! among the counters.
//!
//! Promise checked: a store ten times as large has jobs no larger, whatever the layout of its last
//! level; and a job holds far less than the container it works on.

use std::sync::Arc;

use siltstone_engine::{Durability, Engine, ManualClock, WriteBatch};
use siltstone_runtime::Env;
use siltstone_trie::{Options, Trie};
use siltstone_vfs::Ram;

const VALUE_BYTES: usize = 100;

#[allow(clippy::unwrap_used, reason = "a helper of tests")]
fn open(options: &str) -> Trie {
    let all = format!("table=1MiB bucket=1KiB segment=32 fanout_bits=1 levels=2 slow=8 {options}");
    let pairs = all.split(' ').filter_map(|pair| pair.split_once('='));
    let options = Options::from_map(&pairs.map(|(k, v)| (k.into(), v.into())).collect()).unwrap();
    let env = Env::replayable(Arc::new(ManualClock::at(0)), 1);
    Trie::open(Arc::new(Ram::new()), env, options).unwrap()
}

/// The most that a job has held when so many distinct keys were written, and the largest container.
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
fn is_a_job_no_larger_in_a_store_ten_times_as_large() {
    for (options, passes) in
        [("garbage=1", 1), ("run=3", 1), ("tables=sorted", 1), ("collect=4 garbage=0.3", 2)]
    {
        let (small, _) = job_memory(options, 30_000, passes);
        let (large, container) = job_memory(options, 300_000, passes);
        println!("{options}: {small} bytes, ten times the store {large}; a container {container}");
        assert!(small > 100_000, "{options}: nothing was counted: {small}");
        // What a table will hold in memory anyway is made in memory, and grows with it.
        let resident = 300_000 * 3 / 2;
        assert!(large < small * 5 / 4 + resident, "{options}: {small} bytes, then {large}");
        assert!(large < container / 3, "{options}: {large} bytes for a container of {container}");
    }
}
