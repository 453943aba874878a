//! Sorted files: SSTables that are written outside of a table, to be ingested by one (`ingest`).
//!
//! The file is an SSTable of version 3, or 6 with a dictionary (see
//! `siltstone_table::sst::footer`), with a random number. It does not depend on the table: it may
//! be written by another process, before the table exists.
//!
//! Invariant: a file whose writer was not finished does not exist, or is not accepted.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;

use siltstone_engine::error::display_key;
use siltstone_engine::{Error, MAX_VALUE_BYTES, Purpose, Result, Timestamp, entry};
use siltstone_table::{EXTERNAL_SEQUENCE, EntryRef, FileNumber, Kind, TableWriter};
use siltstone_vfs::Vfs;

use crate::options::Options;

/// Writes one sorted file. Without [`finish`](Self::finish) the file is removed.
pub struct SortedFileWriter {
    vfs: Arc<dyn Vfs>,
    name: String,
    /// `None` once it is finished.
    table: Option<TableWriter>,
    last_key: Option<Vec<u8>>,
    expiring: u64,
}

/// A summary of a finished sorted file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SortedFile {
    /// Entries, deletions among them.
    pub entries: u64,
    /// Deletions.
    pub deletions: u64,
    /// Entries that expire.
    pub expiring: u64,
    /// The length of the file.
    pub bytes: u64,
    /// The first key.
    pub first_key: Vec<u8>,
    /// The last key.
    pub last_key: Vec<u8>,
}

impl SortedFileWriter {
    /// Creates the file `name` in `vfs`, which must not exist, with the block size, filters and
    /// compression of `options`: that of the last level, with its dictionary.
    ///
    /// # Errors
    /// I/O errors.
    pub fn create(vfs: Arc<dyn Vfs>, name: &str, options: &Options) -> Result<Self> {
        // Most of what is ingested has nothing below it.
        let table_options = options.bottommost_table_options();
        let number = draw_identity();
        let table =
            TableWriter::create(vfs.as_ref(), name, number, table_options, Purpose::Maintenance)?;
        let table = Some(table.external());
        Ok(SortedFileWriter { vfs, name: name.to_owned(), table, last_key: None, expiring: 0 })
    }

    /// Sets `key` to `value`. Keys must ascend.
    ///
    /// # Errors
    /// `Invalid` for a key that is not above the one before, and for an invalid key or value: the
    /// file is unchanged. I/O errors, after which it cannot be finished.
    pub fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.add(key, Kind::Put, 0, value)
    }

    /// Sets `key` to `value` until `expires_at`, in milliseconds since 1970.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    pub fn put_until(&mut self, key: &[u8], value: &[u8], expires_at: Timestamp) -> Result<()> {
        self.add(key, Kind::PutExpiring, expires_at, value)?;
        self.expiring += 1;
        Ok(())
    }

    /// Removes `key` from the table that ingests the file.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    pub fn delete(&mut self, key: &[u8]) -> Result<()> {
        self.add(key, Kind::Delete, 0, &[])
    }

    /// Entries so far.
    pub fn entries(&self) -> u64 {
        self.table.as_ref().map_or(0, TableWriter::entries)
    }

    /// About the length of the file so far, to decide when to begin the next one.
    pub fn estimated_bytes(&self) -> u64 {
        self.table.as_ref().map_or(0, TableWriter::estimated_bytes)
    }

    /// Memory in bytes: about 1 MiB, 8 bytes per key for the Bloom filter (with a range filter up
    /// to 21 more), and the index. It is bounded by the size of the file: begin a new one in time.
    pub fn memory_bytes(&self) -> usize {
        self.table.as_ref().map_or(0, TableWriter::memory_bytes)
    }

    /// Completes the file, durably.
    ///
    /// # Errors
    /// `Invalid` for a file without entries; I/O errors. The file is removed.
    pub fn finish(mut self) -> Result<SortedFile> {
        if self.entries() == 0 {
            return Err(Error::Invalid(format!("the sorted file {} has no entries", self.name)));
        }
        // Still removed by the drop if this fails.
        let Some(table) = self.table.take() else { return Err(Error::Closed) };
        let finished = table.finish().and_then(|meta| {
            self.vfs.sync_dir(Purpose::Maintenance)?;
            Ok(meta)
        });
        let meta = finished.inspect_err(|_| self.remove())?;
        Ok(SortedFile {
            entries: meta.entries,
            deletions: meta.deletes,
            expiring: self.expiring,
            bytes: meta.bytes,
            first_key: meta.smallest,
            last_key: meta.largest,
        })
    }

    fn add(&mut self, key: &[u8], kind: Kind, expires_at: Timestamp, value: &[u8]) -> Result<()> {
        entry::check_key(key)?;
        entry::check_value(value, MAX_VALUE_BYTES)?;
        if let Some(last) = self.last_key.as_deref().filter(|last| key <= *last) {
            return Err(Error::Invalid(format!(
                "{} comes after {} in the sorted file {}: keys must ascend, each of them once",
                display_key(key),
                display_key(last),
                self.name
            )));
        }
        let Some(table) = &mut self.table else { return Err(Error::Closed) };
        table.add(EntryRef { key, sequence: EXTERNAL_SEQUENCE, kind, expires_at, value })?;
        let last = self.last_key.get_or_insert_default();
        last.clear();
        last.extend_from_slice(key);
        Ok(())
    }

    fn remove(&self) {
        // If this fails, a file remains that no table ingests.
        let _ = self.vfs.remove(&self.name);
    }
}

impl Drop for SortedFileWriter {
    fn drop(&mut self) {
        if self.table.take().is_some() {
            self.remove();
        }
    }
}

impl std::fmt::Debug for SortedFileWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SortedFileWriter")
            .field("name", &self.name)
            .field("entries", &self.entries())
            .finish_non_exhaustive()
    }
}

/// A random number: files that are exchanged do not match their checksums.
fn draw_identity() -> FileNumber {
    FileNumber(1 + RandomState::new().build_hasher().finish() % FileNumber::LAST.0)
}
