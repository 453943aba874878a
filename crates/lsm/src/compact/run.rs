//! Runs one compaction: cuts its key range into pieces, merges each into new tables.
//!
//! The pieces stand in a list; the job's own thread and up to `subcompactions` − 1 helpers take one
//! after the other, so no thread ever waits for a piece that nobody has begun. Tables end where
//! they are full, or where they would come to overlap too much of the level after. They are synced some
//! tables later, when the medium has had the time to write them.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use parking_lot::{Condvar, Mutex};
use siltstone_engine::{Error, Purpose, Result};
use siltstone_runtime::Priority;
use siltstone_table::{EntryRef, FileNumber, IterOptions, Kind, TableWriter, Unsynced};

use super::Compaction;
use crate::engine::Inner;
use crate::read::{AheadShare, LevelIter, Merge, Source};
use crate::retain::Retain;
use crate::version::{FileEntry, TableFile};

/// A piece below this size is not worth a thread.
const PIECE_BYTES: u64 = 4 << 20;
/// A table that overlaps this many tables' worth of the level after is ended early.
const GRANDPARENT_TABLES: u64 = 10;
/// So many pieces for each thread: who is done with one takes another, so none is idle for long.
const PIECES_A_THREAD: u64 = 2;
/// Tables of a piece that are written and not yet synced, at most: each is an open file.
const UNSYNCED: usize = 4;
/// How often a merge looks up, in entries.
const STEP: u64 = 64;

/// The pieces of one compaction and what came of them.
struct Pieces {
    compaction: Compaction,
    generation: u64,
    /// Piece `i` is the keys from `cuts[i]` (inclusive; none for the first) to `cuts[i + 1]`.
    cuts: Vec<Vec<u8>>,
    next: AtomicUsize,
    done: Mutex<Vec<Option<Result<Vec<FileEntry>>>>>,
    progress: Condvar,
    moments: Vec<u64>,
    now: u64,
}

impl Inner {
    /// Merges the tables of `compaction` into new ones of its target level, all of them durable.
    ///
    /// # Errors
    /// `Closed` if all keys were removed since the view of `generation`, or the table is closing.
    pub(super) fn merge_tables(
        &self,
        generation: u64,
        compaction: &Compaction,
    ) -> Result<Vec<FileEntry>> {
        let cuts = self.cut(compaction);
        let count = cuts.len() + 1;
        let pieces = Arc::new(Pieces {
            compaction: compaction.clone(),
            generation,
            cuts,
            next: AtomicUsize::new(0),
            done: Mutex::new((0..count).map(|_| None).collect()),
            progress: Condvar::new(),
            moments: self.snapshots.boundaries(&self.visible),
            now: self.env.clock.now(),
        });
        for _ in 1..count.min(self.options.subcompactions) {
            // Neither is kept alive by a helper that comes too late.
            let (weak, pieces) = (self.me.clone(), Arc::downgrade(&pieces));
            self.env.scheduler.spawn(Priority::Urgent, move || {
                if let (Some(inner), Some(pieces)) = (weak.upgrade(), pieces.upgrade()) {
                    inner.take_pieces(&pieces);
                }
            });
        }
        self.take_pieces(&pieces);
        let mut done = pieces.done.lock();
        while done.iter().any(Option::is_none) {
            pieces.progress.wait(&mut done);
        }
        let results: Vec<_> = done.drain(..).flatten().collect();
        drop(done);
        let merged = self.gather(results)?;
        self.vfs.sync_dir(Purpose::Compaction)?;
        Ok(merged)
    }

    /// All tables of all pieces; if a piece failed, the others' tables are removed.
    fn gather(&self, results: Vec<Result<Vec<FileEntry>>>) -> Result<Vec<FileEntry>> {
        let failed = results.iter().find_map(|piece| piece.as_ref().err().cloned());
        let tables: Vec<FileEntry> = results.into_iter().flatten().flatten().collect();
        match failed {
            None => Ok(tables),
            Some(error) => {
                self.remove_tables(&tables);
                Err(error)
            }
        }
    }

    pub(crate) fn remove_tables(&self, tables: &[FileEntry]) {
        tables.iter().for_each(|table| self.remove_table(table.number));
    }

