//! Filters of an SSTable: for keys and for key ranges.
//!
//! ```text
//! meta block "filter.blocked-bloom" := probes:u8  bits
//! meta block "filter.ranges"        := see `siltstone_structures::range_filter`
//! ```
//!
//! The bits are those of `siltstone_structures::bloom`, over `hash64` of the user keys. They are
//! aligned to a cache line when loaded, so that a query touches one line.
//!
//! Invariant: no false negatives; `verify` checks every key.

use siltstone_structures::bloom::{BlockedBloom, BlockedBloomView, BloomError, BloomProbe};

/// Name of the meta block with the range filter.
pub const RANGES: &str = "filter.ranges";
/// Name of the meta block with the Bloom filter.
pub const NAME: &str = "filter.blocked-bloom";

const LINE_BYTES: usize = 64;

/// A Bloom filter in memory.
#[derive(Debug)]
pub struct Filter {
    bytes: Vec<u8>,
    /// Start of the bits, aligned to a cache line.
    at: usize,
    len: usize,
    probes: u8,
}

impl Filter {
    /// Builds the meta block from the hashes of distinct keys; `sizes` as in
    /// [`BlockedBloom::build_like`].
    pub(crate) fn encode(hashes: &[u64], bits_per_key: f64, sizes: &[usize]) -> Vec<u8> {
        let bloom = BlockedBloom::build_like(hashes, bits_per_key, sizes);
        let mut out = Vec::with_capacity(1 + bloom.as_bytes().len());
        out.push(bloom.probes());
        out.extend_from_slice(bloom.as_bytes());
        out
    }

    /// Loads the meta block.
    ///
    /// # Errors
    /// A message if it is malformed.
    pub fn decode(contents: &[u8]) -> Result<Filter, &'static str> {
        let (&probes, bits) = contents.split_first().ok_or("the filter is empty")?;
        Filter::new(bits, probes).map_err(|_| "the filter is malformed")
    }

    /// The filter of these bits.
    ///
    /// # Errors
    /// If no filter has this length or this number of probes.
    pub fn new(bits: &[u8], probes: u8) -> Result<Filter, BloomError> {
        BlockedBloomView::open(bits, probes)?;
        let mut bytes = vec![0; bits.len() + LINE_BYTES];
        let at = bytes.as_ptr().align_offset(LINE_BYTES).min(LINE_BYTES);
        bytes[at..at + bits.len()].copy_from_slice(bits);
        Ok(Filter { bytes, at, len: bits.len(), probes })
    }

    /// Whether the key of `probe` may exist.
    #[inline]
    pub fn may_contain(&self, probe: &mut BloomProbe) -> bool {
        probe.is_in(&self.view())
    }

    /// The bits.
    #[inline]
    pub fn view(&self) -> BlockedBloomView<'_> {
        let bits = &self.bytes[self.at..self.at + self.len];
        BlockedBloomView::of_blocks(bits.as_chunks().0, self.probes)
    }

    /// Resident bytes.
    pub fn memory_bytes(&self) -> usize {
        self.bytes.capacity()
    }
}
