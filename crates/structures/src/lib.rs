//! In-memory data structures without I/O, one a file.
//!
//! A tour, from what holds data to what describes it:
//!
//! - [`memtree`]: the memtable, a concurrent ordered index of versioned keys, in memory of an
//!   [`arena`].
//! - [`bloom`]: filters that tell absent keys, blocked by cache lines for tables, classic for the
//!   small buckets of an LSM-trie.
//! - [`range_filter`]: filters that tell ranges without a key.
//! - [`cuckoo`]: partial-key cuckoo hashing, from the hash of a key to where it may lie in a log,
//!   and the filter that remains of it.
//! - [`ect`]: entropy-coded tries, from a hash to its rank among all, in 2.5 bits a key.
//! - [`recsplit`]: minimal perfect hashing bucket by bucket, from a hash to its position, in 1.57
//!   bits a key.
//! - [`rank`]: what these two have in common, and which to take.
//! - [`hyperloglog`]: sketches that estimate how many distinct keys files have, and share.
//! - [`bits`] and [`codes`]: strings of bits, and codes for numbers in them, for entropy-coded
//!   tries.
//! - [`hash`]: the hash of keys that filters and sketches take.
//! - [`splitmix`]: a seeded pseudo-random generator with a stable sequence.
//!
//! Nothing here reads a clock, a file or a random device: what is random is so by a seed, and the
//! same calls give the same structure.

pub mod arena;
pub mod bits;
pub mod bloom;
pub mod codes;
pub mod cuckoo;
pub mod ect;
pub mod hash;
pub mod hyperloglog;
pub mod memtree;
pub mod range_filter;
pub mod rank;
pub mod recsplit;
pub mod splitmix;
mod sync;

pub use arena::ChunkPool;
pub use bits::{BitReader, BitWriter};
pub use bloom::{BlockedBloom, BlockedBloomView, ClassicBloom, ClassicBloomView};
pub use cuckoo::{CuckooFilter, CuckooTable};
pub use ect::{Ect, EctBuilder};
pub use hash::hash64;
pub use hyperloglog::HyperLogLog;
pub use memtree::{BLinkTree, Cursor, EntryRef, NewVersion, Version};
pub use range_filter::{RangeFilter, RangeFilterBuilder};
pub use rank::{HashKey, RankIndex, RankIndexBuilder};
pub use recsplit::{RecSplit, RecSplitBuilder};
pub use splitmix::SplitMix64;
