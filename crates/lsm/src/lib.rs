//! The ordered engine: a log-structured merge-tree.
//!
//! # How a put travels
//! [`Lsm::write`](siltstone_engine::Engine::write) joins the group (`write`): one thread at a time
//! leads, appends every waiting batch to the write-ahead log with one request, syncs once if anyone
//! asked for it, adds the operations to the memtable (a B-link tree), and makes them visible
//! by one store of the newest sequence number. When the memtable is full the leader goes on in a new
//! log and a new memtable.
//!
//! A background thread makes the full one a *row* of level 0 (`flush`). Its log already holds every
//! value, so what is written is an index of positions in it: a CL-SSTable (TRIAD-LOG). Hot keys may
//! stay behind in memory (`carry`, TRIAD-MEM). Rows pile up in a container, and a cursor turns round
//! the key space: what all rows hold of the keys at the cursor, a *right-angle side*, is merged into
//! level 1 (`compact`), a little at a time. A row answers for the keys that the cursor has not passed
//! since the row came (`live_range`), and goes when there are none. From level 1 on the tree is a
//! leveled one: a *strategy* chooses what to merge into the level below.
//!
//! # How a get travels
//! A reader pins a view — memtables and version — with one atomic load (`read`) and looks from the
//! newest data to the oldest: memtables, rows of level 0, then one table in each level, each guarded
//! by its Bloom filter. The first version found that is not newer than the reader's moment is the
//! answer; if a row has only its position, one read of the log fetches the value.
//!
//! # What survives
//! The manifest (`version`) says which tables there are; the chain of logs (`write`) says what
//! is not yet in one. Opening (`recover`) reads the first, replays the second up to the first gap,
//! and removes what neither names.
//!
//! Sources: the LSM-tree as LevelDB and RocksDB made it common; Balmau et al., TRIAD (USENIX ATC
//! 2017); Ding et al., TriangleKV (TPDS 2022). Rows of logs under a turning cursor, the two together
//! without NVM, are ours.

mod carry;
mod checkpoint;
mod closed;
mod compact;
mod counters;
mod engine;
mod flush;
mod hotness;
mod inspect;
mod live_range;
mod memtable;
mod options;
mod pool;
mod read;
mod record;
mod recover;
mod repair;
mod retain;
mod rowtable;
mod snapshots;
mod verify;
mod version;
mod write;

pub use closed::verify_closed;
pub use engine::Lsm;
pub use inspect::inspect;
pub use options::{FileOptions, HotBudget, Level0Options, Options, Selection, Shape, TriadOptions};
pub use repair::repair;
pub use siltstone_engine::Inspection;
pub use siltstone_table::Compression;

/// The largest value: the house's limit.
pub const MAX_VALUE_BYTES: usize = siltstone_engine::MAX_VALUE_BYTES;
