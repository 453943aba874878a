//! The transaction manager: orders commits and all other writes to an engine, and validates
//! transactions (optimistic concurrency control).
//!
//! ```text
//!   no transaction open      write ─ `active`, shared ───────────────────────────── engine
//!   else      write, commit ─ commit queue ─ leader: validate each ─ batch of the valid ─ engine
//!   begin     `active`, exclusive: earlier writes are done ─ last complete group ─ snapshot
//! ```
//!
//! **What is serialized.** Between the validation of a transaction and the moment its writes
//! become visible, no write to a key it read may become visible; else a reader in between would
//! see the later write without the transaction ordered before it. The engine's own order of
//! concurrent writes is unspecified, so one group of writes runs at a time. The leader of the
//! commit queue validates its own commit and all that wait, in turn and against one another, and
//! writes the valid ones as one batch with one sync. If the engine fails, the whole group fails.
//! Everything before the queue is concurrent, and read-only transactions never enter it.
//!
//! **Cost of a plain write.** With no open transaction: `active` is locked shared, one uncontended
//! atomic each way, and no key is recorded. Otherwise: an entry in the queue, and a recorded key
//! per key written. `cargo bench -p siltstone --bench transactions` measures both.
//!
//! **Old transactions.** A transaction that is older than the commit history repeats its reads
//! before it enters the queue. If the results are the same, it continues as if it had begun then;
//! see [`revalidation`](super::revalidation). If the history has been truncated again by the time
//! it is validated, the leader does the same for it.
//!
//! **Cost of a begin.** The first open transaction waits for the plain writes in progress, which
//! are not recorded: as long as the slowest of them, including its sync.
//!
//! Invariant: a write that became visible after the snapshot of an open transaction is in
//! [`CommitHistory`] under a later group than the transaction's, or in a group in flight.
//! [`TransactionManager::begin`] keeps it by its order: count the transaction as open, wait for
//! unrecorded writes, take the last complete group, and only then the snapshot, which shows every
//! write that has returned. A group that becomes visible between the last two steps counts as a
//! conflict although the snapshot shows it: rare, and safe.
//!
//! Source: optimistic concurrency control with backward validation, Kung and Robinson, TODS 6(2),
//! 1981; reads of a snapshot, Bernstein and Goodman, "Multiversion Concurrency Control", TODS
//! 8(4), 1983.

use std::path::Path;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use parking_lot::{Mutex, RwLock, RwLockReadGuard};
use siltstone_engine::{
    Durability, Engine, IngestOptions, KeyRange, PreparedIngestion, ReadPoint, Result, Stats,
    WriteBatch, forward_engine,
};
use siltstone_runtime::GroupCommit;
use siltstone_runtime::group_commit::{self, Request};

use super::commit_history::{CommitHistory, Group, Reach};
use super::ingestion::OrderedIngestion;
use super::live_bounds::End;
use super::read_set::ReadSet;
use super::revalidation::check_unchanged;
use crate::reader::Readers;

/// The most bytes of other threads' writes in one group.
const MAX_GROUP_BYTES: usize = 1 << 20;
/// Writes between two checks for idle readers.
const WRITES_PER_EXPIRY_CHECK: u64 = 64;

/// An engine with transactions. It is itself an engine, whose writes take part in validation.
pub(crate) struct TransactionManager {
    engine: Arc<dyn Engine>,
    /// The number of open transactions. Unrecorded writes hold the lock shared.
    pub(super) active: RwLock<usize>,
    commit_queue: GroupCommit<Commit>,
    /// Held while a group, or a part of a batch over several tables, is validated and written.
    pub(super) order: Mutex<()>,
    pub(super) history: Mutex<CommitHistory>,
    /// Whether the bounds of the live keys were ever used. Until then they are not maintained.
    pub(super) uses_bounds: AtomicBool,
    readers: Arc<Readers>,
    counters: Counters,
}

#[derive(Default)]
struct Counters {
    begun: AtomicU64,
    committed: AtomicU64,
    conflicts: AtomicU64,
    revalidated: AtomicU64,
    tracked_writes: AtomicU64,
    writes_beside_readers: AtomicU64,
}

