//! The engine's part of the write path of [`siltstone_durable`]: log records, insertion into
//! LogStores (in-memory hash indexes of the log), and when a generation is full.
//!
//! ```text
//!   group ─ position of each key in its LogStore ─ log append ─ [sync] ─ LogStores
//! ```
//!
//! A record is one operation. The old position of a key is determined before anything is written,
//! because that may need a read that fails: the tag in the LogStore is only a hint, so the record
//! in the log is compared. For [`siltstone_durable`] a generation is the memtable; it is full when
//! one of its LogStores is.
//!
//! Invariant: a batch goes entirely into one generation, and every position in it fits in 32 bits.
//!
//! Source: Lim, thesis, section 2.2.1, for the steps after the log.

use std::collections::HashMap;

use siltstone_durable::clear::Clear;
use siltstone_durable::{self as durable, Group, LogStructured, Writer};
use siltstone_engine::{Error, FileInfo, Purpose, Result, WriteBatch};
use siltstone_structures::HashKey;
use siltstone_table::MAX_PART_BYTES;

use crate::engine::{Jobs, SiltEngine, State};
use crate::generation::{Generation, IndexInsert};
use crate::keys::cuckoo_bits;
use crate::version::{Edit, Version};
use crate::view::View;
use crate::{item, record};

/// The maximum bytes of a batch in the log, whose positions have 32 bits.
const MAX_LOGGED_BYTES: u64 = 2_000_000_000;
/// Bytes that the log needs per operation beside its own.
const RECORD_BYTES: u64 = 8;

/// An upper bound of the bytes that a batch takes in the log.
fn logged_bytes(batch: &WriteBatch) -> u64 {
    let bytes = batch.as_bytes().len() as u64;
    // A header per block of 32 KiB, and a fragment's where a record continues behind it.
    let framing = bytes + RECORD_BYTES * batch.len() as u64;
    framing + framing / 512 + 64
}

/// A group of batches in the log, with the entries to be inserted into the LogStores.
#[derive(Default)]
pub struct LoggedGroup<'b> {
    records: Vec<[&'b [u8]; 2]>,
    /// One for each key.
    entering: Vec<IndexInsert>,
    /// The last record of each key.
    last_record: Vec<usize>,
    /// The position of each record in the log.
    positions: Vec<u64>,
}

impl durable::Memtable for Generation {
    fn is_empty(&self) -> bool {
        self.entries() == 0
    }

    fn first_log(&self) -> u64 {
        self.name()
    }
}

impl LogStructured for SiltEngine {
    type Memtable = Generation;
    type Version = Version;
    type Jobs = Jobs;
    type WriterState = ();
    type LoggedGroup<'b> = LoggedGroup<'b>;

    fn check_batch(&self, batch: &WriteBatch) -> Result<()> {
        match logged_bytes(batch) {
            size if size > MAX_LOGGED_BYTES => {
                Err(Error::TooLarge { what: "batch", size, limit: MAX_LOGGED_BYTES })
            }
            _ => Ok(()),
        }
    }

