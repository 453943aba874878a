//! The trie in memory, and lookups.
//!
//! ```text
//!  hash ─▶ bucket, path ─▶ starts of the bucket and the next ─▶ bits, rank, number of keys
//!                                                                 │
//!                          rank of the bucket + rank in it ◀──────┘  descend
//! ```
//!
//! A lookup misses the cache for the index (a group, a relative offset) and for the bits: 76 bytes
//! per bucket of 256 keys. Then it decodes some dozens of code words. A sparse index decodes the
//! separators up to the one above the hash in the same way.
//!
//! Invariant: every bucket has a complete trie, or all separators, of its number of keys: the
//! builder wrote it, or the reader of the stored form checked it. So lookups cannot fail.
//!
//! Source: Lim, thesis, sections 3.1.3 and 3.1.4.

use super::coder::Coder;
use super::cursor::Cursor;
use super::index::{BucketIndex, Start};
use super::key::{HashKey, Path, place};
use super::separators::Separators;
use super::trie::{MalformedTrie, Tries};
use crate::bits::BitWriter;

/// The form of the buckets.
#[derive(Clone, Debug)]
pub(super) enum Form {
    /// Tries of the keys.
    Dense(Tries<'static>),
    /// Separators of the blocks.
    Sparse(Separators),
}

impl Form {
    pub(super) fn new(hmax: u32, entries_per_block: u32) -> Self {
        match entries_per_block {
            1 => Self::Dense(Tries::new(Coder::shared(hmax))),
            _ => Self::Sparse(Separators::new(entries_per_block)),
        }
    }

    /// Entries per block.
    pub(super) fn block(&self) -> u32 {
        match self {
            Self::Dense(_) => 1,
            Self::Sparse(separators) => separators.block(),
        }
    }

    /// Appends the bits of sorted, distinct paths, the first at index `place` of its block.
    pub(super) fn encode(&self, paths: &[Path], place: u32, writer: &mut BitWriter) {
        match self {
            Self::Dense(tries) => tries.encode(paths, writer),
            Self::Sparse(separators) => separators.encode(paths, place, writer),
        }
    }

    /// Validates and skips the bits of n keys, which end before a position.
    pub(super) fn skip(
        &self,
        n: u32,
        place: u32,
        end: u64,
        cursor: &mut Cursor<'_>,
    ) -> Result<(), MalformedTrie> {
        match self {
            Self::Dense(tries) => tries.skip(n, end, cursor),
            Self::Sparse(separators) => separators.skip(n, place, end, cursor),
        }
    }
}

/// An entropy-coded trie: the ranks of 160-bit hashes in 2.5 bits per key.
#[derive(Clone, Debug)]
pub struct Ect {
    pub(super) form: Form,
    pub(super) hmax: u32,
    pub(super) buckets: u32,
    pub(super) index: BucketIndex,
    /// The tries of all buckets.
    pub(super) bits: Vec<u8>,
    /// The end of the last bucket.
    pub(super) end: Start,
}

impl Ect {
    /// An index with one start more than buckets, and the bits of the tries.
    pub(super) fn new(
        form: Form,
        hmax: u32,
        buckets: u32,
        index: BucketIndex,
        bits: Vec<u8>,
    ) -> Self {
        let end = index.start(buckets);
        Self { form, hmax, buckets, index, bits, end }
    }

    /// The block that contains the entry of a hash, if any does: its rank divided by the entries
    /// per block.
    ///
    /// For other hashes it is any existing block; 0 if there is none.
    #[inline]
    pub fn lookup(&self, hash: &HashKey) -> u64 {
        let (bucket, path) = place(hash, self.buckets);
        let (start, next) = (self.index.start(bucket), self.index.start(bucket + 1));
        let n = (next.rank - start.rank) as u32;
        let last = self.end.rank.saturating_sub(1);
        let mut cursor = Cursor::new(&self.bits, start.bits);
        // The bits were checked, so there is no error.
        match &self.form {
            Form::Dense(tries) => {
                let rank = tries.descend(&path, n, next.bits, &mut cursor).unwrap_or(0);
                (start.rank + u64::from(rank)).min(last)
            }
            Form::Sparse(separators) => {
                let block = u64::from(separators.block());
                let place = (start.rank % block) as u32;
                let count = separators.count(&path, n, place, next.bits, &mut cursor).unwrap_or(0);
                start.rank.min(last) / block + u64::from(count)
            }
        }
    }

    /// The number of keys.
    pub fn len(&self) -> u64 {
        self.end.rank
    }

    /// Whether there are no keys.
    pub fn is_empty(&self) -> bool {
        self.end.rank == 0
    }

    /// Entries per block; 1 if lookups return the rank of every key.
    pub fn entries_per_block(&self) -> u32 {
        self.form.block()
    }

    /// The number of virtual buckets.
    pub fn buckets(&self) -> u32 {
        self.buckets
    }

    /// The bits of all tries or separators: the size without header and index of buckets.
    pub fn trie_bits(&self) -> u64 {
        self.end.bits
    }

    /// Size of the stored form, and about that in memory, in bytes: tries, index of buckets,
    /// header.
    pub fn size(&self) -> usize {
        super::stored::HEADER
            + size_of_val(self.index.groups())
            + size_of_val(self.index.relatives())
            + self.bits.len()
    }
}
