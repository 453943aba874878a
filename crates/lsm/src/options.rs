//! The options of the engine: `key=value` pairs and the structs that they fill.
//!
//! Twelve plain options are for users. Those under `triad.` and `pmem.` control the techniques of a
//! paper, and those under `experimental.` serve comparisons; their defaults rarely need a change.

use std::collections::BTreeMap;

use siltstone_engine::options::parse_size;
use siltstone_engine::{OptionReader, Result};
use siltstone_table::{Compression, TableOptions};
use siltstone_vfs::PmemPool;

/// Old names of options and their present ones. [`Options::from_map`] accepts both, because the
/// catalogues of existing stores contain old names.
pub const RENAMED_OPTIONS: &[(&str, &str)] = &[
    ("table", "target_file_size"),
    ("block", "block_size"),
    ("filter_bits", "filter_bits_per_key"),
    ("jobs", "max_compactions"),
    ("subcompactions", "max_subcompactions"),
    ("level0", "l0_policy"),
    ("container", "l0_capacity"),
    ("l0_compact", "experimental.l0_compaction_trigger"),
    ("l0_slow", "experimental.l0_slowdown_trigger"),
    ("l0_stop", "experimental.l0_stop_trigger"),
    ("level_sizes", "experimental.level_sizes"),
    ("restart", "experimental.block_restart_interval"),
    ("range_filter", "experimental.range_filter"),
    ("select", "experimental.compaction_pri"),
    ("nvm", "pmem.size"),
    ("hints", "pmem.hints"),
    ("triad_log", "triad.log"),
    ("triad_mem", "triad.mem"),
    ("triad_disk", "triad.disk"),
    ("hot", "triad.hot_keys"),
    ("flush_threshold", "triad.flush_threshold"),
    ("overlap", "triad.min_overlap"),
    ("log_ahead", "triad.prefetch"),
];

/// The options of a table of the ordered engine. Invalid ones are rejected at open, all at once.
///
/// Sizes are bytes with an optional unit, as in `32MiB`; flags are `on` or `off`.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    /// `memtable`: size, 4KiB to 4GiB, default 32MiB. The log bytes of one memtable; it is also
    /// full when its memory reaches twice that, as with very small values. Larger: fewer flushes
    /// and less write amplification, for more memory and a longer recovery.
    pub memtable_bytes: u64,
    /// `memtables`: number, 2 to 64, default 2. The memtables in memory, the active one included.
    /// Raise it if bursts of writes stall on flushes; costs `memtable` bytes of memory each.
    pub memtables: usize,
    /// `levels`: up to 16 ascending sizes joined by colons, default 1GiB and ten times more for
    /// each of six levels. The target sizes of levels 1, 2, …; the last level has no limit. Level 1
    /// is at least twice as large as level 0 once that has grown with the store. A smaller size
    /// ratio writes less per level but needs more levels.
    pub level_bytes: Vec<u64>,
    /// `experimental.level_sizes`: `given` (default) or `model`. With `model` an analytic model
    /// chooses the sizes for the measured popularity of keys, and `levels` limits only their
    /// number. Costs up to half a second of CPU per change; saves writes only under skew.
    pub sizes_by_model: bool,
    /// `target_file_size`: size, 1KiB to 16GiB, default 32MiB. A compaction ends a table at this
    /// size. Larger: fewer files, for longer compactions.
    pub target_file_bytes: u64,
    /// Level 0: when it is compacted, and when writers are delayed and stopped.
    pub level0: L0Options,
    /// The format of sorted tables.
    pub file: FileOptions,
    /// `cache`: size, default 64MiB. The block cache. Raise it to the size of the hot data, as far
    /// as memory allows.
    pub cache_bytes: u64,
    /// `experimental.compaction_pri`: `min_overlap` (default) or `round_robin`. Selects the table
    /// of a level over its target that is compacted next.
    pub compaction_priority: CompactionPriority,
    /// `max_compactions`: number, 1 to 64, default 2. Concurrent compactions; more than the
    /// background threads have no effect. Raise it on many cores if writes stall on compactions.
    pub max_compactions: usize,
    /// `max_subcompactions`: number, 1 to 64, default 2. Threads that share one large compaction.
    /// Raise it if single compactions take too long; costs CPU and I/O bursts.
    pub max_subcompactions: usize,
    /// `pmem.size`: size, 0 (none, the default) or 64KiB to 8TiB. A pool of byte-addressable
    /// persistent memory for L0 runs; a run without space in it becomes a file, and the log stays a
    /// file. The pool cannot shrink while it contains runs.
    pub pmem_bytes: u64,
    /// `pmem.hints`: flag, default on. A search in one run in persistent memory narrows the search
    /// in the next. Off: each is searched completely, for comparisons.
    pub hints: bool,
    /// The techniques of the TRIAD paper.
    pub triad: TriadOptions,
}

