//! Options of a store, and the division of its memory.
//!
//! ```text
//! memory  ─┬─ partition ─┬─ index      buckets for as many items of the expected size as fit
//!          ├─ partition  └─ items      the rest: a log, or a heap of blocks
//!          └─ one or two cache lines per thread
//! ```
//!
//! All memory is mapped at open and never grows. In cache mode there is a bucket of 15 entries per
//! 10 expected items; in store mode a bucket of 7 per 4.55, so that spare buckets for a tenth of
//! the main ones suffice for the buckets that overflow.
//!
//! Source: the share of spare buckets is the thesis's (section 5.3.3).

use std::collections::BTreeMap;

use siltstone_engine::{MAX_KEY_BYTES, OptionReader, Result};

use crate::index::{lossless, lossy};
use crate::item::MAX_VALUE_BYTES;
use crate::keyhash::MAX_PARTITION_BITS;
use crate::mapping::{Mapping, WORD_BYTES, whole_pages};
use crate::partition::cache_mode::Eviction;
use crate::ring::OFFSET_BITS;
use crate::version::Access;

/// Former option names with the present ones. [`Options::from_map`] accepts both.
pub const RENAMED_OPTIONS: &[(&str, &str)] = &[
    ("item", "expected_item_bytes"),
    ("spare", "overflow_ratio"),
    ("stamps", "cas"),
    ("gap", "prefetch_distance"),
    ("hash_seed", "experimental.hash_seed"),
    ("offset_bits", "experimental.offset_bits"),
    ("buckets", "experimental.buckets"),
];

/// The options that [`set_options`](siltstone_engine::Engine::set_options) changes. The others
/// change at the next open, when the table is empty.
pub const LIVE_OPTIONS: &[&str] = &["access"];

/// Behaviour of a full store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Evict the oldest items.
    Cache,
    /// Reject writes with an error.
    Store,
}

/// Options of a store. The name that users type is in parentheses.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    /// `cache` or `store` (`mode`, default `store`): what a full store does. Use `cache` where
    /// losing old items is acceptable.
    pub mode: Mode,
    /// Size (`memory`, default 256 MiB, up to 8 TiB): memory of index and items, mapped at open.
    /// Increase it if the store is full or evicts too much.
    pub memory_bytes: u64,
    /// Power of two, 1 to 65,536 (`partitions`, default: number of cores, rounded up to a power of
    /// two). Each partition is an equal share of keys and memory with its own lock. Fewer mean more
    /// contention; more limit the largest value, which must fit its partition.
    pub partitions: usize,
    /// `erew`, `crew` or `crcw` (`access`, default `erew`): exclusive access per partition,
    /// concurrent reads, or concurrent reads and writes. The concurrent modes cost version checks
    /// per operation; use them if a few partitions receive most requests. Can be changed at
    /// runtime.
    pub access: Access,
    /// `fifo`, `lru`, `approximate`, `clock` or `s3-fifo` (`eviction`, default `clock`; cache mode
    /// only): which items are evicted first. All but `fifo` update an access mark on reads; `fifo`
    /// is fastest and has the lowest hit ratio. `s3-fifo` has the highest where many keys are
    /// requested once, but evicts a new item that is not used while a tenth of the memory is
    /// written; its writes cost a few index entries more.
    pub eviction: Eviction,
    /// Size, 1 byte to 1 MiB (`expected_item_bytes`, default 100): expected length of key and value
    /// together. It divides the memory between index and items. Set it to the real average: if it
    /// is too large, the index is full first; if it is too small, memory of the index is wasted.
    pub expected_item_bytes: u64,
    /// Number, 0 to 1 (`overflow_ratio`, default 0.1; store mode only): spare buckets per main
    /// bucket. Increase it if the store reports that it is full while `free_bytes` remain.
    pub overflow_ratio: f64,
    /// Flag (`cas`, default off): whether each write gives its item a version for compare-and-set.
    /// Costs 8 bytes per item. Needed for memcached's `cas` if clients also write over UDP.
    pub cas: bool,
    /// `auto`, `mirrored` or `plain` (`mapping`, default `auto`; cache mode only): whether the log
    /// is mapped twice, so that no item wraps. `auto` does so only on huge pages; `mirrored` fails
    /// where that is impossible. A mirror saves less than one item's space per lap.
    pub mapping: Mapping,
    /// Number of requests, 1 to 16 (`prefetch_distance`, default 8): distance between the pipeline
    /// stages of a burst. Increase it on machines with a high memory latency.
    pub prefetch_distance: usize,
    /// 64-bit number (`experimental.hash_seed`, default: random at each open): seed of the keyhash.
    /// Only for repeatable experiments: a known seed lets clients choose colliding keys.
    pub hash_seed: Option<u64>,
    /// Number of bits (`experimental.offset_bits`, default 48): width of log offsets. Only for
    /// tests, where narrow offsets repeat soon.
    pub offset_bits: u32,
    /// Number (`experimental.buckets`, default 0): main buckets per partition; 0 derives them from
    /// `expected_item_bytes`. Only for tests and experiments.
    pub buckets: usize,
}

