//! The LSM-trie engine: HTables in a trie of hash prefixes. Written a lot, read at about one request
//! a lookup, without order.
//!
//! # How a put travels
//! [`Trie::write`](siltstone_engine::Engine::write) joins the group (`write`): one thread at a time
//! leads, appends every waiting batch to the write-ahead log with one request, syncs once if anyone
//! asked for it, and adds the operations to the memtable. A full memtable becomes an HTable (`htable`)
//! of the root container (`flush`): its items lie in buckets by their hash, balanced a segment at a
//! time, without an index. A container with as many sub-levels as it has children is emptied into
//! them by the next bits of the hashes (`compact`), with a segment of each table in memory; nothing of
//! the children is rewritten, so a level costs each item one write. The last level only grows, by
//! sub-levels, and is collected where much of it is garbage; or, if asked for, its sub-levels are
//! merged into a dense run under a rank index.
//!
//! # How a get travels
//! A reader pins a view with one atomic load (`read`) and looks from the newest data to the oldest:
//! memtables, then one container a level by the prefix of the hash, newest sub-level first. Filters
//! say which tables to ask: in memory, or for the last level, when memory is short, in a BloomCluster
//! on the medium (`cluster`), where one read answers for all sub-levels. A table is asked by reading
//! the one bucket that the hash names.
//!
//! # What survives
//! The manifest (`version`) says which tables there are; the chain of logs (`write`) says what is
//! not yet in one. Opening (`recover`) reads the first, replays the second up to the first gap, and
//! removes what neither names. Damage is told by `verify` and, as far as it can be, mended by
//! [`repair`]: every table says in its footer where it stands.
//!
//! Source: Wu, Xu, Shao, Jiang, "LSM-trie", USENIX ATC 2015. Log, recovery, expiry, checkpoints,
//! segments, the packed BloomCluster and the dense runs are ours.

mod checkpoint;
mod cluster;
mod compact;
mod counters;
mod cursor;
mod engine;
pub mod figures;
mod files;
mod flush;
mod hash;
#[doc(hidden)]
pub mod hostile;
mod htable;
mod inspect;
mod item;
mod memtable;
mod options;
mod position;
mod read;
mod record;
mod recover;
mod repair;
mod second;
mod verify;
mod version;
mod write;

pub use engine::Trie;
pub use inspect::inspect;
pub use options::Options;
pub use repair::{repair, repair_on};
pub use second::{remove_elsewhere, upper_of};

/// The largest value: the house's limit.
pub const MAX_VALUE_BYTES: usize = siltstone_engine::MAX_VALUE_BYTES;
