//! The options of the engine: `key=value` pairs and the struct that they fill.

use std::collections::BTreeMap;
use std::path::PathBuf;

use siltstone_engine::{OptionReader, Result};

use crate::htable::{Build, Layout};

/// Old names of options and their present ones. [`Options::from_map`] accepts both, because the
/// catalogues of existing stores contain old names.
pub const RENAMED_OPTIONS: &[(&str, &str)] = &[
    ("table", "htable_size"),
    ("bucket", "bucket_size"),
    ("fill", "bucket_fill"),
    ("filter_bits", "filter_bits_per_key"),
    ("collect", "gc_trigger"),
    ("garbage", "gc_garbage_ratio"),
    ("run", "dense_run_at"),
    ("upper", "fast_dir"),
    ("upper_levels", "fast_levels"),
    ("jobs", "max_compactions"),
    ("slow", "slowdown_trigger"),
    ("stop", "stop_trigger"),
    ("segment", "experimental.segment_buckets"),
    ("migrations", "experimental.cached_migrations"),
    ("tables", "experimental.table_layout"),
    ("weak_hash", "experimental.weak_hash"),
];

/// The options that never change after the table was created.
pub const FIXED_OPTIONS: &[&str] = &["fanout_bits", "experimental.weak_hash"];

/// The options of a table of the LSM-trie engine. Invalid ones are rejected at open, all at once.
///
/// Sizes are bytes with an optional unit, as in `32MiB`.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    /// `htable_size`: size, 1KiB to 1GiB, default 32MiB. The log bytes of one memtable, and about
    /// the size of its HTable; the memtable is also full when its memory reaches three times that.
    /// Larger: fewer levels, for larger compactions and more memory.
    pub htable_bytes: u64,
    /// `memtables`: number, 2 to 64, default 2. The memtables in memory, the active one included.
    /// Raise it if bursts of writes stall on flushes.
    pub memtables: usize,
    /// `bucket_size`: size, a power of two from 256 to 32KiB, default 4KiB. A bucket is what a
    /// lookup reads; use a multiple of the device's block size.
    pub bucket_bytes: u64,
    /// `bucket_fill`: share, 0.3 to 1, default 1. The share of the buckets that items take; items
    /// of many lengths reach it approximately. Less: fewer migrations, more space.
    pub bucket_fill: f64,
    /// `experimental.segment_buckets`: number, 1 to 8192, default 128. The buckets that are
    /// balanced together, which a compaction has in memory for each table. Fewer: less memory, less
    /// balance.
    pub segment_buckets: u32,
    /// `experimental.cached_migrations`: share of buckets, 0 to 1, default 0.2. The buckets with
    /// their migration in memory, the fullest first. Less: more reads per lookup.
    pub cached_migrations: f64,
    /// `fanout_bits`: number, 1 to 5, default 3. The prefix bits per level: a container has 2^n
    /// children. Fixed when the table is created.
    pub fanout_bits: u32,
    /// `levels`: number, 1 to 10, default 5. All but the last are spilled when they are full and at
    /// least half live; the last only grows. Unused levels cost nothing.
    pub levels: usize,
    /// `filter_bits_per_key`: number, 0 to 40, default 16. Bits of the Bloom filters.
    pub filter_bits: f64,
    /// `filter_memory`: size, default 1GiB. The limit for filters in memory. Above it those of the
    /// last level are moved to BloomClusters on storage, at the cost of one read per lookup there.
    pub filter_memory: u64,
    /// `gc_trigger`: number of tables, at least 2, default 8. A container of the last level is
    /// garbage-collected when it has this many tables and more garbage than `gc_garbage_ratio`.
    /// Less: less space, more writes.
    pub gc_trigger: usize,
    /// `gc_garbage_ratio`: share, 0 to 1, default 0.3. The estimated garbage ratio for garbage
    /// collection; at least 0.5 is required above the last level. 1: never.
    pub gc_garbage_ratio: f64,
    /// `dense_run_at`: number of tables, 0 (never, the default) or at least 2. A container of the
    /// last level is merged into one dense run with a rank index at this many tables besides the
    /// run. Less: fewer filters and reads, but every merge rewrites the run.
    pub dense_run_at: usize,
    /// `experimental.table_layout`: `hash` (default) or `sorted`. HTables, or for comparison sorted
    /// tables with a block index (the paper's SSTable-trie).
    pub is_sorted: bool,
    /// `fast_dir`: path, default none. A directory on a faster device for the files of the top
    /// levels, which are rewritten most and need least space. It belongs to one table, and is
    /// required as long as it contains files.
    pub fast_dir: Option<PathBuf>,
    /// `fast_levels`: number, default 2. The levels in `fast_dir`.
    pub fast_levels: usize,
    /// `max_compactions`: number, 1 to 64, default 2. Concurrent background tasks. Raise it on many
    /// cores if writes stall on compactions.
    pub max_compactions: usize,
    /// `slowdown_trigger`: number of tables, more than the fan-out, default 16. Writers are delayed
    /// when a container has this many tables.
    pub slowdown_trigger: usize,
    /// `stop_trigger`: number of tables, more than `slowdown_trigger`, default 32. Writers stop
    /// when a container has this many tables.
    pub stop_trigger: usize,
    /// `experimental.weak_hash`: number, 0 (off, the default) to 63. For tests: only 2^n different
    /// hashes. Fixed when the table is created.
    pub weak_hash_bits: u32,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            htable_bytes: 32 << 20,
            memtables: 2,
            bucket_bytes: 4 << 10,
            bucket_fill: 1.0,
            segment_buckets: 128,
            cached_migrations: 0.2,
            fanout_bits: 3,
            levels: 5,
            filter_bits: 16.0,
            filter_memory: 1 << 30,
            gc_trigger: 8,
            gc_garbage_ratio: 0.3,
            dense_run_at: 0,
            is_sorted: false,
            fast_dir: None,
            fast_levels: 2,
            max_compactions: 2,
            slowdown_trigger: 16,
            stop_trigger: 32,
            weak_hash_bits: 0,
        }
    }
}

