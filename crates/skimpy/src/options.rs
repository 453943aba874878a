//! The options of the engine, with their defaults and costs, read from `key=value` pairs.

use std::collections::BTreeMap;
use std::time::Duration;

use siltstone_engine::options::parse_duration;
use siltstone_engine::{OptionReader, Result};

use crate::flash::Geometry;

/// Old option names with their present ones. Catalogues of existing stores contain the old names,
/// so both are accepted.
pub const RENAMED_OPTIONS: &[(&str, &str)] = &[
    ("pack", "buffer_delay"),
    ("free", "reserved_space"),
    ("tidy", "read_compaction_after"),
    ("lanes", "channels"),
];

/// The options that never change after the table was created.
pub const FIXED_OPTIONS: &[&str] = &["capacity", "page", "block", "mapping", "buckets"];

/// The options of a table. Invalid options are rejected at open, all of them in one error.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    /// Bytes of the flash device, its reserve included (`capacity`, 1 GiB): at least 24 blocks and
    /// 6 more per channel, and less than 2^29 pages. The device's file is sparse: it takes the
    /// space that is written. Fixed when the table is created.
    pub capacity_bytes: u64,
    /// Bytes of a flash page (`page`, 4 KiB): a power of two from 4 KiB to 64 KiB. Larger pages
    /// cost more per read and pack more records. Fixed when the table is created.
    pub page_bytes: u64,
    /// Pages of an erase block (`block`, 32): 2 to 1,024. Larger blocks need fewer erases and give
    /// back space later. Fixed when the table is created.
    pub pages_per_block: u32,
    /// The index from keys to pages (`mapping`, `skimpy`): `skimpy`, or `semel` and `vftl`, which
    /// take memory per version. Fixed when the table is created.
    pub mapping: Mapping,
    /// Hash buckets (`buckets`, 0: one per five records of 512 bytes in a third of the capacity):
    /// up to 2^30, five bytes of memory each. Fewer buckets make chains longer, and lookups slower.
    /// Fixed when the table is created.
    pub buckets: u32,
    /// Keys whose newest version is located in memory (`cache`, 0: half the number of buckets): up
    /// to 2^32, 16 bytes of memory each. Raise it where more keys are hot.
    pub cache_keys: u64,
    /// The age at which buffered writes are programmed by the next write (`buffer_delay`, 1ms),
    /// even if their last page is not full. A longer delay fills pages better; writes remain in the
    /// journal meanwhile.
    pub buffer_delay: Duration,
    /// How long old versions stay readable (`retention`, 0s). A version is discarded once a newer
    /// one of its key is older than this and no snapshot needs it. A longer retention takes more
    /// space.
    pub retention: Duration,
    /// The fraction of blocks that collection keeps free (`reserved_space`, 0.1): 0.05 to 0.9. More
    /// free space lowers write amplification and leaves less capacity.
    pub reserved_space: f64,
    /// Page reads beyond the first of a lookup after which a bucket is collected
    /// (`read_compaction_after`, 16; 0: never). The bucket of the last such lookup is taken;
    /// finding a key on a hot channel counts as four reads. A lower value makes lookups shorter and
    /// adds writes.
    pub read_compaction_after: u64,
    /// Flash channels, each with an open block of its own (`channels`, 1): 1 to 64. Set it to the
    /// number of channels of the device.
    pub channels: u32,
    /// How the translation layer of `vftl` selects a channel. No option name: for experiments only.
    pub ftl_placement: FtlPlacement,
    /// Whether `semel` and `vftl` accumulate small writes as `skimpy` does. No option name: for
    /// experiments only.
    pub accumulates_writes: bool,
}

/// The index from keys to pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mapping {
    /// Heads of buckets in memory, chains on flash, and a translation cache.
    Skimpy,
    /// Every version in memory.
    Semel,
    /// As `Semel`, over a page-mapped translation layer that does not know of it.
    Vftl,
}

/// How the translation layer below VFTL selects the channel of its next page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FtlPlacement {
    /// Round robin, as the layer above: a block of one layer is then a block of the other.
    #[default]
    RoundRobin,
    /// The least loaded channel, independently of the layer above.
    LeastLoaded,
}

impl Mapping {
    /// The value of the option `mapping`.
    pub fn name(self) -> &'static str {
        match self {
            Mapping::Skimpy => "skimpy",
            Mapping::Semel => "semel",
            Mapping::Vftl => "vftl",
        }
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
            buffer_delay: Duration::from_millis(1),
            retention: Duration::ZERO,
            reserved_space: 0.1,
            read_compaction_after: 16,
            channels: 1,
            ftl_placement: FtlPlacement::default(),
            accumulates_writes: false,
        }
    }
}

