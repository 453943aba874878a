//! The engine's options, by theme, with what each default costs and when to change it.

use std::collections::BTreeMap;

use siltstone_engine::options::parse_size;
use siltstone_engine::{OptionReader, Result};
use siltstone_table::{Compression, TableOptions};
use siltstone_vfs::PmemPool;

// ANCHOR: options
/// How a table of the ordered engine is kept. Refused whole at open if it cannot be.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    /// Bytes of log that one memtable takes (`memtable`, 32 MiB); it is full, too, when its memory
    /// reaches twice that, as with very small values. Larger: fewer, larger flushes, less write
    /// amplification, more memory and a longer recovery.
    pub memtable_bytes: u64,
    /// Memtables in memory at once, the active one counted (`memtables`, 2): what a burst of
    /// writes may run ahead of the flush.
    pub memtables: usize,
    /// Target bytes of levels 1, 2, … (`levels`, 1 GiB and ten times more each). Where the
    /// container of level 0 has grown, level 1 is at least twice as large. The last level takes what comes.
    pub level_bytes: Vec<u64>,
    /// Whether the model chooses the sizes of levels for the popularity of keys that it measures,
    /// instead of `levels`, which then only says how many there may be (`level_sizes`, `given` or
    /// `model`).
    pub sizes_by_model: bool,
    /// Bytes at which a compaction starts the next table (`table`, 32 MiB).
    pub table_bytes: u64,
    /// When level 0 is compacted, slows writers, and stops them.
    pub level0: Level0Options,
    /// How files are written.
    pub file: FileOptions,
    /// Bytes of the cache of data blocks (`cache`, 64 MiB).
    pub cache_bytes: u64,
    /// What a level gives up when it is over its target (`select`, `overlap`).
    pub selection: Selection,
    /// Compactions at once (`jobs`, 2); more than the scheduler's threads is of no use.
    pub jobs: usize,
    /// Threads that one large compaction is cut into pieces for (`subcompactions`, 2).
    pub subcompactions: usize,
    /// Capacity of a pool of byte-addressable persistent memory, in bytes (`nvm`, 0: none). Flushes
    /// put the rows of level 0 there and leave the medium's files alone; a row that finds no room
    /// becomes a file. The log stays a file. While rows lie in the pool it cannot shrink.
    pub nvm_bytes: u64,
    /// Whether a search in one row of persistent memory narrows that in the next (`hints`, on). Off:
    /// every row is searched in full, for comparison.
    pub hints: bool,
    /// The techniques of the TRIAD paper, each by itself.
    pub triad: TriadOptions,
}

/// TRIAD's three techniques: less is written because less is written twice.
#[derive(Debug, Clone, PartialEq)]
pub struct TriadOptions {
    /// Hot keys stay in memory when their memtable is flushed (`triad_mem`, off). Saves the flush
    /// and compaction of versions that would soon be overwritten; each flush syncs the log. The log
    /// of a memtable may then be twice `memtable`, and its memory three times.
    pub mem: bool,
    /// Which keys are hot (`hot`, `auto`).
    pub hot: HotBudget,
    /// A memtable whose log is full is not flushed at all while the newest values of its cold keys
    /// take less than this share of `memtable` (`flush_threshold`, 0.5).
    pub flush_threshold: f64,
    /// A full memtable's log becomes the row of level 0, and the flush writes an index of positions
    /// in it (`triad_log`, on). Saves the flush of the values; scans of fresh data and the first
    /// compaction read values by position, and a log stays until the cursor has passed all of it.
    pub log: bool,
    /// Bytes of records that a compaction holds of such logs at most, in memory (`log_ahead`, two
    /// memtables): it reads them in the order of the log, many at once, and wants them in the order of keys.
    /// Less: more reads, each for less. With 0 it reads one record at a time.
    pub log_ahead_bytes: Option<u64>,
    /// Level 0 is compacted once its rows and the tables under them share enough keys, or when it
    /// has `l0_compact` rows (`triad_disk`, off).
    pub disk: bool,
    /// How much they must share for that: 1 − distinct keys / keys (`overlap`, 0.4).
    pub overlap: f64,
}

