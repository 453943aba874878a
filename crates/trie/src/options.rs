//! The engine's options, with what each default costs and when to change it.

use std::collections::BTreeMap;
use std::path::PathBuf;

use siltstone_engine::{OptionReader, Result};

use crate::htable::{Build, Layout};

// ANCHOR: options
/// How a table of the LSM-trie engine is kept. Refused whole at open if it cannot be.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    /// Bytes of log that one memtable takes, and so of the HTable that it becomes (`table`, 32 MiB);
    /// it is full, too, when its memory reaches three times that. Larger: fewer levels, larger
    /// compactions, more memory.
    pub table_bytes: u64,
    /// Memtables in memory at once, the active one counted (`memtables`, 2).
    pub memtables: usize,
    /// Bytes of a bucket (`bucket`, 4 KiB): what a lookup reads. A multiple of what the medium reads
    /// at once.
    pub bucket_bytes: u64,
    /// Share of the buckets' room that items take (`fill`, 1): items of one length always, those of many
    /// as nearly as they can be placed. Less: fewer migrations, more space.
    pub fill: f64,
    /// Buckets of a segment (`segment`, 128): what is balanced together, and what a compaction holds in
    /// memory of each table. Fewer: less memory, less balance.
    pub segment: u32,
    /// Share of the buckets whose migration is cached (`migrations`, 0.2), the fullest first.
    pub cached_migrations: f64,
    /// Bits of prefix that a level takes (`fanout_bits`, 3: amplification factor 8). Of a table that
    /// is there already, its own hold.
    pub fanout_bits: u32,
    /// Levels (`levels`, 5). All but the last move their items on when they are full, and half of that is not
    /// garbage; the last only grows. More than the data needs cost nothing.
    pub levels: usize,
    /// Bits of Bloom filter an item (`filter_bits`, 16).
    pub filter_bits: f64,
    /// Bytes of filters that may be in memory (`filter_memory`, 1 GiB). Beyond, those of the last
    /// level go to BloomClusters on the medium: one more read for each lookup that gets there.
    pub filter_memory: u64,
    /// A container of the last level is collected when it has this many sub-levels and more garbage
    /// than `garbage` (`collect`, 8).
    pub collect_at: usize,
    /// Estimated share of garbage from which on a container of the last level is collected
    /// (`garbage`, 0.3); one above it with nothing beneath from a half on, if that is more. 1: never.
    pub garbage: f64,
    /// Sub-levels over which a container of the last level is merged into one dense run under a rank
    /// index (`run`, 0: never). Smaller: fewer filters and reads, more write amplification: a merge
    /// rewrites the run.
    pub run_at: usize,
    /// Whether tables are HTables or, for comparison, sorted tables with an index of their blocks
    /// (`tables`, `hash` or `sorted`): LSM-trie, or the paper's SSTable-trie.
    pub is_sorted: bool,
    /// A directory on another device for the files of the upper levels (`upper`, none): they are
    /// rewritten most and take least room. It is one table's alone, and must be given as long as
    /// there are files in it.
    pub upper: Option<PathBuf>,
    /// Levels whose files go there (`upper_levels`, 2).
    pub upper_levels: usize,
    /// Compactions at once (`jobs`, 2).
    pub jobs: usize,
    /// Tables in a container at which writers slow down (`slow`, 16) and stop (`stop`, 32).
    pub slow_at: usize,
    /// See `slow_at`.
    pub stop_at: usize,
    /// For tests: only 2^n different hashes (`weak_hash`, 0: all). Of a table that is there already,
    /// its own hold.
    pub weak_hash_bits: u32,
}
// ANCHOR_END: options

impl Default for Options {
    fn default() -> Self {
        Options {
            table_bytes: 32 << 20,
            memtables: 2,
            bucket_bytes: 4 << 10,
            fill: 1.0,
            segment: 128,
            cached_migrations: 0.2,
            fanout_bits: 3,
            levels: 5,
            filter_bits: 16.0,
            filter_memory: 1 << 30,
            collect_at: 8,
            garbage: 0.3,
            run_at: 0,
            is_sorted: false,
            upper: None,
            upper_levels: 2,
            jobs: 2,
            slow_at: 16,
            stop_at: 32,
            weak_hash_bits: 0,
        }
    }
}

impl Options {
    /// How tables are built.
    pub(crate) fn build(&self, layout: Layout) -> Build {
        let buckets = self.table_bytes / self.bucket_bytes;
        Build {
            bucket_bytes: self.bucket_bytes as u32,
            segment: self.segment,
            fill: self.fill,
            columns: buckets.max(1).next_power_of_two() as u32,
            filter_bits: self.filter_bits,
            cached_migrations: self.cached_migrations,
            layout,
        }
    }

