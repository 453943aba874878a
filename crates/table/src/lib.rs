//! On-media formats shared by the engines: record log, sorted table, manifest.
//!
//! | module | one idea |
//! | --- | --- |
//! | [`log`] | records appended, read back in order after any crash |
//! | [`block`] | a sorted block of versioned entries |
//! | [`sst`] | an immutable sorted table: blocks, index, filter, properties, footer |
//! | [`cache`] | uncompressed blocks of any number of tables, bounded by bytes |
//! | [`manifest`] | which files count: a snapshot and edits, installed one by one |
//! | [`aside`] | damaged files that a repair keeps |
//! | [`checkpoint`] | files and a manifest into a checkpoint's sink |
//! | [`number`] | numbers of files, and the names that carry them |
//! | [`kind`] | what an entry of a table is, and the order of entries |
//!
//! Every format has a checksum over every byte, seeded with the file's number and the place of the
//! bytes, and a version that an older reader refuses by name. Every parser takes any bytes and
//! answers with a value or an error, in memory bounded by their length.

pub mod aside;
pub mod block;
mod bytes_file;
pub mod cache;
pub mod checkpoint;
pub mod fixed;
pub mod kind;
pub mod log;
pub mod manifest;
pub mod number;
pub mod sst;
mod varint;

pub use block::{Block, BlockIter, Compression};
pub use bytes_file::BytesFile;
pub use cache::BlockCache;
pub use kind::{EntryRef, Kind, MAX_SEQUENCE};
pub use log::{
    BatchReader, GapTracker, KIND_LINK, Link, LogAccess, LogEnd, LogMode, LogReader, LogRecord,
    LogSalvage, LogWriter, RecordParts, Replay, Replayed, Salvaged, SpareSegment, SyncHandle,
    WalWriter, salvage_chain, salvage_log,
};
pub use manifest::{Manifest, Rescued};
pub use number::{FileKind, FileNumber, FileNumbers, parse_file_name, parse_number};
pub use sst::{
    Found, IterOptions, SKETCH, Table, TableIter, TableMeta, TableOptions, TableWriter, Unsynced,
    salvage_table,
};
