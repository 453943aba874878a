//! Entropy-coded tries: map a 160-bit hash to its rank in hash order, at 2.5 bits per key.
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
//! A trie of n keys is encoded as the number of keys in its left subtrie, the left subtrie, and the
//! right one; a trie of one key takes no bits. Hashes are uniform, so the number is binomially
//! distributed, and cheap in a Huffman code. All keys on the left and all on the right have the
//! same code word: a lookup passes such a node whatever its bit, which is right for stored hashes
//! and arbitrary for others. A lookup counts the keys left of its path, and for that decodes the
//! bucket up to its position.
//!
//! - [`EctBuilder`] takes sorted hashes one by one, and encodes complete buckets.
//! - [`Ect`] does lookups, and has a stored form that is fully validated when read.
//! - With more than one entry per block ([`EctOptions::entries_per_block`]) the index is sparse: a
//!   bucket has separators of its blocks instead of a trie, and a lookup returns the number of the
//!   block. Buckets, their index and the stored form are the same.
//!
//! Invariant: `lookup` of the i-th hash is `i / entries_per_block`; of any other hash it is the
//! number of an existing block.
//!
//! Source: Lim, "Resource-Efficient Data-Intensive System Designs for High Performance and
//! Capacity", 2015, section 2.2.3 and chapter 3.

mod build;
mod coder;
mod cursor;
mod huffman;
mod index;
mod key;
mod lookup;
mod separators;
mod stored;
mod trie;

pub use self::build::EctBuilder;
pub use self::coder::MAX_HMAX;
pub use self::key::HashKey;
pub use self::lookup::Ect;

use std::fmt;

/// Options of a trie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EctOptions {
    /// Average number of keys per virtual bucket (g in the thesis). More cost fewer bits for the
    /// index of buckets, and more time to decode: figure 3.10 of the thesis.
    pub keys_per_bucket: u32,
    /// The largest subtrie with a Huffman code, up to [`MAX_HMAX`]: figure 3.11 of the thesis. A
    /// sparse index has no subtries.
    pub hmax: u32,
    /// Data entries per block, counted from the first; 1 for the rank of every key. With 8 a key
    /// costs 0.83 bits, with 16 0.51, including the index of buckets (`--bench ect`).
    pub entries_per_block: u32,
}

impl Default for EctOptions {
    /// The thesis's choices: 256 keys per bucket, Huffman codes up to 64, rank of every key.
    fn default() -> Self {
        Self { keys_per_bucket: 256, hmax: MAX_HMAX, entries_per_block: 1 }
    }
}

/// Errors in building or decoding a trie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EctError {
    /// An option is out of range.
    Option {
        /// The option, or a derived quantity.
        what: &'static str,
        /// Its value.
        value: u64,
    },
    /// A hash was not above the previous one.
    Order {
        /// Its index among the hashes, from 0.
        at: u64,
    },
    /// A group of buckets is too large for 16-bit relative offsets: the hashes are not uniform, or
    /// far more than expected.
    Crowded {
        /// The bucket.
        bucket: u32,
    },
    /// Wrong magic or version.
    Header,
    /// The length does not match the header.
    Length {
        /// The length found.
        bytes: usize,
        /// The length according to the header.
        wanted: u128,
    },
    /// The offsets of a bucket decrease, or do not end where the header states.
    Index {
        /// The first invalid bucket.
        bucket: u32,
    },
    /// The bits of a bucket are not those of a trie, or of separators, of its number of keys.
    Trie {
        /// The first invalid bucket.
        bucket: u32,
    },
}

impl fmt::Display for EctError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            EctError::Option { what, value } => {
                write!(f, "an entropy-coded trie cannot have {what} {value}")
            }
            EctError::Order { at } => {
                write!(f, "hash {at} of an entropy-coded trie is not above the previous one")
            }
            EctError::Crowded { bucket } => {
                write!(
                    f,
                    "bucket {bucket} is too far from the first of its group: too many or uneven keys"
                )
            }
            EctError::Header => f.write_str("wrong magic or version of an entropy-coded trie"),
            EctError::Length { bytes, wanted } => {
                write!(f, "an entropy-coded trie of {bytes} bytes should have {wanted}")
            }
            EctError::Index { bucket } => {
                write!(f, "the index of an entropy-coded trie is wrong at bucket {bucket}")
            }
            EctError::Trie { bucket } => {
                write!(f, "the trie of bucket {bucket} is damaged")
            }
        }
    }
}

impl std::error::Error for EctError {}
