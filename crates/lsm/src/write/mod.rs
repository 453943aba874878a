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

mod group;
mod log;
mod room;

pub(crate) use group::{GroupCommit, Size};
pub(crate) use log::{Log, LogRecord, Record, encode_batch_header};

use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use siltstone_engine::{Durability, Error, Result, WriteBatch};

use crate::engine::Inner;
use crate::memtable::Memtable;

/// What the one writer at a time owns.
pub(crate) struct Writer {
    pub(crate) log: Log,
    pub(crate) memtable: Arc<Memtable>,
    pub(crate) last_sequence: u64,
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
    pub(crate) fn new(log: Log, memtable: Arc<Memtable>, last_sequence: u64) -> Self {
        Writer { log, memtable, last_sequence, headers: Vec::new() }
    }
}

impl Inner {
    /// Applies `batch` whole.
    pub(crate) fn write(&self, batch: &WriteBatch, durability: Durability) -> Result<()> {
        self.check_writable()?;
        batch.check(crate::MAX_VALUE_BYTES)?;
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
        self.check_writable()?;
        self.make_room(&mut writer)?;
        let batches = || std::iter::once(own).chain(others.iter().map(|queued| &queued.batch));
        let wants_sync = durability == Durability::Synced
            || others.iter().any(|queued| queued.durability == Durability::Synced);

        let writer = &mut *writer;
        let first_position = self.append(writer, batches())?;
        if wants_sync {
            writer.log.sync().map_err(|e| self.poison("syncing the log", e))?;
        }
        let mut position = first_position;
        let mut sequence = writer.last_sequence;
        for batch in batches() {
            for op in batch.iter() {
                sequence += 1;
                writer.memtable.add(sequence, op, position);
            }
            position += batch.as_bytes().len() as u64;
            self.counters.user_bytes_written.fetch_add(batch.user_bytes(), Relaxed);
            self.counters.writes.fetch_add(batch.len() as u64, Relaxed);
        }
        writer.last_sequence = sequence;
        // Everything up to `sequence` is in the memtable: readers may see it now, at once.
        self.visible.store(sequence, Release);
        Ok(())
    }

    /// Appends all batches to the log with one request; returns the position of the first.
    fn append<'b>(
        &self,
        writer: &mut Writer,
        batches: impl Iterator<Item = &'b WriteBatch> + Clone,
    ) -> Result<u64> {
        let mut sequence = writer.last_sequence + 1;
        writer.headers.clear();
        let mut ends = Vec::new();
        for batch in batches.clone().filter(|batch| !batch.is_empty()) {
            encode_batch_header(&mut writer.headers, sequence, batch.len() as u32);
            ends.push(writer.headers.len());
            sequence += batch.len() as u64;
        }
        if ends.is_empty() {
            return Ok(writer.log.len());
        }
        let starts = std::iter::once(0).chain(ends.iter().copied());
        let headers = starts.zip(&ends).map(|(start, &end)| &writer.headers[start..end]);
        let bodies = batches.filter(|batch| !batch.is_empty()).map(WriteBatch::as_bytes);
        let records: Vec<LogRecord<'_>> = headers.zip(bodies).map(|(h, b)| [h, b]).collect();
        writer.log.append(&records).map_err(|error| {
            if error.is_disk_full() { error } else { self.poison("appending to the log", error) }
        })
    }

    /// Makes every write that has returned durable.
    pub(crate) fn sync(&self) -> Result<()> {
        self.write(&WriteBatch::new(), Durability::Synced)
    }

    /// Refuses writes to a table that is closed or was poisoned.
    pub(crate) fn check_writable(&self) -> Result<()> {
        if self.closed.load(Acquire) {
            return Err(Error::Closed);
        }
        match self.poisoned.get() {
            Some(cause) => Err(Error::ReadOnly { cause: cause.clone() }),
            None => Ok(()),
        }
    }

    /// From now on the table refuses writes, and says why.
    pub(crate) fn poison(&self, doing: &str, error: Error) -> Error {
        let _ = self.poisoned.set(format!("{doing}: {error}"));
        self.progress.notify_all();
        error
    }
}
