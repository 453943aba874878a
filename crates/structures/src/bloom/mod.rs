//! Bloom filters, sized by bits per key, over 64-bit hashes that the caller computes once per key.
//!
//! ```text
//!  classic   [. . 1 . . . . . 1 . . . . . . . . 1 . . . . . 1 . .] anywhere: k cache misses
//!  blocked   [. . . . . . . .│. 1 . 1 . 1 . .│. . . . . . . .]       probes in one line: one miss
//! ```
//!
//! [`BlockedBloom`] is for large tables: one cache line per query, about a fifth more false
//! positives. [`ClassicBloom`] is for small sets that are in cache anyway, such as the buckets of
//! an LSM-trie, with the fewest false positives for its size. [`SlicedBloom`] has many blocked
//! filters, which one query asks together. [`GrowingBloom`] is in memory alone, and takes keys
//! while it is asked.
//!
//! The others are plain bytes with a number of probes, which the caller's format stores. The views
//! validate them when opened, then query the bytes in place. No bytes with no probes are a filter
//! that costs nothing and excludes nothing, for levels to which Monkey's allocation gives no
//! memory.
//!
//! Invariant: a filter contains every hash inserted. There are no false negatives.
//!
//! Source: Bloom, "Space/time trade-offs in hash coding with allowable errors", CACM 1970; Putze,
//! Sanders, Singler, "Cache-, hash- and space-efficient Bloom filters", JEA 2009, for blocks;
//! Dayan, Athanassoulis, Idreos, "Monkey", SIGMOD 2017, for filters of any size down to nothing.

use std::fmt;

mod blocked;
mod classic;
mod growing;
mod sliced;

pub use self::blocked::{BlockedBloom, BlockedBloomView, BloomProbe, blocked_false_positive_rate};
pub use self::classic::{ClassicBloom, ClassicBloomView};
pub use self::growing::GrowingBloom;
pub use self::sliced::{PlaneSource, SlicedBloom};

/// Invalid bytes for a Bloom filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BloomError {
    /// The length is not a multiple of the block size, or too large.
    Length {
        /// The length found.
        bytes: usize,
    },
    /// The number of probes is out of range, or zero for a filter with bits or the reverse.
    Probes {
        /// The length found.
        bytes: usize,
        /// The number of probes found.
        probes: u8,
    },
}

impl fmt::Display for BloomError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BloomError::Length { bytes } => {
                write!(f, "a Bloom filter cannot have {bytes} bytes")
            }
            BloomError::Probes { bytes, probes } => {
                write!(f, "a Bloom filter of {bytes} bytes cannot take {probes} probes")
            }
        }
    }
}

impl std::error::Error for BloomError {}