    /// How tables are laid out, runs excepted.
    pub(crate) fn layout(&self) -> Layout {
        if self.is_sorted { Layout::Sorted } else { Layout::Buckets }
    }

    /// Options from `key=value` pairs; what is not given keeps its default.
    ///
    /// # Errors
    /// [`InvalidOptions`](siltstone_engine::Error::InvalidOptions) with every mistake.
    pub fn from_map(given: &BTreeMap<String, String>) -> Result<Self> {
        let mut o = Options::default();
        let mut reader = OptionReader::new(given);
        reader.size("table", &mut o.table_bytes);
        reader.value("memtables", &mut o.memtables);
        reader.size("bucket", &mut o.bucket_bytes);
        reader.value("fill", &mut o.fill);
        reader.value("segment", &mut o.segment);
        reader.value("migrations", &mut o.cached_migrations);
        reader.value("fanout_bits", &mut o.fanout_bits);
        reader.value("levels", &mut o.levels);
        reader.value("filter_bits", &mut o.filter_bits);
        reader.size("filter_memory", &mut o.filter_memory);
        reader.value("collect", &mut o.collect_at);
        reader.value("garbage", &mut o.garbage);
        reader.value("run", &mut o.run_at);
        let mut tables = String::from("hash");
        reader.value("tables", &mut tables);
        reader.require(matches!(&*tables, "hash" | "sorted"), "tables", "hash or sorted");
        o.is_sorted = tables == "sorted";
        let mut upper = String::new();
        reader.value("upper", &mut upper);
        o.upper = (!upper.is_empty()).then(|| upper.into());
        reader.value("upper_levels", &mut o.upper_levels);
        reader.value("jobs", &mut o.jobs);
        reader.value("slow", &mut o.slow_at);
        reader.value("stop", &mut o.stop_at);
        reader.value("weak_hash", &mut o.weak_hash_bits);
        o.check(&mut reader);
        reader.finish()?;
        Ok(o)
    }

    fn check(&self, reader: &mut OptionReader<'_>) {
        let between = |value: u64, low: u64, high: u64| (low..=high).contains(&value);
        let fan = 1usize << self.fanout_bits.min(8);
        let mut require = |holds, name, reason| reader.require(holds, name, reason);
        require(between(self.table_bytes, 1 << 10, 1 << 30), "table", "from 1KiB to 1GiB");
        require(between(self.memtables as u64, 2, 64), "memtables", "from 2 to 64");
        require(
            between(self.bucket_bytes, 256, 32 << 10) && self.bucket_bytes.is_power_of_two(),
            "bucket",
            "a power of two from 256 to 32KiB",
        );
        require((0.3..=1.0).contains(&self.fill), "fill", "from 0.3 to 1");
        require(between(self.segment.into(), 1, 8192), "segment", "from 1 to 8192");
        require((0.0..=1.0).contains(&self.cached_migrations), "migrations", "from 0 to 1");
        require(between(self.fanout_bits.into(), 1, 5), "fanout_bits", "from 1 to 5");
        require(between(self.levels as u64, 1, 10), "levels", "from 1 to 10");
        require((0.0..=40.0).contains(&self.filter_bits), "filter_bits", "from 0 to 40");
        require(self.collect_at >= 2, "collect", "at least 2");
        require((0.0..=1.0).contains(&self.garbage), "garbage", "from 0 to 1");
        require(self.run_at != 1, "run", "0, or at least 2");
        require(between(self.jobs as u64, 1, 64), "jobs", "from 1 to 64");
        require(self.slow_at > fan, "slow", "more than the fan-out");
        require(self.stop_at > self.slow_at, "stop", "more than slow");
        require(self.weak_hash_bits < 64, "weak_hash", "from 0 to 63");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use siltstone_engine::Error;

    #[test]
    fn is_every_mistake_named_at_once() {
        let bad = [("table", "1"), ("fill", "NaN"), ("run", "1"), ("stop", "3"), ("colour", "red")];
        let bad = bad.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        let Err(Error::InvalidOptions(mistakes)) = Options::from_map(&bad) else {
            panic!("accepted")
        };
        let names: Vec<_> = mistakes.iter().map(|m| m.option.as_str()).collect();
        assert_eq!(names, ["table", "fill", "run", "stop", "colour"]);
        assert_eq!(Options::from_map(&BTreeMap::new()).unwrap(), Options::default());
    }
}