    /// The keys at which to cut: between tables below, about equal bytes in each piece.
    fn cut(&self, compaction: &Compaction) -> Vec<Vec<u8>> {
        let most = match self.options.subcompactions as u64 {
            1 => 1,
            threads => PIECES_A_THREAD * threads,
        };
        let pieces = (compaction.bytes() / PIECE_BYTES).clamp(1, most);
        let below = &compaction.below;
        let per_piece = below.len() / pieces as usize;
        if per_piece == 0 {
            return Vec::new();
        }
        (1..pieces as usize).map(|i| below[i * per_piece].smallest().to_vec()).collect()
    }

    /// Merges pieces until none is left.
    fn take_pieces(&self, pieces: &Pieces) {
        loop {
            let piece = pieces.next.fetch_add(1, Relaxed);
            if piece > pieces.cuts.len() {
                return;
            }
            let panicked = || Err(Error::Invalid("a compaction panicked".to_owned()));
            let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                self.merge_piece(pieces, piece)
            }));
            pieces.done.lock()[piece] = Some(result.unwrap_or_else(|_| panicked()));
            pieces.progress.notify_all();
        }
    }

    fn merge_piece(&self, pieces: &Pieces, piece: usize) -> Result<Vec<FileEntry>> {
        let compaction = &pieces.compaction;
        let end = pieces.cuts.get(piece);
        let runs = runs(compaction, end.map(Vec::as_slice), &self.ahead_share(pieces))?;
        let mut merge = Merge::new(runs, self.options.hints);
        match piece.checked_sub(1).map(|before| &pieces.cuts[before]) {
            None => merge.first()?,
            Some(start) => merge.seek(start, u64::MAX)?,
        }
        let mut output = Output {
            inner: self,
            compaction,
            table: None,
            unsynced: VecDeque::new(),
            done: Vec::new(),
            grandparents: 0..0,
        };
        let merged = self.merge_run(pieces, &mut merge, end, &mut output);
        match merged {
            Ok(()) => Ok(output.done),
            Err(error) => {
                output.abandon();
                Err(error)
            }
        }
    }

    /// What each row that is a log may hold of it for a piece.
    fn ahead_share(&self, pieces: &Pieces) -> AheadShare {
        let logs = pieces.compaction.rows.iter().filter(|row| row.log().is_some()).count() as u64;
        let at_once = (pieces.cuts.len() as u64 + 1).min(self.options.subcompactions as u64);
        let bytes = self.options.log_ahead() / (logs * at_once).max(1);
        AheadShare { bytes, held: self.counters.held_ahead.clone() }
    }

    fn merge_run(
        &self,
        pieces: &Pieces,
        merge: &mut Merge,
        end: Option<&Vec<u8>>,
        output: &mut Output<'_>,
    ) -> Result<()> {
        let mut retain = Retain::new(pieces.moments.clone());
        let (mut entries_in, mut entries_out) = (0u64, 0u64);
        let is_bottom = pieces.compaction.is_bottom();
        while merge.valid() && end.is_none_or(|end| merge.key() < end.as_slice()) {
            entries_in += 1;
            if entries_in.is_multiple_of(STEP) {
                self.background.check_cancelled()?;
                if self.is_cleared_since(pieces.generation) {
                    return Err(Error::Closed);
                }
            }
            if let Some(kept) = retain.keep(merge.key(), merge.sequence()) {
                merge.resolve()?;
                let mut entry = EntryRef {
                    key: merge.key(),
                    sequence: merge.sequence(),
                    kind: merge.kind(),
                    expires_at: merge.expires_at(),
                    value: merge.value(),
                };
                if entry.kind == Kind::PutExpiring && entry.expires_at <= pieces.now {
                    // It reads as missing from now on, and hides what is older: a deletion.
                    entry = EntryRef { kind: Kind::Delete, expires_at: 0, value: &[], ..entry };
                }
                let hides_nothing = || is_bottom || !pieces.compaction.is_deeper(entry.key);
                let is_dropped =
                    entry.kind == Kind::Delete && kept.is_oldest_stratum && hides_nothing();
                if !is_dropped {
                    output.add(entry)?;
                    entries_out += 1;
                }
            }
            merge.next()?;
        }
        output.end_table()?;
        output.sync_all_but(0)?;
        self.counters.compaction_entries_in.fetch_add(entries_in, Relaxed);
        self.counters.compaction_entries_out.fetch_add(entries_out, Relaxed);
        Ok(())
    }
}

