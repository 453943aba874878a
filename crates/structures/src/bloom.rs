//! Bloom filters, sized by bits a key, over 64-bit hashes that the caller computes once per key.
//!
//! ```text
//!  classic   [. . 1 . . . . . 1 . . . . . . . . 1 . . . . . 1 . .]   probes anywhere: k cache misses
//!  blocked   [. . . . . . . .│. 1 . 1 . 1 . .│. . . . . . . .]       probes in one line: one miss
//! ```
//!
//! [`BlockedBloom`] is the filter of large tables: one cache line a query, for about a fifth more
//! false positives. [`ClassicBloom`] is the filter of small sets that are in cache anyway, such as
//! the buckets of an LSM-trie, where it has the fewest false positives for its bits.
//!
//! Both are plain bytes with a number of probes. The caller's format stores these two; the views
//! check them when opened, and then answer straight from the bytes. No bytes at all with no probes
//! are the filter that costs nothing and excludes nothing, for levels to which Monkey's allocation
//! gives no memory.
//!
//! Invariant: a filter contains every hash inserted. There are no false negatives.
//!
//! Source: Bloom, "Space/time trade-offs in hash coding with allowable errors", CACM 1970; Putze,
//! Sanders, Singler, "Cache-, hash- and space-efficient Bloom filters", JEA 2009, for blocks;
//! Dayan, Athanassoulis, Idreos, "Monkey", SIGMOD 2017, for filters of any size down to nothing.

mod blocked;
mod classic;

pub use self::blocked::{BlockedBloom, BlockedBloomView, blocked_false_positive_rate};
pub use self::classic::{ClassicBloom, ClassicBloomView, classic_false_positive_rate};

/// Why bytes are no Bloom filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BloomError {
    /// The length is no multiple of the block size, or beyond what an index can reach.
    #[error("a Bloom filter cannot have {bytes} bytes")]
    Length {
        /// The length found.
        bytes: usize,
    },
    /// The number of probes is out of range, or zero for a filter with bits or the reverse.
    #[error("a Bloom filter of {bytes} bytes cannot take {probes} probes")]
    Probes {
        /// The length found.
        bytes: usize,
        /// The number of probes found.
        probes: u8,
    },
}
