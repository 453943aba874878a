//! Edits of the set of files: what those of all engines have in common, and their replay.
//!
//! Each engine defines its own edit and its bytes. The numbers of files, logs and sequence numbers
//! are in an [`EditHeader`], and recovery merges all edits of a manifest by [`replay_edits`].
//!
//! Invariant: edits are merged in the order of the manifest, each with the result of all before it.
//!
//! Source: LevelDB's `VersionEdit`.

use std::fmt;

use siltstone_engine::{Error, Result};

/// The file name that errors about edits give: an edit does not know the number of its manifest.
const MANIFEST: &str = "MANIFEST";

/// The fields that the edits of every engine have; `None`: unchanged.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct EditHeader {
    /// The next free file number.
    pub next_file: Option<u64>,
    /// The newest sequence number in any file but the logs, and of any flushed memtable. Engines
    /// without sequence numbers ignore it.
    pub last_sequence: Option<u64>,
    /// Logs with smaller numbers are not needed: their writes are in other files.
    pub first_log: Option<u64>,
    /// Number and length of the log that a clean close sealed. Any later edit revokes it.
    pub sealed_log: Option<(u64, u64)>,
    /// Number and length of a log that is known to be durable up to there, though the log itself
    /// may not prove it.
    pub synced_log: Option<(u64, u64)>,
    /// The table has its part of every batch over several tables up to this number in which it took
    /// part, and so have the other tables. Such parts stay, whatever is in the logs.
    pub durable_batch: Option<u64>,
}

impl EditHeader {
    /// The fields about logs and sequence numbers as text.
    pub fn words(&self) -> impl Iterator<Item = String> {
        let first = self.first_log.map(|number| format!("logs from {number}"));
        let sealed = self.sealed_log.map(|(number, len)| format!("log {number} sealed at {len}"));
        let synced = self.synced_log.map(|(number, len)| format!("log {number} synced to {len}"));
        let sequence = self.last_sequence.map(|sequence| format!("sequence {sequence}"));
        let durable = self.durable_batch.map(|batch| format!("batches durable up to {batch}"));
        [first, sealed, synced, sequence, durable].into_iter().flatten()
    }

    /// The header after an edit with the header `newer`.
    #[must_use]
    pub fn then(self, newer: EditHeader) -> EditHeader {
        EditHeader {
            next_file: newer.next_file.or(self.next_file),
            last_sequence: newer.last_sequence.max(self.last_sequence),
            first_log: newer.first_log.or(self.first_log),
            sealed_log: newer.sealed_log,
            synced_log: newer.synced_log.or(self.synced_log),
            durable_batch: newer.durable_batch.max(self.durable_batch),
        }
    }
}

/// One change of the set of files, as the manifest records it.
pub trait VersionEdit: Default + fmt::Display {
    /// The bytes that the manifest stores.
    fn encode(&self) -> Vec<u8>;

    /// Parses an edit.
    ///
    /// # Errors
    /// A description of the malformed field.
    fn decode(bytes: &[u8]) -> std::result::Result<Self, String>;

    /// The fields that all engines share.
    fn header(&self) -> &EditHeader;

    /// The same, to be changed.
    fn header_mut(&mut self) -> &mut EditHeader;

    /// Adds the changes of files of `newer`, the edit after this one. Headers are merged by the
    /// caller.
    ///
    /// # Errors
    /// A description of the conflict if `newer` does not fit, e.g. because it removes a file that
    /// does not exist.
    fn merge_files(&mut self, newer: Self) -> std::result::Result<(), String>;
}

/// Merges the records of a manifest into the one edit that makes their result from nothing.
///
/// # Errors
/// `Corruption` if an edit is malformed or does not fit those before it.
pub fn replay_edits<E: VersionEdit>(records: &[Vec<u8>]) -> Result<E> {
    let corruption = |reason| Error::corruption(MANIFEST, 0, reason);
    let mut merged = E::default();
    for record in records {
        let edit = E::decode(record).map_err(corruption)?;
        let header = merged.header().then(*edit.header());
        merged.merge_files(edit).map_err(corruption)?;
        *merged.header_mut() = header;
    }
    Ok(merged)
}
