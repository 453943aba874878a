//! The `mica` engine: a cache or a store in memory, partitioned by core.
//!
//! # How a put travels
//! ```text
//! request (keyhash, key, value)
//!   │ leading bits of the keyhash
//!   ▼
//! partition ─ lock (erew, crew)
//!   │ middle bits                       cache mode                  store mode
//!   ▼
//! bucket ─ version odd (crew, crcw) ─┬─ fits the old place: there ──┬─ fits the old block: there
//!   │ low bits: the tag              ├─ append to the log; what     ├─ a block of the smallest class
//!   ▼                                │  the head meets goes         │  that has one; full is an error
//! entry = tag + offset ──────────────┴─ full bucket: oldest goes ───┴─ full bucket: a spare one more
//! ```
//! # How a get travels
//! By the same bits to a bucket; each entry with the tag leads to an item; the whole key is compared;
//! the value is copied to where the caller wants it; and where others may write meanwhile, version
//! and tail must be as they were before, else from the beginning. In a burst, buckets and items of
//! later requests are fetched while one is done.
//!
//! | module | one idea |
//! | --- | --- |
//! | [`request`] | what may be asked, and what is answered |
//! | [`store`] | partitions; bursts in stages |
//! | `partition` | every operation; `cache` and `keep`, the two modes |
//! | `index` | buckets; `lossy` and `lossless` |
//! | `space` | where items lie: `log` and `fits` |
//! | [`version`] | reads without a store, writes that readers notice |
//! | [`ring`] | offsets that tell what was overwritten |
//! | [`turnstile`] | many inside, or one alone |
//! | [`held`] | the locks that a burst keeps |
//! | [`visits`] | who does bursts, or who reads, thinks and writes |
//! | `mapping`, `prefetch` | memory of huge pages; cache lines before they are needed |
//! | `item`, `words`, `keyhash` | layouts |
//! | [`sync`] | atomics and locks, real ones or loom's |
//! | [`options`], `counters`, [`lines`], `cursor`, `engine` | the rest |
//!
//! # What is promised
//! * No operation answers with another key's value: keys are compared whole, always.
//! * Single operations, and batches, are linearizable in every access mode.
//! * In store mode nothing goes that was not deleted; full is an error, and nothing has changed.
//! * Memory is what `memory` says, from open to close; cursors, which copy the table, come on top. [`Keys`]
//!   walks without a copy.
//!
//! Nothing survives the process.
//!
//! Source: H. Lim, "Resource-Efficient Data-Intensive System Designs for High Performance and
//! Capacity", CMU-CS-15-132, 2015, chapter 5; H. Lim, D. Han, D. G. Andersen, M. Kaminsky, "MICA",
//! NSDI 2014.

pub mod held;
pub mod ring;
pub mod sync;
pub mod turnstile;
pub mod version;
pub mod visits;

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
pub use options::{Mode, Options};
#[cfg(not(loom))]
pub use partition::cache::Eviction;
#[cfg(not(loom))]
pub use request::{Action, Answer, Outcome, Output, Request, Value, Values, is_memory_full};
#[cfg(not(loom))]
pub use store::Store;
pub use version::Access;
