//! RecSplit with consensus seeds: minimal perfect hashing in 1.57 bits per key.
//!
//! ```text
//!  hash ─▶ virtual bucket ─▶ a cache line of ranks: where the bucket begins, its n keys
//!            │
//!            ▼                  n = 11                which seed splits the set as wanted?
//!  the tree of n keys            (4│7)                  seed 0: 6 keys on the left   no
//!  depends on n alone:          ╱     ╲                 seed 1: 4                    yes
//!                           {4}       (4│3)           and for a leaf: which seed sends
//!                                    ╱     ╲          every key to a place of its own?
//!                                  {4}     {3}
//!
//!  bits  …0110 1 011 10 0 1101…   number tried at every node in preorder, in a fixed width; the
//!         └─── the seed ───┘      seed is that number and all bits before it, as far as 57 bits go
//! ```
//!
//! A set of n keys is split into two parts of given sizes by the first seed that does so,
//! recursively down to leaves of a few keys, which a seed maps one to one. RecSplit stores seeds in
//! a variable-length code, which wastes part of a bit at each of many nodes. Here each seed has its
//! expected width plus slack, so that its position follows from n. If no number of that width
//! works, the search backtracks and takes another for the node before. That changes all later
//! seeds, since a seed includes the bits before it. Only the slack is wasted.
//!
//! The entries of a bucket are stored in the order of this function, not of their hashes.
//!
//! - Bits per key: log₂ e = 1.443 is the lower bound. The defaults take 1.57: 1.52 for seeds, 0.05
//!   for the ranks of buckets of 256 keys (`--bench rank`).
//! - Cache lines per lookup: one for the ranks, one or two of the 50 bytes of a bucket. The
//!   arithmetic is two multiplications for each of about seven nodes.
//! - A bucket starts in the bits at a linear function of its rank and number, for which the slack
//!   of its root makes room: there are no pointers.
//!
//! Invariant: distinct hashes of the set have distinct positions from 0 to n - 1.
//!
//! Source: Esposito, Graf, Vigna, "RecSplit: minimal perfect hashing via recursive splitting",
//! ALENEX 2020, for the tree; Lehmann, Sanders, Walzer, Ziegler, "Combined search and encoding for
//! seeds, with an application to minimal perfect hashing", ESA 2025, for consensus. Seeds per
//! bucket, the linear positions of buckets, and the widths are additions. seeds of their own, their
//! linear places, and the widths are ours.

mod build;
mod lookup;
mod ranks;
mod search;
mod shape;
mod stored;

pub use self::build::RecSplitBuilder;
pub use self::lookup::RecSplit;

/// Maximum number of keys of a bucket on average.
pub const MAX_KEYS_PER_BUCKET: u32 = 4_096;
/// Maximum size of a leaf, in keys.
pub const MAX_LEAF: u32 = 8;

/// Options of an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecSplitOptions {
    /// Average number of keys per virtual bucket, up to [`MAX_KEYS_PER_BUCKET`]. Twice the default
    /// saves 0.03 bits per key, adds a node to a lookup, and slows building a little.
    pub keys_per_bucket: u32,
    /// Maximum number of keys placed by one seed, from 2 to [`MAX_LEAF`]. Larger leaves mean fewer
    /// nodes and less slack, and a number of trials that grows e-fold with each key.
    pub leaf: u32,
}

impl Default for RecSplitOptions {
    /// 256 keys per bucket, leaves of 5: `--bench rank` compares other values.
    fn default() -> Self {
        Self { keys_per_bucket: 256, leaf: 5 }
    }
}

/// Errors in building or decoding an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecSplitError {
    /// An option is out of range.
    #[error("a RecSplit index cannot have {what} {value}")]
    Option {
        /// The option, or a derived quantity.
        what: &'static str,
        /// Its value.
        value: u64,
    },
    /// A hash was not above the previous one.
    #[error("hash {at} of a RecSplit index is not above the previous one")]
    Order {
        /// Its index among the hashes, from 0.
        at: u64,
    },
    /// A bucket has far more keys than expected, or those of its line are uneven: the hashes are
    /// not uniform, or far more than expected.
    #[error("bucket {bucket} of a RecSplit index has too many or uneven keys")]
    Crowded {
        /// The bucket.
        bucket: u32,
    },
    /// No seeds were found with any salt, which does not happen for distinct hashes in practice.
    #[error("no seeds split the keys of bucket {bucket} of a RecSplit index")]
    Unsplittable {
        /// The bucket.
        bucket: u32,
    },
    /// Wrong magic or version.
    #[error("wrong magic or version of a RecSplit index")]
    Header,
    /// The length does not match the header.
    #[error("a RecSplit index of {bytes} bytes should have {wanted}")]
    Length {
        /// The length found.
        bytes: usize,
        /// The length according to the header.
        wanted: u128,
    },
    /// The ranks of a line decrease, or do not end where the header states.
    #[error("line {line} of the ranks of a RecSplit index is wrong")]
    Ranks {
        /// The first invalid line.
        line: u32,
    },
    /// The salts are not those of ascending buckets.
    #[error("salt {at} of a RecSplit index is wrong")]
    Salt {
        /// The first invalid salt.
        at: u32,
    },
    /// The padding of the last byte is not zero.
    #[error("the padding of a RecSplit index is not zero")]
    Padding,
}