impl Default for Options {
    fn default() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Options {
            mode: Mode::Store,
            memory_bytes: 256 << 20,
            partitions: cores.next_power_of_two().min(1 << 8),
            access: Access::Erew,
            eviction: Eviction::Clock,
            expected_item_bytes: 100,
            overflow_ratio: 0.1,
            cas: false,
            mapping: Mapping::Auto,
            prefetch_distance: 8,
            hash_seed: None,
            offset_bits: OFFSET_BITS,
            buckets: 0,
        }
    }
}

/// An upper bound of a partition's memory besides index and items.
const OVERHEAD_BYTES: u64 = 16 << 10;
/// Expected items per bucket.
const LOSSY_LOAD: f64 = 10.0;
const LOSSLESS_LOAD: f64 = 4.55;

/// Sizes of a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Layout {
    /// Words for items.
    pub(crate) words: usize,
    /// Main buckets.
    pub(crate) buckets: usize,
    /// Spare buckets.
    pub(crate) spare: usize,
}

impl Options {
    /// Options from `key=value` pairs; others keep their defaults. Old names are accepted too:
    /// see [`RENAMED_OPTIONS`].
    ///
    /// # Errors
    /// [`InvalidOptions`](siltstone_engine::Error::InvalidOptions) with all invalid options.
    pub fn from_map(given: &BTreeMap<String, String>) -> Result<Self> {
        let mut o = Options::default();
        let mut reader = OptionReader::new(given);
        reader.renamed(RENAMED_OPTIONS);
        reader.choice("mode", &mut o.mode, &[("cache", Mode::Cache), ("store", Mode::Store)]);
        reader.size("memory", &mut o.memory_bytes);
        reader.value("partitions", &mut o.partitions);
        reader.choice("access", &mut o.access, &Access::NAMED);
        reader.choice("eviction", &mut o.eviction, EVICTIONS);
        reader.size("expected_item_bytes", &mut o.expected_item_bytes);
        reader.value("overflow_ratio", &mut o.overflow_ratio);
        reader.flag("cas", &mut o.cas);
        use Mapping::{Auto, Mirrored, Plain};
        let mappings = [("auto", Auto), ("mirrored", Mirrored), ("plain", Plain)];
        reader.choice("mapping", &mut o.mapping, &mappings);
        reader.value("prefetch_distance", &mut o.prefetch_distance);
        reader.with("experimental.hash_seed", &mut o.hash_seed, |text| {
            text.parse().map(Some).map_err(|_| format!("'{text}' is not a 64-bit number"))
        });
        reader.value("experimental.offset_bits", &mut o.offset_bits);
        reader.value("experimental.buckets", &mut o.buckets);
        o.check(&mut reader);
        reader.finish()?;
        Ok(o)
    }

    /// The minimum memory with room for the largest item in each partition, by binary search.
    fn min_memory(&self) -> u64 {
        let (mut low, mut high) = (0, 1 << 43);
        while low + 1 < high {
            let memory_bytes = u64::midpoint(low, high);
            let layout = Options { memory_bytes, ..self.clone() }.layout();
            let is_enough = layout.words as u64 >= MIN_PARTITION_WORDS;
            (low, high) = if is_enough { (low, memory_bytes) } else { (memory_bytes, high) };
        }
        high
    }

