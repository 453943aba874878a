//! The advisor's model of `lsm`: its settings for a workload, and what they cost.
//!
//! The ordered engine with its defaults: TRIAD-LOG and a sliced level 0 on plain disk.
//!
//! ```text
//! settings    memtable 32 MiB; capacity of level 0 a sixth of the data, from 512 MiB to 64
//!             memtables, as the engine chooses it; level 1 twice that, tenfold levels; the
//!             remaining memory is the block cache
//! lookups     the key is in the memtables, in level 0, or below, by the time of its last write:
//!               memtable  none    level 0  an index block and a log record    below  a block
//!             and each filter on the way has a false-positive rate of 1 %
//! cache       contains the blocks read last. T lookups touch B·(1 − (1 − Unique(T)/N)ⁿ) of B
//!             blocks of n keys; where that is the cache's size, its slope is the miss rate. The
//!             few blocks of L0 runs are read equally often: e^(−T·reads/blocks) of them miss
//! ```
//!
//! Source: the slope of Unique as the miss rate of an LRU cache is Che's approximation.

use super::costs::Costs;
use super::design::{Design, Settings, size};
use super::requirements::Requirements;
use crate::error::InvalidParameter;
use crate::{LevelDb, Lsm, Popularity};

pub(super) const DESIGN: Design = Design {
    engine: "lsm",
    is_ordered: true,
    is_durable: true,
    has_versions: true,
    has_history: false,
    fit,
};

const MIB: f64 = 1048576.0;
/// Overhead in bytes per item in a log, and per entry of an L0 run's index (`record.rs`, `sst.rs`).
const LOG_BYTES: f64 = 16.0;
const INDEX_BYTES: f64 = 9.0;
/// Overhead in bytes per item in a table: lengths, sequence number, and its share of filter, index
/// and checksums.
const TABLE_BYTES: f64 = 7.0;
/// Overhead in bytes per item in a memtable (`blink_tree`).
const MEMTABLE_BYTES: f64 = 85.0;
const BLOCK_BYTES: f64 = 4096.0;
const FILTER_BITS: f64 = 10.0;
/// Bits per key of the range filter, which tables above the deepest level have.
const RANGE_BITS: f64 = 11.0;
/// False-positive rate of a blocked filter of ten bits per key (`bloom/blocked.rs`).
const FALSE_POSITIVES: f64 = 0.0096;
/// Capacity of level 0 as a fraction of the data, as the engine chooses it (`options.rs`).
const L0_DATA_RATIO: f64 = 6.0;
const MIN_L0_CAPACITY: f64 = 512.0 * MIB;
const MAX_L0_MEMTABLES: f64 = 64.0;
const LEVEL_1_RATIO: f64 = 2.0;
/// Fill of level 0 that triggers a compaction, as a share of its capacity.
const L0_FILL: f64 = 0.6;
/// Number of levels; the last has no size limit.
const LEVELS: i32 = 5;
/// Minimal recommended cache.
const MIN_CACHE: f64 = 8.0 * MIB;
const DEFAULT_CACHE: f64 = 64.0 * MIB;

#[derive(Debug, Clone)]
struct Tree {
    memtable: f64,
    l0_capacity: f64,
    level_1: f64,
    table: f64,
    cache: f64,
}

fn fit(wanted: &Requirements) -> Result<Box<dyn Settings>, String> {
    let mut tree = Tree {
        memtable: 32.0 * MIB,
        l0_capacity: 0.0,
        level_1: 0.0,
        table: 32.0 * MIB,
        cache: MIN_CACHE,
    };
    tree.grow_l0(wanted);
    match wanted.memory_bytes {
        None => tree.cache = DEFAULT_CACHE,
        Some(memory) => {
            // Write buffers may use up to a quarter.
            while tree.buffer_bytes(wanted) > memory / 4.0 && tree.memtable > MIB {
                tree.memtable /= 2.0;
                tree.grow_l0(wanted);
            }
            let rest = memory - tree.index_bytes(wanted) - tree.buffer_bytes(wanted);
            let most = (wanted.keys() * tree.stored(wanted)).max(MIN_CACHE);
            tree.cache = (rest.clamp(MIN_CACHE, most) / MIB).floor() * MIB;
        }
    }
    Ok(Box::new(tree))
}

impl Tree {
    /// Sets the capacities of level 0 and level 1 that the engine would choose for this data.
    fn grow_l0(&mut self, wanted: &Requirements) {
        let share = wanted.keys() * self.stored(wanted) / L0_DATA_RATIO;
        let share = share.min(MAX_L0_MEMTABLES * self.memtable).max(MIN_L0_CAPACITY);
        self.l0_capacity = (share / MIB).floor() * MIB;
        self.level_1 = LEVEL_1_RATIO * self.l0_capacity;
    }

    /// Bytes per item in a table.
    fn stored(&self, wanted: &Requirements) -> f64 {
        wanted.item_bytes() + TABLE_BYTES
    }

    fn index_bytes(&self, wanted: &Requirements) -> f64 {
        let items_per_block = (BLOCK_BYTES / self.stored(wanted)).max(1.0);
        // Separator, offset and length.
        let index = (wanted.key_bytes + 12.0) / items_per_block;
        let runs = self.pass_requests(wanted) / 2.0;
        let upper = runs + self.levels(wanted).iter().sum::<f64>();
        (wanted.keys() + runs) * (FILTER_BITS / 8.0 + index) + upper * RANGE_BITS / 8.0
    }

    /// Two full memtables.
    fn buffer_bytes(&self, wanted: &Requirements) -> f64 {
        2.0 * self.log_items(wanted) * (wanted.item_bytes() + MEMTABLE_BYTES)
    }

