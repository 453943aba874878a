//! The engine's options, with what each default costs and when to change it.

use std::collections::BTreeMap;
use std::time::Duration;

use siltstone_engine::options::parse_duration;
use siltstone_engine::{OptionReader, Result};

use crate::flash::Geometry;

// ANCHOR: options
/// How a table of this engine is kept. Refused whole at open if it cannot be.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    /// Bytes of the flash device (`capacity`, 1 GiB), what it keeps in reserve too. Its file is
    /// sparse: it takes what is written. Fixed when the table is made.
    pub capacity_bytes: u64,
    /// Bytes of a page (`page`, 4 KiB), of 4 KiB to 64 KiB. Fixed when the table is made.
    pub page_bytes: u64,
    /// Pages of an erase block (`block`, 32). Fixed when the table is made.
    pub pages_per_block: u32,
    /// What maps keys to pages (`mapping`, `skimpy`). Fixed when the table is made.
    pub mapping: Mapping,
    /// Hash buckets, four bytes of memory each, and one more for collection (`buckets`, 0: one for
    /// five records of 512 bytes of the capacity's third). Fewer make chains longer. Fixed when the table is
    /// made.
    pub buckets: u32,
    /// Keys whose newest version's place is kept in memory (`cache`, 0: a tenth of the keys that the buckets are
    /// made for), 16 bytes each.
    pub cache_keys: u64,
    /// How old what is buffered gets before the next write programs it, its last page as it is (`pack`, 1ms).
    pub pack: Duration,
    /// How long history stays readable (`retention`, 0s): a version goes once a newer one of its key is older
    /// than this and no snapshot needs it.
    pub retention: Duration,
    /// The share of the blocks that collection keeps free (`free`, 0.1), of 0.05 to 0.9.
    pub free: f64,
    /// After so many pages that lookups have read beyond the first the last one's bucket is collected (`tidy`, 16;
    /// 0: never); to find a key on a channel that more lookups wait for than for others counts as four. Fewer make
    /// lookups shorter and writes dearer.
    pub tidy: u64,
    /// Blocks that are programmed side by side (`lanes`, 1): as many as the device has channels.
    pub lanes: u32,
    /// Of the mapping `vftl`: how its lower layer chooses lanes. It has no name: experiments alone set it.
    pub below: Below,
    /// Of the mappings `semel` and `vftl`: small writes wait for as many as those of `skimpy`, which are sorted
    /// meanwhile. It has no name: experiments alone set it.
    pub gathers: bool,
}
// ANCHOR_END: options

/// What maps keys to pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mapping {
    /// Heads of buckets in memory, chains on flash, a cache of translations.
    Skimpy,
    /// Every version in memory.
    Semel,
    /// Every version in memory, over a page-mapped translation layer that knows nothing of it.
    Vftl,
}

/// Which lane the translation layer below VFTL gives its next page to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Below {
    /// Each in turn, as the layer above: so the blocks of one are the blocks of the other.
    #[default]
    InTurn,
    /// The one that has least to do: it knows nothing of the layer above.
    Idlest,
}

impl Mapping {
    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Mapping::Skimpy => "skimpy",
            Mapping::Semel => "semel",
            Mapping::Vftl => "vftl",
        }
    }

    fn parse(text: &str) -> Result<Self, String> {
        let all = [Mapping::Skimpy, Mapping::Semel, Mapping::Vftl];
        let found = all.into_iter().find(|mapping| mapping.name() == text);
        found.ok_or_else(|| format!("'{text}' is none of skimpy, semel, vftl"))
    }
}

impl Default for Options {
    fn default() -> Self {
        Options {
            capacity_bytes: 1 << 30,
            page_bytes: 4096,
            pages_per_block: 32,
            mapping: Mapping::Skimpy,
            buckets: 0,
            cache_keys: 0,
            pack: Duration::from_millis(1),
            retention: Duration::ZERO,
            free: 0.1,
            tidy: 16,
            lanes: 1,
            below: Below::default(),
            gathers: false,
        }
    }
}

