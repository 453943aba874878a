//! The writes of a group of commands, before they are applied.
//!
//! Invariant: the metadata are newer than the row of their key.

use siltstone_collections::{KeyMetadata, PendingRows};
use siltstone_engine::WriteBatch;

/// Writes of a group of commands to one table.
#[derive(Default)]
pub(crate) struct GroupWrites {
    pub(crate) rows: PendingRows,
    /// Of the collection that was used last, decoded.
    pub(crate) metadata: Option<KeyMetadata>,
    /// All commands are reads, under locks that other reads share: none may write.
    pub(crate) is_read_only: bool,
}

impl GroupWrites {
    /// Adds the row of the metadata, if they are not saved. A command that does not use them is
    /// about to write.
    pub(crate) fn write_metadata(&mut self) {
        if let Some(metadata) = self.metadata.take().filter(KeyMetadata::is_unsaved) {
            let mut row = WriteBatch::new();
            metadata.write_to(&mut row);
            self.rows.apply(&row);
        }
    }

    /// All writes as one batch, which has each row once. After it, the writes can only be cleared.
    pub(crate) fn finish(&mut self) -> &WriteBatch {
        self.write_metadata();
        self.rows.finish()
    }

    /// Drops all writes, and keeps memory for some.
    pub(crate) fn clear(&mut self) {
        self.rows.clear();
        self.metadata = None;
    }
}
