//! Repair of logs: their records are written to tables of the root.
//!
//! The rest of a log after a gap is saved, too, and so are the logs after a damaged or missing one.
//! A batch is one record, so it is saved entirely or lies in a gap.
//!
//! Invariant: each whole record is in a table, each gap in the report.

use siltstone_durable::repair::{LogItem, LogOutcome, log_outcome, salvage_records};
use siltstone_engine::{Op, Result};
use siltstone_table::{GapTracker, LogSalvage, salvage_chain};

use super::Repair;
use super::tables::SavedItems;
use crate::container_id::ContainerId;
use crate::htable::Origin;
use crate::item::Item;
use crate::record::Record;
use crate::version::Edit;

impl Repair {
    /// Writes the records of the logs to tables of the root; returns the last sequence number.
    /// Without a manifest, writes that are in a table already are skipped: they must not become the
    /// newest.
    pub(super) fn replay_chain(
        &mut self,
        known: &Edit,
        has_manifest: bool,
        state: &mut Edit,
    ) -> Result<u64> {
        let in_tables = known.header.last_sequence.unwrap_or(0);
        let logs = match has_manifest {
            true => self.chain(known)?,
            false => salvage_chain(self.tiers.main.as_ref(), None, None, None)?,
        };
        let mut gaps = GapTracker::consecutive(in_tables);
        let from = if has_manifest { 0 } else { in_tables };
        let mut last_sequence = in_tables;
        for log in &logs {
            let last = self.replay(log, from, &mut gaps, state)?;
            last_sequence = last_sequence.max(last);
        }
        for loss in gaps.finish() {
            self.report.record_loss(loss);
        }
        Ok(last_sequence)
    }

    /// Writes the operations of a log after sequence number `from`; returns the last sequence
    /// number.
    fn replay(
        &mut self,
        log: &LogSalvage,
        from: u64,
        gaps: &mut GapTracker,
        state: &mut Edit,
    ) -> Result<u64> {
        let (name, vfs) = (log.name(), self.tiers.main.clone());
        let (mut saved, mut count, mut last) = (SavedItems::default(), 0, 0);
        let damage = salvage_records(vfs.as_ref(), log, |item| {
            match item {
                LogItem::Gap(bytes) | LogItem::Malformed(bytes) => gaps.gap(&name, bytes),
                LogItem::Record(bytes) => match Record::decode(bytes) {
                    Err(reason) => return Ok(Err(reason)),
                    Ok(Record::Link(_)) => {}
                    Ok(Record::Batch { first_sequence, batch }) => {
                        for (sequence, op) in (first_sequence..).zip(batch.iter()) {
                            last = sequence;
                            if sequence > from {
                                let item = match op {
                                    Op::Delete { key } => Item::delete(key),
                                    Op::Put { key, value, expires_at } => {
                                        Item { key, value: Some(value), expires_at }
                                    }
                                };
                                saved.push(self.config.hash.hash(item.key), &item);
                            }
                        }
                        gaps.operations(first_sequence, last);
                        let origin = self.root(last);
                        count += self.write_if_full(&mut saved, origin, state)?;
                    }
                },
            }
            Ok(Ok(()))
        })?;
        let origin = self.root(last);
        count += self.write(&mut saved, origin, state)?;
        let replayed = format!("{count} items replayed into the root");
        let (outcome, note) = log_outcome(log, damage, &replayed, &format!("{count} items saved"));
        self.report.note(note);
        match outcome {
            LogOutcome::Replayed => self.files.remove(name),
            LogOutcome::Missing => {}
            LogOutcome::Damaged(file) => self.files.keep(file, &mut self.report),
        }
        Ok(last)
    }

    fn root(&self, last_sequence: u64) -> Origin {
        Origin { container_id: ContainerId::default(), config: self.config, last_sequence }
    }
}
