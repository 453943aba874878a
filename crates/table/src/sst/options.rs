//! The layout of an SSTable, which its writer is given. Readers need none: each file describes
//! itself.

use crate::block::Compression;

/// Layout options of an SSTable.
#[derive(Debug, Clone, PartialEq)]
pub struct TableOptions {
    /// A block is closed when it reaches this size, uncompressed.
    pub block_bytes: usize,
    /// Entries between restart points.
    pub restart_interval: usize,
    /// Bloom filter bits per key; 0 for no filter.
    pub filter_bits_per_key: f64,
    /// Whether to add a range filter (up to 11 bits per key): see [`Table::may_contain_range`].
    ///
    /// [`Table::may_contain_range`]: super::Table::may_contain_range
    pub range_filter: bool,
    /// Compression of blocks.
    pub compression: Compression,
    /// The size up to which a dictionary is trained for the data blocks, if they are compressed by
    /// Zstandard; 0 for none.
    pub dictionary_bytes: usize,
    /// Whether to add a meta block [`SKETCH`](super::SKETCH) with a mergeable estimate of the
    /// distinct keys (4 KiB).
    pub sketch: bool,
}

impl Default for TableOptions {
    fn default() -> Self {
        TableOptions {
            block_bytes: 4096,
            restart_interval: 16,
            filter_bits_per_key: 10.0,
            range_filter: false,
            compression: Compression::None,
            dictionary_bytes: 0,
            sketch: false,
        }
    }
}