/// The runs to merge: each row of level 0 by itself, deeper levels each as one. What lies at `end` and
/// behind need not be there.
fn runs(compaction: &Compaction, end: Option<&[u8]>, share: &AheadShare) -> Result<Vec<Source>> {
    let options = IterOptions::COMPACTION;
    let level = |tables: &[Arc<TableFile>]| {
        Source::Level(Box::new(LevelIter::new(
            Arc::new(tables.to_vec()),
            Purpose::Compaction,
            options,
        )))
    };
    let side = compaction.side.as_ref().map(|to| end.or(to.as_deref()));
    let rows = compaction.rows.iter().map(|row| Source::of_input(row, side, share));
    rows.chain([level(&compaction.inputs), level(&compaction.below)].map(Ok)).collect()
}

/// The tables that a piece writes.
struct Output<'a> {
    inner: &'a Inner,
    compaction: &'a Compaction,
    table: Option<Open>,
    /// Oldest first; what they hold is in `done`.
    unsynced: VecDeque<Unsynced>,
    done: Vec<FileEntry>,
    /// The tables of the level after that the open table has come to overlap.
    grandparents: Range<usize>,
}

struct Open {
    number: FileNumber,
    writer: TableWriter,
    last_key: Vec<u8>,
}

impl Output<'_> {
    fn add(&mut self, entry: EntryRef<'_>) -> Result<()> {
        // All versions of a key stay in one table: tables of a level are disjoint.
        if self.table.as_ref().is_some_and(|open| open.last_key != entry.key)
            && self.is_full(entry.key)
        {
            self.end_table()?;
        }
        if self.table.is_none() {
            let number = FileNumber(self.inner.versions.new_number());
            let mut options = self.inner.options.table_options();
            // What no seek passes by needs no filter for that: the deepest level has nearly all that comes next.
            options.range_filter &= !self.compaction.is_bottom();
            let writer = self.inner.table_writer_as(number, Purpose::Compaction, options)?;
            self.table = Some(Open { number, writer, last_key: Vec::new() });
            let tables = &self.compaction.grandparents;
            let at = tables.partition_point(|table| table.largest() < entry.key);
            self.grandparents = at..at;
        }
        if let Some(open) = &mut self.table {
            open.last_key.clear();
            open.last_key.extend_from_slice(entry.key);
            open.writer.add(entry)?;
        }
        Ok(())
    }

    fn is_full(&mut self, key: &[u8]) -> bool {
        let tables = &self.compaction.grandparents;
        while tables.get(self.grandparents.end).is_some_and(|table| table.largest() < key) {
            self.grandparents.end += 1;
        }
        let limit = self.inner.options.table_bytes;
        let written = self.table.as_ref().map_or(0, |open| open.writer.estimated_bytes());
        let under: u64 = tables[self.grandparents.clone()].iter().map(|table| table.bytes()).sum();
        written >= limit || under >= GRANDPARENT_TABLES * limit
    }

    fn end_table(&mut self) -> Result<()> {
        if let Some(open) = self.table.take() {
            let finished = open.writer.finish_unsynced();
            if finished.is_err() {
                self.inner.remove_table(open.number.0);
            }
            let table = finished?;
            self.inner.counters.wrote(self.compaction.target, table.meta().bytes);
            self.done.push(FileEntry::of(table.meta(), self.compaction.target));
            self.unsynced.push_back(table);
            self.sync_all_but(UNSYNCED)?;
        }
        Ok(())
    }

    /// Syncs what is written but for the last `count` tables.
    fn sync_all_but(&mut self, count: usize) -> Result<()> {
        while self.unsynced.len() > count {
            self.unsynced.pop_front().map_or(Ok(()), |table| table.sync().map(drop))?;
        }
        Ok(())
    }

    fn abandon(self) {
        if let Some(open) = self.table {
            drop(open.writer);
            self.inner.remove_table(open.number.0);
        }
        self.inner.remove_tables(&self.done);
    }
}
