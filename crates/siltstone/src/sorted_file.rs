//! Sorted files: written apart from any store, and ingested by
//! [`Table::ingest`](crate::Table::ingest).
//!
//! ```text
//!   keys in ascending order ── SortedFileWriter ──▶ file ── Table::ingest ──▶ SSTable of a level
//! ```
//!
//! A load by puts writes each entry to the log, and again in compactions. A sorted file is written
//! once. With the feature `lsm`.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use siltstone_engine::{Error, Result, Timestamp};
pub use siltstone_lsm::SortedFile;
use siltstone_vfs::Disk;

use crate::names::absolute;

/// Writes one sorted file. Dropped before [`finish`](Self::finish), it removes the file.
///
/// Any number of files may be written at the same time, also by other processes. Memory: about 1
/// MiB, and 8 bytes per key of the file; files of some 100 MiB are a good size
/// ([`estimated_bytes`](Self::estimated_bytes)).
#[derive(Debug)]
pub struct SortedFileWriter {
    writer: siltstone_lsm::SortedFileWriter,
}

impl SortedFileWriter {
    /// Creates the file `path`, which must not exist, in a directory that exists. `options` are
    /// options of `lsm`, of which block size, compression and filters matter; those of a table are
    /// in [`Table::options`](crate::Table::options).
    ///
    /// # Errors
    /// `InvalidOptions`; `Io`.
    pub fn create(path: impl AsRef<Path>, options: &BTreeMap<String, String>) -> Result<Self> {
        let options = siltstone_lsm::Options::from_map(options)?;
        let path = absolute(path.as_ref())?;
        let name = path.file_name().and_then(|name| name.to_str());
        let (Some(directory), Some(name)) = (path.parent(), name) else {
            return Err(Error::Invalid(format!("{} does not name a file", path.display())));
        };
        let vfs = Arc::new(Disk::open(directory)?);
        let writer = siltstone_lsm::SortedFileWriter::create(vfs, name, &options)?;
        Ok(SortedFileWriter { writer })
    }

    /// Sets `key` to `value`. Each key must be above the one before.
    ///
    /// # Errors
    /// `Invalid` for a key that is not, and for an invalid key or value: the file is unchanged.
    /// `Io`: the file cannot be finished.
    pub fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.writer.put(key, value)
    }

    /// Sets `key` to `value` until `expires_at` (milliseconds since 1970).
    ///
    /// # Errors
    /// As [`put`](Self::put).
    pub fn put_until(&mut self, key: &[u8], value: &[u8], expires_at: Timestamp) -> Result<()> {
        self.writer.put_until(key, value, expires_at)
    }

    /// Removes `key` from the table that ingests the file.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    pub fn delete(&mut self, key: &[u8]) -> Result<()> {
        self.writer.delete(key)
    }

    /// Refused: a sorted file has no range deletions. Delete the range in the table first.
    ///
    /// # Errors
    /// Always `Unsupported`.
    pub fn delete_range(&mut self, _start: &[u8], _end: &[u8]) -> Result<()> {
        Err(Error::Unsupported { engine: "lsm", operation: "range deletions in sorted files" })
    }

    /// Entries so far.
    pub fn entries(&self) -> u64 {
        self.writer.entries()
    }

    /// About the length of the file so far, to decide when to begin the next one.
    pub fn estimated_bytes(&self) -> u64 {
        self.writer.estimated_bytes()
    }

    /// Completes the file, durably.
    ///
    /// # Errors
    /// `Invalid` for a file without entries; `Io`. The file is removed.
    pub fn finish(self) -> Result<SortedFile> {
        self.writer.finish()
    }
}
