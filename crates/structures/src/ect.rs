//! Entropy-coded tries: from a 160-bit hash to its rank in hash order, at 2.5 bits a key.
//!
//! ```text
//!  hash ─▶ virtual bucket, 256 keys on average    hashes in order   0001 0100 0110 1011 1110
//!            │
//!            ▼  index: 64-bit absolute every        the trie              (5)
//!  group  [bits, rank]  64th bucket, 16-bit                        0 ╱         ╲ 1
//!  bucket [bits, rank]  relative otherwise                       (3)            (2)
//!            │                                                 ╱     ╲        ╱     ╲
//!            ▼                                              0001     (2)    10…     11…
//!  bits   …│ 3 1 0 1 1 │…   the keys in the left subtrie,          ╱     ╲
//!                           of every subtrie in preorder           010…   011…
//! ```
//!
//! A trie of n keys is the number of keys in its left subtrie, then the left subtrie, then the right
//! one; a trie of one key is nothing. Hashes are uniform, so the number is binomial, and cheap by a
//! Huffman code. All keys on the left and all on the right have one code: a lookup passes such a
//! node whatever its bit, which leads stored hashes right and others anywhere. A lookup counts the
//! keys left of its path, and for that decodes the bucket up to where it leaves.
//!
//! - [`EctBuilder`] takes sorted hashes one by one, and encodes when a bucket is whole.
//! - [`Ect`] answers lookups, and has a stored form that is checked in full when read.
//! - With more than one entry a block ([`EctOptions::entries_per_block`]) the index is sparse: in
//!   the place of a trie a bucket has what separates its blocks, and a lookup gives the number of
//!   the block. Buckets, their index and the stored form are the same.
//!
//! Invariant: `lookup` of the i-th of the hashes built from is `i / entries_per_block`; of any other
//! hash it is the number of some block that is there.
//!
//! Source: Lim, "Resource-Efficient Data-Intensive System Designs for High Performance and
//! Capacity", 2015, section 2.2.3 and chapter 3.

mod build;
mod coder;
mod cursor;
mod huffman;
mod index;
mod lookup;
mod separators;
mod stored;
mod trie;

pub use self::build::EctBuilder;
pub use self::coder::MAX_HMAX;
pub use self::lookup::Ect;
pub use crate::rank::HashKey;

/// The knobs of a trie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EctOptions {
    /// g: the keys of a virtual bucket on average. More cost fewer bits for the index of buckets and
    /// more time to decode: figure 3.10 of the thesis.
    pub keys_per_bucket: u32,
    /// The largest subtrie with a Huffman code, up to [`MAX_HMAX`]: figure 3.11 of the thesis. A
    /// sparse index has no subtries.
    pub hmax: u32,
    /// Entries in a block of the data, counted from the first of all; 1 for the rank of every key.
    /// With 8 a key costs 0.83 bits, with 16 0.51, index of buckets included (`--bench rank`).
    pub entries_per_block: u32,
}

impl Default for EctOptions {
    /// The thesis's choices: 256 keys a bucket, Huffman codes up to 64, every key told apart.
    fn default() -> Self {
        Self { keys_per_bucket: 256, hmax: MAX_HMAX, entries_per_block: 1 }
    }
}

/// Why there is no trie.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EctError {
    /// A knob is out of range.
    #[error("an entropy-coded trie cannot have {what} {value}")]
    Option {
        /// The knob, or what follows from it.
        what: &'static str,
        /// Its value.
        value: u64,
    },
    /// A hash was not above the one before it.
    #[error("hash {at} of an entropy-coded trie is not above the one before it")]
    Order {
        /// Its place among the hashes, from 0.
        at: u64,
    },
    /// A group of buckets is too large for relative offsets of 16 bits: the hashes are not uniform,
    /// or far more than expected.
    #[error("bucket {bucket} lies too far from the first of its group: too many keys, or uneven")]
    Crowded {
        /// The bucket.
        bucket: u32,
    },
    /// The bytes do not begin as a stored trie does, in this version.
    #[error("this does not begin as an entropy-coded trie")]
    Header,
    /// The header asks for another length.
    #[error("an entropy-coded trie of {bytes} bytes should have {wanted}")]
    Length {
        /// The length found.
        bytes: usize,
        /// The length by the header.
        wanted: u128,
    },
    /// The offsets of a bucket do not follow those before, or do not end where the header says.
    #[error("the index of an entropy-coded trie is wrong at bucket {bucket}")]
    Index {
        /// The first bucket at fault.
        bucket: u32,
    },
    /// The bits of a bucket are not those of a trie, or of separators, of its number of keys.
    #[error("the trie of bucket {bucket} is damaged")]
    Trie {
        /// The first bucket at fault.
        bucket: u32,
    },
}
