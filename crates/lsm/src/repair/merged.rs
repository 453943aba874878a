//! Repair without a manifest: merges everything that is readable into level 1.
//!
//! ```text
//!   tables, saved parts of tables, logs ──▶ the newest version of each key ──▶ tables of level 1
//! ```
//!
//! The level of a table is unknown, and a lookup takes the first version that it finds, level by
//! level. A table with the newest entry of all may contain an old version of another key, so the
//! tables have to be merged by sequence number.
//!
//! Operands of merges are kept with the version below them. References to values are left out: the
//! files with the values are among the logs that are read.
//!
//! Invariant: the result contains the newest readable version of each key, once.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use siltstone_engine::{Error, Purpose, Result};
use siltstone_table::{
    EntryRef, FileKind, FileNumber, IterOptions, Kind, Table, TableIter, salvage_chain, salvage_log,
};

use super::Repair;
use super::blobs::References;
use crate::options::Options;
use crate::version::Edit;
use crate::version_gc::VersionGc;

impl Repair<'_> {
    /// Merges all existing tables and logs, and the runs in persistent memory that a damaged
    /// manifest names.
    pub(super) fn merge_all(
        &mut self,
        numbered: &[(FileKind, FileNumber)],
        known: Option<&Edit>,
    ) -> Result<Edit> {
        let mut sources = Vec::new();
        for &(kind, number) in numbered {
            if kind.is_table() {
                sources.extend(self.readable_table(kind, number)?);
            }
        }
        let logs = salvage_chain(self.vfs.as_ref(), None, None, None)?;
        let mut logs = logs;
        for &(kind, number) in numbered.iter().filter(|(kind, _)| *kind == FileKind::Blob) {
            logs.push(salvage_log(self.vfs.as_ref(), (kind, number.0), None)?);
        }
        for draft in self.replay_chain(&logs, None)? {
            self.files.remove(FileKind::Table.name(FileNumber(draft.number)));
            sources.push((FileKind::Table, draft.number));
        }
        for draft in self.save_pool(known)? {
            self.files.remove(FileKind::Table.name(FileNumber(draft)));
            sources.push((FileKind::Table, draft));
        }
        let merge_operator = known.and_then(|known| known.merge_operator.clone());
        let mut state = Edit { merge_operator, ..Edit::default() };
        let tables =
            sources.into_iter().map(|(kind, number)| self.open(kind, number).map(Arc::new));
        let tables = tables.collect::<Result<Vec<_>>>()?;
        self.merge(&tables, &mut state)?;
        Ok(state)
    }

    /// A table with all readable entries of this one. `None` if there are none, or if they are in a
    /// log.
    fn readable_table(
        &mut self,
        kind: FileKind,
        number: FileNumber,
    ) -> Result<Option<(FileKind, u64)>> {
        let name = kind.name(number);
        let (at, reason) = match self.intact_table(kind, number.0, 1) {
            Ok((_, true)) => {
                self.report.note(format!("{name} is an index of a log: its log is read instead"));
                self.files.remove(name);
                return Ok(None);
            }
            Ok((_, false)) => {
                self.files.remove(name);
                return Ok(Some((kind, number.0)));
            }
            Err(Error::Corruption { offset, reason, .. }) => (offset, reason),
            Err(other) => return Err(other),
        };
        let saved = self.copy_readable(1, (kind, number), None, References::Skipped)?;
        if saved.is_index {
            self.report.note(format!(
                "{name} is damaged at byte {at} ({reason}): its log is read instead"
            ));
            self.files.keep(name, &mut self.report);
            return Ok(None);
        }
        let entries = saved.table.as_ref().map_or(0, |(_, entries)| *entries);
        self.report
            .note(format!("{name} is damaged at byte {at} ({reason}): {entries} entries saved"));
        saved.losses.into_iter().for_each(|loss| self.report.record_loss(loss));
        self.files.keep(name, &mut self.report);
        let draft = saved.table.map(|(draft, _)| draft.number);
        if let Some(draft) = draft {
            self.files.remove(FileKind::Table.name(FileNumber(draft)));
        }
        Ok(draft.map(|draft| (FileKind::Table, draft)))
    }

    /// Writes the newest version of each key in `tables` to new tables of level 1.
    fn merge(&mut self, tables: &[Arc<Table>], state: &mut Edit) -> Result<()> {
        let max_bytes = Options::default().target_file_bytes;
        let mut heap = BinaryHeap::new();
        let mut sources: Vec<TableIter> = (tables.iter())
            .map(|table| table.iter(Purpose::Maintenance, IterOptions::COMPACTION))
            .collect();
        let heap_key = |at: usize, entry: EntryRef<'_>| {
            Reverse((entry.key.to_vec(), Reverse(entry.sequence), at))
        };
        for (at, source) in sources.iter_mut().enumerate() {
            if source.first()? {
                heap.push(heap_key(at, source.entry()));
            }
        }
        let mut gc = VersionGc::new(vec![u64::MAX]);
        let mut writing = None;
        while let Some(Reverse((_, _, at))) = heap.pop() {
            let source = &mut sources[at];
            let entry = source.entry();
            // No level below level 1 has versions that a tombstone must hide.
            let is_merge = entry.kind == Kind::Merge;
            // The value that a reference is for comes from its log or blob file.
            let is_reference = entry.kind == Kind::Reference;
            let is_kept = !is_reference && gc.keep(entry.key, entry.sequence, is_merge).is_some();
            if is_kept && entry.kind != Kind::Delete {
                let (_, writer) = match &mut writing {
                    Some(writing) => writing,
                    none => none.insert(self.writer()?),
                };
                writer.add(entry)?;
                if writer.estimated_bytes() >= max_bytes {
                    self.finish_merged(&mut writing, state)?;
                }
            }
            if sources[at].next()? {
                heap.push(heap_key(at, sources[at].entry()));
            }
        }
        self.finish_merged(&mut writing, state)
    }

    fn finish_merged(
        &mut self,
        writing: &mut Option<(FileNumber, siltstone_table::TableWriter)>,
        state: &mut Edit,
    ) -> Result<()> {
        if let Some((number, writer)) = writing.take()
            && let Some((entry, _)) = self.finish(number, writer, 1)?
        {
            state.added.push(entry);
        }
        Ok(())
    }
}
