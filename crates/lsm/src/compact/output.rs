//! The output of a subcompaction: tables of one level, and blob files with the values that they
//! refer to.
//!
//! [`TableEnd`] decides where an output table ends. Outputs are synced a few tables later, when the
//! device has had time to write them.
//!
//! With key-value separation an entry keeps its reference. A value that is in the table although it
//! is long enough, or in a file that is collected, moves to a blob file of this subcompaction.

use std::collections::{BTreeMap, VecDeque};

use siltstone_engine::{FileInfo, Purpose, Result};
use siltstone_table::{
    EntryRef, FileKind, FileNumber, Kind, TableOptions, TableWriter, UnsyncedTable,
};

use super::Compaction;
use super::blob_writer::BlobWriter;
use super::table_end::TableEnd;
use crate::blob_ref::BlobRef;
use crate::engine::Tree;
use crate::range_deletes::DeletedVersion;
use crate::version::{BlobFileId, BlobFiles, BlobUse, FileEntry};

/// The maximum number of unsynced tables per subcompaction: each is an open file.
const MAX_UNSYNCED_TABLES: usize = 4;

/// The files that a subcompaction has written.
#[derive(Default)]
pub(super) struct OutputFiles {
    pub(super) tables: Vec<FileEntry>,
    /// The numbers of new blob files.
    pub(super) blobs: Vec<u64>,
}

impl OutputFiles {
    /// The files, for listeners of events.
    pub(super) fn infos(&self) -> Vec<FileInfo> {
        let uses = || self.tables.iter().flat_map(|table| &table.blobs);
        let blobs = self.blobs.iter().filter_map(|number| {
            let BlobUse { file, .. } = uses().find(|used| used.file.number == *number)?;
            Some(FileInfo::new(FileKind::Blob.name(FileNumber(*number)), file.bytes))
        });
        self.tables.iter().map(FileEntry::info).chain(blobs).collect()
    }
}

impl Tree {
    pub(crate) fn remove_tables(&self, tables: &[FileEntry]) {
        tables.iter().for_each(|table| self.remove_table(table.number));
    }

    /// Removes files that no manifest names. If that fails, the next open removes them.
    pub(super) fn remove_written(&self, written: &OutputFiles) {
        self.remove_tables(&written.tables);
        super::blob_writer::remove(self, &written.blobs);
    }
}

/// The output tables of a subcompaction.
pub(super) struct Output<'a> {
    tree: &'a Tree,
    compaction: &'a Compaction,
    table: Option<OpenTable>,
    /// Oldest first; their entries are in `done`.
    unsynced: VecDeque<UnsyncedTable>,
    /// The lengths of new blob files are set at the end.
    done: Vec<FileEntry>,
    blobs: BlobWriter<'a>,
    /// The files that inputs refer to.
    known_blobs: &'a BlobFiles,
    /// The length from which values are separated.
    blob_threshold: Option<usize>,
    encoded: Vec<u8>,
    table_end: TableEnd<'a>,
    /// The newest range deletion that the merge applies.
    deletes_applied: u64,
    /// The oldest one that hides a version of the open table from all but snapshots; `u64::MAX`:
    /// none does.
    oldest_hiding: u64,
}

struct OpenTable {
    number: FileNumber,
    writer: TableWriter,
    last_key: Vec<u8>,
    /// The bytes that it refers to, by file.
    referred: BTreeMap<u64, u64>,
}

impl<'a> Output<'a> {
    /// The newest range deletion that the merge applies is `deletes_applied`.
    pub(super) fn new(
        tree: &'a Tree,
        compaction: &'a Compaction,
        known_blobs: &'a BlobFiles,
        deletes_applied: u64,
    ) -> Self {
        Output {
            tree,
            compaction,
            table: None,
            unsynced: VecDeque::new(),
            done: Vec::new(),
            blobs: BlobWriter::new(tree),
            known_blobs,
            blob_threshold: tree.options.load().blob_threshold(),
            encoded: Vec::new(),
            table_end: TableEnd::new(&compaction.grandparents),
            deletes_applied,
            oldest_hiding: u64::MAX,
        }
    }

