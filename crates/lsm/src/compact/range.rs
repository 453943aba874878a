//! Compaction of a range of keys, on request.
//!
//! ```text
//!   memtables ─ flush, if a key is in the range
//!   level 0   ─ the runs in the range, and older runs that they overlap ─▶ level 1
//!   level 1 … ─ the tables in the range, from the first to the last key ─▶ next level
//!   deepest level in the range ─ tables that were not written meanwhile ─▶ written again
//! ```
//!
//! The calling thread runs the compactions, one after the other. Each is an ordinary one with
//! its inputs marked as in progress, and from level 1 on of limited size, so that background
//! compactions go on beside it. While the caller waits for inputs that are in progress, no new
//! background compaction begins: otherwise it could wait for ever.
//!
//! What is written while this runs may or may not be compacted: a level is swept once, in key
//! order.
//!
//! Invariant: everything in the range that was written before the call is in the deepest level of
//! the range afterwards, written by compactions that knew no older snapshots than those at the
//! call.

use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use siltstone_durable::OpenTable;
use siltstone_engine::{Error, KeyRange, Result};
use siltstone_runtime::{BackgroundWork, is_retriable};

use super::compaction::rewrite;
use super::{Compaction, InProgress, complete};
use crate::engine::{State, Tree};
use crate::memtable::Memtable;
use crate::version::{L0Run, TableFile, Version};

/// The maximum input of one step, in target sizes of a table. A step has at least one table of its
/// level with all below it.
const MAX_STEP_TABLES: u64 = 25;

/// Keeps new background compactions from being selected.
struct Waiter<'a>(&'a AtomicUsize);

impl<'a> Waiter<'a> {
    fn new(waiters: &'a AtomicUsize) -> Self {
        waiters.fetch_add(1, SeqCst);
        Waiter(waiters)
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, SeqCst);
    }
}

impl Tree {
    /// See [`siltstone_engine::Engine::compact_range`].
    pub(crate) fn compact_range(&self, range: &KeyRange) -> Result<()> {
        let _one_at_a_time = self.range_compaction.lock();
        self.background.check_writable()?;
        let done = self.compact_levels(range);
        // What became due meanwhile.
        self.schedule_compaction();
        done
    }

    fn compact_levels(&self, range: &KeyRange) -> Result<()> {
        if self.view.load().memtables().any(|memtable| may_have(memtable, range)) {
            self.flush()?;
        }
        {
            // Compactions that are queued or running may know snapshots that are gone by now.
            let _waiter = Waiter::new(&self.compaction_waiters);
            self.core.wait_while(|state| state.compactions > 0)?;
        }
        let first_new = self.versions.new_number();
        self.compact_next(|version| {
            let runs = overlapping_runs(version, range);
            (!runs.is_empty()).then(|| requested(complete(version, 0, runs, Vec::new(), None)))
        })?;
        // Background compactions may move tables of the deepest level deeper meanwhile.
        let (mut level, mut written) = (1, 0);
        loop {
            let deepest = self.deepest_level(range);
            if level < deepest {
                self.sweep(|version, after| {
                    let tables = overlapping(version, level, range, after).cloned();
                    self.step(version, level, tables)
                })?;
                level += 1;
            } else if written < deepest {
                self.sweep(|version, after| {
                    let mut tables = overlapping(version, deepest, range, after);
                    let old = tables.find(|table| table.number() < first_new)?;
                    Some(requested(rewrite(version, deepest, old)))
                })?;
                written = deepest;
            } else {
                return Ok(());
            }
        }
    }

    /// The deepest level with tables in the range; 0 if no level ≥ 1 has any.
    fn deepest_level(&self, range: &KeyRange) -> usize {
        let view = self.view.load_full();
        let version = &view.version;
        let has_tables = |level: &usize| overlapping(version, *level, range, &[]).next().is_some();
        (1..=version.levels.len()).rev().find(has_tables).unwrap_or(0)
    }

    /// Runs the compactions that `pick` selects among the tables after a key, which advances.
    fn sweep(&self, pick: impl Fn(&Version, &[u8]) -> Option<Compaction>) -> Result<()> {
        let mut after = Vec::new();
        while let Some(done) = self.compact_next(|version| pick(version, &after))? {
            after = done.largest_input().to_vec();
        }
        Ok(())
    }

