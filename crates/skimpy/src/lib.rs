//! The multi-version engine on raw flash: SkimpyFTL, with SEMEL and VFTL as its other two mappings.
//!
//! # How a put travels
//! [`write`](siltstone_engine::Engine::write) takes the writer's lock and collects what is due
//! for the pages that were programmed since (`tail`). The batch gets one timestamp of
//! a hybrid clock (`timestamp`); each of its keys becomes a record (`record`), linked to the front of
//! its bucket's chain and to the version before it, if the cache knows that (`chains`). A small buffered batch
//! is written to the packing buffer's keeper (`stage`) and waits in the buffer (`pending`) until others
//! fill its page, or so many that they can be sorted; a synced one forces its page. Full pages go to the head of
//! the log (`log`), to the open block of the lane that has least to do (`space`, `lanes`). What is larger than a
//! page lies in pages of its own.
//!
//! # How a get travels
//! The translation cache (`cache`) has the place of a hot key's newest version; otherwise the bucket's chain
//! is followed from its head, page by page, past what is hidden (`chains::walk`). From the newest version prior
//! pointers lead to the one that was asked for. A lookup that has to read many pages, or waits for a channel that
//! others wait for (`chains::crowds`), has its bucket collected. No lock is held over a read: a pin keeps blocks
//! from being erased under it (`pins`).
//!
//! # How space comes back
//! Collection writes the buckets anew that were collected longest ago, and before them some that pages at hand are of use for (`chains::sweep`, `chains::near`, `chains::collect`, `held`): of each key all versions above the watermark and the youngest not above it, the oldest first, with all their pointers.
//! The watermark (`history`) is the least of the snapshots held, the configured retention, and now.
//!
//! # What survives
//! All that is on the device is one log of pages, numbered in order, in which the records of a batch lie one
//! behind the other, marked first and last. So *what is recovered is a prefix of the pages, and in it the
//! groups that have their end*:
//!
//! ```text
//!   checkpoint ─▶ page 71 │ 72 │ 73 │ ✗ 74 │ 75 │        75 was not promised: nothing synced before it
//!                 a a a ─┘ └ b b ┘ └ c c …               was lost, since a sync waits for all before it
//!                 a whole, b whole in two pages, c without an end: as if it had not been
//! ```
//!
//! * *A batch over several pages* counts when the page with its last record is in the prefix; one that was
//!   given up halfway, for want of space, is a group without an end, and the next group's first mark ends it.
//! * *Batches that were sorted together* are one group: an order of their own makes no prefix.
//! * *A page shared by several batches* is programmed whole: it holds, or its checksum doesn't and all of
//!   them are lost, which none of them was promised.
//! * *Lost packing buffers.* What was buffered is in the keeper's file, in order, each batch with the timestamp of
//!   the one before: opening goes on from the last batch on the device while they follow without a gap.
//!   A synced batch forces all that is pending before it.
//! * *Collection* is a group too: until it is whole the old chain stands, and its blocks are erased only when the
//!   copies are durable, no reader is in them, and replay begins behind them.
//! * *Pages that were cut off* by a power cut can't come back later: each opening begins a new epoch with a
//!   checkpoint, and replay takes pages of that epoch alone.
//! * *Torn or damaged?* Each page says how far the log was durable when it was packed. A page that is missing
//!   below that is damage; above it the log just ends.
//!
//! Checkpoints (`checkpoint`) hold the heads of buckets; opening (`recover`) reads the first page of each block,
//! the newest checkpoint, and the pages after it. Two are kept, so that one can be damaged.
//!
//! # Three mappings
//! SEMEL (`versions`) has every version in memory; VFTL is that over a page-mapped translation layer (`ftl`).
//! They share device, placement and interface, and differ in the map alone (`mapping`).
//!
//! Source: Misra, Chase, Gehrke, Lebeck, "Multi-version Indexing in Flash-based Key-Value Stores". Batches,
//! payloads, recovery, and the pace of collection are ours.

mod cache;
mod chains;
mod checkpoint;
mod copy;
mod cursor;
mod device;
mod engine;
pub mod flash;
mod ftl;
mod held;
mod history;
mod inspect;
mod keys;
mod lanes;
mod location;
mod log;
mod mapping;
mod options;
mod page;
mod pages;
mod pending;
mod pins;
mod record;
mod recover;
mod repair;
mod space;
mod stage;
mod stats;
mod tail;
mod timestamp;
mod verify;
mod versions;
mod write;

pub use engine::Skimpy;
pub use inspect::inspect;
pub use options::{Below, Mapping, Options};
pub use repair::repair;

/// The largest value: 1 MiB, so that one write leaves room for others on the device.
pub const MAX_VALUE_BYTES: usize = 1 << 20;
