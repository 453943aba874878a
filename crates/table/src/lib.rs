//! On-disk formats shared by the engines: write-ahead log, SSTable, manifest.
//!
//! | module | contents |
//! | --- | --- |
//! | [`log`] | record log and write-ahead log, with recovery after any crash |
//! | [`block`] | a block of sorted, versioned entries |
//! | [`sst`] | an immutable SSTable: blocks, index, filters, properties, footer |
//! | [`cache`] | block cache, bounded in bytes, shared by any number of SSTables |
//! | [`manifest`] | the current set of files: a snapshot and edits, applied one at a time |
//! | [`quarantine`] | damaged files that a repair keeps under another name |
//! | [`checkpoint`] | copies files and a manifest into a checkpoint's sink |
//! | [`FileSum`] | checksums that bind bytes to a file and an offset |
//! | [`number`] | file numbers and file names |
//! | [`kind`] | entry kinds and the order of entries |
//!
//! In every format, each byte is covered by a checksum seeded with the file's number and the byte's
//! position, and a version lets an older reader reject a newer file by name. Every parser accepts
//! arbitrary bytes and returns a value or an error, with memory bounded by the input's length.

pub mod block;
mod bytes_file;
pub mod cache;
pub mod checkpoint;
mod file_sum;
pub mod fixed;
pub mod kind;
pub mod log;
pub mod manifest;
pub mod number;
pub mod quarantine;
pub mod sst;
mod varint;

pub use block::{Block, BlockIter, Compression};
pub use bytes_file::BytesFile;
pub use cache::BlockCache;
pub use file_sum::{FileSum, SUM_BYTES};
pub use kind::{EntryRef, Kind, MAX_SEQUENCE};
pub use log::{
    BatchReader, GapTracker, KIND_LINK, LogAccess, LogEnd, LogMode, LogReader, LogRecord,
    LogSalvage, LogWriter, MAX_PART_BYTES, MAX_PART_TABLES, PartRecord, RecordParts, ReplayHandler,
    ReplaySummary, SalvageItem, SegmentLink, SpareSegment, SyncHandle, WalMark, WalPosition,
    WalWriter, salvage_chain, salvage_log,
};
pub use manifest::{Manifest, ManifestSalvage};
pub use number::{FileKind, FileNumber, FileNumbers, Ingestion, parse_file_name, parse_number};
pub use sst::{
    EXTERNAL_SEQUENCE, Filter, IterOptions, PinnedEntry, SKETCH, Table, TableIter, TableMeta,
    TableOptions, TableWriter, UnsyncedTable, salvage_table,
};