    fn check(&self, reader: &mut OptionReader<'_>) {
        let is_valid_count =
            self.partitions.is_power_of_two() && self.partitions <= 1 << MAX_PARTITION_BITS;
        reader.require(is_valid_count, "partitions", "a power of two from 1 to 65536");
        let distances = 1..=16;
        let is_distance = distances.contains(&self.prefetch_distance);
        reader.require(is_distance, "prefetch_distance", "from 1 to 16");
        let bounds = [
            (
                (1..=1 << 20).contains(&self.expected_item_bytes),
                "expected_item_bytes",
                "from 1 to 1MiB",
            ),
            ((0.0..=1.0).contains(&self.overflow_ratio), "overflow_ratio", "from 0 to 1"),
            (self.memory_bytes <= 1 << 43, "memory", "at most 8TiB"),
            (self.buckets <= 1 << 31, "experimental.buckets", "at most 2^31"),
        ];
        bounds.iter().for_each(|&(is_valid, name, range)| reader.require(is_valid, name, range));
        // The layout can be computed only from valid options.
        if !is_valid_count || bounds.iter().any(|&(is_valid, ..)| !is_valid) {
            return;
        }
        let layout = self.layout();
        if (layout.words as u64) < MIN_PARTITION_WORDS {
            let (min, partitions) = (self.min_memory(), self.partitions);
            reader.mistake("memory", format!("at least {min} bytes for {partitions} partitions"));
        }
        let bits = (layout.words as u64).max(1).next_power_of_two().trailing_zeros();
        reader.require(
            (bits + 2..=OFFSET_BITS).contains(&self.offset_bits),
            "experimental.offset_bits",
            "at most 48, and enough for four times the log",
        );
    }

    /// The sizes of each partition.
    pub(crate) fn layout(&self) -> Layout {
        let bytes =
            (self.memory_bytes / self.partitions.max(1) as u64).saturating_sub(OVERHEAD_BYTES);
        let is_cache = self.mode == Mode::Cache;
        let (load, bucket_words, spare) = match is_cache {
            true => (LOSSY_LOAD, lossy::BUCKET_WORDS, 0.0),
            false => (LOSSLESS_LOAD, lossless::BUCKET_WORDS, self.overflow_ratio),
        };
        let bucket_bytes = (bucket_words * WORD_BYTES) as f64 * (1.0 + spare);
        // Plus header, keyhash, a block's tag, and padding.
        let item =
            (self.expected_item_bytes + if is_cache { 16 } else { 24 }).next_multiple_of(8) as f64;
        let buckets = match self.buckets {
            0 => (bytes as f64 / (item * load + bucket_bytes)) as usize,
            given => given,
        };
        let buckets = buckets.clamp(1, 1 << 31);
        let spare = (buckets as f64 * spare) as usize;
        // Mappings are of whole pages.
        let index = (((buckets + spare) * bucket_words * WORD_BYTES) as u64).next_multiple_of(4096);
        let words = whole_pages((bytes.saturating_sub(index) / WORD_BYTES as u64) as usize);
        Layout { words, buckets, spare }
    }

    /// The largest value of a store with these options, in bytes.
    pub fn max_value_bytes(&self) -> usize {
        // With the largest key an item takes at most a quarter of a partition, so that no item
        // displaces everything else.
        let room = self.layout().words * WORD_BYTES / 4;
        room.saturating_sub(MAX_KEY_BYTES + 64).min(MAX_VALUE_BYTES)
    }
}

/// Minimum size of a partition, in words: eight of the largest keys.
const MIN_PARTITION_WORDS: u64 = (MAX_KEY_BYTES * 8 / WORD_BYTES) as u64;

const EVICTIONS: &[(&str, Eviction)] = &[
    ("fifo", Eviction::Fifo),
    ("lru", Eviction::Lru),
    ("approximate", Eviction::Approximate),
    ("clock", Eviction::Clock),
    ("s3-fifo", Eviction::S3Fifo),
];

#[cfg(test)]
mod tests {
    use super::*;
    use siltstone_engine::Error;

    fn from(pairs: &[(&str, &str)]) -> Result<Options> {
        let owned = pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        Options::from_map(&owned.collect())
    }

    #[test]
    fn all_invalid_options_are_reported_at_once() {
        let bad = [
            ("mode", "both"),
            ("memory", "1KiB"),
            ("access", "none"),
            ("prefetch_distance", "0"),
            ("eviction", "random"),
            ("colour", "red"),
        ];
        let Err(Error::InvalidOptions(mistakes)) = from(&bad) else { panic!("accepted") };
        let names: Vec<_> = mistakes.iter().map(|m| m.option.as_str()).collect();
        assert_eq!(names, ["mode", "access", "eviction", "prefetch_distance", "memory", "colour"]);
        assert_eq!(from(&[]).unwrap(), Options::default());
        for (name, access) in Access::NAMED {
            assert_eq!((from(&[("access", name)]).unwrap().access, access.name()), (access, name));
        }
        assert!(from(&[("partitions", "3")]).is_err());
        assert!(from(&[("partitions", "0")]).is_err());
        assert!(from(&[("experimental.offset_bits", "10")]).is_err());
    }