/// How level 0 is kept: what a compaction takes of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// `rows`: all of it at once. With `nvm` also when the pool is 60 % full.
    Rows,
    /// `triangle`: a container from which right-angle sides are taken, a stretch of keys of all rows
    /// at a time (TriangleKV).
    Triangle,
    /// `matrix`: a container of two groups of rows. Columns, stretches of keys, are taken of the
    /// older group alone; when nothing is left of it, the younger takes its place (MatrixKV).
    Matrix,
    /// `novelsm`: all of it at once, beside a memtable of half of `nvm`, which stands for a mutable one
    /// in persistent memory (NoveLSM): it takes the writes while the others are full and wait for their
    /// flush, and updates of what it has. It is in DRAM here, and what makes it durable is the log on
    /// the medium, which is kept for as long: statistics count its bytes as stores to persistent memory.
    /// There is no pool, and no row is a log (`triad_log`).
    NoveLsm,
}

/// When level 0 is compacted, slows writers, and stops them; in rows (flushed memtables).
#[derive(Debug, Clone, PartialEq)]
pub struct Level0Options {
    /// How level 0 is kept (`level0`): `triangle`, or `rows` if `container` is 0.
    pub shape: Option<Shape>,
    /// Compacted from this many on (`l0_compact`, 8). Fewer: faster scans, more write
    /// amplification. Scans bring a compaction forward by themselves when they have paid for it.
    pub compact_at: usize,
    /// Writers are delayed from this many on, the more the more rows there are (`l0_slow`, 20).
    pub slow_at: usize,
    /// Writers stop at this many (`l0_stop`, 36).
    pub stop_at: usize,
    /// Capacity of the container of `triangle` and `matrix`, in bytes of keys and values, each key
    /// once, or of pages for rows in persistent memory (`container`; a sixth of what the levels hold, but from
    /// 512 MiB to 64 memtables; with `nvm` that less two memtables). From 60 % of it on level 0 is compacted a
    /// stretch of keys at a time; from 85 % on writers are delayed. Larger: less write amplification, more
    /// rows for a read to look into, up to twice as much on the medium, or six times under much skew. With
    /// 0, level 0 is compacted whole, by the three numbers of rows.
    pub container_bytes: Option<u64>,
}

/// How sorted tables are written.
#[derive(Debug, Clone, PartialEq)]
pub struct FileOptions {
    /// Bytes of a data block before compression (`block`, 4 KiB). Smaller: less read for a lookup,
    /// more index in memory.
    pub block_bytes: usize,
    /// Entries between restart points of the prefix compression (`restart`, 16).
    pub restart_interval: usize,
    /// Bits of Bloom filter a key (`filter_bits`, 10: about 1 % false positives); 0 for none.
    pub filter_bits: f64,
    /// Whether tables above the deepest level have a filter for ranges (`range_filter`, on; at most 11 bits a
    /// key): a cursor placed at a key that is not there passes by the rows and levels that have nothing up to
    /// the key that follows.
    pub range_filter: bool,
    /// `compression`: `none` (the default), `lz4` or `zstd`.
    pub compression: Compression,
}

/// Which table of a level that is over its target is compacted next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Selection {
    /// The next one in key order after the one before (LevelDB's).
    RoundRobin,
    /// The one with the fewest bytes under it for each of its own: least rewriting.
    LeastOverlap,
}
// ANCHOR_END: options

impl Default for Options {
    fn default() -> Self {
        Options {
            memtable_bytes: 32 << 20,
            memtables: 2,
            level_bytes: (0..6).map(|l| (1u64 << 30) * 10u64.pow(l)).collect(),
            sizes_by_model: false,
            table_bytes: 32 << 20,
            level0: Level0Options::default(),
            file: FileOptions::default(),
            cache_bytes: 64 << 20,
            selection: Selection::LeastOverlap,
            jobs: 2,
            subcompactions: 2,
            nvm_bytes: 0,
            hints: true,
            triad: TriadOptions::default(),
        }
    }
}

/// Which keys of a full memtable stay in memory.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum HotBudget {
    /// Those whose update before the next flush is likelier than not (`auto`).
    Auto,
    /// Those with the most updates above the mean, up to this share of the keys (`0.01`, say).
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
            log_ahead_bytes: None,
            disk: false,
            overlap: 0.4,
        }
    }
}

impl Default for Level0Options {
    fn default() -> Self {
        Level0Options {
            shape: None,
            compact_at: 8,
            slow_at: 20,
            stop_at: 36,
            container_bytes: None,
        }
    }
}

impl Default for FileOptions {
    fn default() -> Self {
        FileOptions {
            block_bytes: 4 << 10,
            restart_interval: 16,
            filter_bits: 10.0,
            range_filter: true,
            compression: Compression::None,
        }
    }
}

/// A pool for fewer pages would have room for no row to speak of.
const MIN_POOL_BYTES: u64 = 16 * PmemPool::DEFAULT_PAGE_BYTES as u64;
const MAX_POOL_BYTES: u64 = 8 << 40;

