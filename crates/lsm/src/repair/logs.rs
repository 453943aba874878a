//! Repair of logs: each log of a chain becomes a table.
//!
//! The rest of a log after a gap is saved, too, and so are the logs after a damaged or missing one.
//! A batch without its last part is dropped, unless a gap follows: then it may have been complete,
//! and its readable part is saved. So a batch next to a gap may be saved in part.
//!
//! Range deletions go into the new manifest.
//!
//! Invariant: each whole record is in a table, each gap in the report.

use siltstone_durable::repair::{LogItem, LogOutcome, log_outcome, salvage_records};
use siltstone_engine::Result;
use siltstone_table::{FileKind, GapTracker, Kind, LogSalvage, salvage_log};

use super::Repair;
use crate::live_range::LiveRange;
use crate::memtable::Memtable;
use crate::record::{Position, Record};
use crate::version::{BlobFileId, Edit, FileEntry, L0RunEntry, LogFile};
use crate::version_gc::VersionGc;

impl Repair<'_> {
    /// Writes a run of level 0 from each log, and reports the gaps of the chain. `last_sequence` is
    /// the newest operation that is known to be in tables.
    pub(super) fn replay_chain(
        &mut self,
        logs: &[LogSalvage],
        last_sequence: Option<u64>,
    ) -> Result<Vec<FileEntry>> {
        let mut gaps = GapTracker::after(last_sequence);
        let mut runs = Vec::new();
        for log in logs {
            runs.extend(self.replay(log, &LiveRange::all(), &mut gaps)?);
        }
        gaps.finish().into_iter().for_each(|loss| self.report.record_loss(loss));
        Ok(runs)
    }

    /// Writes the live keys of a log to a table of level 0; `None` if there are none.
    fn replay(
        &mut self,
        log: &LogSalvage,
        live: &LiveRange,
        gaps: &mut GapTracker,
    ) -> Result<Option<FileEntry>> {
        let name = log.name();
        let memtable = Memtable::new(log.number);
        let mut parts = Vec::new();
        let enter = |parts: &mut Vec<(u64, siltstone_engine::WriteBatch)>| {
            for (first_sequence, batch) in parts.drain(..) {
                for (sequence, op) in (first_sequence..).zip(batch.iter_all()) {
                    memtable.apply(sequence, op, Position::new(0, 0));
                }
            }
        };
        let damage = salvage_records(self.vfs.as_ref(), log, |item| {
            match item {
                LogItem::Gap(bytes) => {
                    enter(&mut parts);
                    gaps.gap(&name, bytes);
                }
                LogItem::Malformed(bytes) => gaps.gap(&name, bytes),
                LogItem::Record(bytes) => match Record::decode(bytes) {
                    Err(reason) => return Ok(Err(reason)),
                    Ok(Record::Link(_) | Record::Ingested(_) | Record::Cleared(_)) => {}
                    Ok(Record::Batch { first_sequence, batch, is_last }) => {
                        gaps.operations(first_sequence, first_sequence + batch.len() as u64 - 1);
                        parts.push((first_sequence, batch));
                        if is_last {
                            enter(&mut parts);
                        }
                    }
                    Ok(Record::Retained { sequences, batch }) => {
                        for (sequence, op) in sequences.into_iter().zip(batch.iter()) {
                            memtable.add(sequence, op, Position::new(0, 0));
                        }
                    }
                },
            }
            Ok(Ok(()))
        })?;
        let (run, mut writer) = self.writer()?;
        let mut retain = VersionGc::new(vec![u64::MAX]);
        memtable.for_each(|entry, _| {
            let is_merge = entry.kind == Kind::Merge;
            let is_kept = live.contains(entry.key)
                && retain.keep(entry.key, entry.sequence, is_merge).is_some();
            if is_kept { writer.add(entry) } else { Ok(()) }
        })?;
        // Also of a log whose range deletions the manifest has had and forgotten: then what they
        // hid comes back with the log.
        if let Some(deletes) = memtable.range_deletes() {
            self.range_deletes.extend(deletes.iter().cloned());
        }
        let made = self.finish(run, writer, 0)?;
        let saved = made.as_ref().map_or(0, |(_, entries)| *entries);
        let replayed = format!("{saved} entries replayed into level 0");
        let (outcome, note) =
            log_outcome(log, damage, &replayed, &format!("{saved} entries saved"));
        self.report.note(note);
        match outcome {
            LogOutcome::Replayed => self.files.remove(name),
            LogOutcome::Missing => {}
            LogOutcome::Damaged(file) => self.files.keep(file, &mut self.report),
        }
        Ok(made.map(|(entry, _)| entry))
    }

    /// Adds a CL-SSTable to `state`: as it is if table and log are intact, else what can be read of
    /// its log.
    pub(super) fn check_row(
        &mut self,
        entry: &FileEntry,
        run: &L0RunEntry,
        (log, bytes): (u64, u64),
        state: &mut Edit,
    ) -> Result<()> {
        let table = self.intact_table(FileKind::Table, entry.number, 0);
        let id = BlobFileId { number: log, is_log: true, bytes };
        let checked_log = LogFile::open(&self.logs, id, None).and_then(|log| log.verify());
        let is_damage =
            |damage: &siltstone_engine::Error| damage.is_corruption() || damage.is_not_found();
        let damage = match (&table, &checked_log) {
            (Ok((found, _)), Ok(())) if super::tables::is_named(found, entry) => {
                state.added.push(entry.clone());
                return Ok(());
            }
            (Ok(_), Ok(())) => "it is another table than the manifest names".to_owned(),
            (Err(damage), _) | (_, Err(damage)) if is_damage(damage) => damage.to_string(),
            (Err(other), _) | (_, Err(other)) => return Err(other.clone()),
        };
        self.report
            .note(format!("run {} is damaged ({damage}): its log is read instead", entry.number));
        let cursor = state.cursor.clone().unwrap_or_default();
        let live = LiveRange::new(&cursor, &run.inserted_at);
        let log = salvage_log(self.vfs.as_ref(), (FileKind::Log, log), Some(bytes))?;
        let mut gaps = GapTracker::default();
        let made = self.replay(&log, &live, &mut gaps)?;
        for loss in gaps.finish() {
            let keys = (&*entry.smallest, &*entry.largest);
            self.report.record_loss(loss.with_keys(Some(keys.0), Some(keys.1)));
        }
        let index = FileKind::Table.name(siltstone_table::FileNumber(entry.number));
        if table.is_ok() {
            self.files.remove(index);
        } else if self.vfs.exists(&index)? {
            self.files.keep(index, &mut self.report);
        }
        if let Some(mut made) = made {
            if let Some(made) = &mut made.run {
                made.inserted_at.clone_from(&run.inserted_at);
            }
            state.added.push(made);
        }
        Ok(())
    }
}
