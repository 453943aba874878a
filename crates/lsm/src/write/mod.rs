//! How a write travels: group commit, log, memtable, made visible.
//!
//! ```text
//!   write(batch) ─ group ─ leader: room? ─ log append ─ [sync] ─ memtable ─ visible := sequence
//!                                   │
//!                                   └ memtable full: next log, next memtable, queue a flush
//! ```
//!
//! The next log is there already: the flush of the memtable before has prepared it.
//!
//! What goes wrong before the append changes nothing. A failed append of a full disk changes
//! nothing either. After any other fault of the log the outcome is unknown, and the table refuses
//! writes until it is opened anew.

mod clear;
mod large;
mod room;

use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, Release};

use siltstone_engine::{Durability, Error, Result, WriteBatch};
use siltstone_runtime::group_commit::Size;
use siltstone_table::{RecordParts, WalWriter};

use crate::engine::Inner;
use crate::memtable::Memtable;
use crate::record::{self, Position};
use large::Large;

/// What the one writer at a time owns.
pub(crate) struct Writer {
    pub(crate) log: WalWriter,
    pub(crate) memtable: Arc<Memtable>,
    /// Keys and values that the memtable took.
    bytes: u64,
    pub(crate) large: Option<Large>,
    pub(crate) last_sequence: u64,
    // Kept between writes, so that a write allocates little.
    headers: Vec<u8>,
    offsets: Vec<u64>,
    /// The records of the group: operations in each, and where it lies.
    pieces: Vec<(u32, Position)>,
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
        Writer {
            log,
            memtable,
            bytes: 0,
            large: None,
            last_sequence,
            headers: Vec::new(),
            offsets: Vec::new(),
            pieces: Vec::new(),
        }
    }
}

impl Inner {
    /// Applies `batch` whole.
    pub(crate) fn write(&self, batch: &WriteBatch, durability: Durability) -> Result<()> {
        self.background.check_writable()?;
        batch.check(crate::MAX_VALUE_BYTES)?;
        if batch.is_empty() && durability == Durability::Buffered {
            return Ok(());
        }
        let queued = || Queued { batch: batch.clone(), durability };
        self.group.commit(queued, |others| self.lead(batch, durability, others))
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
        let is_full = writer.large.is_some() && self.fill(writer) >= 1.0;
        let mut sequence = writer.last_sequence;
        let (mut pieces, mut piece) = (0, (0, Position::new(0, 0)));
        for batch in batches() {
            for op in batch.iter() {
                if piece.0 == 0 {
                    piece = writer.pieces[pieces];
                    pieces += 1;
                }
                piece.0 -= 1;
                sequence += 1;
                if writer.add(sequence, op, piece.1, is_full) {
                    self.counters.large_memtable_writes.fetch_add(1, Relaxed);
                }
            }
            self.counters.user_bytes_written.fetch_add(batch.user_bytes(), Relaxed);
            self.counters.writes.fetch_add(batch.len() as u64, Relaxed);
        }
        writer.last_sequence = sequence;
        // Everything up to `sequence` is in the memtable: readers may see it now, at once.
        self.visible.store(sequence, Release);
        Ok(())
    }

    /// Appends all batches to the log with one request, and notes their records.
    fn append<'b>(
        &self,
        writer: &mut Writer,
        batches: impl Iterator<Item = &'b WriteBatch>,
    ) -> Result<()> {
        let Writer { log, headers, offsets, pieces, last_sequence, .. } = writer;
        headers.clear();
        offsets.clear();
        pieces.clear();
        let mut sequence = *last_sequence + 1;
        // Each record's end in `headers`, and its body.
        let mut bodies: Vec<(usize, &[u8])> = Vec::new();
        for batch in batches {
            let mut parts = batch.pieces(record::PART_BYTES).peekable();
            while let Some((bytes, count)) = parts.next() {
                record::push_header(headers, sequence, count, parts.peek().is_none());
                bodies.push((headers.len(), bytes));
                pieces.push((count, Position::new(0, 0)));
                sequence += u64::from(count);
            }
        }
        if bodies.is_empty() {
            return Ok(());
        }
        let starts = std::iter::once(0).chain(bodies.iter().map(|&(end, _)| end));
        let records: Vec<RecordParts<'_>> = starts
            .zip(&bodies)
            .map(|(start, &(end, bytes))| [&headers[start..end], bytes])
            .collect();
        log.append(&records, offsets).map_err(|error| {
            self.background.poison_unless_transient("appending to the log", error)
        })?;
        for ((piece, &offset), record) in pieces.iter_mut().zip(&*offsets).zip(&records) {
            piece.1 = Position::new(offset, record[0].len() + record[1].len());
        }
        Ok(())
    }

    /// Makes every write that has returned durable.
    pub(crate) fn sync(&self) -> Result<()> {
        self.write(&WriteBatch::new(), Durability::Synced)
    }
}
