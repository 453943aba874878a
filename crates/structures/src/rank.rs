//! Indexes of entries that lie in the order of their hashes' buckets: from a hash to a position.
//!
//! ```text
//!  sorted hashes ─push─▶ builder ─▶ orders, for the writer ─▶ entries on flash   0 1 2 3 4 5 …
//!                           │                                                        ▲
//!                           └─finish─▶ index        lookup(hash) ────────────────────┘
//! ```
//!
//! Hashes fall into virtual buckets by their leading bits, and entries lie bucket by bucket. Within
//! a bucket the index chooses the order, and tells the writer: [`RankIndexBuilder::push`] gives the
//! entries that may be written now. So one merge of sorted streams serves every index, and the most
//! it holds back is one bucket.
//!
//! There are two, or three: [`Ect`](crate::Ect) keeps entries in the order of hashes, told apart
//! one by one or, sparse, by blocks; [`RecSplit`](crate::RecSplit) orders the entries of each
//! bucket by a minimal perfect hash function.
//!
//! ```text
//!                          bits/key   build M/s   merge M/s   lookup ns
//!  trie, every entry         2.50       23.2        6.2         1052
//!  RecSplit                  1.57        1.9        1.4          211
//!  trie,  2 entries a block  2.30       52.8       11.6          997
//!         4                  1.38       49.2       16.1          432
//!         8                  0.83       81.8       11.7          189
//!        16                  0.51       79.9       16.3          146
//! ```
//!
//! This is one run of `cargo bench -p siltstone-structures --bench rank -- 16777216` over 16,777,216
//! keys, on one thread of a busy machine (AMD EPYC, two cores): times waver by a half, bits do not. A
//! merge takes a million entries of 100 bytes in and writes them in the order of the index, in memory.
//!
//! SILT's default should be the trie, sparse where two or more entries share a block of flash.
//!
//! - From four entries a block on it is the smaller one, by far at eight. A read of flash takes a
//!   block anyway, and the entry is found within. RecSplit cannot profit from blocks.
//! - The order of hashes is worth something by itself. A merge reads the old store as a sorted
//!   stream; that of RecSplit has to be sorted again bucket by bucket, from hashes of keys that lie
//!   permuted. Without an index in memory, as while one loads, a store in the order of hashes is
//!   searched by halves down to the block, and one of RecSplit down to a bucket of some 256
//!   entries. And an index of another kind can be made of the same entries without moving them.
//! - It builds ten times as fast, though RecSplit's two million keys a second are two gigabytes a
//!   second of entries of 1 KiB.
//!
//! RecSplit is for entries of more than a third of a block, where memory is short: it saves 0.7 to
//! 0.9 bits a key there, a third of the index, and most of a microsecond of processor a lookup.
//!
//! Invariant: the lookup of a hash that was pushed is the position at which its entry was written,
//! over the entries of a block where the index finds blocks; of any other hash, some position.
//!
//! Source: ours, over Lim, thesis (2015), section 3.1.3, for virtual buckets.

pub(crate) mod key;

pub use self::key::HashKey;

/// An index from the hashes of a set to the positions of their entries.
pub trait RankIndex: Sized + Send + Sync {
    /// What builds it.
    type Builder: RankIndexBuilder<Index = Self, Error = Self::Error>;
    /// Its knobs.
    type Options: Clone + Default;
    /// Why there is no index.
    type Error: std::error::Error + Send + Sync + 'static;

    /// A builder for about so many keys: down to none, or up to half as many again, will do.
    ///
    /// # Errors
    ///
    /// If a knob is out of range, or the index would be too large.
    fn builder(options: &Self::Options, expected_keys: u64) -> Result<Self::Builder, Self::Error>;

    /// The position of the entry of a hash, if any has it; of other hashes, that of some entry, and
    /// 0 if there is none. Never fails.
    fn lookup(&self, hash: &HashKey) -> u64;

    /// The number of keys.
    fn len(&self) -> u64;

    /// Whether there are no keys.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bytes of the stored form, all parts counted.
    fn size(&self) -> usize;

    /// The stored form, of [`RankIndex::size`] bytes. It has no checksum; the file around it has.
    fn to_bytes(&self) -> Vec<u8>;

    /// Reads the stored form and checks it, so that no lookup can fail.
    ///
    /// Takes memory of the length of the bytes, besides tables that depend on the knobs alone.
    ///
    /// # Errors
    ///
    /// If the bytes are not those of an index.
    fn from_bytes(bytes: &[u8]) -> Result<Self, Self::Error>;
}

/// Builds an index from sorted hashes in one pass.
pub trait RankIndexBuilder: Sized {
    /// What it builds.
    type Index;
    /// Why it cannot.
    type Error;

    /// Adds the next hash, and says which entries may be written now, in this order.
    ///
    /// Entries are numbered from the oldest not yet written, and what is named is always all of the
    /// oldest: an order `[1, 0, 2]` writes the second of them, the first, the third, and from then
    /// on the fourth is number 0. The entry just pushed may be among them, or wait.
    ///
    /// # Errors
    ///
    /// If the hash is not above the last one (which leaves the builder as it was), or the hashes are
    /// far more than expected, or uneven (which leaves it of no use).
    fn push(&mut self, hash: &HashKey) -> Result<&[u32], Self::Error>;

    /// The index, and the order in which the entries that still wait are written.
    ///
    /// # Errors
    ///
    /// If there were far more keys than expected, or uneven ones.
    fn finish(self) -> Result<(Self::Index, Vec<u32>), Self::Error>;
}