/// A side has as many bytes, by default, so that each log is read once for all of it.
const AHEAD_MEMTABLES: u64 = 2;
/// What is held is addressed by 32 bits.
const MOST_AHEAD: u64 = 2 << 30;

/// A container that nobody has chosen is of this size at least.
const DEFAULT_CONTAINER: u64 = 512 << 20;
/// It grows with the levels below it, whose bytes it has this part of: so a level 1 twice as large and one more
/// hold all of them, and what that writes does not grow with them. (The TriangleKV paper has a tenth.)
const CONTAINER_SHARE: u64 = 6;
/// And level 1 is larger by this.
const LEVEL_1_CONTAINERS: u64 = 2;
/// It is no larger than so many memtables: of each row a get asks the filter.
const CONTAINER_MEMTABLES: u64 = 64;

impl Options {
    /// Options from `key=value` pairs; what is not given keeps its default.
    ///
    /// # Errors
    /// [`InvalidOptions`](siltstone_engine::Error::InvalidOptions) with every mistake.
    pub fn from_map(given: &BTreeMap<String, String>) -> Result<Self> {
        let mut o = Options::default();
        let mut reader = OptionReader::new(given);
        reader.size("memtable", &mut o.memtable_bytes);
        reader.value("memtables", &mut o.memtables);
        reader.with("levels", &mut o.level_bytes, |text| {
            // A comma separates options on the command line, so levels are joined by colons.
            text.split(':').map(parse_size).collect()
        });
        reader.with("level_sizes", &mut o.sizes_by_model, |text| match text {
            "given" => Ok(false),
            "model" => Ok(true),
            _ => Err(format!("'{text}' is neither given nor model")),
        });
        reader.size("table", &mut o.table_bytes);
        reader.value("l0_compact", &mut o.level0.compact_at);
        reader.value("l0_slow", &mut o.level0.slow_at);
        reader.value("l0_stop", &mut o.level0.stop_at);
        let mut block_bytes = o.file.block_bytes as u64;
        reader.size("block", &mut block_bytes);
        o.file.block_bytes = block_bytes as usize;
        reader.value("restart", &mut o.file.restart_interval);
        reader.value("filter_bits", &mut o.file.filter_bits);
        reader.with("range_filter", &mut o.file.range_filter, on_or_off);
        reader.with("compression", &mut o.file.compression, |text| match text {
            "none" => Ok(Compression::None),
            "lz4" => Ok(Compression::Lz4),
            "zstd" => Ok(Compression::Zstd { level: 1 }),
            _ => Err(format!("'{text}' is not one of none, lz4, zstd")),
        });
        reader.size("cache", &mut o.cache_bytes);
        reader.with("select", &mut o.selection, |text| match text {
            "round-robin" => Ok(Selection::RoundRobin),
            "overlap" => Ok(Selection::LeastOverlap),
            _ => Err(format!("'{text}' is not one of round-robin, overlap")),
        });
        reader.value("jobs", &mut o.jobs);
        reader.value("subcompactions", &mut o.subcompactions);
        reader.with("triad_log", &mut o.triad.log, on_or_off);
        reader.with("log_ahead", &mut o.triad.log_ahead_bytes, |text| parse_size(text).map(Some));
        reader.with("triad_mem", &mut o.triad.mem, on_or_off);
        reader.with("hot", &mut o.triad.hot, |text| match (text, text.parse()) {
            ("auto", _) => Ok(HotBudget::Auto),
            (_, Ok(share)) if (0.0..=1.0).contains(&share) => Ok(HotBudget::Share(share)),
            _ => Err(format!("'{text}' is neither auto nor a share from 0 to 1")),
        });
        reader.value("flush_threshold", &mut o.triad.flush_threshold);
        reader.with("triad_disk", &mut o.triad.disk, on_or_off);
        reader.value("overlap", &mut o.triad.overlap);
        reader.with("level0", &mut o.level0.shape, |text| match text {
            "rows" => Ok(Some(Shape::Rows)),
            "triangle" => Ok(Some(Shape::Triangle)),
            "matrix" => Ok(Some(Shape::Matrix)),
            "novelsm" => Ok(Some(Shape::NoveLsm)),
            _ => Err(format!("'{text}' is not one of rows, triangle, matrix, novelsm")),
        });
        reader.with("container", &mut o.level0.container_bytes, |text| parse_size(text).map(Some));
        reader.size("nvm", &mut o.nvm_bytes);
        reader.with("hints", &mut o.hints, on_or_off);
        o.check(&mut reader);
        reader.finish()?;
        Ok(o)
    }