/// The read set of a transaction, for its validation.
#[derive(Clone)]
pub(crate) struct ReadView {
    pub(super) begun: Group,
    /// Shows every group up to `begun`.
    pub(super) point: ReadPoint,
    pub(super) reads: Arc<ReadSet>,
    /// The entry that it removes because it is the first or last one.
    pub(super) popped: Option<(End, Vec<u8>)>,
}

/// Keeps the groups after one in the history.
pub(crate) struct OpenGroup<'m> {
    history: &'m Mutex<CommitHistory>,
    begun: Group,
}

impl Drop for OpenGroup<'_> {
    fn drop(&mut self) {
        self.history.lock().end(self.begun);
    }
}

/// A write, a commit or a removal of all keys.
enum Commit {}

/// One in the commit queue, borrowed from its thread.
#[derive(Clone, Copy)]
struct PendingCommit<'a> {
    batch: &'a WriteBatch,
    /// Removes every key; the batch is empty.
    clears: bool,
    durability: Durability,
    view: Option<&'a ReadView>,
    /// Set if the validation fails: a conflict, or an error of reading again.
    refusal: &'a OnceLock<siltstone_engine::Error>,
}

impl Request for Commit {
    type Ref<'a> = PendingCommit<'a>;

    fn shorten<'short, 'long: 'short>(commit: PendingCommit<'long>) -> PendingCommit<'short> {
        commit
    }

    fn size_bytes(commit: PendingCommit<'_>) -> usize {
        commit.batch.as_bytes().len()
    }

    fn is_slow(commit: PendingCommit<'_>) -> bool {
        commit.durability == Durability::Synced
    }
}

impl TransactionManager {
    pub(crate) fn new(engine: Arc<dyn Engine>, readers: Arc<Readers>, budget: usize) -> Arc<Self> {
        Arc::new(TransactionManager {
            engine,
            active: RwLock::new(0),
            commit_queue: GroupCommit::new(MAX_GROUP_BYTES),
            order: Mutex::default(),
            history: Mutex::new(CommitHistory::new(budget)),
            uses_bounds: AtomicBool::new(false),
            readers,
            counters: Counters::default(),
        })
    }

    pub(crate) fn engine(&self) -> &Arc<dyn Engine> {
        &self.engine
    }

    pub(crate) fn readers(&self) -> &Arc<Readers> {
        &self.readers
    }

    /// Counts a transaction as open. Returns the last group that a snapshot which is taken
    /// afterwards surely shows.
    pub(super) fn begin(&self) -> Group {
        self.readers.expire_idle();
        // Waits for unrecorded writes; later writes are recorded.
        *self.active.write() += 1;
        self.counters.begun.fetch_add(1, Relaxed);
        self.history.lock().begin()
    }

    pub(super) fn end(&self, begun: Group) {
        self.history.lock().end(begun);
        *self.active.write() -= 1;
    }

    /// Expires idle readers, once in a number of writes.
    pub(super) fn check_expiry(&self) {
        let count = &self.counters.writes_beside_readers;
        if self.readers.count() > 0
            && count.fetch_add(1, Relaxed).is_multiple_of(WRITES_PER_EXPIRY_CHECK)
        {
            self.readers.expire_idle();
        }
    }

