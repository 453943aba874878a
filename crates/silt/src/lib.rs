//! The engine of least memory a key: SILT, the small index for a large table.
//!
//! # How a put travels
//! [`Silt::write`](siltstone_engine::Engine::write) joins the group (`write`): one thread at a time
//! leads, appends every operation of every waiting batch to the table's log as a record of its own,
//! syncs once if anyone asked for it, and enters the records' positions into the LogStores, one
//! cuckoo table a partition (`log_store`), all of them at one moment. When a LogStore is full, the
//! leader goes on in a new log with new LogStores, a new *generation* (`generation`); a background
//! thread converts the full one: each LogStore becomes a HashStore, the same entries in the order of
//! the cuckoo table, under a filter that is the table's tags alone (`convert`, `hash_store`). When a
//! partition has enough HashStores, they are sorted by hash and merged with its SortedStore into a
//! new one (`merge`, `sorted_store`), where deleted and overwritten entries end.
//!
//! # How a get travels
//! A reader pins a view (generations and version) with one atomic load (`view`). The key's hash
//! names the partition, and a place in each store; the stores are asked from the newest to the
//! oldest. LogStores and HashStores answer from memory in all but one case in some thousands where
//! they do not have the key; whoever has it needs one read. Locks are held over a few instructions in
//! LogStores, never over a read.
//!
//! # What survives
//! The manifest (`version`) says which HashStores and SortedStores there are; the chain of logs
//! (`write`) says what is not yet in one. One log holds the writes of all partitions in their order,
//! so what is recovered is a prefix of it, and a batch over many partitions is there whole or not.
//! Opening (`recover`) reads the first, replays the second, and removes what neither names.
//!
//! Source: Lim, "Resource-Efficient Data-Intensive System Designs for High Performance and
//! Capacity", 2015, chapters 2 and 3. The one log for all partitions is ours (the thesis has a log
//! for each), and so are blocks in the SortedStore in the place of fixed slots.

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
mod record;
mod recover;
mod repair;
mod sorted_store;
mod stats;
mod verify;
mod version;
mod view;
mod write;

pub use engine::Silt;
pub use inspect::inspect;
pub use options::{Options, Stores};
pub use repair::repair;

/// The largest value: the house's limit.
pub const MAX_VALUE_BYTES: usize = siltstone_engine::MAX_VALUE_BYTES;
