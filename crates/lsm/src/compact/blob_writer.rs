//! Writes values to blob files: those that a compaction moves out of other files, and long ones
//! that were in tables.
//!
//! Each value is a record of its own, of the kind `retained`, so that it keeps its sequence number
//! and can be read by its position. A blob file ends at the target size of a table, so that garbage
//! in it can be collected in small steps.
//!
//! Invariant: a finished blob file is durable before a manifest edit names it; its name is durable
//! after the compaction's `sync_dir`.

use siltstone_engine::{Purpose, Result, WriteBatch};
use siltstone_table::{EntryRef, FileKind, FileNumber, Kind, LogWriter};

use crate::blob_ref::BlobRef;
use crate::engine::Tree;
use crate::record::{self, Position};

/// The blob files of a subcompaction.
pub(super) struct BlobWriter<'a> {
    tree: &'a Tree,
    open: Option<(u64, LogWriter)>,
    /// Number and length.
    finished: Vec<(u64, u64)>,
    // Reused for its memory.
    batch: WriteBatch,
}

impl<'a> BlobWriter<'a> {
    pub(super) fn new(tree: &'a Tree) -> Self {
        BlobWriter { tree, open: None, finished: Vec::new(), batch: WriteBatch::new() }
    }

    /// Writes the value of a put; returns the reference to it. Cost: one write request.
    ///
    /// # Errors
    /// I/O errors.
    pub(super) fn add(&mut self, entry: &EntryRef<'_>) -> Result<BlobRef> {
        let expires_at = (entry.kind == Kind::PutExpiring).then_some(entry.expires_at);
        self.batch.clear();
        match expires_at {
            None => self.batch.put(entry.key, entry.value),
            Some(at) => self.batch.put_until(entry.key, entry.value, at),
        };
        let header = record::retained_header(&[entry.sequence]);
        let bytes = header.len() + self.batch.as_bytes().len();
        if let Some((_, writer)) = &self.open
            && writer.len() + bytes as u64 > self.tree.options.load().target_file_bytes
        {
            self.finish()?;
        }
        let (number, writer) = match &mut self.open {
            Some(open) => open,
            none => {
                let number = self.tree.versions.new_number();
                let name = FileKind::Blob.name(FileNumber(number));
                let vfs = self.tree.vfs.as_ref();
                let writer = LogWriter::create(vfs, &name, number, Purpose::Compaction)?;
                none.insert((number, writer))
            }
        };
        self.tree.env.rate.take(bytes as u64);
        let offset = writer.append(&[&header, self.batch.as_bytes()])?;
        self.tree.counters.moved_value(bytes as u64);
        Ok(BlobRef {
            file: *number,
            value_bytes: entry.value.len() as u64,
            position: Position::new(offset, bytes),
            expires_at,
        })
    }

    /// Ends and syncs the open file.
    ///
    /// # Errors
    /// I/O errors.
    pub(super) fn finish(&mut self) -> Result<()> {
        if let Some((number, mut writer)) = self.open.take() {
            self.finished.push((number, writer.len()));
            writer.sync()?;
        }
        Ok(())
    }

    /// Whether this has created the file.
    pub(super) fn has_written(&self, number: u64) -> bool {
        self.bytes_of(number).is_some()
            || self.open.as_ref().is_some_and(|(open, _)| *open == number)
    }

    /// The length of a finished file.
    pub(super) fn bytes_of(&self, number: u64) -> Option<u64> {
        self.finished.iter().find(|(finished, _)| *finished == number).map(|(_, bytes)| *bytes)
    }

    /// The numbers of all files.
    pub(super) fn numbers(self) -> Vec<u64> {
        let open = self.open.iter().map(|(number, _)| *number);
        self.finished.iter().map(|(number, _)| *number).chain(open).collect()
    }
}

/// Removes blob files that no manifest names. If that fails, the next open removes them.
pub(super) fn remove(tree: &Tree, numbers: &[u64]) {
    for &number in numbers {
        let _ = tree.vfs.remove(&FileKind::Blob.name(FileNumber(number)));
    }
}
