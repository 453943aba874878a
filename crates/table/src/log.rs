//! The record log: records of any bytes, appended, read back in order after any crash.
//!
//! | module | one idea |
//! | --- | --- |
//! | `format` | blocks and fragments, byte by byte |
//! | [`writer`] | appending, syncing from another thread, sealing |
//! | [`reader`] | walking a log in order; records by position |
//! | [`chain`] | logs one after the other, each naming the one before |
//! | [`replay`](mod@replay) | which logs of a chain count after a crash, and how far |
//! | [`sweep`] | many records by their positions, in order |
//! | [`survey`] | walking a log to check it, or to tell what is in it |
//! | [`salvage`] | every whole record of a chain, behind damage, too |
//! | `damage` | telling a torn tail from the loss of what had been durable |
//!
//! Invariant: what a reader returns is a prefix of what was appended, and holds at least all that
//! was synced — or the answer is `Error::Corruption`.

pub mod chain;
mod damage;
mod format;
pub mod reader;
pub mod replay;
pub mod salvage;
pub mod survey;
pub mod sweep;
pub mod writer;

pub use chain::{KIND_LINK, Link, RecordParts, SpareSegment, WalWriter, remove_logs};
pub use reader::{LogAccess, LogEnd, LogMode, LogReader, LogRecord, PositionedRecords, parse_log};
pub use replay::{Replay, Replayed, malformed, replay, replay_synced};
pub use salvage::{GapTracker, LogSalvage, Salvaged, salvage_chain, salvage_log};
pub use survey::{inspect_log, verify_logs};
pub use sweep::BatchReader;
pub use writer::{LogWriter, SyncHandle};
