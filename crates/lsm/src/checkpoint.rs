//! A consistent copy: everything into tables, then the tables of one version and a manifest that
//! names them.
//!
//! A row in persistent memory goes along as a sorted table of what is live of it, so that a copy needs
//! no such memory to be opened.
//!
//! Writers go on meanwhile. Rows are a prefix of the writes as long as memtables go into them whole and in
//! turn, so from before the flush until its version is taken no keys are carried on to a newer memtable, and
//! no memtable goes before a large one that has older writes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use parking_lot::{Mutex, MutexGuard};

use siltstone_engine::{CheckpointSink, Purpose, Result};
use siltstone_table::checkpoint::{copy_file, write_manifest};
use siltstone_table::{EntryRef, FileKind, FileNumber, TableMeta};

use crate::engine::Inner;
use crate::rowtable::{RowTable, RowTableIter};
use crate::version::{ENGINE, Edit, FileEntry, L0Run};

/// The copy that waits until what was in memory is in rows; others wait for it.
#[derive(Default)]
pub(crate) struct Copies {
    is_begun: AtomicBool,
    alone: Mutex<()>,
}

impl Copies {
    /// Whether there is one. Asked while the writer is locked, as the flush of a copy locks it behind the
    /// change: so each memtable that it leaves behind, and each after, is full only after the answer is yes.
    pub(crate) fn is_begun(&self) -> bool {
        self.is_begun.load(Relaxed)
    }

    /// Waits until no copy is made, and keeps others from beginning.
    pub(crate) fn alone(&self) -> MutexGuard<'_, ()> {
        self.alone.lock()
    }

    fn making<T>(&self, flush: impl FnOnce() -> Result<T>) -> Result<T> {
        let _alone = self.alone();
        self.is_begun.store(true, Relaxed);
        let made = flush();
        self.is_begun.store(false, Relaxed);
        made
    }
}

impl Inner {
    /// Writes the table, as of a moment during this call, into `sink`.
    pub(crate) fn checkpoint(&self, sink: &mut dyn CheckpointSink) -> Result<()> {
        // The version holds its files open and on the medium until the copy is done.
        let (version, mut edit) = self.copies.making(|| {
            self.flush_beside_copy()?;
            Ok(self.versions.snapshot())
        })?;
        let tables = version.files().map(|(_, file)| file.name());
        for name in tables.chain(version.logs().map(|log| log.name())) {
            if !sink.link(&name)? {
                copy_file(self.vfs.as_ref(), &name, sink)?;
            }
        }
        // No other log comes along: whatever is in one was written after the copy's moment.
        edit.added.retain(|entry| !entry.is_in_pmem());
        for row in version.level0.iter() {
            if let Some(table) = row.pmem_table() {
                edit.added.extend(self.copy_row(row, table, sink)?);
            }
        }
        let next_file = Some(self.versions.new_number());
        let edit = Edit { next_file, first_log: next_file, ..edit };
        write_manifest(ENGINE, &edit.encode(), sink)
    }

    /// Writes what is live of a row in persistent memory to a table, for the copy alone; `None` if
    /// nothing is.
    fn copy_row(
        &self,
        row: &L0Run,
        table: &Arc<RowTable>,
        sink: &mut dyn CheckpointSink,
    ) -> Result<Option<FileEntry>> {
        if table.is_empty() {
            return Ok(None);
        }
        let number = FileNumber(self.versions.new_number());
        let made = self.write_row_table(number, table);
        let copied = made.and_then(|meta| {
            let name = FileKind::Table.name(number);
            if !sink.link(&name)? {
                copy_file(self.vfs.as_ref(), &name, sink)?;
            }
            Ok(meta)
        });
        // No manifest here names it.
        self.remove_table(number.0);
        let mut entry = FileEntry::of(&copied?, 0);
        if let Some(made) = &mut entry.run {
            made.inserted_at = row.live().inserted_at().to_vec();
        }
        Ok(Some(entry))
    }

    fn write_row_table(&self, number: FileNumber, table: &Arc<RowTable>) -> Result<TableMeta> {
        let mut writer = self.table_writer(number, Purpose::Maintenance)?;
        let mut iter = RowTableIter::new(table.clone(), Purpose::Maintenance);
        iter.first()?;
        while iter.valid() {
            writer.add(EntryRef {
                key: iter.key(),
                sequence: iter.sequence(),
                kind: iter.kind(),
                expires_at: iter.expires_at(),
                value: iter.value(),
            })?;
            iter.next()?;
        }
        writer.finish()
    }
}