/// The three techniques of the TRIAD paper, which reduce write amplification.
#[derive(Debug, Clone, PartialEq)]
pub struct TriadOptions {
    /// `triad.mem`: flag, default off. Hot keys stay in memory when their memtable is flushed,
    /// which saves writing versions that are soon overwritten. Each flush then syncs the log, the
    /// log of a memtable may reach twice `memtable`, and its memory three times. For skewed
    /// updates.
    pub mem: bool,
    /// `triad.hot_keys`: `auto` (default) or a share from 0 to 1. The keys that `triad.mem`
    /// retains.
    pub hot: HotBudget,
    /// `triad.flush_threshold`: share of `memtable`, 0 to 0.9, default 0.5. With `triad.mem`, a
    /// memtable with a full log is not flushed while the newest values of its cold keys are
    /// smaller.
    pub flush_threshold: f64,
    /// `triad.log`: flag, default on. The log of a full memtable becomes the L0 run, and the flush
    /// writes an index of positions in it instead of the values. Scans of fresh data and the first
    /// compaction then read values by position, and a log stays until all its keys are compacted.
    pub log: bool,
    /// `triad.prefetch`: size, default two memtables, at most 2GiB. Memory of one compaction for
    /// values prefetched from such logs. Less: more and smaller reads. 0: one read per record.
    pub prefetch_bytes: Option<u64>,
    /// `triad.disk`: flag, default off. Level 0 is compacted once its runs and the tables below
    /// share enough keys, or at `experimental.l0_compaction_trigger` runs.
    pub disk: bool,
    /// `triad.min_overlap`: 0.01 to 0.99, default 0.4. The overlap ratio for `triad.disk`:
    /// 1 − distinct keys / keys.
    pub min_overlap: f64,
}

/// What a compaction of level 0 takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum L0Policy {
    /// `whole`: all runs at once, by their number. With `pmem.size` also when the pool is 60 %
    /// full.
    Whole,
    /// `sliced`: a slice of the key space from all runs (a right-angle side in TriangleKV).
    Sliced,
    /// `columns`: as `sliced`, but from the older of two groups of runs only; the younger group
    /// takes its place when it is empty (MatrixKV).
    Columns,
    /// `novelsm`: as `whole`, with another memtable of half of `pmem.size` that emulates a mutable
    /// one in persistent memory (NoveLSM). It takes the writes while the others wait for their
    /// flush, and updates of its keys. It is in DRAM, the log makes it durable, and statistics
    /// count its bytes as stores to persistent memory. There is no pool, and `triad.log` has no
    /// effect.
    NoveLsm,
}

/// When level 0 is compacted, and when it delays and stops writers.
#[derive(Debug, Clone, PartialEq)]
pub struct L0Options {
    /// `l0_policy`: `sliced` (default), `whole` (default if `l0_capacity` is 0), `columns` or
    /// `novelsm`. What a compaction of level 0 takes. `whole` reads faster and writes more.
    pub policy: Option<L0Policy>,
    /// `experimental.l0_compaction_trigger`: number of runs, default 8. With `whole`, level 0 is
    /// compacted from here on. Fewer: faster scans, more write amplification. Seeks in many runs
    /// trigger a compaction earlier.
    pub compaction_trigger: usize,
    /// `experimental.l0_slowdown_trigger`: number of runs, default 20. With `whole`, writers are
    /// delayed from here on, increasingly.
    pub slowdown_trigger: usize,
    /// `experimental.l0_stop_trigger`: number of runs, default 36. With `whole`, writers stop here.
    pub stop_trigger: usize,
    /// `l0_capacity`: size, 0 or at least two memtables. The capacity of level 0 with `sliced` and
    /// `columns`: bytes of distinct keys and values, or of pages in persistent memory. Default: 1/6
    /// of the deeper levels, but 512MiB to 64 memtables; with `pmem.size` that minus two memtables.
    /// Compaction begins at 60 %, and writers are delayed from 85 %. Larger: less write
    /// amplification, for more runs per read and up to twice the storage, six times under much
    /// skew. 0: level 0 is compacted whole.
    pub capacity_bytes: Option<u64>,
}