/// Blocks below which nothing can be collected: open ones, those of checkpoints, room to copy into.
const LEAST_BLOCKS: u64 = 24;

impl Options {
    /// Reads options by name.
    ///
    /// # Errors
    /// [`siltstone_engine::Error::InvalidOptions`], all mistakes at once.
    pub fn from_map(map: &BTreeMap<String, String>) -> Result<Self> {
        let mut options = Options::default();
        let mut reader = OptionReader::new(map);
        reader.size("capacity", &mut options.capacity_bytes);
        reader.size("page", &mut options.page_bytes);
        reader.value("block", &mut options.pages_per_block);
        reader.with("mapping", &mut options.mapping, Mapping::parse);
        reader.value("buckets", &mut options.buckets);
        reader.value("cache", &mut options.cache_keys);
        reader.with("pack", &mut options.pack, parse_duration);
        reader.with("retention", &mut options.retention, parse_duration);
        reader.value("free", &mut options.free);
        reader.value("tidy", &mut options.tidy);
        reader.value("lanes", &mut options.lanes);
        let page = options.page_bytes;
        let page_holds = page.is_power_of_two() && (4096..=65536).contains(&page);
        reader.require(page_holds, "page", "a page is a power of two from 4KiB to 64KiB");
        let block_holds = (2..=1024).contains(&options.pages_per_block);
        reader.require(block_holds, "block", "a block has 2 to 1024 pages");
        reader.require((1..=64).contains(&options.lanes), "lanes", "give 1 to 64 lanes");
        if page_holds && block_holds {
            let blocks = options.capacity_bytes / (page * u64::from(options.pages_per_block));
            let least = LEAST_BLOCKS + 6 * u64::from(options.lanes);
            if blocks < least {
                let reason = format!(
                    "{blocks} blocks of {} pages of {page} bytes are too few: give at least {least}",
                    options.pages_per_block
                );
                reader.mistake("capacity", reason);
            }
            let pages = blocks * u64::from(options.pages_per_block);
            reader.require(
                pages <= (1 << 29) - (1 << 17),
                "capacity",
                "a device has at most 2^29 pages, less a few",
            );
        }
        let free_holds = (0.05..=0.9).contains(&options.free);
        reader.require(free_holds, "free", "keep a share of 0.05 to 0.9 free");
        reader.require(options.buckets < 1 << 30, "buckets", "give at most 2^30");
        reader.require(options.cache_keys < 1 << 32, "cache", "give less than 2^32 keys");
        reader.finish()?;
        Ok(options)
    }

    /// The device's pages and blocks: the capacity, rounded down to whole blocks.
    ///
    /// # Errors
    /// `InvalidOptions`, if there can be no such device.
    pub fn geometry(&self) -> Result<Geometry> {
        let block = self.page_bytes * u64::from(self.pages_per_block);
        let blocks = (self.capacity_bytes / block.max(1)).min(u64::from(u32::MAX));
        Geometry::new(self.page_bytes as u32, self.pages_per_block, blocks as u32)
    }

    /// The largest value: 1 MiB, on small devices a sixteenth of them.
    pub fn max_value_bytes(&self) -> usize {
        (self.capacity_bytes / 16).min(crate::MAX_VALUE_BYTES as u64) as usize
    }

    /// The buckets of a new table.
    pub(crate) fn buckets_of_new(&self) -> u32 {
        match self.buckets {
            0 => (self.capacity_bytes / 512 / 3 / 5).clamp(1, 1 << 30) as u32,
            some => some,
        }
    }

    /// Entries of the translation cache, where a table has these buckets.
    pub(crate) fn cache_of(&self, buckets: u32) -> u64 {
        match self.cache_keys {
            0 => u64::from(buckets) / 2,
            some => some,
        }
    }
}