    #[test]
    fn old_option_names_set_the_renamed_options() {
        let old = [("mode", "cache"), ("item", "16"), ("spare", "0.5"), ("stamps", "on")];
        let old = [&old[..], &[("gap", "4"), ("hash_seed", "9"), ("buckets", "60")]].concat();
        let renamed = |name| {
            let pair = RENAMED_OPTIONS.iter().find(|(old, _)| *old == name);
            pair.map_or(name, |&(_, new)| new)
        };
        let new: Vec<_> = old.iter().map(|&(name, value)| (renamed(name), value)).collect();
        let options = from(&old).unwrap();
        assert_eq!(options, from(&new).unwrap());
        assert_eq!((options.expected_item_bytes, options.overflow_ratio), (16, 0.5));
        assert_eq!((options.cas, options.prefetch_distance), (true, 4));
        assert_eq!((options.hash_seed, options.buckets), (Some(9), 60));
        let Err(Error::InvalidOptions(mistakes)) = from(&[("gap", "0")]) else {
            panic!("accepted")
        };
        assert_eq!(mistakes[0].option, "prefetch_distance");
    }

    #[test]
    fn absurd_numbers_are_invalid_and_do_not_overflow() {
        for name in [
            "memory",
            "partitions",
            "expected_item_bytes",
            "overflow_ratio",
            "prefetch_distance",
            "experimental.offset_bits",
            "experimental.buckets",
        ] {
            for value in ["18446744073709551615", "9223372036854775808", "-1", "NaN", "1e300"] {
                let Err(Error::InvalidOptions(mistakes)) = from(&[(name, value)]) else {
                    panic!("{name}={value} is accepted")
                };
                assert!(mistakes.iter().all(|m| m.option == name), "{name}={value}: {mistakes:?}");
            }
        }
    }

    #[test]
    fn suggested_minimum_memory_is_exact() {
        for pairs in [
            [("mode", "cache"), ("expected_item_bytes", "10")],
            [("partitions", "4"), ("experimental.buckets", "100")],
        ] {
            let with = |memory: &str| from(&[&pairs[..], &[("memory", memory)]].concat());
            let Err(Error::InvalidOptions(mistakes)) = with("1KiB") else { panic!("accepted") };
            let suggested = mistakes[0].reason.split(' ').nth(2).unwrap();
            let less = (suggested.parse::<u64>().unwrap() - 1).to_string();
            assert!(with(suggested).is_ok() && with(&less).is_err(), "{suggested}");
        }
    }

    #[test]
    fn layout_uses_the_given_memory() {
        for mode in ["cache", "store"] {
            for memory in [4u64 << 20, 5_000_000, 64 << 20, 1 << 30, 100 << 30] {
                for item in ["1", "16", "100", "1MiB"] {
                    let memory_text = memory.to_string();
                    let pairs = [
                        ("mode", mode),
                        ("memory", &memory_text),
                        ("expected_item_bytes", item),
                        ("partitions", "2"),
                    ];
                    let options = from(&pairs).unwrap();
                    let layout = options.layout();
                    let bucket =
                        if mode == "cache" { lossy::BUCKET_WORDS } else { lossless::BUCKET_WORDS };
                    let words = layout.words + (layout.buckets + layout.spare) * bucket;
                    let bytes = words as u64 * 8 * 2;
                    assert!(bytes <= memory, "{pairs:?} takes {bytes}");
                    // Pages of 2 MiB may stay empty at the end of each partition.
                    let lost = (memory - bytes) as f64 / memory as f64;
                    assert!(lost < 0.1, "{pairs:?} leaves {lost}");
                }
            }
        }
    }

    #[test]
    fn smallest_store_accepts_largest_key() {
        let least = from(&[("memory", "1"), ("partitions", "2")]).unwrap_err().to_string();
        let least: u64 = least.split(' ').find_map(|word| word.parse().ok()).unwrap();
        for mode in ["cache", "store"] {
            let least = least.to_string();
            let options = from(&[("mode", mode), ("memory", &least), ("partitions", "2")]).unwrap();
            assert!(options.max_value_bytes() > 0);
        }
    }
}
