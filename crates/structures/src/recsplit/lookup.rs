//! The index in memory, and lookups.
//!
//! ```text
//!  hash ─▶ bucket, path ─▶ line of ranks ─▶ r, n ─▶ bits of the bucket, their last ─▶ root
//!                │                                                                     │
//!                └─ fold ─▶ key ─────▶ left or right, until a leaf places it  ◀────────┘
//! ```
//!
//! A node's seed is the 57 bits up to its end, one unaligned load; the ends of its children follow
//! from their sizes. No node has to be decoded to find the next, and none is skipped.
//!
//! Invariant: any bits give existing positions, because a node sends every key to one of its own
//! places. So lookups cannot fail, and bits need no validation.
//!
//! Source: the papers named in [`super`].

use super::ranks::{Ranks, Span};
use super::search::seed;
use super::shape::Shape;
use super::{RecSplitBuilder, RecSplitError, RecSplitOptions};
use crate::rank::key::{HashKey, Path, place};
use crate::rank::{RankIndex, RankIndexBuilder};

/// Zero bytes before the bits, so that the first seeds are loaded like all others.
pub(super) const PADDING: usize = 8;

/// A bucket with salted keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Salt {
    pub(super) bucket: u32,
    /// From 1.
    pub(super) salt: u32,
}

/// An index by recursive splitting: the positions of 160-bit hashes in 1.57 bits per key.
#[derive(Clone, Debug)]
pub struct RecSplit {
    pub(super) shape: Shape,
    pub(super) buckets: u32,
    pub(super) ranks: Ranks,
    /// Sorted by bucket; mostly empty.
    pub(super) salts: Vec<Salt>,
    /// The padding, then the numbers of all nodes.
    pub(super) bits: Vec<u8>,
}

impl RecSplit {
    /// Assembles an index from its parts.
    pub(super) fn new(
        shape: Shape,
        buckets: u32,
        ranks: Ranks,
        salts: Vec<Salt>,
        bits: Vec<u8>,
    ) -> Self {
        Self { shape, buckets, ranks, salts, bits }
    }

    /// The position of the entry of a hash, if there is one; otherwise that of some entry, and 0 if
    /// there is none.
    #[inline]
    pub fn lookup(&self, hash: &HashKey) -> u64 {
        let (bucket, path) = place(hash, self.buckets);
        let Span { start, end } = self.ranks.span(bucket);
        let mut n = (end - start) as u32;
        let mut rank = 0;
        if n > 1 {
            let key = fold(&path, self.salt(bucket));
            let mut at = self.shape.root(n, self.shape.start(bucket + 1, end));
            loop {
                let place = seed(self.bits_before(at.bit())).place(key, n);
                let left = self.shape.size(n).left;
                if left == 0 {
                    rank += place;
                    break;
                }
                if place < left {
                    n = left;
                    at = self.shape.left_end(at, n);
                } else {
                    n -= left;
                    rank += left;
                    at = self.shape.right_end(at, left, n);
                }
                if n < 2 {
                    break;
                }
            }
        }
        // An empty bucket at the end has no entry at its start.
        (start + u64::from(rank)).min(self.len().saturating_sub(1))
    }

    /// The number of keys.
    pub fn len(&self) -> u64 {
        self.ranks.keys()
    }

    /// Whether there are no keys.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The options.
    pub fn options(&self) -> RecSplitOptions {
        self.shape.options
    }

    /// The number of virtual buckets.
    pub fn buckets(&self) -> u32 {
        self.buckets
    }

    /// Size of the stored form, in bytes: header, ranks, salts and bits. Memory takes 8 bytes more,
    /// and the tables of sizes, 12 KiB by default.
    pub fn size(&self) -> usize {
        super::stored::HEADER
            + self.ranks.size()
            + size_of_val(self.salts.as_slice())
            + (self.bits.len() - PADDING)
    }

    /// At least 57 bits that end at a bit.
    #[inline]
    fn bits_before(&self, bit: u64) -> u64 {
        // The padding shifts all bits by the size of a load. A load that ends with the byte of the
        // last bit starts 7 bytes earlier.
        let last = (bit + PADDING as u64 * 8 - 1) / 8;
        let word = self.bits.get(last as usize - 7..).and_then(|bytes| bytes.first_chunk());
        word.map_or(0, |word| u64::from_be_bytes(*word)) >> ((8 - bit % 8) % 8)
    }

    #[inline]
    fn salt(&self, bucket: u32) -> u32 {
        if self.salts.is_empty() {
            return 0;
        }
        let found = self.salts.binary_search_by_key(&bucket, |salt| salt.bucket);
        found.map_or(0, |at| self.salts[at].salt)
    }
}

impl RankIndex for RecSplit {
    type Builder = RecSplitBuilder;
    type Options = RecSplitOptions;
    type Error = RecSplitError;

    fn builder(
        options: &RecSplitOptions,
        expected_keys: u64,
    ) -> Result<Self::Builder, Self::Error> {
        RecSplitBuilder::new(*options, expected_keys)
    }

    #[inline]
    fn lookup(&self, hash: &HashKey) -> u64 {
        self.lookup(hash)
    }

    fn len(&self) -> u64 {
        self.len()
    }

    fn size(&self) -> usize {
        self.size()
    }

    fn to_bytes(&self) -> Vec<u8> {
        self.to_bytes()
    }

    fn from_bytes(bytes: &[u8]) -> Result<Self, Self::Error> {
        Self::from_bytes(bytes)
    }
}

impl RankIndexBuilder for RecSplitBuilder {
    type Index = RecSplit;
    type Error = RecSplitError;

    fn push(&mut self, hash: &HashKey) -> Result<&[u32], RecSplitError> {
        self.push(hash)
    }

    fn finish(self) -> Result<(RecSplit, Vec<u32>), RecSplitError> {
        self.finish()
    }
}

/// The 64-bit key that seeds apply to, derived from the whole path and the salt.
#[inline]
pub(super) fn fold(path: &Path, salt: u32) -> u64 {
    let [first, second, third] = path.words();
    let salt = u64::from(salt);
    let mix = |word: u64, by: u64| {
        let product = u128::from(word ^ salt.wrapping_mul(by.rotate_left(32))) * u128::from(by);
        product as u64 ^ (product >> 64) as u64
    };
    // Odd numbers without a pattern: fractions of the square roots of 2, 3 and 5.
    mix(first, 0x6a09_e667_f3bc_c909)
        ^ mix(second, 0xbb67_ae85_84ca_a73b)
        ^ mix(third, 0x3c6e_f372_fe94_f82b)
}
