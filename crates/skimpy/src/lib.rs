//! SkimpyFTL: a multi-version engine on raw flash. SEMEL and VFTL are two other mappings to compare
//! with.
//!
//! # Write path
//! [`write`](siltstone_engine::Engine::write) takes the writer lock and runs the collection steps
//! that are due for the pages programmed since (`tail`). The batch gets one timestamp of a hybrid
//! clock (`timestamp`). Each of its keys becomes a record (`record`), linked to the head of its
//! bucket's chain and, if the cache knows it, to the previous version of the key (`chains`). A
//! small buffered batch is written to a journal (`buffer_journal`) and waits in the write buffer
//! (`write_buffer`) until a page is full, or until enough records have accumulated to be sorted. A
//! synced batch programs its page at once. Pages are appended to the log (`log`), in the open block
//! of the least loaded channel (`space`, `channels`). An entry larger than a page gets pages of its
//! own.
//!
//! # Read path
//! The translation cache ([`translation_cache`]) has the location of a hot key's newest version.
//! Without it, the lookup follows the bucket's chain from its head, page by page, and skips hidden
//! versions (`chains::chain_iter`). From the newest version, prior pointers lead to the requested
//! one. A lookup that reads many pages, or waits for a hot channel (`chains::hot_channels`),
//! triggers a collection of its bucket. No lock is held over a read: a pin keeps blocks from being
//! erased (`pins`).
//!
//! # Garbage collection
//! Collection rewrites the buckets that were collected longest ago, and before them some whose
//! records happen to be in memory (`chains::sweep`, `chains::opportunistic`, `chains::collect`,
//! `record_cache`). Of each key it keeps all versions above the watermark and the youngest not
//! above it, the oldest first, with all their pointers. The watermark (`history`) is the minimum of
//! the pinned snapshots, the configured retention, and now.
//!
//! # Durability and recovery
//! The device holds one log of pages, numbered in order. The records of a batch are consecutive,
//! with marks on the first and the last. *Recovery yields a prefix of the pages, and in it the
//! groups that are complete*:
//!
//! ```text
//!   checkpoint ─▶ page 71 │ 72 │ 73 │ ✗ 74 │ 75 │      75 was never durable: a sync waits for all
//!                 a a a ─┘ └ b b ┘ └ c c …             pages before it
//!                 a complete, b complete in two pages, c incomplete: discarded
//! ```
//!
//! * *A batch over several pages* counts if the page with its last record is in the prefix. A batch
//!   that was abandoned for lack of space is a group without an end; the first mark of the next
//!   group ends it.
//! * *Batches that were sorted together* are one group, because their sorted order has no valid
//!   prefix.
//! * *A page shared by several batches* is programmed as a whole. If its checksum does not match,
//!   all of them are lost; none of them was durable.
//! * *Buffered batches* are in the journal file, in order, each with the timestamp of its
//!   predecessor. Opening replays them after the last batch on the device, up to the first gap. A
//!   synced batch programs all buffered ones before it.
//! * *Collection* writes groups, too: until a group is complete the old chain is valid. Old blocks
//!   are erased only when the copies are durable, no reader is in them, and replay begins after
//!   them.
//! * *Pages cut off* by a power cut cannot reappear later: each opening begins a new epoch with a
//!   checkpoint, and replay accepts pages of that epoch only.
//! * *Torn tail or damage:* each page states how far the log was durable when it was packed. A page
//!   that is missing below that is damage; above it the log ends there.
//!
//! A *clear* removes all keys at one timestamp (`clears`), atomically: the next checkpoint lists
//! it. A second checkpoint follows at once, so that one of the two can be damaged. The clear
//! begins a new epoch, too, so that the loss of both is detected once a page was written after
//! them.
//!
//! Checkpoints (`checkpoint`) hold the heads of buckets. Opening (`recover`) reads the first page
//! of each block, the newest checkpoint, and the pages after it. Two checkpoints are kept, so that
//! one can be damaged.
//!
//! # Mappings
//! SEMEL (`version_map`) has every version in memory. VFTL is SEMEL over a page-mapped translation
//! layer (`ftl`). All mappings share device, placement and interface (`mapping`).
//!
//! Source: Misra, Chase, Gehrke, Lebeck, "Multi-version Indexing in Flash-based Key-Value Stores".
//! Not in the paper: batches, payload pages, recovery, and the pace of collection.

mod buffer_journal;
mod bytes;
mod chains;
mod channels;
mod checkpoint;
mod clears;
mod copy;
mod cursor;
mod device;
mod engine;
pub mod flash;
mod ftl;
mod history;
mod inspect;
mod keys;
mod location;
mod log;
mod mapping;
mod options;
mod page;
mod page_reader;
mod pins;
mod record;
mod record_cache;
mod recover;
mod repair;
mod shared;
mod space;
mod stats;
mod table;
mod tail;
mod timestamp;
pub mod translation_cache;
mod verify;
mod version_map;
mod write;
mod write_buffer;

pub use engine::Skimpy;
pub use inspect::inspect;
pub use options::{FIXED_OPTIONS, FtlPlacement, Mapping, Options, RENAMED_OPTIONS};
pub use repair::repair;

/// The largest value, in bytes. The limit keeps room for other writes on the device.
pub const MAX_VALUE_BYTES: usize = 1 << 20;
