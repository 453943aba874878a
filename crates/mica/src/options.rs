//! How a store is laid out, and how its memory is divided.
//!
//! ```text
//! memory  ─┬─ partition ─┬─ index      buckets for as many items of `item` bytes as will fit
//!          ├─ partition  └─ items      the rest: a log, or a space of blocks
//!          └─ a line or two a thread
//! ```
//!
//! All of it is mapped at open, and nothing grows afterwards. In cache mode a bucket of 15 entries is
//! there for 10 items; in store mode one of 7 for 4.55, so that with a tenth as many spare buckets
//! the expected number of full ones has room to grow.
//!
//! Source: ours; the share of spare buckets is the thesis's (section 5.3.3).

use std::collections::BTreeMap;

use siltstone_engine::names::unknown;
use siltstone_engine::{MAX_KEY_BYTES, OptionReader, Result};

use crate::index::{lossless, lossy};
use crate::item::MAX_VALUE_BYTES;
use crate::keyhash::MAX_PARTITION_BITS;
use crate::mapping::{Mapping, WORD, whole_pages};
use crate::partition::cache::Eviction;
use crate::ring::OFFSET_BITS;
use crate::version::Access;

// ANCHOR: options
/// What a store does when it is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// The oldest items go.
    Cache,
    /// Writes are refused.
    Store,
}

/// Options of a store.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    /// What happens when it is full (`mode`, store).
    pub mode: Mode,
    /// Bytes of everything (`memory`, 256 MiB).
    pub memory_bytes: u64,
    /// Partitions, a power of two (`partitions`, one a core or the next power of two).
    pub partitions: usize,
    /// Who may do what at once (`access`, erew); can be changed while the store runs.
    pub access: Access,
    /// Which items go first, in cache mode (`eviction`, clock).
    pub eviction: Eviction,
    /// Expected bytes of a key and its value (`item`, 100): divides memory between index and items.
    /// If items are smaller, the index is full before the rest is.
    pub item_bytes: u64,
    /// Spare buckets for each main one, in store mode (`spare`, 0.1).
    pub spare: f64,
    /// Whether each write gives its item a stamp for compare-and-set (`stamps`, off): 8 bytes an item.
    pub keeps_stamps: bool,
    /// How the end of a log is mapped (`mapping`, auto).
    pub mapping: Mapping,
    /// Requests between the stages of the pipeline, 1 to 16 (`gap`, 8).
    pub gap: usize,
    /// Seeds the hash of keys (`hash_seed`); drawn at open if it is not given.
    pub hash_seed: Option<u64>,
    /// For tests: bits of an offset in a log (`offset_bits`, 48).
    pub offset_bits: u32,
    /// For tests: main buckets of a partition (`buckets`, 0: as many as `item` asks for).
    pub buckets: usize,
}
// ANCHOR_END: options

impl Default for Options {
    fn default() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Options {
            mode: Mode::Store,
            memory_bytes: 256 << 20,
            partitions: cores.next_power_of_two().min(1 << 8),
            access: Access::Erew,
            eviction: Eviction::Clock,
            item_bytes: 100,
            spare: 0.1,
            keeps_stamps: false,
            mapping: Mapping::Auto,
            gap: 8,
            hash_seed: None,
            offset_bits: OFFSET_BITS,
            buckets: 0,
        }
    }
}

/// Bytes of a partition that are neither index nor items, generously.
const OVERHEAD: u64 = 16 << 10;
/// Items that a bucket is there for.
const LOAD: f64 = 10.0;
const LOAD_LOSSLESS: f64 = 4.55;

/// How a partition's memory is divided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Layout {
    pub(crate) words: usize,
    pub(crate) buckets: usize,
    pub(crate) spare: usize,
}

