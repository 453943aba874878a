//! Record log and write-ahead log: append records, and read them back in order after any crash.
//!
//! | module | contents |
//! | --- | --- |
//! | `format` | blocks and fragments, byte by byte |
//! | `shared` | the state of a growing log that its writer and readers share |
//! | [`writer`] | append, sync from another thread, seal |
//! | [`reader`] | sequential reads |
//! | [`access`] | reads by position, cached |
//! | [`part`] | the record that begins a table's part of a batch over several tables |
//! | [`wal`] | a write-ahead log of segments, each linked to the previous one |
//! | [`replay`](mod@replay) | which segments are valid after a crash, and how far |
//! | [`truncate`] | rewrites a recovered write-ahead log up to an end |
//! | [`batch_reader`] | batched reads of many positions |
//! | [`inspect`] | verification and dump of a log |
//! | [`salvage`] | every intact record of a write-ahead log, also beyond damage |
//! | [`archive`] | logs that are kept for readers of changes |
//! | [`follow`] | reads a log while it is written |
//! | `tail` | distinguishes a torn tail from corruption |
//!
//! Invariant: a reader returns a prefix of the appended records that contains at least all synced
//! records, or `Error::Corruption`.

pub mod access;
pub mod archive;
pub mod batch_reader;
pub mod follow;
mod format;
pub mod inspect;
pub mod part;
pub mod reader;
pub mod replay;
pub mod salvage;
mod shared;
mod tail;
pub mod truncate;
pub mod wal;
pub mod writer;

pub use access::LogAccess;
pub use archive::{ArchiveLimits, LogArchive, parse_archive_name};
pub use batch_reader::BatchReader;
pub use follow::LogFollower;
pub use inspect::{inspect_log, verify_logs};
pub use part::{KIND_PART, MAX_PART_BYTES, MAX_PART_TABLES, PartRecord};
pub use reader::{LogEnd, LogMode, LogReader, LogRecord, PositionedRecords, parse_log};
pub use replay::{ReplayHandler, ReplaySummary, logs_from, malformed, replay};
pub use salvage::{GapTracker, LogSalvage, SalvageItem, salvage_chain, salvage_log};
pub use truncate::{remove_copies, rewrite_logs};
pub use wal::{
    KIND_LINK, RecordParts, SegmentLink, SpareSegment, WalMark, WalPosition, WalWriter, remove_logs,
};
pub use writer::{LogMark, LogWriter, SyncHandle};