    /// Bytes of log, and of memory, at which a memtable is full. Much of either may be older
    /// versions of hot keys, which TRIAD-MEM never flushes: it may wait longer.
    pub(crate) fn memtable_limits(&self) -> (u64, u64) {
        let (log, memory) = if self.triad.mem { (2, 3) } else { (1, 2) };
        (log * self.memtable(), memory * self.memtable())
    }

    /// Bytes of log that one memtable takes.
    pub(crate) fn memtable(&self) -> u64 {
        self.memtable_bytes
    }

    /// Bytes of keys and values that a memtable which stands for persistent memory takes.
    pub(crate) fn large_memtable(&self) -> u64 {
        self.nvm_bytes / 2
    }

    /// Bytes of logs that one compaction holds at most.
    pub(crate) fn log_ahead(&self) -> u64 {
        self.triad.log_ahead_bytes.unwrap_or(AHEAD_MEMTABLES * self.memtable()).min(MOST_AHEAD)
    }

    /// Whether a full memtable's log is to be its row. A log that two memtables share cannot.
    pub(crate) fn rows_are_logs(&self) -> bool {
        self.triad.log && self.shape() != Shape::NoveLsm
    }

    /// How level 0 is kept.
    pub(crate) fn shape(&self) -> Shape {
        let whole = self.level0.container_bytes == Some(0);
        self.level0.shape.unwrap_or(if whole { Shape::Rows } else { Shape::Triangle })
    }

    /// Bytes of the pool of rows in persistent memory; 0 if there is none.
    pub(crate) fn pool_bytes(&self) -> u64 {
        if self.shape() == Shape::NoveLsm { 0 } else { self.nvm_bytes }
    }

    /// What the rows of level 0 may hold over levels of `below` bytes; 0 if that is told by their number alone.
    /// A pool must have room left for the row of the memtable that is flushed when it is full, and for its
    /// metadata.
    pub(crate) fn container(&self, below: u64) -> u64 {
        let pool = self.pool_bytes();
        let rest = pool.saturating_sub(self.memtable().saturating_mul(2)).max(pool / 2);
        let given = self.level0.container_bytes.filter(|&bytes| bytes > 0);
        match self.shape() {
            Shape::NoveLsm => 0,
            Shape::Rows => rest,
            Shape::Triangle | Shape::Matrix => {
                let most = self.memtable().saturating_mul(CONTAINER_MEMTABLES);
                let share = (below / CONTAINER_SHARE).min(most).max(DEFAULT_CONTAINER);
                given.unwrap_or(if pool > 0 { rest } else { share })
            }
        }
    }

    /// The least target of level 1 over the levels of `below` bytes: it grows with a container that has grown;
    /// before that, and where there is none that does, it is what was given.
    pub(crate) fn least_level_1(&self, below: u64) -> u64 {
        let now = self.container(below);
        if now > self.container(0) { now.saturating_mul(LEVEL_1_CONTAINERS) } else { 0 }
    }

    /// Whether level 0 is a container, whose rows are merged a stretch of keys at a time.
    pub(crate) fn is_container(&self) -> bool {
        matches!(self.shape(), Shape::Triangle | Shape::Matrix)
    }

    /// The layout of sorted tables.
    pub(crate) fn table_options(&self) -> TableOptions {
        TableOptions {
            block_bytes: self.file.block_bytes,
            restart_interval: self.file.restart_interval,
            filter_bits_per_key: self.file.filter_bits,
            range_filter: self.file.range_filter,
            compression: self.file.compression,
            sketch: self.triad.disk,
        }
    }

