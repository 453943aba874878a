//! The ordered engine: a log-structured merge-tree.
//!
//! # Write path
//! [`Lsm::write`](siltstone_engine::Engine::write) joins a group commit (`write`). The leader of
//! the group appends all waiting batches to the write-ahead log with one request, syncs once if
//! any writer asked for it, adds the operations to the memtable (a B-link tree), and publishes them
//! by one store of the newest sequence number. When the memtable is full, the leader switches to a
//! new log and a new memtable.
//!
//! A background thread flushes the full memtable to an L0 run (`flush`). The log already contains
//! the values, so the flush writes only an index of positions in it, and the log becomes part of
//! the run (a CL-SSTable, TRIAD-LOG). Hot keys can stay in memory (`hot_key_retention`, TRIAD-MEM).
//! Level 0 is compacted in slices (`compact`): a cursor moves over the key space, and a compaction
//! merges the keys of all L0 runs from the cursor up to a file boundary of level 1. A run keeps
//! only the keys that the cursor has not passed since the run was inserted (`live_range`), and is
//! dropped when none are left. Deeper levels use leveled compaction with a `Strategy`.
//!
//! # Read path
//! A reader pins a view (the memtables and a version) with one atomic load (`read`) and searches
//! from the newest data to the oldest: memtables, L0 runs, then one table per level, each behind
//! its Bloom filter. The first version that is visible to the reader is the result. If the run has
//! only a position, one read of the log fetches the value.
//!
//! Range deletions (`range_deletes`) are kept apart from the keys, in memtables and versions.
//!
//! # Merges
//! An operand of a merge is a version of its key. A read that meets one collects the operands down
//! to the value below them (`read::merged_value`); flushes and compactions fold them (`folder`).
//!
//! # Durability and recovery
//! The manifest (`version`) names the tables. The chain of logs (`write`) contains the writes that
//! are not yet in a table. Recovery (`recover`) reads the manifest, replays the logs up to the
//! first gap, and then removes the files that neither names.
//!
//! Sources: LevelDB and RocksDB; Balmau et al., TRIAD (USENIX ATC 2017); Ding et al., TriangleKV
//! (TPDS 2022).

mod api;
mod blob_ref;
#[cfg(test)]
mod blob_tests;
mod changes;
mod checkpoint;
mod checkpoint_lock;
mod closed;
mod compact;
#[cfg(test)]
mod compression_tests;
mod counters;
mod engine;
mod flush;
mod folder;
mod hot_key_retention;
mod hotness;
mod ingest;
mod ingest_rewrite;
mod inspect;
mod live_options;
mod live_range;
mod log_position;
mod memtable;
mod merge_chain;
mod merge_state;
mod options;
mod pool;
mod range_deletes;
mod read;
mod record;
mod recover;
mod repair;
mod rowtable;
mod snapshots;
mod sorted_file;
mod verify;
mod version;
mod version_gc;
mod view;
mod write;

pub use api::{Lsm, open_shared};
pub use closed::verify_closed;
pub use inspect::inspect;
pub use options::{
    CompactionPriority, HotBudget, L0Options, L0Policy, LIVE_OPTIONS, Options, RENAMED_OPTIONS,
    TriadOptions,
};
pub use repair::repair;
pub use siltstone_engine::Inspection;
pub use siltstone_table::Compression;
pub use sorted_file::{SortedFile, SortedFileWriter};