/// The format of sorted tables.
#[derive(Debug, Clone, PartialEq)]
pub struct FileOptions {
    /// `block_size`: size, 256B to 4MiB, default 4KiB. A data block before compression. Smaller:
    /// less read per lookup, more index memory.
    pub block_bytes: usize,
    /// `experimental.block_restart_interval`: number of entries, 1 to 1024, default 16. The entries
    /// between restart points of the prefix compression. Smaller: faster search, larger blocks.
    pub restart_interval: usize,
    /// `filter_bits_per_key`: 0 to 64, default 10 (about 1 % false positives). Bits of the Bloom
    /// filters, in memory; 0 for none. Raise it for many lookups of absent keys.
    pub filter_bits_per_key: f64,
    /// `experimental.range_filter`: flag, default on. Tables above the deepest level get a range
    /// filter of up to 11 bits per key: a seek to an absent key skips the runs and levels without a
    /// key up to the next one.
    pub range_filter: bool,
    /// `compression`: `none` (default), `lz4` or `zstd`. Saves storage and I/O, costs CPU.
    pub compression: Compression,
}

/// Which table of a level over its target is compacted next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CompactionPriority {
    /// `round_robin`: the next one in key order after the last one (as in LevelDB).
    RoundRobin,
    /// `min_overlap`: the one with the smallest ratio of overlapping bytes in the next level to its
    /// own, which rewrites least.
    MinOverlap,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            memtable_bytes: 32 << 20,
            memtables: 2,
            level_bytes: (0..6).map(|l| (1u64 << 30) * 10u64.pow(l)).collect(),
            sizes_by_model: false,
            target_file_bytes: 32 << 20,
            level0: L0Options::default(),
            file: FileOptions::default(),
            cache_bytes: 64 << 20,
            compaction_priority: CompactionPriority::MinOverlap,
            max_compactions: 2,
            max_subcompactions: 2,
            pmem_bytes: 0,
            hints: true,
            triad: TriadOptions::default(),
        }
    }
}

/// Which keys of a full memtable are hot.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum HotBudget {
    /// Those that are likely enough to be updated before the next flush (`auto`).
    Auto,
    /// Those with the most updates above the mean, up to this share of the keys.
    Share(f64),
}

impl Default for TriadOptions {
    fn default() -> Self {
        let (hot, flush_threshold) = (HotBudget::Auto, 0.5);
        TriadOptions {
            mem: false,
            hot,
            flush_threshold,
            log: true,
            prefetch_bytes: None,
            disk: false,
            min_overlap: 0.4,
        }
    }
}

impl Default for L0Options {
    fn default() -> Self {
        L0Options {
            policy: None,
            compaction_trigger: 8,
            slowdown_trigger: 20,
            stop_trigger: 36,
            capacity_bytes: None,
        }
    }
}

impl Default for FileOptions {
    fn default() -> Self {
        FileOptions {
            block_bytes: 4 << 10,
            restart_interval: 16,
            filter_bits_per_key: 10.0,
            range_filter: true,
            compression: Compression::None,
        }
    }
}

/// A smaller pool would have no space for a useful run.
const MIN_POOL_BYTES: u64 = 16 * PmemPool::DEFAULT_PAGE_BYTES as u64;
const MAX_POOL_BYTES: u64 = 8 << 40;

/// The default prefetch memory, in memtables: as much as a slice has, so each log is read once per
/// slice.
const PREFETCH_MEMTABLES: u64 = 2;
/// Prefetched records are addressed by 32 bits.
const MAX_PREFETCH_BYTES: u64 = 2 << 30;

/// The minimum default capacity of level 0.
const MIN_DEFAULT_L0_BYTES: u64 = 512 << 20;
/// The default capacity of level 0 is the bytes of the deeper levels divided by this. Then level 1,
/// twice as large, and one more level hold all of them, so write amplification does not grow with
/// the store. (The TriangleKV paper has a tenth.)
const L0_CAPACITY_DIVISOR: u64 = 6;
/// The minimum size of level 1, in L0 capacities.
const LEVEL_1_CAPACITIES: u64 = 2;
/// The maximum default capacity of level 0, in memtables: a get checks the filter of each run.
const MAX_L0_MEMTABLES: u64 = 64;

