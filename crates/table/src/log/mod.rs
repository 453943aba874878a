//! Record log and write-ahead log: append records, and read them back in order after any crash.
//!
//! | module | contents |
//! | --- | --- |
//! | `format` | blocks and fragments, byte by byte |
//! | [`writer`] | append, sync from another thread, seal |
//! | [`reader`] | sequential reads, and reads by position |
//! | [`wal`] | a write-ahead log of segments, each linked to the previous one |
//! | [`replay`](mod@replay) | which segments are valid after a crash, and how far |
//! | [`batch_reader`] | batched reads of many positions |
//! | [`inspect`] | verification and dump of a log |
//! | [`salvage`] | every intact record of a write-ahead log, also beyond damage |
//! | `tail` | distinguishes a torn tail from corruption |
//!
//! Invariant: a reader returns a prefix of the appended records that contains at least all synced
//! records, or `Error::Corruption`.

pub mod batch_reader;
mod format;
pub mod inspect;
pub mod reader;
pub mod replay;
pub mod salvage;
mod tail;
pub mod wal;
pub mod writer;

pub use batch_reader::BatchReader;
pub use inspect::{inspect_log, verify_logs};
pub use reader::{LogAccess, LogEnd, LogMode, LogReader, LogRecord, PositionedRecords, parse_log};
pub use replay::{ReplayHandler, ReplaySummary, malformed, replay, replay_synced};
pub use salvage::{GapTracker, LogSalvage, SalvageItem, salvage_chain, salvage_log};
pub use wal::{KIND_LINK, RecordParts, SegmentLink, SpareSegment, WalWriter, remove_logs};
pub use writer::{LogWriter, SyncHandle};
