//! The filters of a table: which keys are surely not there, and which ranges surely have none.
//!
//! ```text
//! meta block "filter.blocked-bloom" := probes:u8  bits
//! meta block "filter.ranges"        := as `siltstone_structures::range_filter` draws it
//! ```
//!
//! The bits are those of `siltstone_structures::bloom`, over `hash64` of the user keys. They are
//! moved to a cache line's boundary when loaded, so that a query touches one line and not two.
//!
//! Invariant: every key of the table passes; `verify` checks that of each.

use siltstone_structures::bloom::{BlockedBloom, BlockedBloomView};

/// The meta block of the filter for ranges.
pub const RANGES: &str = "filter.ranges";
/// The meta block's name.
pub const NAME: &str = "filter.blocked-bloom";

const LINE: usize = 64;

/// A resident filter.
#[derive(Debug)]
pub struct Filter {
    bytes: Vec<u8>,
    /// Where the bits begin: on a cache line's boundary.
    at: usize,
    len: usize,
    probes: u8,
}

impl Filter {
    /// The contents of the meta block for these hashes of distinct keys.
    pub(crate) fn encode(hashes: &[u64], bits_per_key: f64) -> Vec<u8> {
        let bloom = BlockedBloom::build(hashes, bits_per_key);
        let mut out = Vec::with_capacity(1 + bloom.as_bytes().len());
        out.push(bloom.probes());
        out.extend_from_slice(bloom.as_bytes());
        out
    }

    /// Loads the contents of the meta block.
    ///
    /// # Errors
    /// What is malformed.
    pub fn decode(contents: &[u8]) -> Result<Filter, &'static str> {
        let (&probes, bits) = contents.split_first().ok_or("the filter is empty")?;
        BlockedBloomView::open(bits, probes).map_err(|_| "the filter is malformed")?;
        let mut bytes = vec![0; bits.len() + LINE];
        let at = bytes.as_ptr().align_offset(LINE).min(LINE);
        bytes[at..at + bits.len()].copy_from_slice(bits);
        Ok(Filter { bytes, at, len: bits.len(), probes })
    }

    /// Whether a key of this hash may be there.
    #[inline]
    pub fn may_contain(&self, hash: u64) -> bool {
        let bits = &self.bytes[self.at..self.at + self.len];
        // Opened once already, so it opens; if it did not, the filter would exclude nothing.
        BlockedBloomView::open(bits, self.probes).map_or(true, |view| view.contains(hash))
    }

    /// Resident bytes.
    pub fn memory_bytes(&self) -> usize {
        self.bytes.capacity()
    }
}