    /// Adds an entry with its value, or with the `reference` to it.
    pub(super) fn add(
        &mut self,
        entry: EntryRef<'_>,
        reference: Option<BlobRef>,
        deleted: DeletedVersion,
    ) -> Result<()> {
        // All versions of a key stay in one table: tables of a level are disjoint.
        if self.table.as_ref().is_some_and(|open| open.last_key != entry.key)
            && self.is_full(entry.key)
        {
            self.end_table()?;
        }
        if self.table.is_none() {
            let number = FileNumber(self.tree.versions.new_number());
            let options = self.tree.options.load();
            let options = match self.compaction.is_bottom() {
                false => options.table_options(),
                // A seek rarely skips the deepest level, which has most keys: a range filter is
                // useless.
                true => TableOptions { range_filter: false, ..options.bottommost_table_options() },
            };
            let writer = self.tree.table_writer_as(number, Purpose::Compaction, options)?;
            let (last_key, referred) = (Vec::new(), BTreeMap::new());
            self.table = Some(OpenTable { number, writer, last_key, referred });
            self.table_end.begin(entry.key);
        }
        if let DeletedVersion::ForLater(oldest) = deleted {
            self.oldest_hiding = self.oldest_hiding.min(oldest);
        }
        if let Some(open) = &mut self.table {
            open.last_key.clear();
            open.last_key.extend_from_slice(entry.key);
            let is_value = matches!(entry.kind, Kind::Put | Kind::PutExpiring);
            let is_separated =
                is_value && self.blob_threshold.is_some_and(|least| entry.value.len() >= least);
            let reference = match reference {
                None if is_separated => Some(self.blobs.add(&entry)?),
                reference => reference,
            };
            match reference {
                None => open.writer.add(entry)?,
                Some(reference) => {
                    *open.referred.entry(reference.file).or_default() +=
                        reference.stored_bytes(entry.key);
                    open.writer.add(reference.entry(entry, &mut self.encoded))?;
                }
            }
        }
        Ok(())
    }

    fn is_full(&mut self, key: &[u8]) -> bool {
        let limit = self.tree.options.load().target_file_bytes;
        let written = self.table.as_ref().map_or(0, |open| open.writer.estimated_bytes());
        self.table_end.is_before(key, written, limit)
    }

    /// The files that a table refers to.
    fn uses(&self, referred: BTreeMap<u64, u64>) -> Result<Vec<BlobUse>> {
        let uses = referred.into_iter().map(|(number, used_bytes)| {
            let file = match self.blobs.has_written(number) {
                true => BlobFileId { number, is_log: false, bytes: 0 },
                false => self.known_blobs.get(number)?.id(),
            };
            Ok(BlobUse { file, used_bytes })
        });
        uses.collect()
    }

    /// Ends and syncs everything that is written.
    pub(super) fn finish(&mut self) -> Result<()> {
        self.end_table()?;
        self.blobs.finish()?;
        self.sync_all_but(0)?;
        for used in self.done.iter_mut().flat_map(|table| &mut table.blobs) {
            if let Some(bytes) = self.blobs.bytes_of(used.file.number) {
                used.file.bytes = bytes;
            }
        }
        Ok(())
    }

    /// The files, once they are finished.
    pub(super) fn into_written(self) -> OutputFiles {
        OutputFiles { tables: self.done, blobs: self.blobs.numbers() }
    }

    fn end_table(&mut self) -> Result<()> {
        if let Some(open) = self.table.take() {
            let finished = open.writer.finish_unsynced();
            if finished.is_err() {
                self.tree.remove_table(open.number.0);
            }
            let table = finished?;
            self.tree.counters.wrote(self.compaction.target, table.meta().bytes);
            let blobs = self.uses(open.referred)?;
            let oldest_hiding = std::mem::replace(&mut self.oldest_hiding, u64::MAX);
            let deletes_applied = self.deletes_applied.min(oldest_hiding - 1);
            let entry = FileEntry::of(table.meta(), self.compaction.target);
            self.done.push(FileEntry { deletes_applied, blobs, ..entry });
            self.unsynced.push_back(table);
            self.sync_all_but(MAX_UNSYNCED_TABLES)?;
        }
        Ok(())
    }

    /// Syncs all but the last `count` unsynced tables.
    fn sync_all_but(&mut self, count: usize) -> Result<()> {
        while self.unsynced.len() > count {
            self.unsynced.pop_front().map_or(Ok(()), |table| table.sync().map(drop))?;
        }
        Ok(())
    }

    /// Removes what was written.
    pub(super) fn abandon(mut self) {
        if let Some(open) = self.table.take() {
            drop(open.writer);
            self.tree.remove_table(open.number.0);
        }
        let tree = self.tree;
        tree.remove_written(&self.into_written());
    }
}
