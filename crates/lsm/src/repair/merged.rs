//! Without a manifest: everything that can be read, merged into level 1.
//!
//! ```text
//!   tables, saved parts of tables, logs ──▶ of each key the newest version ──▶ tables of level 1
//! ```
//!
//! Nothing tells a table's level, and a lookup takes the first version that it finds, level by
//! level. So tables cannot be left side by side: one that holds the newest entry of all may hold an
//! old version of another key. Of each key the version of the highest sequence number counts.
//!
//! Invariant: of each key the newest version that can be read is in the result, once.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use siltstone_engine::{Error, Purpose, Result};
use siltstone_table::{
    EntryRef, FileKind, FileNumber, IterOptions, Kind, Table, TableIter, salvage_chain,
};

use super::Repair;
use crate::options::Options;
use crate::retain::Retain;
use crate::version::Edit;

impl Repair<'_> {
    /// Merges all tables and logs that are there, and the rows in persistent memory that a manifest
    /// names that does not hold.
    pub(super) fn merge_all(
        &mut self,
        numbered: &[(FileKind, FileNumber)],
        known: Option<&Edit>,
    ) -> Result<Edit> {
        let mut sources = Vec::new();
        for &(kind, number) in numbered {
            if kind == FileKind::Table {
                sources.extend(self.readable_table(number.0)?);
            }
        }
        let logs = salvage_chain(self.vfs.as_ref(), None, None, None)?;
        for draft in self.replay_chain(&logs, None)? {
            self.replayed.insert(FileKind::Table.name(FileNumber(draft.number)));
            sources.push(draft.number);
        }
        for draft in self.save_pool(known)? {
            self.replayed.insert(FileKind::Table.name(FileNumber(draft)));
            sources.push(draft);
        }
        let mut state = Edit::default();
        let tables = sources.into_iter().map(|number| self.open(number).map(Arc::new));
        let tables = tables.collect::<Result<Vec<_>>>()?;
        self.merge(&tables, &mut state)?;
        Ok(state)
    }

    /// A table with all that can be read of this one; `None` if that is nothing, or in a log.
    fn readable_table(&mut self, number: u64) -> Result<Option<u64>> {
        let name = FileKind::Table.name(FileNumber(number));
        let (at, reason) = match self.sound_table(number, 1) {
            Ok((_, true)) => {
                self.report.note(format!("{name} is an index of a log: its log is read instead"));
                self.replayed.insert(name);
                return Ok(None);
            }
            Ok((_, false)) => {
                self.replayed.insert(name);
                return Ok(Some(number));
            }
            Err(Error::Corruption { offset, reason, .. }) => (offset, reason),
            Err(other) => return Err(other),
        };
        let saved = self.copy_readable(1, number, None)?;
        if saved.is_index {
            self.report.note(format!(
                "{name} is damaged at byte {at} ({reason}): its log is read instead"
            ));
            self.keep(name);
            return Ok(None);
        }
        let entries = saved.table.as_ref().map_or(0, |(_, entries)| *entries);
        self.report
            .note(format!("{name} is damaged at byte {at} ({reason}): {entries} entries saved"));
        saved.losses.into_iter().for_each(|loss| self.report.lose(loss));
        self.keep(name);
        let draft = saved.table.map(|(draft, _)| draft.number);
        if let Some(draft) = draft {
            self.replayed.insert(FileKind::Table.name(FileNumber(draft)));
        }
        Ok(draft)
    }

    /// Writes the newest version of each key in `tables` to new tables of level 1.
    fn merge(&mut self, tables: &[Arc<Table>], state: &mut Edit) -> Result<()> {
        let most_bytes = Options::default().table_bytes;
        let mut heap = BinaryHeap::new();
        let mut sources: Vec<TableIter> = (tables.iter())
            .map(|table| table.iter(Purpose::Maintenance, IterOptions::COMPACTION))
            .collect();
        let place = |at: usize, entry: EntryRef<'_>| {
            Reverse((entry.key.to_vec(), Reverse(entry.sequence), at))
        };
        for (at, source) in sources.iter_mut().enumerate() {
            if source.first()? {
                heap.push(place(at, source.entry()));
            }
        }
        let mut retain = Retain::new(vec![u64::MAX]);
        let mut writing = None;
        while let Some(Reverse((_, _, at))) = heap.pop() {
            let source = &mut sources[at];
            let entry = source.entry();
            // Nothing is below level 1 that a deletion would have to hide.
            let is_newest = retain.keep(entry.key, entry.sequence).is_some();
            if is_newest && entry.kind != Kind::Delete {
                let (_, writer) = match &mut writing {
                    Some(writing) => writing,
                    none => none.insert(self.writer()?),
                };
                writer.add(entry)?;
                if writer.estimated_bytes() >= most_bytes {
                    self.finish_merged(&mut writing, state)?;
                }
            }
            if sources[at].next()? {
                heap.push(place(at, sources[at].entry()));
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
