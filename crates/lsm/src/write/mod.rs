//! The tree's part of the write path of [`siltstone_durable`]: log records, insertion into
//! memtables, and when a memtable is full.
//!
//! The memtable stores the log position of each version, because with TRIAD-LOG a flush writes
//! positions instead of values. The next log is created in advance, by the flush of the previous
//! memtable, so that no write waits for the creation of a file.

mod overlay;

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use siltstone_durable::{self as durable, Clear, Group, LogRecords, LogStructured, Writer};
use siltstone_engine::{FileInfo, Result, WriteBatch};
use siltstone_table::SpareSegment;

use crate::engine::{Jobs, State, Tree};
use crate::memtable::{Memtable, SealedWal};
use crate::record::{self, BatchKind, Position};
use crate::version::{Edit, Version};
use crate::view::View;
use overlay::Overlay;

/// A memtable with more range deletions is full: a reader after each would sort them again.
const MAX_MEMTABLE_RANGE_DELETES: u64 = 1000;

/// State of the writer between writes: reused buffers, so that a write allocates little.
#[derive(Default)]
pub struct WriterState {
    /// The bytes of keys and values in the active memtable.
    bytes: u64,
    overlay: Option<Overlay>,
    headers: Vec<u8>,
    offsets: Vec<u64>,
    /// The records of the group: the number of operations in each, and its position.
    pieces: Vec<(u32, Position)>,
}

impl durable::Memtable for Memtable {
    fn is_empty(&self) -> bool {
        self.is_empty()
    }

    fn first_log(&self) -> u64 {
        self.first_log
    }
}

impl LogStructured for Tree {
    type Memtable = Memtable;
    type Version = Version;
    type Jobs = Jobs;
    type WriterState = WriterState;
    type LoggedGroup<'b> = ();

    fn check_batch(&self, batch: &WriteBatch) -> Result<()> {
        self.merges.check(batch)
    }

    fn log_group(&self, writer: &mut Writer<Self>, group: &Group<'_>) -> Result<()> {
        let mut state = std::mem::take(&mut writer.state);
        let logged = self.append_group(writer, &mut state, group);
        writer.state = state;
        logged
    }

    fn insert_group(&self, writer: &mut Writer<Self>, group: &Group<'_>, (): ()) -> Result<()> {
        let is_full = writer.state.overlay.is_some() && self.memtable_fill(writer) >= 1.0;
        let mut sequence = writer.last_sequence;
        let (mut pieces, mut piece) = (0, (0, Position::new(0, 0)));
        for batch in group.batches() {
            for op in batch.iter_all() {
                if piece.0 == 0 {
                    piece = writer.state.pieces[pieces];
                    pieces += 1;
                }
                piece.0 -= 1;
                sequence += 1;
                if overlay::insert(writer, sequence, op, piece.1, is_full) {
                    self.counters.large_memtable_writes.fetch_add(1, Relaxed);
                }
            }
        }
        writer.last_sequence = sequence;
        Ok(())
    }

    /// 0 with an overlay, which takes the writes while memtables are flushed: writers are not
    /// throttled.
    fn fill(&self, writer: &Writer<Self>) -> f64 {
        if self.has_overlay() { 0.0 } else { self.memtable_fill(writer) }
    }

    fn is_full(&self, writer: &Writer<Self>, _: &Group<'_>) -> bool {
        self.memtable_fill(writer) >= 1.0
            || self.is_overlay_full(writer)
            || self.are_writers_paused()
    }

    fn max_memtables(&self) -> usize {
        self.options.load().memtables
    }

    fn is_flush_awaited(&self, state: &State) -> bool {
        // Two overlays are full: room is where one was.
        durable::core::are_memtables_exhausted(self, state)
            || self.are_writers_paused()
            || (self.has_overlay() && state.flushing > 0)
    }

    fn may_rotate(&self, writer: &Writer<Self>) -> bool {
        !durable::core::are_memtables_exhausted(self, &self.background.lock())
            && !self.is_compaction_behind()
            && !self.is_flush_held()
            && !self.are_writers_paused()
            && !self.is_overlay_full(writer)
    }

    fn make_other_room(&self, writer: &mut Writer<Self>) -> Result<bool> {
        self.make_overlay_room(writer)
    }

    fn begin_log(&self, writer: &mut Writer<Self>) -> Result<u64> {
        let full = SealedWal {
            number: writer.log.number(),
            bytes: writer.log.len(),
            sync: writer.log.sync_handle(),
        };
        let next = {
            let mut spare = self.next_log.lock();
            spare.take().map_or_else(|| self.create_log(), Ok)?
        };
        let number = next.number();
        writer.log.rotate_to(next)?;
        writer.memtable.seal(full);
        Ok(number)
    }

    fn next_memtable(&self, writer: &mut Writer<Self>, number: u64, overlay: bool) -> Memtable {
        writer.state.bytes = 0;
        if overlay {
            writer.state.overlay = None;
        }
        Memtable::with_chunk_pool(number, &self.spares)
    }

