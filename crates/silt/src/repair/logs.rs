//! Logs that do not replay: every whole record of each becomes a new chain.
//!
//! Behind a gap the rest of a log is copied, too, and so are the logs behind a damaged or missing
//! one: they are the newest that there is of their keys. A batch of which the end is missing never
//! was, unless a gap follows: then it may have been whole, and what is readable of it is copied. So
//! a batch at the edge of a gap may be there in part.
//!
//! Invariant: each whole record is in the new chain, each gap in the report.

use siltstone_engine::{Loss, Result};
use siltstone_table::{
    LogMode, LogReader, LogSalvage, SalvageItem, SegmentLink, WalWriter, salvage_chain,
};

use super::Repair;
use crate::record::{self, Record};
use crate::recover;
use crate::version::Edit;

impl Repair<'_> {
    /// Leaves the logs as they are if they replay; else makes a new chain of them. `is_known`: the
    /// manifest tells which is the first.
    pub(super) fn check_logs(
        &mut self,
        state: &mut Edit,
        sealed_log: Option<(u64, u64)>,
        is_known: bool,
    ) -> Result<()> {
        // Without a manifest nothing tells which log is the first of the chain.
        let mut logs = match is_known {
            true => self.chain(state.first_log, sealed_log)?,
            false => salvage_chain(self.vfs.as_ref(), None, None, None)?,
        };
        if is_known {
            match recover::check_logs(self.vfs, state, sealed_log) {
                Ok(()) if logs.iter().all(|log| log.damage.is_none()) => {
                    state.sealed_log = sealed_log;
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
            // Behind the table's own logs, what a repair that lost power had copied of them.
            let own = self.own_logs(&logs)?;
            let copied = logs.split_off(own);
            self.damaged_files.extend(copied.into_iter().filter_map(|log| log.file));
        }
        let first = self.new_number();
        let mut chain = WalWriter::create(self.vfs, first, SegmentLink::default())?;
        // So that this chain can be told from the one before if its copying loses power.
        chain.sync()?;
        for (at, log) in logs.iter().enumerate() {
            if at > 0 {
                let number = self.new_number();
                chain.rotate(number)?;
            }
            self.copy_log(log, &mut chain)?;
        }
        // Synced, so that the logs before may go; not sealed, for no close has been here.
        chain.sync()?;
        self.damaged_files.extend(logs.into_iter().filter_map(|log| log.file));
        state.first_log = Some(first);
        Ok(())
    }

    /// How many of the logs stand before the first, but for the very first, that begins a chain: the
    /// table's own begin none.
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

    /// Appends the whole batches of a log to the new chain, and what is readable of those at a gap.
    fn copy_log(&mut self, log: &LogSalvage, chain: &mut WalWriter) -> Result<()> {
        let name = log.name();
        let (mut batch, mut saved): (Vec<Vec<u8>>, _) = (Vec::new(), 0);
        let mut append = |batch: &mut Vec<Vec<u8>>| -> Result<()> {
            let ends = batch.len().checked_sub(1);
            let parts = batch
                .iter()
                .enumerate()
                .map(|(at, record)| [record::head(Some(at) == ends), &record[record::HEAD..]]);
            let parts: Vec<[&[u8]; 2]> = parts.collect();
            if !parts.is_empty() {
                chain.append(&parts, &mut Vec::new())?;
            }
            saved += parts.len();
            batch.clear();
            Ok(())
        };
        let (mut gaps, mut unreadable) = (Vec::new(), None);
        log.visit(self.vfs.as_ref(), |salvaged| {
            let (position, bytes) = match salvaged {
                SalvageItem::Gap(bytes) => {
                    gaps.push(bytes);
                    return append(&mut batch);
                }
                SalvageItem::Record { position, bytes } => (position, bytes),
            };
            match Record::decode(bytes) {
                Ok(Record::Link(_)) => {}
                Ok(Record::Operation { is_last, .. }) => {
                    batch.push(bytes.to_vec());
                    if is_last {
                        append(&mut batch)?;
                    }
                }
                Err(reason) => {
                    unreadable.get_or_insert((position, reason));
                    gaps.push(position..position + bytes.len() as u64);
                }
            }
            Ok(())
        })?;
        self.report.note(match (log.damage.clone().or(unreadable), &log.file) {
            (None, _) => format!("{name}: {saved} operations saved"),
            (Some((_, reason)), None) => format!("{name}: {reason}"),
            (Some((at, reason)), Some(_)) => {
                format!("{name} is damaged at byte {at} ({reason}): {saved} operations saved")
            }
        });
        for gap in gaps {
            self.report.record_loss(Loss::entries(&name, gap));
        }
        Ok(())
    }
}
