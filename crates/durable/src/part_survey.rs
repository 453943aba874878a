//! Lists the parts of batches over several tables in the logs of a closed table.
//!
//! When a store is opened, the surveys of all of its tables show which batches are complete, and
//! [`PartSurvey::keep`] removes incomplete ones from the log. A part is *durable* if the manifest
//! records that its batch is durable in all tables.
//!
//! ```text
//!   manifest  durable up to batch 40
//!   logs      7 [… part 38 … part 41 … part 43] ─▶ 9 [… part 44 … part 45, torn]
//!             survey: durable 40; parts 41, 43, 44
//!   keep 1    only what is before part 43: log 9 is removed, log 7 is truncated
//! ```
//!
//! After a clean close there is nothing to survey: all parts are durable.
//!
//! Invariant: reading changes no byte.

use std::sync::Arc;

use siltstone_engine::Result;
use siltstone_table::log::{logs_from, remove_copies, rewrite_logs};
use siltstone_table::{Manifest, PartRecord, ReplayHandler, SegmentLink};
use siltstone_vfs::Vfs;

use crate::recovery::replay_logs;
use crate::version_edit::{VersionEdit, replay_edits};
use crate::version_set::VersionState;

/// A part in a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoggedPart {
    /// The number of the batch.
    pub batch: u64,
    /// The tables of the batch, ascending.
    pub tables: Vec<u64>,
    /// The segment, and its length before the part.
    begin: SegmentLink,
}

/// The parts of one table.
#[derive(Debug, Default)]
pub struct PartSurvey {
    /// Batches up to this number are durable.
    pub durable: u64,
    /// The last batch of which a part was found, or which is durable.
    pub last_batch: u64,
    /// The whole parts of later batches, by their numbers, ascending.
    pub parts: Vec<LoggedPart>,
    /// The segments that were not sealed, with their lengths, oldest first.
    logs: Vec<SegmentLink>,
    /// The segments that were found, also those that are not valid.
    found: Vec<u64>,
}

impl PartSurvey {
    /// Reads the manifest and the logs of a table.
    ///
    /// # Errors
    /// Corruption, a newer format, I/O errors.
    pub fn read<V: VersionState>(vfs: &Arc<dyn Vfs>) -> Result<Self> {
        let (_, edits) = Manifest::open(vfs.clone(), V::ENGINE)?;
        let header = *replay_edits::<V::Edit>(&edits)?.header();
        let durable = header.durable_batch.unwrap_or(0);
        let mut reading = PartCollector { durable, ..PartCollector::default() };
        // The seal stays in the manifest until its next edit, also beside later logs.
        let sealed = header.sealed_log.map_or(0, |(number, _)| number);
        if sealed > 0 && logs_from(vfs.as_ref(), sealed + 1)?.is_empty() {
            return Ok(PartSurvey { durable, last_batch: durable, ..PartSurvey::default() });
        }
        let replayed = replay_logs(vfs.as_ref(), header, &mut reading)?;
        // Up to the seal everything is durable.
        reading.logs.retain(|log| log.number > sealed);
        Ok(PartSurvey {
            durable,
            last_batch: replayed.last_batch.max(durable),
            parts: reading.parts,
            logs: reading.logs,
            found: replayed.found,
        })
    }

    /// Whether the table has its part of the batch `number`, of which it is one of the tables.
    pub fn has(&self, number: u64) -> bool {
        let is_there = || self.parts.binary_search_by_key(&number, |part| part.batch).is_ok();
        number <= self.durable || is_there()
    }

    /// Makes the logs durable up to the part `count`, counted from 0, and removes that part and
    /// everything after it. If there is no such part, the logs are made durable as they are.
    ///
    /// # Errors
    /// I/O errors. The call may be repeated.
    pub fn keep(&self, vfs: &dyn Vfs, count: usize) -> Result<()> {
        remove_copies(vfs)?;
        let Some(part) = self.parts.get(count) else {
            return rewrite_logs(vfs, &self.logs, &[]);
        };
        let is_before = |log: &&SegmentLink| log.number < part.begin.number;
        let mut logs: Vec<SegmentLink> = self.logs.iter().filter(is_before).copied().collect();
        logs.push(part.begin);
        let gone = self.found.iter().copied().filter(|number| *number > part.begin.number);
        rewrite_logs(vfs, &logs, &gone.collect::<Vec<_>>())
    }
}

/// Collects parts during a replay.
#[derive(Default)]
struct PartCollector {
    durable: u64,
    log: u64,
    parts: Vec<LoggedPart>,
    logs: Vec<SegmentLink>,
    /// A part of which records are still to come, and how many.
    open: Option<(LoggedPart, u32)>,
}

impl ReplayHandler for PartCollector {
    fn begin(&mut self, number: u64) -> Result<()> {
        self.log = number;
        self.open = None;
        Ok(())
    }

    fn record(&mut self, _: u64, _: &[u8]) -> Result<()> {
        if let Some((_, missing)) = &mut self.open {
            *missing = missing.saturating_sub(1);
        }
        if let Some((part, _)) = self.open.take_if(|(_, missing)| *missing == 0)
            && part.batch > self.durable
        {
            self.parts.push(part);
        }
        Ok(())
    }

    fn part(&mut self, part: PartRecord, end: u64) {
        let PartRecord { batch, records, tables } = part;
        let begin = SegmentLink { number: self.log, bytes: end };
        self.open = Some((LoggedPart { batch, tables, begin }, records));
    }

    fn end(&mut self, end: SegmentLink) {
        self.logs.push(end);
    }
}
