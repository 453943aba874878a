//! The batches over several tables that may not be durable yet.
//!
//! ```text
//!   tables {3, 5}   last batch 17   position in the log of 3, position in the log of 5
//!   tables {5, 8}   last batch 19   …
//! ```
//!
//! Recovery removes a part without the others, and everything after it in the same log. So before a
//! table reports anything as durable, it syncs the logs of all tables that it shares an open batch
//! with, of those that these share one with, and so on, up to the last of these batches.
//!
//! Per set of tables only the last batch is recorded, since its positions are the furthest. Memory:
//! an entry per set of tables, not per batch.
//!
//! Invariants:
//! - A batch is recorded before its tables are unlocked. It is removed when all of its positions
//!   are durable, or when a table of it is dropped.
//! - No lock is held during a sync.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Release};
use std::sync::atomic::{AtomicBool, AtomicU64};

use parking_lot::{Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};
use siltstone_engine::{LogPosition, PartDependencies, PartHeader, Result};

/// The open batches of a store.
#[derive(Default)]
pub(crate) struct OpenBatches {
    /// The number of the last batch.
    last: AtomicU64,
    state: Mutex<State>,
    /// Held in shared mode while a batch is written, and exclusively while the store is copied.
    copying: RwLock<()>,
}

#[derive(Default)]
struct State {
    batches: BTreeMap<Vec<u64>, OpenBatch>,
    /// Whether each table has an open batch.
    has_open: BTreeMap<u64, Arc<AtomicBool>>,
}

#[derive(Clone)]
struct OpenBatch {
    number: u64,
    positions: BTreeMap<u64, Arc<dyn LogPosition>>,
}

/// The parts that must be durable before the parts of one table.
struct Dependencies {
    table: u64,
    has_open: Arc<AtomicBool>,
    open: Arc<OpenBatches>,
}

impl PartDependencies for Dependencies {
    fn are_durable(&self) -> bool {
        !self.has_open.load(Acquire)
    }

    fn sync(&self) -> Result<()> {
        self.open.sync(self.table)
    }
}

/// A batch that was recorded as open. The record is withdrawn on drop unless it is kept.
pub(crate) struct Registration<'a> {
    open: &'a OpenBatches,
    tables: &'a [u64],
    /// The entry that it replaced.
    before: Option<OpenBatch>,
    is_kept: bool,
}

impl OpenBatches {
    /// `last` is the number of the last batch that recovery found.
    pub(crate) fn after(last: u64) -> Self {
        OpenBatches { last: AtomicU64::new(last), ..Self::default() }
    }

    /// Waits while the store is copied. To be called before any table is locked.
    pub(crate) fn admit(&self) -> RwLockReadGuard<'_, ()> {
        self.copying.read()
    }

    /// Waits for the batches that are being written, and blocks new ones.
    pub(crate) fn pause(&self) -> RwLockWriteGuard<'_, ()> {
        self.copying.write()
    }

    /// A number greater than all before, and than `last`. To be called while the tables of the
    /// batch are locked for writing: so the numbers in each log ascend.
    pub(super) fn next_number(&self, last: u64) -> u64 {
        self.last.fetch_max(last, AcqRel);
        self.last.fetch_add(1, AcqRel) + 1
    }

    /// The parts of other tables that must be durable before those of `table`.
    pub(super) fn dependencies_of(self: &Arc<Self>, table: u64) -> Arc<dyn PartDependencies> {
        let has_open = self.state.lock().flag(table);
        Arc::new(Dependencies { table, has_open, open: self.clone() })
    }

    /// Records a batch as open, with the end of each table's part. To be called while its tables
    /// are locked for writing.
    pub(super) fn register<'a>(
        &'a self,
        header: PartHeader<'a>,
        positions: Vec<(u64, Box<dyn LogPosition>)>,
    ) -> Registration<'a> {
        let PartHeader { batch: number, tables } = header;
        let positions = positions.into_iter().map(|(table, at)| (table, Arc::from(at))).collect();
        let mut state = self.state.lock();
        let before = state.batches.insert(tables.to_vec(), OpenBatch { number, positions });
        state.update_flags(tables);
        Registration { open: self, tables, before, is_kept: false }
    }

    /// Makes the parts of a table and all that they depend on durable.
    ///
    /// # Errors
    /// I/O errors of any of the tables.
    pub(crate) fn sync(&self, table: u64) -> Result<()> {
        let batches = self.state.lock().connected_to(table);
        let mut furthest: BTreeMap<u64, (u64, &Arc<dyn LogPosition>)> = BTreeMap::new();
        for batch in batches.values() {
            for (&table, position) in &batch.positions {
                let known = furthest.entry(table).or_insert((batch.number, position));
                if known.0 < batch.number {
                    *known = (batch.number, position);
                }
            }
        }
        for (_, position) in furthest.values() {
            if !position.is_durable() {
                position.sync()?;
            }
        }
        let mut state = self.state.lock();
        for (tables, synced) in &batches {
            if state.batches.get(tables).is_some_and(|batch| batch.number == synced.number) {
                state.batches.remove(tables);
                state.update_flags(tables);
            }
        }
        Ok(())
    }

    /// Forgets a table that is dropped: nothing depends on its log any more.
    pub(crate) fn forget(&self, table: u64) {
        let mut state = self.state.lock();
        state.batches.values_mut().for_each(|batch| _ = batch.positions.remove(&table));
        state.has_open.remove(&table);
    }
}