impl Options {
    /// Options from `key=value` pairs; the others have their defaults. Accepts old names too.
    ///
    /// # Errors
    /// [`InvalidOptions`](siltstone_engine::Error::InvalidOptions) with all mistakes.
    pub fn from_map(given: &BTreeMap<String, String>) -> Result<Self> {
        let mut o = Options::default();
        let mut reader = OptionReader::new(given);
        reader.renamed(RENAMED_OPTIONS);
        reader.size("memtable", &mut o.memtable_bytes);
        reader.value("memtables", &mut o.memtables);
        reader.with("levels", &mut o.level_bytes, |text| {
            // A comma separates options on the command line, so levels are joined by colons.
            text.split(':').map(parse_size).collect()
        });
        reader.size("target_file_size", &mut o.target_file_bytes);
        reader.size("cache", &mut o.cache_bytes);
        let mut block_bytes = o.file.block_bytes as u64;
        reader.size("block_size", &mut block_bytes);
        o.file.block_bytes = block_bytes as usize;
        reader.value("filter_bits_per_key", &mut o.file.filter_bits_per_key);
        reader.with("compression", &mut o.file.compression, |text| match text {
            "none" => Ok(Compression::None),
            "lz4" => Ok(Compression::Lz4),
            "zstd" => Ok(Compression::Zstd { level: 1 }),
            _ => Err(format!("'{text}' is not one of none, lz4, zstd")),
        });
        reader.value("max_compactions", &mut o.max_compactions);
        reader.value("max_subcompactions", &mut o.max_subcompactions);
        // The second words are the old ones.
        reader.with("l0_policy", &mut o.level0.policy, |text| match text {
            "whole" | "rows" => Ok(Some(L0Policy::Whole)),
            "sliced" | "triangle" => Ok(Some(L0Policy::Sliced)),
            "columns" | "matrix" => Ok(Some(L0Policy::Columns)),
            "novelsm" => Ok(Some(L0Policy::NoveLsm)),
            _ => Err(format!("'{text}' is not one of whole, sliced, columns, novelsm")),
        });
        reader.with("l0_capacity", &mut o.level0.capacity_bytes, size_or_default);
        reader.with("triad.log", &mut o.triad.log, on_or_off);
        reader.with("triad.prefetch", &mut o.triad.prefetch_bytes, size_or_default);
        reader.with("triad.mem", &mut o.triad.mem, on_or_off);
        reader.with("triad.hot_keys", &mut o.triad.hot, |text| match (text, text.parse()) {
            ("auto", _) => Ok(HotBudget::Auto),
            (_, Ok(share)) if (0.0..=1.0).contains(&share) => Ok(HotBudget::Share(share)),
            _ => Err(format!("'{text}' is neither auto nor a share from 0 to 1")),
        });
        reader.value("triad.flush_threshold", &mut o.triad.flush_threshold);
        reader.with("triad.disk", &mut o.triad.disk, on_or_off);
        reader.value("triad.min_overlap", &mut o.triad.min_overlap);
        reader.size("pmem.size", &mut o.pmem_bytes);
        reader.with("pmem.hints", &mut o.hints, on_or_off);
        reader.value("experimental.l0_compaction_trigger", &mut o.level0.compaction_trigger);
        reader.value("experimental.l0_slowdown_trigger", &mut o.level0.slowdown_trigger);
        reader.value("experimental.l0_stop_trigger", &mut o.level0.stop_trigger);
        reader.with("experimental.level_sizes", &mut o.sizes_by_model, |text| match text {
            "given" => Ok(false),
            "model" => Ok(true),
            _ => Err(format!("'{text}' is neither given nor model")),
        });
        reader.value("experimental.block_restart_interval", &mut o.file.restart_interval);
        reader.with("experimental.range_filter", &mut o.file.range_filter, on_or_off);
        reader.with("experimental.compaction_pri", &mut o.compaction_priority, |text| match text {
            "round_robin" | "round-robin" => Ok(CompactionPriority::RoundRobin),
            "min_overlap" | "overlap" => Ok(CompactionPriority::MinOverlap),
            _ => Err(format!("'{text}' is not one of min_overlap, round_robin")),
        });
        o.check(&mut reader);
        reader.finish()?;
        Ok(o)
    }

