//! A table of the `silt` engine in the shape of the thesis's experiments, scaled down.
//!
//! The thesis stores N = 100 M items of 20 + 1000 bytes in P = 4 instances and merges d = 7.5 M
//! entries of an instance at once, in HashStores of 2¹⁷ slots, 62 of them. Here slots and N shrink
//! by the same factor: the ratio of d to N, on which equations 2.4 to 2.7 depend, and the number of
//! HashStores are unchanged.
//!
//! Invariant: the same numbers denote the same keys and values in all experiments.
//!
//! Source: Lim, thesis (2015), Table 2.4 and section 2.5.1.

use std::collections::BTreeMap;
use std::path::Path;

use siltstone_bench::engines::{OpenEngine, Storage, Target};
use siltstone_engine::{Durability, Engine, Result, Stats, WriteBatch};
use siltstone_runtime::Env;

/// The thesis.
pub(super) const PAPER: &str = "Lim, Resource-Efficient Data-Intensive System Designs, 2015";
/// P of Table 2.4.
pub(super) const INSTANCES: f64 = 4.0;
/// HashStores per instance when they are merged: twice the average of 31 (equation 2.5).
pub(super) const HASH_STORES: f64 = 62.0;
/// The occupancy in the equations.
pub(super) const LOAD: f64 = 0.93;
/// N / (d · P) of Table 2.4.
pub(super) const KEYS_PER_MERGE: f64 = 100.0 / (7.5 * 4.0);
/// Bytes per value.
pub(super) const VALUE_BYTES: usize = 1000;
/// Operations per batch, few because LogStores are small.
const BATCH: u64 = 8;

/// An open table.
pub(super) struct SiltTable {
    opened: OpenEngine,
}

/// N for tables of `slots` slots.
pub(super) fn keys(slots: f64) -> u64 {
    (KEYS_PER_MERGE * HASH_STORES * LOAD * slots * INSTANCES) as u64
}

/// Options of an experiment with tables of `slots` slots.
pub(super) fn options(slots: u64, more: &[(&str, &str)]) -> BTreeMap<String, String> {
    let slots = slots.to_string();
    let base = [
        ("log_store_slots", slots.as_str()),
        ("max_load_factor", "0.93"),
        ("merge_trigger", "62"),
        ("stop_trigger", "1000"),
        ("sort_memory", "1TiB"),
    ];
    let all = base.iter().chain(more).map(|&(name, value)| (name.to_owned(), value.to_owned()));
    all.collect()
}

impl SiltTable {
    /// Opens an empty table.
    pub(super) fn open(
        options: BTreeMap<String, String>,
        storage: Storage,
        env: Env,
    ) -> Result<Self> {
        let engine = "silt".to_owned();
        let target = Target { engine, options, storage, keep: false, background_threads: 1 };
        Ok(SiltTable { opened: target.open_in(env)? })
    }

    pub(super) fn engine(&self) -> &dyn Engine {
        self.opened.engine.as_ref()
    }

    /// Directory of its files, if on disk.
    pub(super) fn path(&self) -> Option<&Path> {
        self.opened.path.as_deref()
    }

    pub(super) fn stats(&self) -> Stats {
        self.opened.engine.stats()
    }

    /// Writes the keys of `numbers`; `each` is called after every batch.
    pub(super) fn put(
        &self,
        numbers: impl Iterator<Item = u64>,
        mut each: impl FnMut(u64) -> Result<()>,
    ) -> Result<()> {
        let mut numbers = numbers.peekable();
        let (mut batch, mut done) = (WriteBatch::new(), 0);
        while numbers.peek().is_some() {
            batch.clear();
            for number in numbers.by_ref().take(BATCH as usize) {
                batch.put(&key(number), &value(number));
                done += 1;
            }
            self.engine().write(&batch, Durability::Buffered)?;
            each(done)?;
        }
        Ok(())
    }
}

/// The key of a number, 20 bytes.
pub(super) fn key(number: u64) -> [u8; 20] {
    let mut key = *b"item0000000000000000";
    key[4..].copy_from_slice(format!("{:016x}", mix(number)).as_bytes());
    key
}

fn value(number: u64) -> [u8; VALUE_BYTES] {
    let mut value = [0; VALUE_BYTES];
    for (i, bytes) in value.chunks_exact_mut(8).enumerate() {
        bytes.copy_from_slice(&mix(number ^ (i as u64) << 40).to_le_bytes());
    }
    value
}

/// A pseudorandom bijection: SplitMix64's finaliser.
pub(super) fn mix(mut x: u64) -> u64 {
    x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}
