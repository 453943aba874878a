//! Compaction: what is chosen ([`pick`], [`level0`], [`sizes`]), what belongs to it ([`compaction`]), how it is
//! cut and merged ([`run`]), and the job around it.
//!
//! ```text
//!   level 1    [a....f] [g....m] [n....z]          one table is chosen
//!   level 2    [a.c] [d..f] [g.j] [k.n] [o..z]     with all under it
//!                            └── merged ──┘ → new tables of level 2, one manifest edit
//! ```

mod compaction;
mod level0;
mod pick;
mod run;
mod sizes;

pub(crate) use compaction::Compaction;
use compaction::complete;
pub(crate) use pick::{Leveled, Strategy};
pub(crate) use sizes::{LevelSizes, Seen};

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use siltstone_engine::Result;
use siltstone_runtime::Priority;

use crate::engine::{Inner, State};
use crate::version::{Edit, FileEntry, Row, TableFile};

/// What running compactions work on: no two touch the same table.
#[derive(Default)]
pub(crate) struct Busy {
    tables: HashSet<u64>,
    /// Level 0 is compacted by one job at a time: its rows are merged all together.
    pub(crate) level0: bool,
}

impl Busy {
    /// Whether a running compaction works on the table `number`.
    pub(crate) fn has(&self, number: u64) -> bool {
        self.tables.contains(&number)
    }

    fn enter(&mut self, compaction: &Compaction) {
        self.level0 |= compaction.level == 0;
        self.tables.extend(compaction.tables().map(|table| table.number()));
    }

    fn leave(&mut self, compaction: &Compaction) {
        self.level0 &= compaction.level != 0;
        for table in compaction.tables() {
            self.tables.remove(&table.number());
        }
    }
}

impl Inner {
    /// Queues compactions while some are due and jobs are free.
    pub(crate) fn schedule_compaction(&self) {
        let mut state = self.background.lock();
        // Loaded under the lock: what is not busy any more is gone from this view.
        let view = self.view.load_full();
        while state.compactions < self.options.jobs && !self.background.is_stopping() {
            let Some(compaction) = self.strategy.pick(&view.version, &state.busy) else { return };
            state.busy.enter(&compaction);
            state.compactions += 1;
            let priority =
                if compaction.level == 0 { Priority::Urgent } else { Priority::Compaction };
            let weak = self.me.clone();
            let number = state.next_compaction;
            state.next_compaction += 1;
            state.queued.insert(number, (view.generation, compaction));
            self.env.scheduler.spawn(priority, move || {
                if let Some(inner) = weak.upgrade() {
                    run_job(&inner, number);
                }
            });
        }
    }

    fn compact(&self, generation: u64, compaction: &Compaction) -> Result<()> {
        if self.is_cleared_since(generation) {
            return Ok(());
        }
        let compacted = self.compact_files(generation, compaction);
        // As with flushes: nobody wants what was removed meanwhile.
        if self.is_cleared_since(generation) { Ok(()) } else { compacted }
    }

    fn compact_files(&self, generation: u64, compaction: &Compaction) -> Result<()> {
        let began = Instant::now();
        let added = if compaction.is_move() {
            self.counters.moves.fetch_add(1, Relaxed);
            let moved = |table: &Arc<TableFile>| {
                let level = compaction.target;
                FileEntry { level, row: None, ..table.entry().clone() }
            };
            compaction
                .rows
                .iter()
                .filter_map(Row::file)
                .chain(&compaction.inputs)
                .map(moved)
                .collect()
        } else {
            self.merge_tables(generation, compaction)?
        };
        let rows = compaction.finished_rows().map(|row| (0, row.number()));
        let inputs = compaction.inputs.iter().map(|table| (compaction.level, table.number()));
        let below = compaction.below.iter().map(|table| (compaction.target, table.number()));
        let edit = Edit {
            added,
            removed: rows.chain(inputs).chain(below).collect(),
            cursors: match compaction.level {
                0 => Vec::new(),
                level => vec![(level, compaction.largest_input().to_vec())],
            },
            cursor: compaction.side.as_ref().map(|to| to.clone().unwrap_or_default()),
            ..Edit::default()
        };
        let written = if compaction.is_move() { Vec::new() } else { edit.added.clone() };
        self.strategy.advance(compaction);
        let installed = self
            .install(generation, edit, None, &compaction.rows, |_| ())
            .inspect_err(|error| self.remove_if_unnamed(error, &written))?;
        if !installed {
            self.remove_tables(&written);
            return Ok(());
        }
        if compaction.level == 0 {
            self.counters.largest_level0_bytes.fetch_max(compaction.row_bytes(), Relaxed);
        }
        self.counters.compactions.fetch_add(1, Relaxed);
        self.counters.background_us.fetch_add(began.elapsed().as_micros() as u64, Relaxed);
        Ok(())
    }
}

fn run_job(inner: &Arc<Inner>, number: u64) {
    let queued = inner.background.lock().queued.remove(&number);
    let Some((generation, compaction)) = &queued else { return };
    let settle = |state: &mut State| {
        state.compactions -= 1;
        state.busy.leave(compaction);
    };
    if inner.background.run(settle, || inner.compact(*generation, compaction)) {
        inner.schedule_compaction();
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use siltstone_engine::{Durability, Engine, ManualClock, WriteBatch};
    use siltstone_runtime::Env;
    use siltstone_vfs::Ram;

    use super::*;
    use crate::{Lsm, Options};

    /// A thread that comes to the lock with what it saw before could choose tables that are gone.
    #[test]
    fn is_what_to_compact_chosen_from_the_version_of_the_moment() {
        let options = [("container", "0"), ("triad_log", "off"), ("l0_compact", "2")];
        let options: BTreeMap<_, _> = options.map(|(k, v)| (k.to_owned(), v.to_owned())).into();
        let env = Env::replayable(Arc::new(ManualClock::at(0)), 1);
        let options = Options::from_map(&options).unwrap();
        let lsm = Lsm::open(Arc::new(Ram::new()), env, options).unwrap();
        let inner = &lsm.inner;
        let mut due = None;
        for key in [b"a", b"b", b"c", b"d", b"e", b"f", b"g", b"h"] {
            let mut batch = WriteBatch::new();
            batch.put(key, b"1").put(b"z", key);
            lsm.write(&batch, Durability::Buffered).unwrap();
            lsm.flush().unwrap();
            let view = inner.view.load_full();
            if inner.strategy.pick(&view.version, &Busy::default()).is_some() {
                due = Some(view);
            }
        }
        lsm.maintain().unwrap();
        let (due, now) = (due.expect("a compaction was due"), inner.view.load_full());
        assert!(inner.strategy.pick(&now.version, &Busy::default()).is_none());

        inner.view.store(due);
        std::thread::scope(|scope| {
            let state = inner.background.lock();
            let late = scope.spawn(|| inner.schedule_compaction());
            std::thread::sleep(std::time::Duration::from_millis(50));
            inner.view.store(now);
            drop(state);
            late.join().unwrap();
        });
        assert_eq!(inner.background.lock().compactions, 0);
        lsm.maintain().unwrap();
    }
}