    /// The log bytes and the memory at which a memtable is full. More with TRIAD-MEM, because much
    /// of either may be older versions of hot keys, which are never flushed.
    pub(crate) fn memtable_limits(&self) -> (u64, u64) {
        let (log, memory) = if self.triad.mem { (2, 3) } else { (1, 2) };
        (log * self.memtable(), memory * self.memtable())
    }

    /// The log bytes of one memtable.
    pub(crate) fn memtable(&self) -> u64 {
        self.memtable_bytes
    }

    /// The bytes of keys and values in a NoveLSM memtable.
    pub(crate) fn novelsm_memtable_bytes(&self) -> u64 {
        self.pmem_bytes / 2
    }

    /// The prefetch memory of one compaction.
    pub(crate) fn prefetch_bytes(&self) -> u64 {
        let default = PREFETCH_MEMTABLES * self.memtable();
        self.triad.prefetch_bytes.unwrap_or(default).min(MAX_PREFETCH_BYTES)
    }

    /// Whether flushes make CL-SSTables. A log that two memtables share cannot become part of one.
    pub(crate) fn uses_cl_sstables(&self) -> bool {
        self.triad.log && self.l0_policy() != L0Policy::NoveLsm
    }

    /// What a compaction of level 0 takes.
    pub(crate) fn l0_policy(&self) -> L0Policy {
        let is_whole = self.level0.capacity_bytes == Some(0);
        self.level0.policy.unwrap_or(if is_whole { L0Policy::Whole } else { L0Policy::Sliced })
    }

    /// The size of the pool of L0 runs in persistent memory; 0 if there is none.
    pub(crate) fn pool_bytes(&self) -> u64 {
        if self.l0_policy() == L0Policy::NoveLsm { 0 } else { self.pmem_bytes }
    }

    /// The capacity of level 0 over deeper levels of `below` bytes; 0 if only the number of runs is
    /// limited. A full pool must have space left for the run of the memtable that is flushed, and
    /// for its metadata.
    pub(crate) fn l0_capacity(&self, below: u64) -> u64 {
        let pool = self.pool_bytes();
        let rest = pool.saturating_sub(self.memtable().saturating_mul(2)).max(pool / 2);
        let given = self.level0.capacity_bytes.filter(|&bytes| bytes > 0);
        match self.l0_policy() {
            L0Policy::NoveLsm => 0,
            L0Policy::Whole => rest,
            L0Policy::Sliced | L0Policy::Columns => {
                let max = self.memtable().saturating_mul(MAX_L0_MEMTABLES);
                let share = (below / L0_CAPACITY_DIVISOR).min(max).max(MIN_DEFAULT_L0_BYTES);
                given.unwrap_or(if pool > 0 { rest } else { share })
            }
        }
    }

    /// The minimum target of level 1 over levels of `below` bytes: it grows with the L0 capacity,
    /// once that has grown; 0 before that, and if the capacity is fixed.
    pub(crate) fn min_level1_bytes(&self, below: u64) -> u64 {
        let now = self.l0_capacity(below);
        if now > self.l0_capacity(0) { now.saturating_mul(LEVEL_1_CAPACITIES) } else { 0 }
    }

    /// Whether level 0 has a capacity and is compacted in slices.
    pub(crate) fn is_l0_sliced(&self) -> bool {
        matches!(self.l0_policy(), L0Policy::Sliced | L0Policy::Columns)
    }

    /// The format of sorted tables.
    pub(crate) fn table_options(&self) -> TableOptions {
        TableOptions {
            block_bytes: self.file.block_bytes,
            restart_interval: self.file.restart_interval,
            filter_bits_per_key: self.file.filter_bits_per_key,
            range_filter: self.file.range_filter,
            compression: self.file.compression,
            sketch: self.triad.disk,
        }
    }

