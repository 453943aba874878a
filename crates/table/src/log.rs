//! The record log: records of any bytes, appended, read back in order after any crash.
//!
//! | module | one idea |
//! | --- | --- |
//! | `format` | blocks and fragments, byte by byte |
//! | [`writer`] | appending, syncing from another thread, sealing |
//! | [`reader`] | walking a log in order; records by position |
//! | [`sweep`] | many records by their positions, in order |
//! | `damage` | telling a torn tail from the loss of what had been durable |
//!
//! Invariant: what a reader returns is a prefix of what was appended, and holds at least all that
//! was synced — or the answer is `Error::Corruption`.

mod damage;
mod format;
pub mod reader;
pub mod sweep;
pub mod writer;

pub use reader::{LogAccess, LogEnd, LogMode, LogReader, LogRecord, PositionedRecords, parse_log};
pub use sweep::LogSweep;
pub use writer::{LogWriter, SyncHandle};
