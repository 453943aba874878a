//! The ordered engine: TRIAD-LOG under a triangle on plain disk, its default.
//!
//! ```text
//! settings    memtable 32 MiB, container a sixth of the data but from 512 MiB to 64 memtables, as the engine
//!             has it, levels of two containers and tenfold; what memory is left is the cache of blocks
//! lookups     a request's key is in the memtables, in level 0, or below, by how long ago it was written:
//!               memtable  none      level 0  an index block, and a record of the log      below  a block
//!             and each filter on the way is wrong for one in a hundred keys
//! cache       holds the last blocks looked into. T lookups touch B·(1 − (1 − Unique(T)/N)ⁿ) of B blocks of
//!             n keys; where that is the cache's size, its slope is the share of lookups that miss. The few
//!             blocks of rows are looked into alike: e^(−T·looks/blocks) of the looks miss
//! ```
//!
//! Source: ours; the slope of Unique as an LRU cache's misses is Che's approximation.

use super::{Costs, Design, Settings, Wanted, size};
use crate::error::BadParameter;
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
/// Bytes about an item in a log, and of a row's index entry beside the key (`record.rs`, `sst.rs`).
const LOG_BYTES: f64 = 16.0;
const INDEX_BYTES: f64 = 9.0;
/// Bytes about an item in a table: lengths, sequence, and its share of filter, index and checksums.
const TABLE_BYTES: f64 = 7.0;
/// Bytes about an item in a memtable (`memtree.rs`).
const MEMTABLE_BYTES: f64 = 85.0;
const BLOCK_BYTES: f64 = 4096.0;
const FILTER_BITS: f64 = 10.0;
/// Of the filter for ranges, which tables above the deepest level have.
const RANGE_BITS: f64 = 11.0;
/// Of a blocked filter of ten bits a key (`bloom/blocked.rs`).
const FALSE_POSITIVES: f64 = 0.0096;
/// The container for so much data, as the engine chooses it (`options.rs`).
const CONTAINER_SHARE: f64 = 6.0;
const LEAST_CONTAINER: f64 = 512.0 * MIB;
const CONTAINER_MEMTABLES: f64 = 64.0;
const LEVEL_1_CONTAINERS: f64 = 2.0;
/// The share of a container at which sides are compacted.
const FILLED: f64 = 0.6;
/// Levels, the last of which takes what comes.
const LEVELS: i32 = 5;
/// The least cache to recommend.
const LEAST_CACHE: f64 = 8.0 * MIB;
const DEFAULT_CACHE: f64 = 64.0 * MIB;

#[derive(Debug, Clone)]
struct Tree {
    memtable: f64,
    container: f64,
    level_1: f64,
    table: f64,
    cache: f64,
}

fn fit(wanted: &Wanted) -> Result<Box<dyn Settings>, String> {
    let mut tree = Tree {
        memtable: 32.0 * MIB,
        container: 0.0,
        level_1: 0.0,
        table: 32.0 * MIB,
        cache: LEAST_CACHE,
    };
    tree.grow_container(wanted);
    match wanted.memory_bytes {
        None => tree.cache = DEFAULT_CACHE,
        Some(memory) => {
            // Write buffers may take a quarter.
            while tree.buffer_bytes(wanted) > memory / 4.0 && tree.memtable > MIB {
                tree.memtable /= 2.0;
                tree.grow_container(wanted);
            }
            let rest = memory - tree.index_bytes(wanted) - tree.buffer_bytes(wanted);
            let most = (wanted.keys() * tree.stored(wanted)).max(LEAST_CACHE);
            tree.cache = (rest.clamp(LEAST_CACHE, most) / MIB).floor() * MIB;
        }
    }
    Ok(Box::new(tree))
}

impl Tree {
    /// Makes level 0 as large as the engine lets it grow over this data, and level 1 with it.
    fn grow_container(&mut self, wanted: &Wanted) {
        let share = wanted.keys() * self.stored(wanted) / CONTAINER_SHARE;
        let share = share.min(CONTAINER_MEMTABLES * self.memtable).max(LEAST_CONTAINER);
        self.container = (share / MIB).floor() * MIB;
        self.level_1 = LEVEL_1_CONTAINERS * self.container;
    }

    /// Bytes of an item in a table.
    fn stored(&self, wanted: &Wanted) -> f64 {
        wanted.item_bytes() + TABLE_BYTES
    }

    fn index_bytes(&self, wanted: &Wanted) -> f64 {
        let items_a_block = (BLOCK_BYTES / self.stored(wanted)).max(1.0);
        // A separator, where the block is, and how long.
        let index = (wanted.key_bytes + 12.0) / items_a_block;
        let rows = self.turn(wanted) / 2.0;
        let upper = rows + self.levels(wanted).iter().sum::<f64>();
        (wanted.keys() + rows) * (FILTER_BITS / 8.0 + index) + upper * RANGE_BITS / 8.0
    }