impl State {
    fn flag(&mut self, table: u64) -> Arc<AtomicBool> {
        self.has_open.entry(table).or_default().clone()
    }

    fn update_flags(&mut self, tables: &[u64]) {
        for table in tables {
            let has_open = self.batches.keys().any(|set| set.contains(table));
            self.flag(*table).store(has_open, Release);
        }
    }

    /// The batches of a table, those of their other tables, and so on.
    fn connected_to(&self, table: u64) -> BTreeMap<Vec<u64>, OpenBatch> {
        let mut tables = BTreeSet::from([table]);
        let mut connected = BTreeMap::new();
        loop {
            let before = connected.len();
            for (set, batch) in &self.batches {
                if set.iter().any(|table| tables.contains(table)) && !connected.contains_key(set) {
                    tables.extend(set);
                    connected.insert(set.clone(), batch.clone());
                }
            }
            if connected.len() == before {
                return connected;
            }
        }
    }
}

impl Registration<'_> {
    /// The batch is committed.
    pub(super) fn keep(mut self) {
        self.is_kept = true;
    }
}

impl Drop for Registration<'_> {
    fn drop(&mut self) {
        if self.is_kept {
            return;
        }
        let mut state = self.open.state.lock();
        match self.before.take() {
            // If it has become durable meanwhile, the next sync finds that out.
            Some(before) => _ = state.batches.insert(self.tables.to_vec(), before),
            None => _ = state.batches.remove(self.tables),
        }
        state.update_flags(self.tables);
    }
}

impl fmt::Debug for OpenBatches {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenBatches").field("last", &self.last).finish_non_exhaustive()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use siltstone_engine::Error;

    /// A position that counts its syncs.
    #[derive(Default)]
    struct Log {
        syncs: AtomicU64,
        is_durable: AtomicBool,
        fails: AtomicBool,
    }

    struct At(Arc<Log>);

    impl LogPosition for At {
        fn is_durable(&self) -> bool {
            self.0.is_durable.load(Acquire)
        }

        fn sync(&self) -> Result<()> {
            if self.0.fails.load(Acquire) {
                return Err(Error::Invalid("fails".into()));
            }
            self.0.syncs.fetch_add(1, AcqRel);
            self.0.is_durable.store(true, Release);
            Ok(())
        }
    }

    fn enter(open: &OpenBatches, number: u64, tables: &[u64]) -> Vec<Arc<Log>> {
        let logs: Vec<Arc<Log>> = tables.iter().map(|_| Arc::default()).collect();
        register(open, number, tables, &logs).keep();
        logs
    }

    fn register<'a>(
        open: &'a OpenBatches,
        batch: u64,
        tables: &'a [u64],
        logs: &[Arc<Log>],
    ) -> Registration<'a> {
        let at = |log: &Arc<Log>| Box::new(At(log.clone())) as Box<dyn LogPosition>;
        let positions = tables.iter().copied().zip(logs.iter().map(at)).collect();
        open.register(PartHeader { batch, tables }, positions)
    }

    fn syncs(logs: &[Arc<Log>]) -> Vec<u64> {
        logs.iter().map(|log| log.syncs.load(Acquire)).collect()
    }

    #[test]
    fn sync_reaches_tables_over_chains_of_batches_and_no_others() {
        let open = Arc::new(OpenBatches::default());
        let first = enter(&open, 1, &[3, 4]);
        let second = enter(&open, 2, &[1, 3]);
        let other = enter(&open, 3, &[7, 8]);
        let dependencies = [1, 4, 7].map(|table| open.dependencies_of(table));
        dependencies[0].sync().unwrap();
        // The later position in the log of table 3 covers the earlier one.
        assert_eq!((syncs(&first), syncs(&second)), (vec![0, 1], vec![1, 1]));
        assert_eq!(syncs(&other), [0, 0]);
        assert_eq!(dependencies.each_ref().map(|d| d.are_durable()), [true, true, false]);
    }

    #[test]
    fn only_the_last_batch_of_a_set_is_kept_and_a_withdrawn_one_restores_it() {
        let open = OpenBatches::default();
        let old = enter(&open, 1, &[1, 2]);
        let new = enter(&open, 2, &[1, 2]);
        let fails = Arc::new(Log::default());
        fails.fails.store(true, Release);
        let withdrawn = register(&open, 3, &[1, 2], &[fails.clone(), fails]);
        assert!(open.sync(1).is_err());
        drop(withdrawn);
        open.sync(2).unwrap();
        assert_eq!((syncs(&old), syncs(&new)), (vec![0, 0], vec![1, 1]));
        assert!(open.state.lock().batches.is_empty());
    }

    #[test]
    fn dropped_table_is_not_synced() {
        let open = OpenBatches::default();
        let logs = enter(&open, 1, &[1, 2]);
        open.forget(2);
        open.sync(1).unwrap();
        assert_eq!(syncs(&logs), [1, 0]);
    }
}
