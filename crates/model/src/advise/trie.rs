//! The advisor's model of `trie`: its settings for a workload, and what they cost.
//!
//! An item is written once per level, and a lookup is one read if the filters are in memory.
//!
//! ```text
//! settings    tables of 32 MiB, fan-out 8, as many levels as the keys fill; memory for filters
//! lookups     none for keys in memtables, else one read; each sub-level's filter of 16 bits has a
//!             false-positive rate of 1 in 2,000; if the last level's filters do not fit into
//!             memory, one more read for the lookups that reach it
//! ```
//!
//! Source: LSM-trie paper, sections 2 and 3.

use super::costs::Costs;
use super::design::{Design, Settings, size};
use super::requirements::Requirements;
use crate::Trie;
use crate::error::InvalidParameter;

pub(super) const DESIGN: Design = Design {
    engine: "trie",
    is_ordered: false,
    is_durable: true,
    has_versions: false,
    has_history: false,
    fit,
};

const MIB: f64 = 1048576.0;
const GROWTH: f64 = 8.0;
const MAX_LEVELS: f64 = 5.0;
/// Share of garbage that triggers the collection of a container in the last level.
const GARBAGE: f64 = 0.3;
const FILL: f64 = 0.99;
const FILTER_BYTES: f64 = 2.0;
/// False-positive rate of a classic filter of sixteen bits (see `bloom/blocked.rs`).
const FALSE_POSITIVES: f64 = 0.0005;
/// Overhead in bytes per item in the log and in a bucket.
const LOG_BYTES: f64 = 16.0;
const BUCKET_BYTES: f64 = 5.0;
/// Bytes of a memtable per byte of its log, with items of 100 bytes.
const MEMTABLE_MEMORY: f64 = 1.6;

#[derive(Debug, Clone)]
struct Containers {
    table: f64,
    levels: f64,
    filter_memory: f64,
}

fn fit(wanted: &Requirements) -> Result<Box<dyn Settings>, String> {
    let mut containers = Containers { table: 32.0 * MIB, levels: 1.0, filter_memory: 0.0 };
    let memory = wanted.memory_bytes.unwrap_or(f64::INFINITY);
    while containers.buffer_bytes() > memory / 4.0 && containers.table > MIB {
        containers.table /= 2.0;
    }
    let tables = wanted.keys() * wanted.item_bytes() / containers.table;
    containers.levels = (tables.max(1.0).ln() / GROWTH.ln()).ceil().clamp(2.0, MAX_LEVELS);
    let available = (memory - containers.buffer_bytes()).max(MIB);
    // Twice the filters of the live items, for uncollected garbage.
    containers.filter_memory = available.min((wanted.keys() * FILTER_BYTES * 2.0).max(16.0 * MIB));
    Ok(Box::new(containers))
}

impl Containers {
    fn log_items(&self, wanted: &Requirements) -> f64 {
        (self.table / (wanted.item_bytes() + LOG_BYTES)).max(1.0)
    }

    fn buffer_bytes(&self) -> f64 {
        2.0 * MEMTABLE_MEMORY * self.table
    }

    /// Items on disk, including garbage: the last level's, and those in upper levels.
    fn stored_items(&self, wanted: &Requirements) -> f64 {
        let in_upper_levels = self.log_items(wanted) * GROWTH.powf(self.levels - 1.0) / 2.0;
        wanted.keys() / (1.0 - GARBAGE / 2.0) + in_upper_levels.min(wanted.keys())
    }
}

impl Settings for Containers {
    fn costs(&self, wanted: &Requirements) -> Result<Costs, InvalidParameter> {
        let trie = Trie {
            log_items: self.log_items(wanted),
            growth: GROWTH as u32,
            levels: self.levels as u32,
            garbage_share: GARBAGE,
        };
        let mut writes = trie.write_amplification(&wanted.popularity)?;
        let item = wanted.item_bytes();
        let stored = (item + BUCKET_BYTES + FILTER_BYTES) / FILL;
        for (stage, (_, cost)) in writes.by_stage.iter_mut().enumerate() {
            *cost *= if stage == 0 { item + LOG_BYTES } else { stored } / item;
        }
        let filters = self.stored_items(wanted) * FILTER_BYTES;
        let fits = filters <= self.filter_memory;
        // Upper levels are half full on average.
        let sub_levels = GROWTH / 2.0 * self.levels;
        let past_memtables = wanted.popularity.first_time_share(1.5 * self.log_items(wanted));
        let cluster = if fits { 0.0 } else { 1.0 };
        Ok(Costs {
            write_amplification: writes.total(),
            writes,
            reads_per_lookup: past_memtables * (1.0 + cluster + FALSE_POSITIVES * sub_levels),
            index_bytes: filters.min(self.filter_memory),
            buffer_bytes: self.buffer_bytes(),
            space_bytes: self.stored_items(wanted) * stored + 2.0 * self.table,
        })
    }

    fn options(&self) -> Vec<(&'static str, String)> {
        vec![
            ("htable_size", size(self.table)),
            ("levels", self.levels.to_string()),
            ("filter_memory", size(self.filter_memory)),
        ]
    }

    fn scaled(&self, share: f64) -> Box<dyn Settings> {
        Box::new(Containers {
            table: (self.table * share).max(64.0 * 1024.0).round(),
            levels: self.levels,
            filter_memory: (self.filter_memory * share).max(MIB).round(),
        })
    }
}
