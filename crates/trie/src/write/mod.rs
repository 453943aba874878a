//! How a write travels: group commit, log, memtable, made visible.
//!
//! ```text
//!   write(batch) ─ group ─ leader: room? ─ log append ─ [sync] ─ memtable ─ visible := sequence
//!                                   │
//!                                   └ memtable full: next log, next memtable, queue a flush
//! ```
//!
//! What goes wrong before the append changes nothing. A failed append of a full disk changes
//! nothing either. After any other fault of the log the outcome is unknown, and the table refuses
//! writes until it is opened anew.
//!
//! Invariant: readers see a batch wholly or not at all, and only once its record is in the log.
//!
//! Source: the classic write path of log-structured stores; the contract is `siltstone_engine`'s.

mod clear;
mod room;

use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, Release};

use siltstone_engine::{Durability, Error, Result, WriteBatch};
use siltstone_runtime::group_commit::Size;
use siltstone_table::{RecordParts, WalWriter};

use crate::engine::Inner;
use crate::memtable::Memtable;
use crate::record;

/// The largest batch, in bytes of its log form: it becomes one record and goes to one table.
const MAX_BATCH_BYTES: u64 = 2 << 30;

/// What the one writer at a time owns.
pub(crate) struct Writer {
    pub(crate) log: WalWriter,
    pub(crate) memtable: Arc<Memtable>,
    pub(crate) last_sequence: u64,
    // Kept between writes, so that a write allocates little.
    headers: Vec<u8>,
}

/// A write left in line for another thread to lead.
pub(crate) struct Queued {
    batch: WriteBatch,
    durability: Durability,
}

impl Size for Queued {
    fn size_bytes(&self) -> usize {
        self.batch.as_bytes().len()
    }
}

impl Writer {
    pub(crate) fn new(log: WalWriter, memtable: Arc<Memtable>, last_sequence: u64) -> Self {
        Writer { log, memtable, last_sequence, headers: Vec::new() }
    }
}

impl Inner {
    /// Applies `batch` whole.
    pub(crate) fn write(&self, batch: &WriteBatch, durability: Durability) -> Result<()> {
        self.background.check_writable()?;
        batch.check(crate::MAX_VALUE_BYTES)?;
        let size = batch.as_bytes().len() as u64;
        if size > MAX_BATCH_BYTES {
            return Err(Error::TooLarge { what: "batch", size, limit: MAX_BATCH_BYTES });
        }
        if batch.is_empty() && durability == Durability::Buffered {
            return Ok(());
        }
        self.group.commit(
            || Queued { batch: batch.clone(), durability },
            |others| self.lead(batch, durability, others),
        )
    }

    /// Writes this thread's batch and those of `others` as one group.
    fn lead(&self, own: &WriteBatch, durability: Durability, others: &[Queued]) -> Result<()> {
        let mut writer = self.writer.lock();
        self.background.check_writable()?;
        let batches = || std::iter::once(own).chain(others.iter().map(|queued| &queued.batch));
        // A sync alone takes no room, and does not fail for want of any.
        let is_sync_alone = batches().all(|batch| batch.is_empty());
        match self.make_room(&mut writer) {
            Err(error) if is_sync_alone && error.is_transient() => {}
            made => made?,
        }
        let writer = writer.as_mut().ok_or(Error::Closed)?;
        let wants_sync = durability == Durability::Synced
            || others.iter().any(|queued| queued.durability == Durability::Synced);

        self.append(writer, batches())?;
        if wants_sync {
            writer.log.sync().map_err(|e| self.background.poison("syncing the log", e))?;
        }
        let mut sequence = writer.last_sequence;
        for batch in batches() {
            for op in batch.iter() {
                sequence += 1;
                writer.memtable.add(sequence, op);
            }
            self.counters.user_bytes_written.fetch_add(batch.user_bytes(), Relaxed);
            self.counters.writes.fetch_add(batch.len() as u64, Relaxed);
        }
        writer.last_sequence = sequence;
        // Everything up to `sequence` is in the memtable: readers may see it now, at once.
        self.visible.store(sequence, Release);
        Ok(())
    }

    /// Appends all batches to the log with one request.
    fn append<'b>(
        &self,
        writer: &mut Writer,
        batches: impl Iterator<Item = &'b WriteBatch>,
    ) -> Result<()> {
        let Writer { log, headers, last_sequence, .. } = writer;
        headers.clear();
        let mut sequence = *last_sequence + 1;
        // Each record's header, by where it ends, and its body.
        let mut bodies: Vec<(usize, &[u8])> = Vec::new();
        for batch in batches.filter(|batch| !batch.is_empty()) {
            record::push_header(headers, sequence, batch.len() as u32);
            bodies.push((headers.len(), batch.as_bytes()));
            sequence += batch.len() as u64;
        }
        if bodies.is_empty() {
            return Ok(());
        }
        let starts = std::iter::once(0).chain(bodies.iter().map(|&(end, _)| end));
        let records: Vec<RecordParts<'_>> = starts
            .zip(&bodies)
            .map(|(start, &(end, bytes))| [&headers[start..end], bytes])
            .collect();
        log.append(&records, &mut Vec::new())
            .map_err(|error| self.background.poison_unless_transient("appending to the log", error))
    }

    /// Makes every write that has returned durable.
    pub(crate) fn sync(&self) -> Result<()> {
        self.write(&WriteBatch::new(), Durability::Synced)
    }
}