    fn has_unflushed(&self, writer: &Writer<Self>) -> bool {
        !writer.memtable.is_empty() || writer.state.overlay.is_some()
    }

    fn force_flush(&self, view: &View) {
        view.flushing.iter().for_each(|memtable| memtable.force_flush());
    }

    fn is_busy(jobs: &Jobs) -> bool {
        jobs.is_sizing_queued || jobs.tombstones.is_rotation_queued || jobs.compactions > 0
    }

    fn schedule_jobs(&self) {
        self.schedule_compaction();
    }

    fn flush_oldest(&self, view: &View) -> Result<Vec<FileInfo>> {
        self.flush_oldest_of(view)
    }

    fn pressure(&self, _: &State, view: &View) -> f64 {
        self.strategy.pressure(&view.version)
    }
}

impl Clear for Tree {
    /// Snapshots that are older than the removal read the view from before it.
    const TAKES_SEQUENCE: bool = true;

    fn cleared(version: &Version) -> (Edit, Version) {
        version.cleared()
    }

    fn has_files(version: &Version) -> bool {
        version.files().next().is_some()
            || !version.level0.is_empty()
            || !version.range_deletes.is_empty()
    }

    fn logs_of(version: &Version) -> Vec<u64> {
        version.logs().map(|log| log.number()).collect()
    }

    fn before_clear(&self, sequence: u64, view: Arc<View>) {
        self.snapshots.keep_before_clear(sequence, view);
    }

    fn sync_cleared_logs(&self, writer: &mut Writer<Self>) -> Result<()> {
        if !self.logs.is_enabled() {
            return Ok(());
        }
        writer.log.sync().map_err(|error| self.background.poison("syncing the log", error))
    }

    /// Records the removal for change feeds. Without the record a feed reports a gap.
    fn log_cleared(&self, writer: &mut Writer<Self>, sequence: u64) {
        if self.logs.is_enabled() {
            let record = record::cleared_record(sequence);
            let logged = durable::commit::append(
                self,
                writer,
                [[&record[..], &[]]].into_iter(),
                &mut vec![],
            );
            // If the log fails, the next write reports it.
            let _ = logged.and_then(|()| writer.log.sync());
        }
    }

    fn clear_failed(&self, sequence: u64) {
        self.snapshots.forget_clear(sequence);
    }

    fn after_clear(&self, sequence: u64) {
        self.snapshots.forget_unneeded(sequence);
    }
}

impl Tree {
    /// Appends a group to the log, and notes the positions of its records in `state`.
    fn append_group(
        &self,
        writer: &mut Writer<Self>,
        state: &mut WriterState,
        group: &Group<'_>,
    ) -> Result<()> {
        let WriterState { headers, offsets, pieces, .. } = state;
        offsets.clear();
        pieces.clear();
        let mut records = LogRecords::new(headers);
        let mut sequence = writer.last_sequence + 1;
        for batch in group.batches() {
            // Again under the lock: a merge operator may have been set since.
            self.merges.check_expiry(batch)?;
            let kind = BatchKind::of(batch);
            let mut parts = batch.pieces(record::PART_BYTES).peekable();
            while let Some((bytes, count)) = parts.next() {
                let is_last = parts.peek().is_none();
                let header = |out: &mut Vec<u8>| {
                    record::push_header(out, sequence, count, is_last, kind);
                };
                records.push(header, bytes);
                pieces.push((count, Position::new(0, 0)));
                sequence += u64::from(count);
            }
        }
        durable::commit::append(self, writer, records.iter(), offsets)?;
        for ((piece, &offset), [header, body]) in
            pieces.iter_mut().zip(&*offsets).zip(records.iter())
        {
            piece.1 = Position::new(offset, header.len() + body.len());
        }
        Ok(())
    }

    /// Whether an ingestion flushes what is in memory, and writers wait for it as for a flush.
    fn are_writers_paused(&self) -> bool {
        self.writers_paused.load(Relaxed)
    }

    /// How full the active memtable is.
    fn memtable_fill(&self, writer: &Writer<Self>) -> f64 {
        if let Some(fill) = self.fill_beside_overlay(writer) {
            return fill;
        }
        let (log, memory) = self.memtable_limits.get();
        let share = |part: u64, whole: u64| part as f64 / whole as f64;
        let ranges = writer.memtable.range_delete_count() as u64;
        share(writer.log.len(), log)
            .max(share(writer.memtable.bytes(), memory))
            .max(share(ranges, MAX_MEMTABLE_RANGE_DELETES))
    }

    /// Creates the log after the active one before it is needed: creating it and preallocating its
    /// first pages would take one write in many far longer than the rest. If that fails, the writer
    /// tries.
    pub(crate) fn prepare_next_log(&self) {
        let mut slot = self.next_log.lock();
        if slot.is_none()
            && let Ok(next) = self.create_log()
        {
            next.preallocate(self.memtable_limits.get().0, 0);
            *slot = Some(next);
        }
    }

    fn create_log(&self) -> Result<SpareSegment> {
        SpareSegment::create(self.vfs.as_ref(), self.versions.new_number())
    }
}