impl Options {
    /// The parameters of building a table.
    pub(crate) fn build(&self, layout: Layout) -> Build {
        let buckets = self.htable_bytes / self.bucket_bytes;
        Build {
            bucket_bytes: self.bucket_bytes as u32,
            segment: self.segment_buckets,
            fill: self.bucket_fill,
            columns: buckets.max(1).next_power_of_two() as u32,
            filter_bits: self.filter_bits,
            cached_migrations: self.cached_migrations,
            layout,
        }
    }

    /// The layout of tables, except for dense runs.
    pub(crate) fn layout(&self) -> Layout {
        if self.is_sorted { Layout::Sorted } else { Layout::Buckets }
    }

    /// Options from `key=value` pairs; the others have their defaults. Accepts old names too.
    ///
    /// # Errors
    /// [`InvalidOptions`](siltstone_engine::Error::InvalidOptions) with all mistakes.
    pub fn from_map(given: &BTreeMap<String, String>) -> Result<Self> {
        let mut o = Options::default();
        let mut reader = OptionReader::new(given);
        reader.renamed(RENAMED_OPTIONS);
        reader.size("htable_size", &mut o.htable_bytes);
        reader.value("memtables", &mut o.memtables);
        reader.size("bucket_size", &mut o.bucket_bytes);
        reader.value("bucket_fill", &mut o.bucket_fill);
        reader.value("fanout_bits", &mut o.fanout_bits);
        reader.value("levels", &mut o.levels);
        reader.value("filter_bits_per_key", &mut o.filter_bits);
        reader.size("filter_memory", &mut o.filter_memory);
        reader.value("gc_trigger", &mut o.gc_trigger);
        reader.value("gc_garbage_ratio", &mut o.gc_garbage_ratio);
        reader.value("dense_run_at", &mut o.dense_run_at);
        let mut fast_dir = String::new();
        reader.value("fast_dir", &mut fast_dir);
        o.fast_dir = (!fast_dir.is_empty()).then(|| fast_dir.into());
        reader.value("fast_levels", &mut o.fast_levels);
        reader.value("max_compactions", &mut o.max_compactions);
        reader.value("slowdown_trigger", &mut o.slowdown_trigger);
        reader.value("stop_trigger", &mut o.stop_trigger);
        reader.value("experimental.segment_buckets", &mut o.segment_buckets);
        reader.value("experimental.cached_migrations", &mut o.cached_migrations);
        let layouts = [("hash", false), ("sorted", true)];
        reader.choice("experimental.table_layout", &mut o.is_sorted, &layouts);
        reader.value("experimental.weak_hash", &mut o.weak_hash_bits);
        o.check(&mut reader);
        reader.finish()?;
        Ok(o)
    }