    /// Admits a write of `batch` that needs no record, since no transaction is open; none begins
    /// before the guard is dropped.
    pub(crate) fn admit_untracked(&self, batch: &WriteBatch) -> Option<RwLockReadGuard<'_, usize>> {
        let active = self.active.read();
        if *active > 0 {
            return None;
        }
        if self.uses_bounds.load(Relaxed) {
            self.history.lock().live.note_writes(batch);
        }
        Some(active)
    }

    pub(super) fn count_tracked(&self) {
        self.counters.tracked_writes.fetch_add(1, Relaxed);
    }

    /// Applies the writes of an open transaction if nothing that it read has changed.
    pub(super) fn commit(
        &self,
        batch: &WriteBatch,
        durability: Durability,
        view: ReadView,
    ) -> Result<()> {
        self.extend(view)
            .and_then(|(view, _open)| self.write_validated(batch, durability, Some(view)))
            .inspect(|()| self.count_committed())
            .inspect_err(|error| self.count_conflict(error))
    }

    pub(super) fn count_committed(&self) {
        self.counters.committed.fetch_add(1, Relaxed);
    }

    pub(super) fn count_conflict(&self, error: &siltstone_engine::Error) {
        self.counters.conflicts.fetch_add(error.is_retryable().into(), Relaxed);
    }

    /// Moves the beginning of a transaction that is older than the history to now, if nothing that
    /// it has read has changed.
    pub(crate) fn extend(&self, view: ReadView) -> Result<(ReadView, Option<OpenGroup<'_>>)> {
        let history = &self.history;
        let open = {
            let mut recorded = history.lock();
            if view.reads.is_empty() || recorded.reach(view.begun) == Reach::Whole {
                return Ok((view, None));
            }
            // A conflict with the part that is recorded is cheaper to find.
            let _ = recorded.validate(view.begun, &view.reads)?;
            OpenGroup { history, begun: recorded.begin() }
        };
        let point = self.engine.snapshot()?;
        self.check_unchanged(&view, Some(&point))?;
        Ok((ReadView { begun: open.begun, point, ..view }, Some(open)))
    }

    /// Checks that what a transaction has read is the same at `later`, or now.
    fn check_unchanged(&self, view: &ReadView, later: Option<&ReadPoint>) -> Result<()> {
        self.counters.revalidated.fetch_add(1, Relaxed);
        let clock = self.readers.clock();
        check_unchanged(self.engine.as_ref(), clock, &view.reads, &view.point, later)
    }

    /// Checks a commit against every group before it, and those before it in its own group.
    pub(super) fn validate(&self, history: &CommitHistory, view: &ReadView) -> Result<()> {
        match history.validate(view.begun, &view.reads)? {
            Reach::Whole => Ok(()),
            // The engine shows all groups but the one in progress, of which nothing was dropped.
            Reach::Part => self.check_unchanged(view, None),
        }
    }

    /// A range that holds every live key. From now on the bounds are maintained.
    pub(super) fn live_range(&self) -> KeyRange {
        self.uses_bounds.store(true, Relaxed);
        self.history.lock().live.range()
    }

    fn write_validated(
        &self,
        batch: &WriteBatch,
        durability: Durability,
        view: Option<ReadView>,
    ) -> Result<()> {
        // A batch that the engine would refuse must not fail the rest of its group.
        self.engine.check_write(batch)?;
        self.enqueue(batch, false, durability, view)
    }

    fn enqueue(
        &self,
        batch: &WriteBatch,
        clears: bool,
        durability: Durability,
        view: Option<ReadView>,
    ) -> Result<()> {
        let refusal = OnceLock::new();
        let commit =
            PendingCommit { batch, clears, durability, view: view.as_ref(), refusal: &refusal };
        let written = self.commit_queue.commit(commit, |_| true, |group| self.commit_group(group));
        match refusal.into_inner() {
            Some(refusal) => Err(refusal),
            None => written,
        }
    }

    /// Validates and writes commits as one group.
    fn commit_group(&self, group: group_commit::Group<'_, Commit>) -> Result<()> {
        let mut accepted: Vec<PendingCommit<'_>> = Vec::new();
        let _order = self.order.lock();
        let mut history = self.history.lock();
        for commit in group.requests() {
            let valid = commit.view.map_or(Ok(()), |view| self.validate(&history, view));
            match valid {
                Ok(()) => {
                    // Recorded before the later commits of the group are validated.
                    if commit.clears {
                        history.record_clear();
                    }
                    history.record_batch(commit.batch);
                    history.live.note_writes(commit.batch);
                    if let Some((end, key)) = commit.view.and_then(|view| view.popped.as_ref()) {
                        history.live.note_removal(*end, key);
                    }
                    accepted.push(commit);
                }
                Err(refusal) => _ = commit.refusal.set(refusal),
            }
        }
        drop(history);
        let written = self.write_group(&accepted);
        let mut history = self.history.lock();
        if written.is_err() {
            history.live.reset();
        }
        // Also after a failure: the outcome of the group is unknown then.
        history.complete();
        written
    }

    /// Writes a group: one batch per stretch between removals of all keys.
    fn write_group(&self, group: &[PendingCommit<'_>]) -> Result<()> {
        let mut parts = group.split(|commit| commit.clears);
        self.write_batch(parts.next().unwrap_or_default())?;
        parts.try_for_each(|part| {
            self.engine.clear()?;
            self.write_batch(part)
        })
    }

    fn write_batch(&self, group: &[PendingCommit<'_>]) -> Result<()> {
        let needs_sync = group.iter().any(|commit| commit.durability == Durability::Synced);
        let durability = if needs_sync { Durability::Synced } else { Durability::Buffered };
        match group {
            [] => Ok(()),
            [one] => self.engine.write(one.batch, durability),
            many => {
                let mut batch = WriteBatch::new();
                for commit in many {
                    batch.append(commit.batch);
                }
                self.engine.write(&batch, durability)
            }
        }
    }
}

// Everything is forwarded except `as_any`, whose writes would bypass validation.
impl Engine for TransactionManager {
    forward_engine!(engine: name capabilities get get_at lookup expiry multi_lookup begin_reads);
    forward_engine!(engine: sync iter range random_key snapshot at);
    forward_engine!(engine: flush compact_range set_compaction_filter set_options checkpoint);
    forward_engine!(engine: check_write changes set_merge_operator merge_operator);
    forward_engine!(engine: verify warnings trouble check_open close);

    fn prepare_ingestion<'a>(
        &'a self,
        files: &[&Path],
        options: IngestOptions,
    ) -> Result<Box<dyn PreparedIngestion + 'a>> {
        let prepared = self.engine.prepare_ingestion(files, options)?;
        Ok(Box::new(OrderedIngestion { manager: self, prepared }))
    }

    fn write(&self, batch: &WriteBatch, durability: Durability) -> Result<()> {
        self.check_expiry();
        // An empty batch is a sync, which has no position in the order of writes.
        if batch.is_empty() {
            return self.engine.write(batch, durability);
        }
        if let Some(_untracked) = self.admit_untracked(batch) {
            return self.engine.write(batch, durability);
        }
        self.count_tracked();
        self.write_validated(batch, durability, None)
    }

    /// A write beside a transaction waits for those before it, and to begin a transaction or to
    /// clear the table waits for writes.
    fn must_wait(&self, batch: &WriteBatch) -> bool {
        self.active.try_read().is_none_or(|active| *active > 0) || self.engine.must_wait(batch)
    }

    fn clear(&self) -> Result<()> {
        {
            // Exclusive, since nothing is recorded: a transaction begins before or after it.
            let active = self.active.write();
            if *active == 0 {
                return self.engine.clear();
            }
        }
        self.enqueue(&WriteBatch::new(), true, Durability::Synced, None)
    }

    fn maintain(&self) -> Result<()> {
        self.readers.expire_idle();
        self.engine.maintain()
    }

    fn stats(&self) -> Stats {
        let mut stats = self.engine.stats();
        let active = *self.active.read();
        let history_bytes = self.history.lock().bytes();
        let Counters { begun, committed, conflicts, revalidated, tracked_writes, .. } =
            &self.counters;
        stats.counters.extend([
            ("transactions_open", active as u64),
            ("transactions_begun", begun.load(Relaxed)),
            ("transactions_committed", committed.load(Relaxed)),
            ("transaction_conflicts", conflicts.load(Relaxed)),
            ("transactions_revalidated", revalidated.load(Relaxed)),
            ("transaction_history_bytes", history_bytes as u64),
            ("transactions_tracked_writes", tracked_writes.load(Relaxed)),
            ("readers", self.readers.count() as u64),
            ("readers_expired", self.readers.expired()),
        ]);
        stats
    }
}
