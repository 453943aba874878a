//! Checkpoints: flushes all memtables, then copies or links the files of one version and writes a
//! manifest that names them.
//!
//! An L0 run in persistent memory is copied as an SSTable of its live entries, so that the
//! checkpoint can be opened without such memory.
//!
//! Writers continue meanwhile. The files contain a prefix of the writes only if memtables are
//! flushed completely and in order. So from before the flush until its version is taken, no hot
//! keys are retained in a newer memtable, and no memtable is flushed before a NoveLSM overlay that
//! has older writes.

use std::sync::Arc;

use siltstone_durable::checkpoint::{Checkpoint, link_or_copy, write_manifest};
use siltstone_durable::flush;
use siltstone_engine::{CheckpointSink, Purpose, Result};
use siltstone_table::{EntryRef, FileKind, FileNumber, TableMeta};

use crate::engine::Tree;
use crate::rowtable::{RowTable, RowTableIter};
use crate::version::{FileEntry, L0Run};

impl Checkpoint for Tree {
    fn checkpoint(&self, sink: &mut dyn CheckpointSink) -> Result<()> {
        // The version keeps its files open and on disk until the copy is done.
        let (version, mut edit) = self.checkpoint_lock.while_running(|| {
            flush::flush(self)?;
            Ok(self.versions.snapshot())
        })?;
        let tables = version.files().map(|(_, file)| file.name());
        for name in tables.chain(version.logs().map(|log| log.name())) {
            link_or_copy(self.vfs.as_ref(), &name, sink)?;
        }
        edit.added.retain(|entry| !entry.is_in_pmem());
        for run in version.level0.iter() {
            if let Some(table) = run.pmem_table() {
                edit.added.extend(self.copy_run(run, table, sink)?);
            }
        }
        write_manifest(&self.versions, edit, sink)
    }
}

impl Tree {
    /// Copies the live entries of a run in persistent memory to an SSTable in the checkpoint.
    /// Returns `None` if there are none.
    fn copy_run(
        &self,
        run: &L0Run,
        table: &Arc<RowTable>,
        sink: &mut dyn CheckpointSink,
    ) -> Result<Option<FileEntry>> {
        if table.is_empty() {
            return Ok(None);
        }
        let number = FileNumber(self.versions.new_number());
        let made = self.write_run_table(number, table);
        let copied = made.and_then(|meta| {
            link_or_copy(self.vfs.as_ref(), &FileKind::Table.name(number), sink)?;
            Ok(meta)
        });
        // No manifest of this table names it.
        self.remove_table(number.0);
        let mut entry = FileEntry::of(&copied?, 0);
        if let Some(made) = &mut entry.run {
            made.inserted_at = run.live().inserted_at().to_vec();
        }
        Ok(Some(entry))
    }

    fn write_run_table(&self, number: FileNumber, table: &Arc<RowTable>) -> Result<TableMeta> {
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
