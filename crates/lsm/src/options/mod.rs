//! The options of the engine, as structs with their defaults.
//!
//! | module | content |
//! | --- | --- |
//! | `parse` | reads and checks `key=value` pairs, under present and old names |
//! | `change` | which options change while the table is open, and how |
//! | `limits` | what follows from the options: memtable, level 0 and prefetch sizes, table format |
//!
//! Plain options are for users. Those under `triad.` and `pmem.` control the techniques of a paper,
//! and those under `experimental.` serve comparisons; their defaults rarely need a change.

mod change;
mod limits;
mod parse;

use std::time::Duration;

use siltstone_table::{Compression, TableOptions};

pub use change::LIVE_OPTIONS;
pub(crate) use change::LiveOptions;
pub(crate) use limits::MemtableLimits;
pub use parse::RENAMED_OPTIONS;

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
    /// `target_file_size`: size, 1KiB to 16GiB, default 32MiB. A compaction ends a table at about
    /// this size, where a table of the level after ends; at the latest a quarter later. Larger:
    /// fewer files, for longer compactions.
    pub target_file_bytes: u64,
    /// Level 0: when it is compacted, and when writers are delayed and stopped.
    pub level0: L0Options,
    /// The format of sorted tables: `block_size`, 256B to 4MiB, default 4KiB;
    /// `experimental.block_restart_interval`, 1 to 1024, default 16; `filter_bits_per_key`, 0 to
    /// 64, default 10; `experimental.range_filter`, for tables above the deepest level, default on;
    /// `compression`, `none` (default), `lz4`, `zstd` or `zstd:LEVEL` with a level from 1 (the
    /// default) to 19.
    pub file: TableOptions,
    /// `bottommost_compression`: as `compression`, or `same` (default). The compression of files
    /// that a compaction writes with nothing below them, which is most of the data: denser than
    /// above, where files are soon rewritten. A file of level 0 is then written again instead of
    /// moved down.
    pub bottommost_compression: Option<Compression>,
    /// `compression_dict_size`: size, 0 (none, the default) or 256B to 1MiB. Each of these files
    /// gets a dictionary of up to this size, trained from up to 100 times as many bytes of its
    /// first blocks, which wait in memory (up to 16MiB). Needs `zstd` for these files. Saves most
    /// with small blocks of similar rows. Earlier versions refuse files with a dictionary.
    pub compression_dict_bytes: u64,
    /// `cache`: size, default 64MiB. The block cache. Raise it to the size of the hot data, as far
    /// as memory allows.
    pub cache_bytes: u64,
    /// `log_retention`: size, default 0. Bytes of logs that are kept for change feeds after the
    /// table needs them no more; the oldest are removed. Each flush then syncs its log. A removal
    /// of all keys is recorded in the log, which earlier versions refuse.
    pub log_retention_bytes: u64,
    /// `log_retention_time`: duration, default 0s (no limit). Logs are kept for change feeds for
    /// this long after the table needs them no more, as far as `log_retention` allows; without
    /// `log_retention` their size has no limit. They are removed by the next flush, `maintain` or
    /// open. Earlier versions refuse the option.
    pub log_retention_time: Duration,
    /// `blob_threshold`: size, 0 (off, the default) or 32B to 4GiB. Key-value separation: a value
    /// of at least this size stays in the log, which is kept, and tables refer to it. Compactions
    /// then move no such value, so that large values are written about once; a scan reads each of
    /// them on its own. Values of 4KiB and more profit most. Flushes leave values in the log unless
    /// `l0_policy` is `novelsm` or `pmem.size` is set; then the first compaction separates them.
    pub blob_threshold_bytes: u64,
    /// `blob_gc_ratio`: share, 0.05 to 0.95, default 0.5. With `blob_threshold`, values are moved
    /// out of the files with most garbage as soon as more than this share of all files with values
    /// is garbage. They then take at most 1 / (1 − share) of what is alive, and what level 0 holds.
    /// Smaller: less space, more writes.
    pub blob_gc_ratio: f64,
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

/// Which keys of a full memtable are hot.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum HotBudget {
    /// Those that are likely enough to be updated before the next flush (`auto`).
    Auto,
    /// Those with the most updates above the mean, up to this share of the keys.
    Share(f64),
}

/// Which runs and keys a compaction of level 0 merges.
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
            file: TableOptions { range_filter: true, ..TableOptions::default() },
            bottommost_compression: None,
            compression_dict_bytes: 0,
            cache_bytes: 64 << 20,
            log_retention_bytes: 0,
            log_retention_time: Duration::ZERO,
            blob_threshold_bytes: 0,
            blob_gc_ratio: 0.5,
            compaction_priority: CompactionPriority::MinOverlap,
            max_compactions: 2,
            max_subcompactions: 2,
            pmem_bytes: 0,
            hints: true,
            triad: TriadOptions::default(),
        }
    }
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