    /// Two memtables at their fullest.
    fn buffer_bytes(&self, wanted: &Wanted) -> f64 {
        2.0 * self.log_items(wanted) * (wanted.item_bytes() + MEMTABLE_BYTES)
    }

    fn log_items(&self, wanted: &Wanted) -> f64 {
        let by_log = self.memtable / (wanted.item_bytes() + LOG_BYTES);
        by_log.min(2.0 * self.memtable / (wanted.item_bytes() + MEMTABLE_BYTES)).max(1.0)
    }

    /// Items of the levels above the deepest.
    fn levels(&self, wanted: &Wanted) -> Vec<f64> {
        let level = |l: i32| self.level_1 * 10f64.powi(l) / self.stored(wanted);
        let above = |items: &f64| *items < wanted.keys() * 0.99;
        (0..LEVELS - 1).map(level).take_while(above).collect()
    }

    fn model(&self, wanted: &Wanted) -> Lsm {
        let tree = LevelDb {
            log_items: self.log_items(wanted),
            level0_tables: 1.0,
            level_items: self.levels(wanted),
        };
        Lsm {
            index_share: Some((wanted.key_bytes + INDEX_BYTES) / wanted.item_bytes()),
            container_items: Some(self.container_items(wanted)),
            ..Lsm::plain(tree)
        }
    }

    fn container_items(&self, wanted: &Wanted) -> f64 {
        FILLED * self.container / wanted.item_bytes()
    }

    fn turn(&self, wanted: &Wanted) -> f64 {
        Lsm::turn(&wanted.popularity, self.container_items(wanted))
    }

    /// Requests for which a lookup goes to the medium.
    fn reads(&self, wanted: &Wanted) -> f64 {
        let keys = &wanted.popularity;
        // Shares of lookups whose key was last written longer ago than so many writes. A lookup does not
        // know about writes, so the two draw from one popularity.
        let memtable = self.log_items(wanted);
        let past_memtables = keys.first_time_share(1.5 * memtable);
        let turn = self.turn(wanted);
        let past_level0 = keys.first_time_share(turn / 2.0);
        let in_level0 = (past_memtables - past_level0).max(0.0);
        // Half of each is live on average.
        let rows = turn / memtable / 2.0;
        let levels = self.levels(wanted).len() as f64;
        let wrong_rows = FALSE_POSITIVES * (in_level0 * rows / 2.0 + past_level0 * rows);
        let wrong_levels = FALSE_POSITIVES * past_level0 * levels / 2.0;
        let (missed, kept) = self.missed(keys, wanted);
        // Blocks of rows are few, since they have positions for values, and each is looked into often.
        let looks = in_level0 + wrong_rows;
        let blocks = turn * (wanted.key_bytes + INDEX_BYTES) / BLOCK_BYTES;
        let missed_rows = (-looks * kept / blocks.max(1.0)).exp();
        in_level0 + looks * missed_rows + (past_level0 + wrong_levels) * missed
    }

    /// The share of looks into blocks that the cache does not have, and for how many lookups it has a block after
    /// the last look into it.
    fn missed(&self, keys: &Popularity, wanted: &Wanted) -> (f64, f64) {
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
    fn costs(&self, wanted: &Wanted) -> Result<Costs, BadParameter> {
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
            // Level 1 repeats keys of what lies below; a container's logs keep what is dead in them.
            space_bytes: wanted.keys() * self.stored(wanted) * 1.1
                + self.turn(wanted) / FILLED * item,
        })
    }

    fn options(&self) -> Vec<(&'static str, String)> {
        let levels = (0..LEVELS).map(|l| size(self.level_1 * 10f64.powi(l)));
        vec![
            ("memtable", size(self.memtable)),
            ("container", size(self.container)),
            ("levels", levels.collect::<Vec<_>>().join(":")),
            ("table", size(self.table)),
            ("cache", size(self.cache)),
        ]
    }

    fn scaled(&self, share: f64) -> Box<dyn Settings> {
        let least = |bytes: f64, least: f64| (bytes * share).max(least).round();
        Box::new(Tree {
            memtable: least(self.memtable, 64.0 * 1024.0),
            container: least(self.container, 1024.0 * 1024.0),
            level_1: least(self.level_1, 2048.0 * 1024.0),
            table: least(self.table, 64.0 * 1024.0),
            cache: least(self.cache, 64.0 * 1024.0),
        })
    }
}
