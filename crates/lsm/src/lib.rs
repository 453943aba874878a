//! The ordered engine: a log-structured merge-tree.
//!
//! # How a put travels
//! [`Lsm::write`](siltstone_engine::Engine::write) joins the group (`write`): one thread at a time
//! leads, appends every waiting batch to the write-ahead log with one request, syncs once if anyone
//! asked for it, adds the operations to the memtable (a concurrent skiplist), and makes them visible
//! by one store of the newest sequence number. When the memtable is full the leader goes on in a new
//! log and a new memtable; a background thread writes the full one to a sorted table, a *row* of
//! level 0 (`flush`). When level 0 has too many rows, or a level too many bytes, a *strategy*
//! chooses what to compact (`compact`) and a background thread merges it into the level below.
//!
//! # How a get travels
//! A reader pins a view — memtables and version — with one atomic load (`read`) and looks from the
//! newest data to the oldest: memtables, rows of level 0, then one table in each level, each guarded
//! by its Bloom filter. The first version found that is not newer than the reader's moment is the
//! answer.
//!
//! # What survives
//! The manifest (`version`) says which tables there are; the chain of logs (`write`) says what
//! is not yet in one. Opening (`recover`) reads the first, replays the second up to the first gap,
//! and removes what neither names.
//!
//! Sources: the LSM-tree as LevelDB and RocksDB made it common, and the seams that the TRIAD and
//! TriangleKV papers need: entries that count their updates and know their log position
//! (`memtable`), rows of more than one kind (`version`), the choice of what to compact as a
//! strategy (`compact`).

mod carry;
mod checkpoint;
mod compact;
mod counters;
mod engine;
mod flush;
mod hotness;
mod inspect;
#[cfg_attr(not(test), expect(dead_code, reason = "rows with a live range are not in versions yet"))]
mod live_range;
mod memtable;
mod options;
mod read;
mod record;
mod recover;
mod repair;
mod retain;
#[cfg_attr(not(test), expect(dead_code, unused_imports, reason = "flushes do not build rows yet"))]
mod rowtable;
mod snapshots;
mod verify;
mod version;
mod write;

pub use engine::Lsm;
pub use inspect::inspect;
pub use options::{FileOptions, HotBudget, Level0Options, Options, Selection, TriadOptions};
pub use repair::repair;
pub use siltstone_engine::Inspection;
pub use siltstone_table::Compression;

/// The largest value: the house's limit.
pub const MAX_VALUE_BYTES: usize = siltstone_engine::MAX_VALUE_BYTES;
