//! The LSM-trie engine: hash tables in a trie of hash prefixes. Write-optimised, about one read
//! request per lookup, unordered.
//!
//! # Write path
//! [`Trie::write`](siltstone_engine::Engine::write) joins a group commit (`write`). The leader of
//! the group appends all waiting batches to the write-ahead log with one request, syncs once if any
//! writer asked for it, and adds the operations to the memtable. A full memtable is flushed to an
//! HTable (`htable`), a hash table on storage, in the root container (`flush`). Its items are in
//! buckets by their hash, balanced one segment at a time, without an index. A container with as
//! many sub-levels (tables) as it has children is spilled into them by the next bits of the hashes
//! (`compact`). The tables of the children are not rewritten, so each level writes an item once.
//! The last level only grows, and garbage collection compacts containers with much garbage; or, as
//! an option, their tables are merged into a dense run with a rank index.
//!
//! # Read path
//! A reader pins a view with one atomic load (`read`) and searches from the newest data to the
//! oldest: memtables, then one container per level by the prefix of the hash, newest table first.
//! Filters exclude tables: they are in memory, or, for the last level when memory is short, in a
//! BloomCluster on storage (`cluster`), where one read covers all tables. A lookup in a table reads
//! the one bucket of the hash.
//!
//! # Durability and recovery
//! The manifest (`version`) names the tables. The chain of logs (`write`) contains the writes that
//! are not yet in a table. Recovery (`recover`) reads the manifest, replays the logs up to the
//! first gap, and then removes the files that neither names. `verify` detects damage, and
//! [`repair`] repairs it as far as possible: the footer of every table records its container.
//!
//! Source: Wu, Xu, Shao, Jiang, "LSM-trie", USENIX ATC 2015.

mod api;
mod checkpoint;
mod cluster;
mod compact;
mod config;
mod container_id;
mod counters;
mod cursor;
mod engine;
mod files;
mod flush;
#[doc(hidden)]
pub mod fuzzing;
mod hash;
mod htable;
mod inspect;
mod item;
mod memtable;
mod options;
pub mod paper_figures;
mod position;
mod read;
mod record;
mod recover;
mod repair;
mod tiering;
mod verify;
mod version;
mod view;
mod write;

pub use api::{Trie, open_on};
pub use files::owns;
pub use inspect::inspect;
pub use options::{FIXED_OPTIONS, Options, RENAMED_OPTIONS};
pub use repair::{repair, repair_on};
pub use tiering::{fast_tier_dir, remove_fast_tier};