    fn check(&self, reader: &mut OptionReader<'_>) {
        const COMPACTION_TRIGGER: &str = "experimental.l0_compaction_trigger";
        const SLOWDOWN_TRIGGER: &str = "experimental.l0_slowdown_trigger";
        const STOP_TRIGGER: &str = "experimental.l0_stop_trigger";
        let (l0, file) = (&self.level0, &self.file);
        let between = |value: u64, low: u64, high: u64| (low..=high).contains(&value);
        let mut require = |holds, name, reason| reader.require(holds, name, reason);
        require(between(self.memtable_bytes, 4 << 10, 4 << 30), "memtable", "from 4KiB to 4GiB");
        require(between(self.memtables as u64, 2, 64), "memtables", "from 2 to 64");
        let file_size = between(self.target_file_bytes, 1 << 10, 16 << 30);
        require(file_size, "target_file_size", "from 1KiB to 16GiB");
        require(between(file.block_bytes as u64, 256, 4 << 20), "block_size", "from 256B to 4MiB");
        require(
            between(file.restart_interval as u64, 1, 1024),
            "experimental.block_restart_interval",
            "from 1 to 1024",
        );
        let filter_bits = (0.0..=64.0).contains(&file.filter_bits_per_key);
        require(filter_bits, "filter_bits_per_key", "from 0 to 64");
        let compactions = between(self.max_compactions as u64, 1, 64);
        require(compactions, "max_compactions", "from 1 to 64");
        let subcompactions = between(self.max_subcompactions as u64, 1, 64);
        require(subcompactions, "max_subcompactions", "from 1 to 64");
        require(between(self.level_bytes.len() as u64, 1, 16), "levels", "from 1 to 16 sizes");
        require(
            self.level_bytes.is_sorted_by(|a, b| a < b) && self.level_bytes[0] > 0,
            "levels",
            "each level must be larger than the one before, e.g. 256MiB:2560MiB:25GiB",
        );
        let threshold = self.triad.flush_threshold;
        require((0.0..=0.9).contains(&threshold), "triad.flush_threshold", "from 0 to 0.9");
        let overlap = (0.01..=0.99).contains(&self.triad.min_overlap);
        require(overlap, "triad.min_overlap", "from 0.01 to 0.99");
        let is_sliced = self.is_l0_sliced();
        let given = l0.capacity_bytes.unwrap_or(0);
        require(
            !is_sliced
                || (given == 0 && self.pmem_bytes > 0)
                || self.l0_capacity(0) >= self.memtable_bytes.saturating_mul(2),
            "l0_capacity",
            "0, or at least two memtables",
        );
        require(is_sliced || given == 0, "l0_policy", "whole and novelsm have no l0_capacity");
        require(
            self.pmem_bytes == 0 || between(self.pmem_bytes, MIN_POOL_BYTES, MAX_POOL_BYTES),
            "pmem.size",
            "0, or from 64KiB to 8TiB",
        );
        let is_novelsm = self.l0_policy() == L0Policy::NoveLsm;
        require(
            !is_novelsm || between(self.pmem_bytes, 64 << 10, 8 << 30),
            "pmem.size",
            "with l0_policy=novelsm from 64KiB to 8GiB: two memtables of half of it each",
        );
        require(
            !is_novelsm || !self.triad.mem,
            "triad.mem",
            "l0_policy=novelsm cannot retain hot keys",
        );
        require(l0.compaction_trigger >= 1, COMPACTION_TRIGGER, "at least 1");
        let slowdown = l0.slowdown_trigger > l0.compaction_trigger;
        require(slowdown, SLOWDOWN_TRIGGER, "more than experimental.l0_compaction_trigger");
        let stop = l0.stop_trigger > l0.slowdown_trigger;
        require(stop, STOP_TRIGGER, "more than experimental.l0_slowdown_trigger");
    }
}

fn size_or_default(text: &str) -> std::result::Result<Option<u64>, String> {
    parse_size(text).map(Some)
}