impl Options {
    /// Options from `key=value` pairs; what is not given keeps its default.
    ///
    /// # Errors
    /// [`InvalidOptions`](siltstone_engine::Error::InvalidOptions) with every mistake.
    pub fn from_map(given: &BTreeMap<String, String>) -> Result<Self> {
        let mut o = Options::default();
        let mut reader = OptionReader::new(given);
        reader.with("mode", &mut o.mode, |text| {
            named(text, &[("cache", Mode::Cache), ("store", Mode::Store)])
        });
        reader.size("memory", &mut o.memory_bytes);
        reader.value("partitions", &mut o.partitions);
        reader.with("access", &mut o.access, |text| named(text, &Access::NAMED));
        reader.with("eviction", &mut o.eviction, |text| named(text, EVICTIONS));
        reader.size("item", &mut o.item_bytes);
        reader.value("spare", &mut o.spare);
        reader.flag("stamps", &mut o.keeps_stamps);
        reader.with("mapping", &mut o.mapping, |text| {
            use Mapping::{Auto, Mirrored, Plain};
            named(text, &[("auto", Auto), ("mirrored", Mirrored), ("plain", Plain)])
        });
        reader.value("gap", &mut o.gap);
        reader.with("hash_seed", &mut o.hash_seed, |text| {
            text.parse().map(Some).map_err(|_| format!("'{text}' is no number of 64 bits"))
        });
        reader.value("offset_bits", &mut o.offset_bits);
        reader.value("buckets", &mut o.buckets);
        o.check(&mut reader);
        reader.finish()?;
        Ok(o)
    }

    /// The least memory that leaves room for the largest item in each partition, by halving.
    fn least_memory(&self) -> u64 {
        let (mut low, mut high) = (0, 1 << 43);
        while low + 1 < high {
            let memory_bytes = u64::midpoint(low, high);
            let layout = Options { memory_bytes, ..self.clone() }.layout();
            let is_enough = layout.words as u64 >= MIN_ITEM_WORDS;
            (low, high) = if is_enough { (low, memory_bytes) } else { (memory_bytes, high) };
        }
        high
    }

    fn check(&self, reader: &mut OptionReader<'_>) {
        let partitions_are_right =
            self.partitions.is_power_of_two() && self.partitions <= 1 << MAX_PARTITION_BITS;
        reader.require(partitions_are_right, "partitions", "a power of two from 1 to 65536");
        reader.require((1..=16).contains(&self.gap), "gap", "from 1 to 16");
        let bounds = [
            ((1..=1 << 20).contains(&self.item_bytes), "item", "from 1 to 1MiB"),
            ((0.0..=1.0).contains(&self.spare), "spare", "from 0 to 1"),
            (self.memory_bytes <= 1 << 43, "memory", "at most 8TiB"),
            (self.buckets <= 1 << 31, "buckets", "at most 2^31"),
        ];
        bounds.iter().for_each(|&(holds, name, range)| reader.require(holds, name, range));
        // What is out of bounds has no layout that could be computed.
        if !partitions_are_right || bounds.iter().any(|&(holds, ..)| !holds) {
            return;
        }
        let layout = self.layout();
        if (layout.words as u64) < MIN_ITEM_WORDS {
            let (least, partitions) = (self.least_memory(), self.partitions);
            reader.mistake("memory", format!("at least {least} bytes for {partitions} partitions"));
        }
        let bits = (layout.words as u64).max(1).next_power_of_two().trailing_zeros();
        reader.require(
            (bits + 2..=OFFSET_BITS).contains(&self.offset_bits),
            "offset_bits",
            "at most 48, and enough for four times the log",
        );
    }

    /// How each partition's memory is divided.
    pub(crate) fn layout(&self) -> Layout {
        let bytes = (self.memory_bytes / self.partitions.max(1) as u64).saturating_sub(OVERHEAD);
        let is_cache = self.mode == Mode::Cache;
        let (load, bucket_words, spare) = match is_cache {
            true => (LOAD, lossy::WORDS, 0.0),
            false => (LOAD_LOSSLESS, lossless::WORDS, self.spare),
        };
        let bucket_bytes = (bucket_words * WORD) as f64 * (1.0 + spare);
        // Header and keyhash, a block's tag, and what padding takes.
        let item = (self.item_bytes + if is_cache { 16 } else { 24 }).next_multiple_of(8) as f64;
        let buckets = match self.buckets {
            0 => (bytes as f64 / (item * load + bucket_bytes)) as usize,
            given => given,
        };
        let buckets = buckets.clamp(1, 1 << 31);
        let spare = (buckets as f64 * spare) as usize;
        // Mappings are of whole pages.
        let index = (((buckets + spare) * bucket_words * WORD) as u64).next_multiple_of(4096);
        let words = whole_pages((bytes.saturating_sub(index) / WORD as u64) as usize);
        Layout { words, buckets, spare }
    }

    /// The largest value that a store so laid out takes, in bytes.
    pub fn max_value_bytes(&self) -> usize {
        // With the largest key it is a quarter of a partition's room at most, so that no item drives
        // out or keeps out everything else.
        let room = self.layout().words * WORD / 4;
        room.saturating_sub(MAX_KEY_BYTES + 64).min(MAX_VALUE_BYTES)
    }
}