    /// The compaction of the first of `tables` of a level, and of the next ones within the limit of
    /// its size.
    fn step(
        &self,
        version: &Version,
        level: usize,
        tables: impl Iterator<Item = Arc<TableFile>>,
    ) -> Option<Compaction> {
        let limit = MAX_STEP_TABLES * self.options.load().target_file_bytes;
        let (mut inputs, mut step) = (Vec::new(), None);
        for table in tables {
            inputs.push(table);
            let more = complete(version, level, Vec::new(), inputs.clone(), None);
            if step.is_some() && more.bytes() > limit {
                break;
            }
            step = Some(requested(more));
        }
        step
    }

    /// Runs the compaction that `pick` selects, as soon as none of its inputs is in progress.
    /// Returns it; `None`: there was none.
    fn compact_next(
        &self,
        pick: impl Fn(&Version) -> Option<Compaction>,
    ) -> Result<Option<Compaction>> {
        let waiter = Waiter::new(&self.compaction_waiters);
        let (generation, compaction) = loop {
            let mut state = self.background.lock();
            // Loaded under the lock: inputs of finished compactions are gone from this view.
            let view = self.view.load_full();
            let Some(compaction) = pick(&view.version) else { return Ok(None) };
            let is_blocked = |in_progress: &InProgress| {
                in_progress.is_held() || in_progress.conflicts_with(&compaction)
            };
            if !is_blocked(&state.in_progress) {
                state.in_progress.insert(&compaction);
                break (view.generation, compaction);
            }
            drop((state, view));
            self.core.wait_while(|state| is_blocked(&state.in_progress))?;
        };
        drop(waiter);
        let mut outcome = Err(Error::Closed);
        let on_finish = |state: &mut State| state.in_progress.remove(&compaction);
        let succeeded = self.background.run(on_finish, || {
            outcome = self.compact(generation, &compaction);
            match &outcome {
                // The caller knows, and nothing is due again.
                Err(error) if is_retriable(error) => Err(Error::Closed),
                outcome => outcome.clone(),
            }
        });
        if succeeded {
            self.schedule_compaction();
        }
        outcome.map(|()| Some(compaction))
    }
}

/// The compaction with the reason that event listeners receive.
fn requested(compaction: Compaction) -> Compaction {
    compaction.because("request")
}

/// Whether a memtable may have a key in the range, or a range deletion.
fn may_have(memtable: &Memtable, range: &KeyRange) -> bool {
    let (Bound::Included(start) | Bound::Excluded(start)) = &range.start else {
        return !memtable.is_empty();
    };
    let mut cursor = memtable.tree().cursor();
    cursor.seek(start);
    memtable.range_delete_count() > 0 || (cursor.valid() && range.is_before_end(cursor.key()))
}

/// The runs of level 0 in the range, and the older ones that overlap one of these: versions that
/// stay in level 0 must be newer than those in level 1.
pub(super) fn overlapping_runs(version: &Version, range: &KeyRange) -> Vec<L0Run> {
    let mut taken: Vec<L0Run> = Vec::new();
    for run in &version.level0 {
        let overlaps =
            |newer: &L0Run| newer.smallest() <= run.largest() && run.smallest() <= newer.largest();
        if is_in(range, run.smallest(), run.largest()) || taken.iter().any(overlaps) {
            taken.push(run.clone());
        }
    }
    taken
}

/// The tables of `level` ≥ 1 in the range that begin after the key `after`; the empty key: all.
pub(super) fn overlapping<'v>(
    version: &'v Version,
    level: usize,
    range: &'v KeyRange,
    after: &'v [u8],
) -> impl Iterator<Item = &'v Arc<TableFile>> {
    let is_next = move |table: &&Arc<TableFile>| {
        (after.is_empty() || table.smallest() > after)
            && is_in(range, table.smallest(), table.largest())
    };
    version.level(level).iter().filter(is_next)
}

/// Whether an interval of keys overlaps the range.
fn is_in(range: &KeyRange, smallest: &[u8], largest: &[u8]) -> bool {
    range.is_after_start(largest) && range.is_before_end(smallest)
}
