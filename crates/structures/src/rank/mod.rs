//! Rank indexes: map a hash to the position of its entry, for entries stored by hash bucket.
//!
//! ```text
//!  sorted hashes ─push─▶ builder ─▶ orders, for the writer ─▶ entries on flash   0 1 2 3 4 5 …
//!                           │                                                        ▲
//!                           └─finish─▶ index        lookup(hash) ────────────────────┘
//! ```
//!
//! Hashes fall into virtual buckets by their leading bits, and entries are stored bucket by bucket.
//! Within a bucket the index chooses the order: [`RankIndexBuilder::push`] returns the entries that
//! may be written now. So one merge of sorted streams serves every index and buffers at most one
//! bucket.
//!
//! There are two kinds: [`Ect`](crate::Ect) keeps entries in hash order, with the rank of each
//! entry or, sparse, of each block; [`RecSplit`](crate::RecSplit) orders the entries of each bucket
//! by a minimal perfect hash function.
//!
//! ```text
//!                          bits/key   build M/s   merge M/s   lookup ns
//!  trie, every entry         2.50       23.2        6.2         1052
//!  RecSplit                  1.57        1.9        1.4          211
//!  trie,  2 entries per block  2.30       52.8       11.6          997
//!         4                  1.38       49.2       16.1          432
//!         8                  0.83       81.8       11.7          189
//!        16                  0.51       79.9       16.3          146
//! ```
//!
//! Measured in one run of `cargo bench -p siltstone-structures --bench rank -- 16777216`, with
//! 16,777,216 keys, on one thread of a busy machine (AMD EPYC, two cores): times vary by a half,
//! bits do not. A merge reads a million entries of 100 bytes and writes them in the order of the
//! index, in memory.
//!
//! SILT's default should be the trie, sparse if two or more entries share a block of flash.
//!
//! - From four entries per block on it is smaller, by far at eight. A read of flash takes a block
//!   anyway, and the entry is found within. RecSplit cannot exploit blocks.
//! - Hash order is useful by itself. A merge reads the old store as a sorted stream; RecSplit's has
//!   to be sorted again bucket by bucket. Without an index in memory, as during loading, a store in
//!   hash order can be binary-searched down to the block, one of RecSplit only to a bucket of about
//!   256 entries. And another kind of index can be built without moving the entries.
//! - It builds ten times as fast, though RecSplit's two million keys per second are 2 GB/s of
//!   entries of 1 KiB.
//!
//! RecSplit suits entries of more than a third of a block, where memory is short: it saves 0.7 to
//! 0.9 bits per key there, a third of the index, and most of a microsecond of CPU time per lookup.
//!
//! Invariant: the lookup of a pushed hash returns the position at which its entry was written,
//! divided by the entries per block; of any other hash, some position.
//!
//! Source: Lim, thesis (2015), section 3.1.3, for virtual buckets.

pub(crate) mod key;

pub use self::key::HashKey;

/// An index from the hashes of a set to the positions of their entries.
pub trait RankIndex: Sized + Send + Sync {
    /// The builder.
    type Builder: RankIndexBuilder<Index = Self, Error = Self::Error>;
    /// The options.
    type Options: Clone + Default;
    /// The error of building or decoding.
    type Error: std::error::Error + Send + Sync + 'static;

    /// A builder for about `expected_keys` keys; fewer, or up to half as many again, are
    /// acceptable.
    ///
    /// # Errors
    ///
    /// If an option is out of range, or the index would be too large.
    fn builder(options: &Self::Options, expected_keys: u64) -> Result<Self::Builder, Self::Error>;

    /// The position of the entry of a hash, if there is one; otherwise that of some entry, and 0 if
    /// there is none. Never fails.
    fn lookup(&self, hash: &HashKey) -> u64;

    /// The number of keys.
    fn len(&self) -> u64;

    /// Whether there are no keys.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Total size of the stored form, in bytes.
    fn size(&self) -> usize;

    /// The stored form, of [`RankIndex::size`] bytes. It has no checksum; the enclosing file has
    /// one.
    fn to_bytes(&self) -> Vec<u8>;

    /// Decodes the stored form and validates it, so that no lookup can fail.
    ///
    /// Takes memory of the length of the bytes, besides tables that depend on the options alone.
    ///
    /// # Errors
    ///
    /// If the bytes are invalid.
    fn from_bytes(bytes: &[u8]) -> Result<Self, Self::Error>;
}

/// Builds an index from sorted hashes in one pass.
pub trait RankIndexBuilder: Sized {
    /// The index.
    type Index;
    /// The error of building.
    type Error;

    /// Adds the next hash; returns the entries that may be written now, in this order.
    ///
    /// Entries are numbered from the oldest not yet written, and the result always contains all of
    /// the oldest: an order `[1, 0, 2]` writes the second of them, the first, the third, and from
    /// then on the fourth has number 0. The entry just pushed may be among them, or wait.
    ///
    /// # Errors
    ///
    /// If the hash is not above the last one (the builder is unchanged), or the hashes are far more
    /// than expected, or uneven (the builder is then unusable).
    fn push(&mut self, hash: &HashKey) -> Result<&[u32], Self::Error>;

    /// The index, and the order in which the remaining entries are written.
    ///
    /// # Errors
    ///
    /// If there were far more keys than expected, or uneven ones.
    fn finish(self) -> Result<(Self::Index, Vec<u32>), Self::Error>;
}
