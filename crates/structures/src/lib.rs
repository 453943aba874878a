//! In-memory data structures without I/O, one a file.
//!
//! A tour, from what holds data to what describes it:
//!
//! - [`skiplist`]: the memtable, a concurrent ordered index of versioned keys, in memory of an
//!   [`arena`].
//! - [`hash`]: the hash of keys that filters and sketches take.
//!
//! Nothing here reads a clock, a file or a random device: what is random is so by a seed, and the
//! same calls give the same structure.

pub mod arena;
pub mod hash;
pub mod skiplist;
mod sync;

pub use hash::hash64;
pub use skiplist::{Cursor, EntryRef, NewVersion, SkipList, Version};