fn on_or_off(text: &str) -> std::result::Result<bool, String> {
    match text {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err(format!("'{text}' is not one of on, off")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use siltstone_engine::Error;

    fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect()
    }

    #[test]
    fn options_are_parsed() {
        let o = Options::from_map(&map(&[
            ("memtable", "1MiB"),
            ("levels", "4MiB:40MiB"),
            ("compression", "lz4"),
            ("experimental.compaction_pri", "round_robin"),
            ("l0_policy", "columns"),
        ]))
        .unwrap();
        assert_eq!(o.memtable_bytes, 1 << 20);
        assert_eq!(o.level_bytes, [4 << 20, 40 << 20]);
        assert_eq!(o.file.compression, Compression::Lz4);
        assert_eq!(o.compaction_priority, CompactionPriority::RoundRobin);
        assert_eq!(o.level0.policy, Some(L0Policy::Columns));
    }

    #[test]
    fn all_mistakes_are_reported_at_once() {
        let bad = map(&[
            ("memtable", "1"),
            ("levels", "4MiB:1MiB"),
            ("experimental.l0_stop_trigger", "2"),
            ("filter_bits_per_key", "NaN"),
            ("colour", "red"),
        ]);
        let Err(Error::InvalidOptions(mistakes)) = Options::from_map(&bad) else {
            panic!("accepted")
        };
        let names: Vec<_> = mistakes.iter().map(|m| m.option.as_str()).collect();
        let stop = "experimental.l0_stop_trigger";
        assert_eq!(names, ["memtable", "filter_bits_per_key", "levels", stop, "colour"]);
    }

    #[test]
    fn old_names_and_values_mean_the_same_as_the_new_ones() {
        let old = map(&[
            ("table", "1MiB"),
            ("block", "1KiB"),
            ("filter_bits", "7"),
            ("jobs", "3"),
            ("subcompactions", "4"),
            ("level0", "matrix"),
            ("container", "256MiB"),
            ("l0_compact", "5"),
            ("l0_slow", "6"),
            ("l0_stop", "7"),
            ("level_sizes", "model"),
            ("restart", "8"),
            ("range_filter", "off"),
            ("select", "round-robin"),
            ("nvm", "1GiB"),
            ("hints", "off"),
            ("triad_log", "off"),
            ("triad_mem", "on"),
            ("triad_disk", "on"),
            ("hot", "0.25"),
            ("flush_threshold", "0.125"),
            ("overlap", "0.75"),
            ("log_ahead", "1MiB"),
        ]);
        assert_eq!(old.len(), RENAMED_OPTIONS.len());
        let present = |name: &str| RENAMED_OPTIONS.iter().find(|(old, _)| *old == name).unwrap().1;
        let new = old.iter().map(|(name, value)| {
            let value = match value.as_str() {
                "matrix" => "columns",
                "round-robin" => "round_robin",
                other => other,
            };
            (present(name).to_owned(), value.to_owned())
        });
        let new: BTreeMap<_, _> = new.collect();
        let options = Options::from_map(&old).unwrap();
        assert_eq!(options, Options::from_map(&new).unwrap());
        for name in new.keys() {
            let mut rest = new.clone();
            rest.remove(name);
            assert_ne!(Options::from_map(&rest).ok().as_ref(), Some(&options), "{name}");
        }
        for (old, new) in [("rows", "whole"), ("triangle", "sliced")] {
            let [old, new] =
                [old, new].map(|value| Options::from_map(&map(&[("l0_policy", value)])));
            assert_eq!(old.unwrap(), new.unwrap());
        }
    }

    #[test]
    fn level_1_grows_with_a_grown_l0_capacity_only() {
        let of = |options: &[(&str, &str)]| Options::from_map(&map(options)).unwrap();
        let (small, large) = (2 << 30, 12u64 << 30);
        let grows = of(&[("levels", "64MiB:1GiB")]);
        assert_eq!((grows.l0_capacity(small), grows.min_level1_bytes(small)), (512 << 20, 0));
        assert_eq!((grows.l0_capacity(large), grows.min_level1_bytes(large)), (2 << 30, 4 << 30));
        assert_eq!(grows.l0_capacity(100 * large), 2 << 30);
        for fixed in [
            of(&[("l0_capacity", "1GiB")]),
            of(&[("l0_capacity", "0")]),
            of(&[("pmem.size", "1GiB")]),
        ] {
            assert_eq!(fixed.l0_capacity(large), fixed.l0_capacity(0));
            assert_eq!(fixed.min_level1_bytes(large), 0);
        }
    }

    #[test]
    fn extreme_numbers_are_accepted_or_reported_without_overflow() {
        for name in [
            "memtable",
            "target_file_size",
            "l0_capacity",
            "pmem.size",
            "cache",
            "triad.prefetch",
            "levels",
            "experimental.l0_stop_trigger",
        ] {
            for value in ["18446744073709551615", "9223372036854775808", "16777216TiB", "0", "-1"] {
                let map = [(name.to_owned(), value.to_owned())].into();
                if let Err(error) = Options::from_map(&map) {
                    assert!(error.to_string().contains(name), "{name}={value}: {error}");
                }
            }
        }
    }
}