/// Words for items in the smallest partition: eight of the largest keys.
const MIN_ITEM_WORDS: u64 = (MAX_KEY_BYTES * 8 / WORD) as u64;

const EVICTIONS: &[(&str, Eviction)] = &[
    ("fifo", Eviction::Fifo),
    ("lru", Eviction::Lru),
    ("approximate", Eviction::Approximate),
    ("clock", Eviction::Clock),
];

fn named<T: Copy>(text: &str, all: &[(&'static str, T)]) -> Result<T, String> {
    let found = all.iter().find(|(name, _)| *name == text);
    found.map(|found| found.1).ok_or_else(|| {
        let names: Vec<_> = all.iter().map(|(name, _)| *name).collect();
        unknown(text, &names)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use siltstone_engine::Error;

    fn from(pairs: &[(&str, &str)]) -> Result<Options> {
        let owned = pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        Options::from_map(&owned.collect())
    }

    #[test]
    fn is_every_mistake_named_at_once() {
        let bad = [
            ("mode", "both"),
            ("memory", "1KiB"),
            ("access", "none"),
            ("gap", "0"),
            ("eviction", "random"),
            ("colour", "red"),
        ];
        let Err(Error::InvalidOptions(mistakes)) = from(&bad) else { panic!("accepted") };
        let names: Vec<_> = mistakes.iter().map(|m| m.option.as_str()).collect();
        assert_eq!(names, ["mode", "access", "eviction", "gap", "memory", "colour"]);
        assert_eq!(from(&[]).unwrap(), Options::default());
        for (name, access) in Access::NAMED {
            assert_eq!((from(&[("access", name)]).unwrap().access, access.name()), (access, name));
        }
        assert!(from(&[("partitions", "3")]).is_err());
        assert!(from(&[("partitions", "0")]).is_err());
        assert!(from(&[("offset_bits", "10")]).is_err());
    }

    #[test]
    fn are_absurd_numbers_mistakes_and_no_overflow() {
        for name in ["memory", "partitions", "item", "spare", "gap", "offset_bits", "buckets"] {
            for value in ["18446744073709551615", "9223372036854775808", "-1", "NaN", "1e300"] {
                let Err(Error::InvalidOptions(mistakes)) = from(&[(name, value)]) else {
                    panic!("{name}={value} is accepted")
                };
                assert!(mistakes.iter().all(|m| m.option == name), "{name}={value}: {mistakes:?}");
            }
        }
    }

    #[test]
    fn is_the_memory_that_is_asked_for_enough() {
        for pairs in
            [[("mode", "cache"), ("item", "10")], [("partitions", "4"), ("buckets", "100")]]
        {
            let with = |memory: &str| from(&[&pairs[..], &[("memory", memory)]].concat());
            let Err(Error::InvalidOptions(mistakes)) = with("1KiB") else { panic!("accepted") };
            let asked = mistakes[0].reason.split(' ').nth(2).unwrap();
            let less = (asked.parse::<u64>().unwrap() - 1).to_string();
            assert!(with(asked).is_ok() && with(&less).is_err(), "{asked}");
        }
    }

    #[test]
    fn does_the_layout_take_what_is_given_and_no_more() {
        for mode in ["cache", "store"] {
            for memory in [4u64 << 20, 5_000_000, 64 << 20, 1 << 30, 100 << 30] {
                for item in ["1", "16", "100", "1MiB"] {
                    let memory_text = memory.to_string();
                    let pairs = [
                        ("mode", mode),
                        ("memory", &memory_text),
                        ("item", item),
                        ("partitions", "2"),
                    ];
                    let options = from(&pairs).unwrap();
                    let layout = options.layout();
                    let bucket = if mode == "cache" { lossy::WORDS } else { lossless::WORDS };
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
    fn does_the_smallest_store_take_the_largest_key() {
        let least = from(&[("memory", "1"), ("partitions", "2")]).unwrap_err().to_string();
        let least: u64 = least.split(' ').find_map(|word| word.parse().ok()).unwrap();
        for mode in ["cache", "store"] {
            let least = least.to_string();
            let options = from(&[("mode", mode), ("memory", &least), ("partitions", "2")]).unwrap();
            assert!(options.max_value_bytes() > 0);
        }
    }
}