    fn log_group<'b>(
        &self,
        writer: &mut Writer<Self>,
        group: &Group<'b>,
    ) -> Result<LoggedGroup<'b>> {
        let mut logged = self.find_old_positions(&writer.memtable, group)?;
        let records = logged.records.iter().copied();
        durable::commit::append(self, writer, records, &mut logged.positions)?;
        Ok(logged)
    }

    fn insert_group(
        &self,
        writer: &mut Writer<Self>,
        _: &Group<'_>,
        mut logged: LoggedGroup<'_>,
    ) -> Result<()> {
        let base = writer.memtable.base();
        for (entering, &record) in logged.entering.iter_mut().zip(&logged.last_record) {
            let position = u32::try_from(base + logged.positions[record]);
            // Room was made for the group, so no position in it exceeds 32 bits.
            entering.position = position.map_err(|_| {
                let error = Error::Invalid("a log is too long for its LogStore".into());
                self.background.poison("entering", error)
            })?;
        }
        writer.memtable.insert(&logged.entering);
        Ok(())
    }

    /// Writers are not throttled.
    fn fill(&self, _: &Writer<Self>) -> f64 {
        0.0
    }

    fn is_full(&self, writer: &Writer<Self>, group: &Group<'_>) -> bool {
        let active = &writer.memtable;
        let log = active.base() + writer.log.len();
        // With at most 2 GB more this stays within 32 bits.
        let needed = group.batches().map(logged_bytes).sum::<u64>() + MAX_PART_BYTES;
        let is_full = log >= self.options.max_log_bytes
            || log + needed > u64::from(u32::MAX)
            || active.is_full(self.options.max_load_factor);
        is_full && active.entries() > 0
    }

    fn max_memtables(&self) -> usize {
        self.options.frozen().1
    }

    /// With LogStores alone their number has no limit. During a flush writers wait then, so that it
    /// ends.
    fn is_flush_awaited(&self, state: &State) -> bool {
        let is_unlimited = self.max_memtables() == usize::MAX;
        durable::core::are_memtables_exhausted(self, state)
            || (is_unlimited && state.drains && state.flushing > 0)
    }

    fn may_rotate(&self, _: &Writer<Self>) -> bool {
        !self.is_flush_awaited(&self.background.lock()) && !self.is_compaction_behind()
    }

    /// Whether some partition has too many HashStores.
    fn is_compaction_behind(&self) -> bool {
        let stop = self.options.merge_at().1;
        let view = self.view.load();
        view.version.partitions.iter().any(|partition| partition.hash_stores.len() >= stop)
    }

    fn next_memtable(&self, writer: &mut Writer<Self>, number: u64, _: bool) -> Generation {
        let mut next = Generation::new(self.keys.partitions, self.options.log_store_slots);
        next.add_log(number, writer.log.access(), 0);
        next
    }

    fn force_flush(&self, _: &View) {
        self.background.lock().drains = true;
    }

    /// Once the configured number of generations wait, all of them are converted.
    fn is_flush_due(&self, state: &mut State) -> bool {
        state.drains |= state.flushing >= self.options.frozen().0;
        state.drains &= state.flushing > 0;
        state.drains
    }

    fn is_busy(jobs: &Jobs) -> bool {
        jobs.is_merge_queued || jobs.is_loading_queued
    }

    fn schedule_jobs(&self) {
        self.schedule_merges_and_loading();
    }

    fn flush_oldest(&self, view: &View) -> Result<Vec<FileInfo>> {
        self.convert_oldest(view)
    }
}

impl Clear for SiltEngine {
    fn cleared(version: &Version) -> (Edit, Version) {
        version.cleared()
    }

    fn has_files(version: &Version) -> bool {
        version.stores() > 0
    }
}

impl SiltEngine {
    /// The records of a group of batches, with the LogStore entry of each of their keys.
    fn find_old_positions<'b>(
        &self,
        active: &Generation,
        group: &Group<'b>,
    ) -> Result<LoggedGroup<'b>> {
        let keys = self.keys;
        let mut logged = LoggedGroup::default();
        // Keys of the group by hash; of two keys with one hash each is entered.
        let mut seen: HashMap<HashKey, Vec<(&[u8], usize)>> = HashMap::new();
        for batch in group.batches() {
            let mut left = batch.len();
            for (bytes, _) in batch.pieces(1) {
                left -= 1;
                logged.records.push([record::head(left == 0), bytes]);
                let Some((op, _)) = item::first(bytes) else { continue };
                let record = logged.records.len() - 1;
                let hash = keys.hash(op.key());
                let same = seen.entry(hash).or_default();
                if let Some((_, at)) = same.iter().find(|(key, _)| *key == op.key()) {
                    logged.last_record[*at] = record;
                    logged.entering[*at].bytes = bytes.len() as u32;
                    continue;
                }
                same.push((op.key(), logged.entering.len()));
                let partition = keys.partition(&hash);
                let old = active.find(partition, &hash, op.key(), Purpose::Log)?;
                logged.last_record.push(record);
                logged.entering.push(IndexInsert {
                    partition,
                    bits: cuckoo_bits(&hash),
                    old: old.map(|(position, _)| position),
                    position: 0,
                    bytes: bytes.len() as u32,
                });
            }
        }
        Ok(logged)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use siltstone_table::LogWriter;
    use siltstone_vfs::Ram;

    #[test]
    fn batch_takes_no_more_of_the_log_than_estimated() {
        for (operations, value_bytes) in [(20_000, 0), (5000, 40), (300, 3000), (3, 200_000)] {
            let mut batch = WriteBatch::new();
            (0..operations).for_each(|i: u32| {
                batch.put(&i.to_le_bytes(), &vec![7; value_bytes]);
            });
            let mut log = LogWriter::create(&Ram::new(), "log", 1, Purpose::Log).unwrap();
            let records: Vec<_> = batch.pieces(1).map(|(op, _)| [record::head(true), op]).collect();
            log.append_group(&records, &mut Vec::new()).unwrap();
            assert!(log.len() <= logged_bytes(&batch), "{} of {operations}", log.len());
        }
    }
}