    fn check(&self, reader: &mut OptionReader<'_>) {
        let l0 = &self.level0;
        let between = |value: u64, low: u64, high: u64| (low..=high).contains(&value);
        let mut require = |holds, name, reason| reader.require(holds, name, reason);
        require(between(self.memtable_bytes, 4 << 10, 4 << 30), "memtable", "from 4KiB to 4GiB");
        require(between(self.memtables as u64, 2, 64), "memtables", "from 2 to 64");
        require(between(self.table_bytes, 1 << 10, 16 << 30), "table", "from 1KiB to 16GiB");
        require(between(self.file.block_bytes as u64, 256, 4 << 20), "block", "from 256B to 4MiB");
        require(between(self.file.restart_interval as u64, 1, 1024), "restart", "from 1 to 1024");
        require((0.0..=64.0).contains(&self.file.filter_bits), "filter_bits", "from 0 to 64");
        require(between(self.jobs as u64, 1, 64), "jobs", "from 1 to 64");
        require(between(self.subcompactions as u64, 1, 64), "subcompactions", "from 1 to 64");
        require(between(self.level_bytes.len() as u64, 1, 16), "levels", "from 1 to 16 sizes");
        require(
            self.level_bytes.is_sorted_by(|a, b| a < b) && self.level_bytes[0] > 0,
            "levels",
            "each level must be larger than the one before, e.g. 256MiB:2560MiB:25GiB",
        );
        let threshold = self.triad.flush_threshold;
        require((0.0..=0.9).contains(&threshold), "flush_threshold", "from 0 to 0.9");
        require((0.01..=0.99).contains(&self.triad.overlap), "overlap", "from 0.01 to 0.99");
        let is_container = self.is_container();
        let given = l0.container_bytes.unwrap_or(0);
        require(
            !is_container
                || (given == 0 && self.nvm_bytes > 0)
                || self.container(0) >= self.memtable_bytes.saturating_mul(2),
            "container",
            "0, or room for two memtables",
        );
        require(is_container || given == 0, "level0", "rows and novelsm take no container");
        require(
            self.nvm_bytes == 0 || between(self.nvm_bytes, MIN_POOL_BYTES, MAX_POOL_BYTES),
            "nvm",
            "0, or from 64KiB to 8TiB",
        );
        require(
            self.shape() != Shape::NoveLsm || between(self.nvm_bytes, 64 << 10, 8 << 30),
            "nvm",
            "for level0=novelsm from 64KiB to 8GiB: two memtables of half of it each",
        );
        require(
            self.shape() != Shape::NoveLsm || !self.triad.mem,
            "triad_mem",
            "level0=novelsm has no place for hot keys",
        );
        require(l0.compact_at >= 1, "l0_compact", "at least 1");
        require(l0.slow_at > l0.compact_at, "l0_slow", "more than l0_compact");
        require(l0.stop_at > l0.slow_at, "l0_stop", "more than l0_slow");
    }
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
    fn options_read_as_written() {
        let o = Options::from_map(&map(&[
            ("memtable", "1MiB"),
            ("levels", "4MiB:40MiB"),
            ("compression", "lz4"),
            ("select", "round-robin"),
        ]))
        .unwrap();
        assert_eq!(o.memtable_bytes, 1 << 20);
        assert_eq!(o.level_bytes, [4 << 20, 40 << 20]);
        assert_eq!(o.file.compression, Compression::Lz4);
        assert_eq!(o.selection, Selection::RoundRobin);
    }

    #[test]
    fn every_mistake_is_named_at_once() {
        let bad = map(&[
            ("memtable", "1"),
            ("levels", "4MiB:1MiB"),
            ("l0_stop", "2"),
            ("filter_bits", "NaN"),
            ("colour", "red"),
        ]);
        let Err(Error::InvalidOptions(mistakes)) = Options::from_map(&bad) else {
            panic!("accepted")
        };
        let names: Vec<_> = mistakes.iter().map(|m| m.option.as_str()).collect();
        assert_eq!(names, ["memtable", "filter_bits", "levels", "l0_stop", "colour"]);
    }

    #[test]
    fn does_level_1_grow_with_a_container_that_has_grown_and_stay_as_given_before() {
        let of = |options: &[(&str, &str)]| {
            let pairs = options.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned()));
            Options::from_map(&pairs.collect()).unwrap()
        };
        let (small, large) = (2 << 30, 12u64 << 30);
        let grows = of(&[("levels", "64MiB:1GiB")]);
        assert_eq!((grows.container(small), grows.least_level_1(small)), (512 << 20, 0));
        assert_eq!((grows.container(large), grows.least_level_1(large)), (2 << 30, 4 << 30));
        assert_eq!(grows.container(100 * large), 2 << 30);
        for fixed in
            [of(&[("container", "1GiB")]), of(&[("container", "0")]), of(&[("nvm", "1GiB")])]
        {
            assert_eq!(fixed.container(large), fixed.container(0));
            assert_eq!(fixed.least_level_1(large), 0);
        }
    }

    #[test]
    fn are_absurd_numbers_taken_or_mistakes_and_no_overflow() {
        for name in
            ["memtable", "table", "container", "nvm", "cache", "log_ahead", "levels", "l0_stop"]
        {
            for value in ["18446744073709551615", "9223372036854775808", "16777216TiB", "0", "-1"] {
                let map = [(name.to_owned(), value.to_owned())].into();
                if let Err(error) = Options::from_map(&map) {
                    assert!(error.to_string().contains(name), "{name}={value}: {error}");
                }
            }
        }
    }
}
