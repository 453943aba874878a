//! The bytes of a SortedStore.
//!
//! ```text
// ANCHOR: layout
//! file    := block*  footer                                                   little endian
//! block   := crc32c:u32  operation*  zeros            a fixed number of distinct hashes, the last
//!                                                     block fewer; in the order of hashes
//!   entries of one length: no zeros, blocks of one length, but the last
//!   otherwise: zeros up to a multiple of 64 bytes
//! footer  := magic "SILTSORT"  version 1              (see `file`)
//!            partition:u32  partitions:u32  seed:u64  entries:u64  hashes:u64  a block:u32
//!            shortest:u32  longest:u32  even:u32      bytes of operations; blocks of one length
//! index   := trie_len:u64  trie  boundaries  crc32c:u32        in the file beside it
// ANCHOR_END: layout
//! ```
//!
//! Checksums start from the file's number and the place of what they cover. A reader of another
//! version refuses the file by name. Two keys of one hash lie in one block, as one of its hashes.
//!
//! Source: Lim, thesis, section 2.2.3 with sparse indexing; blocks of any length are ours.

use crate::file::{Fields, Footer};
use crate::keys::Keys;

pub(crate) const FOOTER: Footer = Footer { magic: b"SILTSORT", version: 1, fields: 48 };
/// Bytes of a block before its entries.
pub(crate) const CRC: usize = 4;

/// What a SortedStore's footer says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) partition: u32,
    pub(crate) keys: Keys,
    pub(crate) entries: u64,
    /// Distinct hashes of the entries.
    pub(crate) hashes: u64,
    /// Hashes in a block.
    pub(crate) hashes_a_block: u32,
    /// Bytes of the shortest and the longest operation.
    pub(crate) lengths: (u32, u32),
    /// All blocks but the last are of one length.
    pub(crate) is_even: bool,
}

impl Shape {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = self.partition.to_le_bytes().to_vec();
        out.extend_from_slice(&self.keys.partitions.to_le_bytes());
        for value in [self.keys.seed, self.entries, self.hashes] {
            out.extend_from_slice(&value.to_le_bytes());
        }
        let (shortest, longest) = self.lengths;
        for value in [self.hashes_a_block, shortest, longest, u32::from(self.is_even)] {
            out.extend_from_slice(&value.to_le_bytes());
        }
        out
    }

    pub(crate) fn decode(fields: &[u8]) -> Self {
        let mut fields = Fields(fields);
        let (partition, partitions, seed) = (fields.u32(), fields.u32(), fields.u64());
        Shape {
            partition,
            keys: Keys { seed, partitions },
            entries: fields.u64(),
            hashes: fields.u64(),
            hashes_a_block: fields.u32(),
            lengths: (fields.u32(), fields.u32()),
            is_even: fields.u32() == 1,
        }
    }

    /// Whether blocks of this shape can end at `end`. Nothing is made as large as a footer says before
    /// this holds.
    pub(super) fn can_end_at(&self, end: u64) -> bool {
        let is_possible = 0 < self.hashes
            && self.hashes <= self.entries
            && self.entries <= end
            && self.hashes_a_block > 0;
        let most = self.stride().checked_mul(self.blocks());
        let is_even = || most.is_some_and(|most| end <= most && most - self.stride() < end);
        is_possible && (!self.is_even || is_even())
    }

    pub(super) fn blocks(&self) -> u64 {
        self.hashes.div_ceil(u64::from(self.hashes_a_block.max(1)))
    }

    /// Bytes of a block, where all have one length.
    pub(crate) fn stride(&self) -> u64 {
        (u64::from(self.hashes_a_block) * u64::from(self.lengths.1)).saturating_add(CRC as u64)
    }
}
