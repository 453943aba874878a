//! In-memory data structures without I/O, one per module.
//!
//! - [`blink_tree`]: the memtable, a concurrent ordered index of versioned keys, allocated in an
//!   [`arena`].
//! - [`bloom`]: Bloom filters, blocked by cache lines for SSTables, classic for the small buckets
//!   of an LSM-trie.
//! - [`range_filter`]: filters for key ranges.
//! - [`cuckoo`]: partial-key cuckoo hashing, from the hash of a key to its candidate offsets in a
//!   log; and the cuckoo filter that remains of such a table.
//! - [`ect`]: entropy-coded tries, from a hash to its rank, in 2.5 bits per key.
//! - [`hyperloglog`]: sketches that estimate the distinct keys of files and of their unions.
//! - [`bits`] and [`codes`]: bit strings, and integer codes in them, for entropy-coded tries.
//! - [`hash`]: the hash of keys for filters and sketches.
//! - [`prefetch`](mod@prefetch): prefetching cache lines.
//! - [`common_prefix`]: the length of the common prefix of two keys.
//! - [`key_buffer`]: a reused buffer for one key.
//! - [`key_head`](mod@key_head): the first 8 bytes of a key as an integer.
//! - [`key_heads`]: a search of sorted keys by such integers.
//! - [`splitmix`]: a seeded pseudo-random generator with a stable sequence.
//! - [`striped_counter`]: a counter for many threads.
//!
//! Nothing here reads a clock, a file or a random device: randomness comes from seeds, and the same
//! calls give the same structure.

pub mod arena;
pub mod bits;
pub mod blink_tree;
pub mod bloom;
pub mod codes;
pub mod common_prefix;
pub mod cuckoo;
pub mod ect;
pub mod hash;
pub mod hyperloglog;
pub mod key_buffer;
pub mod key_head;
pub mod key_heads;
pub mod prefetch;
pub mod range_filter;
pub mod splitmix;
pub mod striped_counter;
mod sync;
mod system;

pub use arena::ChunkPool;
pub use bits::{BitReader, BitWriter};
pub use blink_tree::{BLinkTree, Cursor, EntryRef, NewVersion, Version};
pub use bloom::{
    BlockedBloom, BlockedBloomView, BloomProbe, ClassicBloom, ClassicBloomView, GrowingBloom,
    PlaneSource, SlicedBloom,
};
pub use common_prefix::common_prefix_len;
pub use cuckoo::{CuckooFilter, CuckooTable};
pub use ect::{Ect, EctBuilder, HashKey};
pub use hash::hash64;
pub use hyperloglog::HyperLogLog;
pub use key_buffer::KeyBuffer;
pub use key_head::key_head;
pub use key_heads::KeyHeads;
pub use prefetch::prefetch;
pub use range_filter::{RangeFilter, RangeFilterBuilder};
pub use splitmix::SplitMix64;
pub use striped_counter::StripedCounter;
