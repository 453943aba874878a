//! SILT, the "small index for a large table": a hash-indexed engine with the smallest memory
//! footprint per key.
//!
//! # Write path
//! [`Silt::write`](siltstone_engine::Engine::write) joins a commit group (`write`). The leader
//! appends every operation of every batch to the table's log as a record of its own, syncs once if
//! any batch asked for it, and inserts the positions of the records into the LogStores, one cuckoo
//! table per partition (`log_store`), all at one moment. When a LogStore is full, the leader
//! rotates to a new log with new LogStores, a new *generation* (`generation`). A background thread
//! converts the full one: each LogStore becomes a HashStore, the same entries in the order of the
//! cuckoo table, under a filter that consists of the table's tags (`convert`, `hash_store`). When a
//! partition has enough HashStores, they are sorted by hash and merged with its SortedStore into a
//! new one (`merge`, `sorted_store`), which drops deleted and overwritten entries.
//!
//! # Read path
//! A reader pins a view (generations and version) with one atomic load (`view`). The key's hash
//! selects the partition and a slot or block in each store; the stores are searched from the newest
//! to the oldest. LogStores and HashStores reject an absent key from memory, but for one false
//! positive in several thousand lookups; the store that has the key needs one read. Locks are held
//! for a few instructions in LogStores, never over a read.
//!
//! # Durability and recovery
//! The manifest (`version`) names the HashStores and SortedStores; the chain of logs (`write`)
//! holds the writes that are in no store yet. One log holds the writes of all partitions in commit
//! order, so recovery yields a prefix of them, and a batch over several partitions is atomic.
//! Opening (`recover`) reads the manifest, replays the logs, and removes files that neither names.
//!
//! Source: Lim, "Resource-Efficient Data-Intensive System Designs for High Performance and
//! Capacity", 2015, chapters 2 and 3. Differences: the thesis has one log per partition, and fixed
//! slots instead of blocks in the SortedStore.

mod api;
mod background;
mod checkpoint;
mod convert;
mod counters;
mod cursor;
mod engine;
mod file;
#[doc(hidden)]
pub mod fuzzing;
mod generation;
mod hash_store;
mod indexes;
mod inspect;
mod item;
mod keys;
mod log_store;
mod merge;
mod names;
mod options;
mod position;
mod read;
mod record;
mod recover;
mod repair;
mod sorted_store;
mod store_entry;
mod store_file;
mod verify;
mod version;
mod view;
mod write;

pub use api::Silt;
pub use inspect::inspect;
pub use names::owns;
pub use options::{FIXED_OPTIONS, Options, RENAMED_OPTIONS, Stores};
pub use repair::repair;
