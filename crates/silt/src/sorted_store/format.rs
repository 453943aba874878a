//! The file format of a SortedStore.
//!
//! ```text
// ANCHOR: layout
//! file    := block*  footer                                                   little endian
//! block   := crc32c:u32  operation*  zeros            hashes_per_block distinct hashes, the last
//!                                                     block fewer; in the order of hashes
//!   even   = no zeros: entries have one length, and so have all blocks but the last
//!   uneven = zeros up to a multiple of 64 bytes
//! footer  := magic "SILTSORT"  version 1              (see `file`)
//!            partition:u32  partitions:u32  seed:u64  entries:u64  hashes:u64
//!            hashes_per_block:u32  shortest:u32  longest:u32  even:u32     lengths of operations
//! index   := trie_len:u64  trie  boundaries  crc32c:u32        in the file beside it
// ANCHOR_END: layout
//! ```
//!
//! Checksums are seeded with the file's number and the offset of the bytes. A reader refuses a file
//! of another version. Two keys with one hash lie in one block and count as one hash.
//!
//! Source: Lim, thesis, section 2.2.3 with sparse indexing; the thesis has blocks of one length
//! only.

use crate::file::{Fields, Footer};
use crate::keys::KeyHasher;

pub(crate) const FOOTER: Footer = Footer { magic: b"SILTSORT", version: 1, fields: 48 };
/// Bytes of a block before its entries.
pub(crate) const CRC: usize = 4;

/// The fields of a SortedStore's footer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StoreMeta {
    pub(crate) partition: u32,
    pub(crate) keys: KeyHasher,
    pub(crate) entries: u64,
    /// Distinct hashes of the entries.
    pub(crate) hashes: u64,
    /// Hashes per block.
    pub(crate) hashes_per_block: u32,
    /// Bytes of the shortest and the longest operation.
    pub(crate) lengths: (u32, u32),
    /// Whether all blocks but the last have one length.
    pub(crate) is_even: bool,
}

impl StoreMeta {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = self.partition.to_le_bytes().to_vec();
        out.extend_from_slice(&self.keys.partitions.to_le_bytes());
        for value in [self.keys.seed, self.entries, self.hashes] {
            out.extend_from_slice(&value.to_le_bytes());
        }
        let (shortest, longest) = self.lengths;
        for value in [self.hashes_per_block, shortest, longest, u32::from(self.is_even)] {
            out.extend_from_slice(&value.to_le_bytes());
        }
        out
    }

    pub(crate) fn decode(fields: &[u8]) -> Self {
        let mut fields = Fields(fields);
        let (partition, partitions, seed) = (fields.u32(), fields.u32(), fields.u64());
        StoreMeta {
            partition,
            keys: KeyHasher { seed, partitions },
            entries: fields.u64(),
            hashes: fields.u64(),
            hashes_per_block: fields.u32(),
            lengths: (fields.u32(), fields.u32()),
            is_even: fields.u32() == 1,
        }
    }

    /// Whether blocks with these fields can end at `end`. Checked before any allocation
    /// whose size the footer determines.
    pub(super) fn can_end_at(&self, end: u64) -> bool {
        let is_possible = 0 < self.hashes
            && self.hashes <= self.entries
            && self.entries <= end
            && self.hashes_per_block > 0;
        let max = self.stride().checked_mul(self.blocks());
        let is_even = || max.is_some_and(|max| end <= max && max - self.stride() < end);
        is_possible && (!self.is_even || is_even())
    }

    pub(super) fn blocks(&self) -> u64 {
        self.hashes.div_ceil(u64::from(self.hashes_per_block.max(1)))
    }

    /// Bytes of a block, if all have one length.
    pub(crate) fn stride(&self) -> u64 {
        (u64::from(self.hashes_per_block) * u64::from(self.lengths.1)).saturating_add(CRC as u64)
    }
}