    fn check(&self, reader: &mut OptionReader<'_>) {
        let fanout = 1usize << self.fanout_bits.min(8);
        reader.size_range("htable_size", self.htable_bytes, 1 << 10..=1 << 30);
        reader.range("memtables", self.memtables, 2..=64);
        let bucket = (256..=32 << 10).contains(&self.bucket_bytes);
        let bucket = bucket && self.bucket_bytes.is_power_of_two();
        reader.require(bucket, "bucket_size", "a power of two from 256 to 32KiB");
        reader.range("bucket_fill", self.bucket_fill, 0.3..=1.0);
        reader.range("experimental.segment_buckets", self.segment_buckets, 1..=8192);
        reader.range("experimental.cached_migrations", self.cached_migrations, 0.0..=1.0);
        reader.range("fanout_bits", self.fanout_bits, 1..=5);
        reader.range("levels", self.levels, 1..=10);
        reader.range("filter_bits_per_key", self.filter_bits, 0.0..=40.0);
        reader.require(self.gc_trigger >= 2, "gc_trigger", "at least 2");
        reader.range("gc_garbage_ratio", self.gc_garbage_ratio, 0.0..=1.0);
        reader.require(self.dense_run_at != 1, "dense_run_at", "0, or at least 2");
        reader.range("max_compactions", self.max_compactions, 1..=64);
        let slowdown = self.slowdown_trigger > fanout;
        reader.require(slowdown, "slowdown_trigger", "more than the fan-out");
        let stop = self.stop_trigger > self.slowdown_trigger;
        reader.require(stop, "stop_trigger", "more than slowdown_trigger");
        reader.range("experimental.weak_hash", self.weak_hash_bits, 0..=63);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use siltstone_engine::Error;

    #[test]
    fn all_mistakes_are_reported_at_once() {
        let bad = [
            ("htable_size", "1"),
            ("bucket_fill", "NaN"),
            ("dense_run_at", "1"),
            ("stop_trigger", "3"),
            ("colour", "red"),
        ];
        let bad = bad.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        let Err(Error::InvalidOptions(mistakes)) = Options::from_map(&bad) else {
            panic!("accepted")
        };
        let names: Vec<_> = mistakes.iter().map(|m| m.option.as_str()).collect();
        assert_eq!(names, ["htable_size", "bucket_fill", "dense_run_at", "stop_trigger", "colour"]);
        assert_eq!(Options::from_map(&BTreeMap::new()).unwrap(), Options::default());
    }

    #[test]
    fn old_names_mean_the_same_as_the_new_ones() {
        let values = [
            "64MiB", "512", "0.5", "7", "3", "0.25", "4", "/fast", "1", "3", "20", "40", "16",
            "0.5", "sorted", "9",
        ];
        siltstone_testkit::check_renamed_options(RENAMED_OPTIONS, &values, Options::from_map);
    }
}
