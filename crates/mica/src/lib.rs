//! The `mica` engine: an in-memory cache or store, partitioned by core. Not durable.
//!
//! # Write path
//! ```text
//! request (keyhash, key, value)
//!   │ leading bits of the keyhash
//!   ▼
//! partition ─ lock (erew, crew)
//!   │ middle bits                       cache mode                  store mode
//!   ▼
//! bucket ─ version odd (crew, crcw) ─┬─ fits the old place: there ──┬─ fits the old block: there
//!   │ low bits: the tag              ├─ append to the log; the head ├─ a block of the smallest
//!   ▼                                │  evicts the oldest items     │  class that has one; or full
//! entry = tag + offset ──────────────┴─ bucket full: evict oldest ──┴─ bucket full: chain one more
//! ```
//! # Read path
//! The same bits select a bucket. Each entry with the tag leads to an item, whose whole key is
//! compared; then the value is copied to the caller's buffer. If there are concurrent writers, the
//! read is retried unless the bucket's version and the log's tail are unchanged afterwards. In a
//! burst, the buckets and items of later requests are prefetched while one is executed.
//!
//! | module | contents |
//! | --- | --- |
//! | [`request`] | requests and responses |
//! | [`store`] | partitions; pipelined bursts |
//! | `partition` | all operations; `cache_mode` and `store_mode` |
//! | `index` | hash index: `lossy` (cache mode) and `lossless` (store mode) |
//! | `space` | item memory: `log` (cache mode) and `fits` (store mode) |
//! | [`version`] | per-bucket seqlock: optimistic reads |
//! | [`ring`] | log offsets that reveal overwritten items |
//! | [`brlock`] | big-reader lock: shared for bursts, exclusive for mode changes |
//! | [`burst_locks`] | partition locks that a burst keeps |
//! | [`two_mode_lock`] | excludes bursts and keyed read-modify-writes from each other |
//! | `mapping`, `prefetch` | huge-page memory; cache-line prefetch |
//! | `system` | what the operating system offers, in one module per form: Linux, and portable |
//! | `item`, `words`, `keyhash` | layouts |
//! | [`sync`] | atomics and locks, real or loom's |
//! | [`options`], `counters`, [`lines`], `keys`, `cursor`, `engine` | the rest |
//!
//! # Guarantees
//! * An operation never returns another key's value: whole keys are always compared.
//! * Single operations and batches are linearizable in every access mode.
//! * In store mode no item is evicted; a full store is an error that changes nothing.
//! * Memory is the `memory` option, from open to close. Cursors, which copy the table, add to it;
//!   [`Keys`] iterates without a copy.
//!
//! Source: H. Lim, "Resource-Efficient Data-Intensive System Designs for High Performance and
//! Capacity", CMU-CS-15-132, 2015, chapter 5 ("the thesis"); H. Lim, D. Han, D. G. Andersen,
//! M. Kaminsky, "MICA", NSDI 2014.

pub mod brlock;
pub mod burst_locks;
pub mod ring;
pub mod sync;
pub mod two_mode_lock;
pub mod version;

#[cfg(not(loom))]
mod counters;
#[cfg(not(loom))]
mod cursor;
#[cfg(not(loom))]
mod engine;
#[cfg(not(loom))]
mod index;
#[cfg(not(loom))]
mod item;
#[cfg(not(loom))]
mod keyhash;
#[cfg(not(loom))]
mod keys;
#[cfg(not(loom))]
pub mod lines;
#[cfg(not(loom))]
mod mapping;
#[cfg(not(loom))]
pub mod options;
#[cfg(not(loom))]
mod partition;
#[cfg(not(loom))]
mod prefetch;
#[cfg(not(loom))]
pub mod request;
#[cfg(not(loom))]
mod space;
#[cfg(not(loom))]
pub mod store;
#[cfg(not(loom))]
mod system;
#[cfg(not(loom))]
mod words;

#[cfg(not(loom))]
pub use engine::Mica;
#[cfg(not(loom))]
pub use item::{MAX_VALUE_BYTES, Meta};
#[cfg(not(loom))]
pub use keys::Keys;
#[cfg(not(loom))]
pub use mapping::Mapping;
#[cfg(not(loom))]
pub use options::{LIVE_OPTIONS, Mode, Options, RENAMED_OPTIONS};
#[cfg(not(loom))]
pub use partition::cache_mode::Eviction;
#[cfg(not(loom))]
pub use request::{Action, Answer, Outcome, Output, Request, Value, Values, is_memory_full};
#[cfg(not(loom))]
pub use store::Store;
pub use version::Access;

/// The engine's name.
pub(crate) const NAME: &str = "mica";
