//! A version edit: one change of the set of files.
//!
//! A flush, a compaction or an ingestion makes an [`Edit`]. The manifest stores it (`edit_format`)
//! before it takes effect. Recovery merges all edits of the manifest into the one that makes the
//! newest version from nothing.
//!
//! `inserted_at` of an L0 run is the L0 cursor at its insertion (see `live_range`).
//!
//! Invariant: an edit removes only files that are there; merging fails otherwise.

use std::sync::Arc;

use siltstone_durable::EditHeader;
use siltstone_engine::FileInfo;
use siltstone_table::{FileKind, FileNumber, Ingestion, TableMeta};

use super::blob_files::BlobUse;
use crate::range_deletes::RangeDelete;
use crate::rowtable::RowHandle;

/// One change of the set of files; `None` and empty fields change nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Edit {
    pub(crate) header: EditHeader,
    pub(crate) added: Vec<FileEntry>,
    /// Level and number.
    pub(crate) removed: Vec<(usize, u64)>,
    /// Level, and the key after which its next compaction begins.
    pub(crate) cursors: Vec<(usize, Vec<u8>)>,
    /// The new position of the L0 cursor.
    pub(crate) cursor: Option<Vec<u8>>,
    /// Existing L0 runs by number, with their new `inserted_at`.
    pub(crate) insertions: Vec<(u64, Vec<u8>)>,
    /// New range deletions.
    pub(crate) range_deletes: Vec<Arc<RangeDelete>>,
    /// The sequence numbers of range deletions that are removed, if they are there.
    pub(crate) forgotten: Vec<u64>,
    /// The name of the merge operator, recorded once.
    pub(crate) merge_operator: Option<Arc<str>>,
}

/// A table in the manifest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FileEntry {
    pub(crate) level: usize,
    pub(crate) number: u64,
    pub(crate) bytes: u64,
    pub(crate) smallest: Vec<u8>,
    pub(crate) largest: Vec<u8>,
    /// It has no key that a range deletion up to this sequence number hides.
    pub(crate) deletes_applied: u64,
    /// Set for L0 runs only.
    pub(crate) run: Option<L0RunEntry>,
    /// Set if the table was written outside of the keyspace.
    pub(crate) ingested: Option<Ingestion>,
    /// The files that it has references to, each once.
    pub(crate) blobs: Vec<BlobUse>,
}

/// The fields of an L0 run in the manifest beside those of a table.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct L0RunEntry {
    /// The L0 cursor at the insertion of the run.
    pub(crate) inserted_at: Vec<u8>,
    /// The log whose positions the table contains, and the length of the part that the run owns.
    pub(crate) log: Option<(u64, u64)>,
    /// The handle of a run in persistent memory, which has no table.
    pub(crate) pmem: Option<RowHandle>,
    /// The size of the keys and values of the run, in bytes.
    pub(crate) data_bytes: u64,
}

impl FileEntry {
    /// Whether it is a run in persistent memory.
    pub(crate) fn is_in_pmem(&self) -> bool {
        self.run.as_ref().is_some_and(|run| run.pmem.is_some())
    }

    /// Whether the log of the memtable that it was written from is kept for it.
    pub(crate) fn needs_log(&self) -> bool {
        !self.blobs.is_empty() || self.run.as_ref().is_some_and(|run| run.log.is_some())
    }

    /// The kind of its table.
    pub(crate) fn kind(&self) -> FileKind {
        self.ingested.map_or(FileKind::Table, FileKind::Ingested)
    }

    /// The name of its table.
    pub(crate) fn file_name(&self) -> String {
        self.kind().name(FileNumber(self.number))
    }

    /// The table for listeners of events; pages of persistent memory by the number of their run.
    pub(crate) fn info(&self) -> FileInfo {
        let name = match self.is_in_pmem() {
            true => format!("{} in persistent memory", FileNumber(self.number)),
            false => self.file_name(),
        };
        FileInfo::new(name, self.bytes)
    }

    /// A new table on `level`; on level 0 a run with its values in the table.
    pub(crate) fn of(meta: &TableMeta, level: usize) -> Self {
        let run = L0RunEntry { data_bytes: meta.user_bytes, ..L0RunEntry::default() };
        FileEntry {
            run: (level == 0).then_some(run),
            level,
            number: meta.number.0,
            bytes: meta.bytes,
            smallest: meta.smallest.clone(),
            largest: meta.largest.clone(),
            deletes_applied: 0,
            ingested: None,
            blobs: Vec::new(),
        }
    }
}

impl Edit {
    /// The last table that is added with this number.
    pub(super) fn added_file(&mut self, number: u64) -> Result<&mut FileEntry, String> {
        let file = self.added.iter_mut().rfind(|file| file.number == number);
        file.ok_or_else(|| format!("table {number} is not added"))
    }

    /// Adds the changes of `newer`, the edit after this one, except for those of the header.
    ///
    /// # Errors
    /// A description of the conflict if `newer` removes or moves a file that does not exist.
    pub(super) fn merge_newer(&mut self, newer: Edit) -> Result<(), String> {
        for (level, number) in newer.removed {
            let before = self.added.len();
            self.added.retain(|file| (file.level, file.number) != (level, number));
            if self.added.len() == before {
                return Err(format!("removes table {number} that level {level} lacks"));
            }
        }
        self.added.extend(newer.added);
        merge_cursors(&mut self.cursors, &newer.cursors);
        self.cursor = newer.cursor.or(self.cursor.take());
        self.merge_operator = newer.merge_operator.or(self.merge_operator.take());
        for (number, inserted_at) in newer.insertions {
            let run = self.added.iter_mut().find(|file| (file.level, file.number) == (0, number));
            let run = run.and_then(|file| file.run.as_mut());
            let run = run.ok_or_else(|| format!("moves run {number}, which level 0 lacks"))?;
            run.inserted_at = inserted_at;
        }
        self.range_deletes.extend(newer.range_deletes);
        self.range_deletes.retain(|delete| !newer.forgotten.contains(&delete.sequence));
        Ok(())
    }
}

impl std::fmt::Display for Edit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut words = Vec::new();
        words.extend(self.added.iter().map(|t| {
            let ingested = t.ingested.map(|ingested| format!(" ingested @{}", ingested.sequence));
            format!("+{} L{} {}B{}", t.number, t.level, t.bytes, ingested.unwrap_or_default())
        }));
        words.extend(self.removed.iter().map(|(level, number)| format!("-{number} L{level}")));
        words.extend(self.header.words());
        words.extend(self.cursor.as_ref().map(|key| format!("cursor at {}", key.escape_ascii())));
        words.extend(
            self.insertions
                .iter()
                .map(|(number, key)| format!("run {number} inserted at {}", key.escape_ascii())),
        );
        words.extend(self.range_deletes.iter().map(|delete| {
            let end = delete.end.as_ref().map(|end| end.escape_ascii().to_string());
            let (start, end) = (delete.start.escape_ascii(), end.unwrap_or_default());
            format!("keys {start}..{end} deleted @{}", delete.sequence)
        }));
        words.extend(self.forgotten.iter().map(|sequence| format!("deletion @{sequence} dropped")));
        words.extend(self.merge_operator.as_ref().map(|name| format!("merge operator {name}")));
        f.write_str(&words.join(", "))
    }
}

/// Replaces the cursors of the levels that `newer` names.
pub(super) fn merge_cursors(cursors: &mut Vec<(usize, Vec<u8>)>, newer: &[(usize, Vec<u8>)]) {
    for (level, key) in newer {
        cursors.retain(|(other, _)| other != level);
        cursors.push((*level, key.clone()));
    }
}
