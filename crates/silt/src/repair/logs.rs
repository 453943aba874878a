//! Repair of logs that do not replay: their whole records are copied to a new chain.
//!
//! The rest of a log after a gap is copied, too, and so are the logs after a damaged or missing
//! one: they have the newest entries of their keys. A batch without its last record is dropped,
//! unless a gap follows: then it may have been complete, and its readable part is copied. So a
//! batch next to a gap may be saved in part.
//!
//! Invariant: each whole record is in the new chain, each gap in the report.

use siltstone_durable::EditHeader;
use siltstone_durable::repair::{LogItem, log_outcome, salvage_logs, salvage_records};
use siltstone_engine::{Loss, Result};
use siltstone_table::{LogMode, LogReader, LogSalvage, SegmentLink, WalWriter, salvage_chain};

use super::Repair;
use crate::record::{self, Record};
use crate::recover;
use crate::version::Edit;

impl Repair<'_> {
    /// Leaves the logs as they are if they replay; else copies them to a new chain. `is_known`: the
    /// manifest names the first.
    pub(super) fn check_logs(
        &mut self,
        state: &mut Edit,
        sealed_log: Option<(u64, u64)>,
        is_known: bool,
    ) -> Result<()> {
        // Without a manifest it is unknown which log is the first of the chain.
        let mut logs = match is_known {
            true => salvage_logs(self.vfs.as_ref(), &EditHeader { sealed_log, ..state.header })?,
            false => salvage_chain(self.vfs.as_ref(), None, None, None)?,
        };
        if is_known {
            match recover::check_logs(self.vfs, state, sealed_log) {
                Ok(()) if logs.iter().all(|log| log.damage.is_none()) => {
                    state.header.sealed_log = sealed_log;
                    return Ok(());
                }
                Ok(()) => {}
                Err(error) if error.is_corruption() => {
                    self.report.note(format!("the logs do not replay ({error})"));
                }
                Err(other) => return Err(other),
            }
        }
        self.has_changed = true;
        if is_known {
            // After the table's own logs there may be what an interrupted repair has copied of
            // them.
            let own = self.own_logs(&logs)?;
            let copied = logs.split_off(own);
            self.files.keep_reported(copied.into_iter().filter_map(|log| log.file));
        }
        let first = self.new_number();
        let mut chain = WalWriter::create(self.vfs, first, SegmentLink::default())?;
        // So that this chain can be distinguished from the old one if the copying is interrupted.
        chain.sync()?;
        for (at, log) in logs.iter().enumerate() {
            if at > 0 {
                let number = self.new_number();
                chain.rotate(number)?;
            }
            self.copy_log(log, &mut chain)?;
        }
        // Synced, so that the old logs may be removed; not sealed, because it was not closed.
        chain.sync()?;
        self.files.keep_reported(logs.into_iter().filter_map(|log| log.file));
        state.header.first_log = Some(first);
        Ok(())
    }

    /// The number of logs of the table's own chain. Only its first log has no predecessor, so the
    /// next log without one begins another chain, left by an interrupted repair.
    fn own_logs(&self, logs: &[LogSalvage]) -> Result<usize> {
        for (at, log) in logs.iter().enumerate().skip(1) {
            let Some(file) = &log.file else { continue };
            let number = log.number;
            let opened = LogReader::open(self.vfs.as_ref(), file, number, LogMode::Recover);
            let begins = opened.and_then(|mut reader| {
                let link = reader.next()?.map(|record| Record::decode(record.bytes));
                Ok(matches!(link, Some(Ok(Record::Link(link))) if link == SegmentLink::default()))
            });
            match begins {
                Ok(true) => return Ok(at),
                Ok(false) => {}
                Err(error) if error.is_corruption() => {}
                Err(other) => return Err(other),
            }
        }
        Ok(logs.len())
    }

    /// Appends the complete batches of a log to the new chain, and the readable part of those next
    /// to a gap.
    fn copy_log(&mut self, log: &LogSalvage, chain: &mut WalWriter) -> Result<()> {
        let name = log.name();
        let (mut batch, mut saved): (Vec<Vec<u8>>, _) = (Vec::new(), 0);
        let mut append = |batch: &mut Vec<Vec<u8>>| -> Result<()> {
            let ends = batch.len().checked_sub(1);
            let parts = batch
                .iter()
                .enumerate()
                .map(|(at, record)| [record::head(Some(at) == ends), &record[record::HEAD..]]);
            if parts.len() > 0 {
                chain.append(parts, &mut Vec::new())?;
            }
            saved += batch.len();
            batch.clear();
            Ok(())
        };
        let mut gaps = Vec::new();
        let damage = salvage_records(self.vfs.as_ref(), log, |item| {
            match item {
                LogItem::Gap(bytes) => {
                    gaps.push(bytes);
                    append(&mut batch)?;
                }
                LogItem::Malformed(bytes) => gaps.push(bytes),
                LogItem::Record(bytes) => match Record::decode(bytes) {
                    Err(reason) => return Ok(Err(reason)),
                    Ok(Record::Link(_)) => {}
                    Ok(Record::Operation { is_last, .. }) => {
                        batch.push(bytes.to_vec());
                        if is_last {
                            append(&mut batch)?;
                        }
                    }
                },
            }
            Ok(Ok(()))
        })?;
        let saved = format!("{saved} operations saved");
        self.report.note(log_outcome(log, damage, &saved, &saved).1);
        for gap in gaps {
            self.report.record_loss(Loss::entries(&name, gap));
        }
        Ok(())
    }
}