/// The minimum number of blocks for collection: open blocks, checkpoints, and space for copies.
const MIN_BLOCKS: u64 = 24;

impl Options {
    /// Options from `key=value` pairs; missing ones keep their defaults.
    ///
    /// # Errors
    /// [`InvalidOptions`](siltstone_engine::Error::InvalidOptions) with every mistake.
    pub fn from_map(map: &BTreeMap<String, String>) -> Result<Self> {
        let mut options = Options::default();
        let mut reader = OptionReader::new(map);
        reader.renamed(RENAMED_OPTIONS);
        reader.size("capacity", &mut options.capacity_bytes);
        reader.size("page", &mut options.page_bytes);
        reader.value("block", &mut options.pages_per_block);
        let mappings = [Mapping::Skimpy, Mapping::Semel, Mapping::Vftl].map(|it| (it.name(), it));
        reader.choice("mapping", &mut options.mapping, &mappings);
        reader.value("buckets", &mut options.buckets);
        reader.value("cache", &mut options.cache_keys);
        reader.with("buffer_delay", &mut options.buffer_delay, parse_duration);
        reader.with("retention", &mut options.retention, parse_duration);
        reader.value("reserved_space", &mut options.reserved_space);
        reader.value("read_compaction_after", &mut options.read_compaction_after);
        reader.value("channels", &mut options.channels);
        let page = options.page_bytes;
        let is_page_valid = page.is_power_of_two() && (4096..=65536).contains(&page);
        reader.require(is_page_valid, "page", "a page is a power of two from 4KiB to 64KiB");
        let is_block_valid = (2..=1024).contains(&options.pages_per_block);
        reader.require(is_block_valid, "block", "a block has 2 to 1024 pages");
        reader.require((1..=64).contains(&options.channels), "channels", "give 1 to 64 channels");
        if is_page_valid && is_block_valid {
            let blocks = options.capacity_bytes / (page * u64::from(options.pages_per_block));
            let min = MIN_BLOCKS + 6 * u64::from(options.channels);
            if blocks < min {
                let reason = format!(
                    "{blocks} blocks of {} pages of {page} bytes are too few: give at least {min}",
                    options.pages_per_block
                );
                reader.mistake("capacity", reason);
            }
            let pages = blocks * u64::from(options.pages_per_block);
            reader.require(
                pages <= (1 << 29) - (1 << 17),
                "capacity",
                "a device has less than 2^29 - 2^17 pages",
            );
        }
        let is_reserve_valid = (0.05..=0.9).contains(&options.reserved_space);
        reader.require(is_reserve_valid, "reserved_space", "reserve a fraction of 0.05 to 0.9");
        reader.require(options.buckets < 1 << 30, "buckets", "give at most 2^30");
        reader.require(options.cache_keys < 1 << 32, "cache", "give less than 2^32 keys");
        reader.finish()?;
        Ok(options)
    }

    /// Pages and blocks of the device: the capacity, rounded down to whole blocks.
    ///
    /// # Errors
    /// `InvalidOptions` if no device can have this geometry.
    pub fn geometry(&self) -> Result<Geometry> {
        let block = self.page_bytes * u64::from(self.pages_per_block);
        let blocks = (self.capacity_bytes / block.max(1)).min(u64::from(u32::MAX));
        Geometry::new(self.page_bytes as u32, self.pages_per_block, blocks as u32)
    }

    /// The largest value, in bytes: 1 MiB, or a sixteenth of the capacity if that is less.
    pub fn max_value_bytes(&self) -> usize {
        (self.capacity_bytes / 16).min(crate::MAX_VALUE_BYTES as u64) as usize
    }

    /// The number of buckets of a new table.
    pub(crate) fn buckets_of_new(&self) -> u32 {
        match self.buckets {
            0 => (self.capacity_bytes / 512 / 3 / 5).clamp(1, 1 << 30) as u32,
            some => some,
        }
    }

    /// Entries of the translation cache of a table with `buckets` buckets.
    pub(crate) fn cache_of(&self, buckets: u32) -> u64 {
        match self.cache_keys {
            0 => u64::from(buckets) / 2,
            some => some,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_names_set_the_renamed_options() {
        let values = ["7ms", "0.3", "9", "2"];
        siltstone_testkit::check_renamed_options(RENAMED_OPTIONS, &values, Options::from_map);
    }
}
