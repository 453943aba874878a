//! RecSplit with seeds found by consensus: from a hash to its position, in 1.57 bits a key.
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
//!  bits  …0110 1 011 10 0 1101…   the number tried at every node in preorder, in a fixed width; the
//!         └─── the seed ───┘      seed is that number and all bits before it, as far as 57 bits go
//! ```
//!
//! A set of n keys is split in two parts of given sizes by the first seed that happens to, again
//! and again, down to leaves of a few keys, which a seed maps one to one. RecSplit stores seeds in
//! a code of variable length, which wastes a part of a bit at each of many nodes. Here each has its
//! expected width and a bit of slack, so that its position is known from n; where no number of that
//! width will do, the search goes back and takes another for the node before. That changes the
//! seeds of all that follow, since a seed includes the bits before it. Nothing is wasted but the
//! slack.
//!
//! Entries of a bucket lie in the order that this function gives them: not that of their hashes.
//!
//! - Bits a key: log₂ e = 1.443 is the least there can be. The defaults take 1.57: 1.52 for
//!   seeds, 0.05 for the ranks of buckets of 256 keys (`--bench rank`).
//! - Cache lines a lookup: one for the ranks, one or two of the 50 bytes of a bucket. All arithmetic
//!   is two multiplications for each of some seven nodes.
//! - A bucket begins in the bits at a linear function of its rank and number, for which the slack of
//!   its root makes room: there are no pointers.
//!
//! Invariant: distinct hashes of the set have distinct positions, the first 0, the last n - 1.
//!
//! Source: Esposito, Graf, Vigna, "RecSplit: minimal perfect hashing via recursive splitting",
//! ALENEX 2020, for the tree; Lehmann, Sanders, Walzer, Ziegler, "Combined search and encoding for
//! seeds, with an application to minimal perfect hashing", ESA 2025, for consensus. Buckets with
//! seeds of their own, their linear places, and the widths are ours.

mod build;
mod lookup;
mod ranks;
mod search;
mod shape;
mod stored;

pub use self::build::RecSplitBuilder;
pub use self::lookup::RecSplit;

/// The most keys of a bucket on average.
pub const MAX_KEYS_PER_BUCKET: u32 = 4_096;
/// The largest leaf.
pub const MAX_LEAF: u32 = 8;

/// The knobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecSplitOptions {
    /// The keys of a virtual bucket on average, up to [`MAX_KEYS_PER_BUCKET`]. Twice the default
    /// saves 0.03 bits a key, adds a node to a lookup, and slows building a little.
    pub keys_per_bucket: u32,
    /// The most keys that are placed by one seed, from 2 to [`MAX_LEAF`]. Larger leaves make for
    /// fewer nodes and less slack, and take a number of trials that grows e-fold with each key.
    pub leaf: u32,
}

impl Default for RecSplitOptions {
    /// 256 keys a bucket, leaves of 5: `--bench rank` shows what else there is.
    fn default() -> Self {
        Self { keys_per_bucket: 256, leaf: 5 }
    }
}

/// Why there is no index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecSplitError {
    /// A knob is out of range.
    #[error("a RecSplit index cannot have {what} {value}")]
    Option {
        /// The knob, or what follows from it.
        what: &'static str,
        /// Its value.
        value: u64,
    },
    /// A hash was not above the one before it.
    #[error("hash {at} of a RecSplit index is not above the one before it")]
    Order {
        /// Its place among the hashes, from 0.
        at: u64,
    },
    /// A bucket has far more keys than expected, or those of its line are uneven: the hashes are not
    /// uniform, or far more than expected.
    #[error("bucket {bucket} of a RecSplit index has too many keys, or uneven neighbours")]
    Crowded {
        /// The bucket.
        bucket: u32,
    },
    /// No seeds were found under any salt, which distinct hashes do not meet in practice.
    #[error("no seeds split the keys of bucket {bucket} of a RecSplit index")]
    Unsplittable {
        /// The bucket.
        bucket: u32,
    },
    /// The bytes do not begin as a stored index does, in this version.
    #[error("this does not begin as a RecSplit index")]
    Header,
    /// The header asks for another length.
    #[error("a RecSplit index of {bytes} bytes should have {wanted}")]
    Length {
        /// The length found.
        bytes: usize,
        /// The length by the header.
        wanted: u128,
    },
    /// The ranks of a line do not follow those before, or do not end where the header says.
    #[error("line {line} of the ranks of a RecSplit index is wrong")]
    Ranks {
        /// The first line at fault.
        line: u32,
    },
    /// The salts are not those of ascending buckets.
    #[error("salt {at} of a RecSplit index is wrong")]
    Salt {
        /// The first salt at fault.
        at: u32,
    },
    /// The bits that fill up the last byte are not zero.
    #[error("the padding of a RecSplit index is not zero")]
    Padding,
}
