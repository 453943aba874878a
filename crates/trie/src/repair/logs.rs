//! Writes what the logs hold to tables of the root.
//!
//! Behind a gap the rest of a log is saved, too, and so are the logs behind a damaged or missing
//! one. A batch is one record, so it is there as a whole or lies in a gap.
//!
//! Invariant: each whole record is in a table, each gap in the report.

use siltstone_engine::{Op, Result};
use siltstone_table::{GapTracker, LogSalvage, SalvageItem, salvage_chain};

use super::Repair;
use super::tables::SavedItems;
use crate::htable::Origin;
use crate::item::Item;
use crate::record::Record;
use crate::version::{ContainerId, Edit};

impl Repair {
    /// Writes what the logs hold to tables of the root; answers the last sequence number. Without a
    /// manifest what is in a table already is left out: it must not come back as newest.
    pub(super) fn replay_chain(
        &mut self,
        known: &Edit,
        has_manifest: bool,
        state: &mut Edit,
    ) -> Result<u64> {
        let in_tables = known.last_sequence.unwrap_or(0);
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

    /// Writes what a log holds behind sequence number `from`; answers the last sequence number.
    fn replay(
        &mut self,
        log: &LogSalvage,
        from: u64,
        gaps: &mut GapTracker,
        state: &mut Edit,
    ) -> Result<u64> {
        let (name, vfs) = (log.name(), self.tiers.main.clone());
        let (mut saved, mut count, mut last) = (SavedItems::default(), 0, 0);
        let mut unreadable = None;
        log.visit(vfs.as_ref(), |salvaged| {
            let (position, bytes) = match salvaged {
                SalvageItem::Gap(bytes) => {
                    gaps.gap(&name, bytes);
                    return Ok(());
                }
                SalvageItem::Record { position, bytes } => (position, bytes),
            };
            match Record::decode(bytes) {
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
                Err(reason) => {
                    unreadable.get_or_insert((position, reason));
                    gaps.gap(&name, position..position + bytes.len() as u64);
                }
            }
            Ok(())
        })?;
        let origin = self.root(last);
        count += self.write(&mut saved, origin, state)?;
        match (log.damage.clone().or(unreadable), &log.file) {
            (None, _) => {
                self.report.note(format!("{name}: {count} items replayed into the root"));
                self.replayed.insert(name);
            }
            (Some((_, reason)), None) => self.report.note(format!("{name}: {reason}")),
            (Some((at, reason)), Some(file)) => {
                self.report.note(format!(
                    "{name} is damaged at byte {at} ({reason}): {count} items saved"
                ));
                self.keep(file.clone());
            }
        }
        Ok(last)
    }

    fn root(&self, last_sequence: u64) -> Origin {
        Origin { container_id: ContainerId::default(), config: self.config, last_sequence }
    }
}