    fn log_items(&self, wanted: &Requirements) -> f64 {
        let by_log = self.memtable / (wanted.item_bytes() + LOG_BYTES);
        by_log.min(2.0 * self.memtable / (wanted.item_bytes() + MEMTABLE_BYTES)).max(1.0)
    }

    /// Items in each level above the deepest.
    fn levels(&self, wanted: &Requirements) -> Vec<f64> {
        let level = |l: i32| self.level_1 * 10f64.powi(l) / self.stored(wanted);
        let above = |items: &f64| *items < wanted.keys() * 0.99;
        (0..LEVELS - 1).map(level).take_while(above).collect()
    }

    fn model(&self, wanted: &Requirements) -> Lsm {
        let tree = LevelDb {
            log_items: self.log_items(wanted),
            level0_tables: 1.0,
            level_items: self.levels(wanted),
        };
        Lsm {
            index_share: Some((wanted.key_bytes + INDEX_BYTES) / wanted.item_bytes()),
            l0_items: Some(self.l0_items(wanted)),
            ..Lsm::plain(tree)
        }
    }

    fn l0_items(&self, wanted: &Requirements) -> f64 {
        L0_FILL * self.l0_capacity / wanted.item_bytes()
    }

    fn pass_requests(&self, wanted: &Requirements) -> f64 {
        Lsm::pass_requests(&wanted.popularity, self.l0_items(wanted))
    }

    /// Read requests to storage per lookup.
    fn reads(&self, wanted: &Requirements) -> f64 {
        let keys = &wanted.popularity;
        // Shares of lookups whose key was last written before the given number of writes. Lookups
        // are independent of writes, with the same popularity.
        let memtable = self.log_items(wanted);
        let past_memtables = keys.first_time_share(1.5 * memtable);
        let pass = self.pass_requests(wanted);
        let past_level0 = keys.first_time_share(pass / 2.0);
        let in_level0 = (past_memtables - past_level0).max(0.0);
        // On average half of each run is live.
        let runs = pass / memtable / 2.0;
        let levels = self.levels(wanted).len() as f64;
        let false_runs = FALSE_POSITIVES * (in_level0 * runs / 2.0 + past_level0 * runs);
        let false_levels = FALSE_POSITIVES * past_level0 * levels / 2.0;
        let (missed, lifetime) = self.missed(keys, wanted);
        // Runs have few blocks, because they contain positions instead of values, and each is read
        // often.
        let run_reads = in_level0 + false_runs;
        let blocks = pass * (wanted.key_bytes + INDEX_BYTES) / BLOCK_BYTES;
        let missed_runs = (-run_reads * lifetime / blocks.max(1.0)).exp();
        in_level0 + run_reads * missed_runs + (past_level0 + false_levels) * missed
    }

    /// The cache's miss rate, and the number of lookups for which a block stays cached after its
    /// last read.
    fn missed(&self, keys: &Popularity, wanted: &Requirements) -> (f64, f64) {
        let per_block = (BLOCK_BYTES / self.stored(wanted)).max(1.0);
        let blocks = keys.keys() / per_block;
        let cached = self.cache / BLOCK_BYTES.max(self.stored(wanted));
        if cached >= blocks {
            return (0.0, f64::MAX);
        }
        let untouched = |lookups: f64| 1.0 - keys.unique(lookups) / keys.keys();
        let touched = |lookups: f64| blocks * (1.0 - untouched(lookups).powf(per_block));
        let (mut low, mut high) = (0.0, 1.0);
        while touched(high) < cached && high < 1e18 {
            high *= 2.0;
        }
        for _ in 0..80 {
            let middle = f64::midpoint(low, high);
            if touched(middle) < cached { low = middle } else { high = middle }
        }
        (untouched(high).powf(per_block - 1.0) * keys.first_time_share(high), high)
    }
}

impl Settings for Tree {
    fn costs(&self, wanted: &Requirements) -> Result<Costs, InvalidParameter> {
        let mut writes = self.model(wanted).write_amplification(&wanted.popularity)?;
        let item = wanted.item_bytes();
        for (stage, (_, cost)) in writes.by_stage.iter_mut().enumerate() {
            *cost *= match stage {
                0 => (item + LOG_BYTES) / item,
                1 => 1.0,
                _ => self.stored(wanted) / item,
            };
        }
        Ok(Costs {
            write_amplification: writes.total(),
            writes,
            reads_per_lookup: self.reads(wanted),
            index_bytes: self.index_bytes(wanted),
            buffer_bytes: self.buffer_bytes(wanted) + self.cache,
            // Level 1 repeats keys of lower levels; the logs of level 0 keep their dead records.
            space_bytes: wanted.keys() * self.stored(wanted) * 1.1
                + self.pass_requests(wanted) / L0_FILL * item,
        })
    }

    fn options(&self) -> Vec<(&'static str, String)> {
        let levels = (0..LEVELS).map(|l| size(self.level_1 * 10f64.powi(l)));
        vec![
            ("memtable", size(self.memtable)),
            ("l0_capacity", size(self.l0_capacity)),
            ("levels", levels.collect::<Vec<_>>().join(":")),
            ("target_file_size", size(self.table)),
            ("cache", size(self.cache)),
        ]
    }

    fn scaled(&self, share: f64) -> Box<dyn Settings> {
        let least = |bytes: f64, least: f64| (bytes * share).max(least).round();
        Box::new(Tree {
            memtable: least(self.memtable, 64.0 * 1024.0),
            l0_capacity: least(self.l0_capacity, 1024.0 * 1024.0),
            level_1: least(self.level_1, 2048.0 * 1024.0),
            table: least(self.table, 64.0 * 1024.0),
            cache: least(self.cache, 64.0 * 1024.0),
        })
    }
}
