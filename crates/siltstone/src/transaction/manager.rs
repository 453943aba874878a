//! The transaction manager: puts commits and all other writes to an engine into one order, and
//! validates transactions optimistically.
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

use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use parking_lot::{Mutex, RwLock};
use siltstone_engine::{Durability, Engine, Result, Stats, WriteBatch, forward_engine};
use siltstone_runtime::GroupCommit;
use siltstone_runtime::group_commit::Size;

use super::commit_history::{CommitHistory, Group};
use super::read_set::ReadSet;
use crate::reader::{Reader, Readers};

/// The most bytes of other threads' writes in one group.
const MAX_GROUP_BYTES: usize = 1 << 20;
/// Writes between two checks for idle readers.
const WRITES_PER_EXPIRY_CHECK: u64 = 64;

/// An engine with transactions. It is itself an engine, whose writes take part in validation.
pub(crate) struct TransactionManager {
    engine: Arc<dyn Engine>,
    /// The number of open transactions. Unrecorded writes hold the lock shared.
    active: RwLock<usize>,
    commit_queue: GroupCommit<QueuedCommit>,
    history: Mutex<CommitHistory>,
    readers: Arc<Readers>,
    counters: Counters,
}

#[derive(Default)]
struct Counters {
    begun: AtomicU64,
    committed: AtomicU64,
    conflicts: AtomicU64,
    tracked_writes: AtomicU64,
    writes_beside_readers: AtomicU64,
}

/// What a transaction read, for its validation.
#[derive(Clone)]
pub(super) struct ReadView {
    pub(super) begun: Group,
    pub(super) reads: Arc<ReadSet>,
}

/// A write, a commit or a removal of all keys, in the commit queue.
struct QueuedCommit {
    batch: WriteBatch,
    /// Removes every key; the batch is empty.
    clears: bool,
    durability: Durability,
    view: Option<ReadView>,
    /// Set if the validation fails.
    conflict: Arc<OnceLock<siltstone_engine::Error>>,
}

impl Size for QueuedCommit {
    fn size_bytes(&self) -> usize {
        self.batch.as_bytes().len()
    }
}

impl TransactionManager {
    pub(crate) fn new(engine: Arc<dyn Engine>, readers: Arc<Readers>, budget: usize) -> Arc<Self> {
        Arc::new(TransactionManager {
            engine,
            active: RwLock::new(0),
            commit_queue: GroupCommit::new(MAX_GROUP_BYTES),
            history: Mutex::new(CommitHistory::new(budget)),
            readers,
            counters: Counters::default(),
        })
    }

    pub(crate) fn readers(&self) -> &Arc<Readers> {
        &self.readers
    }

    /// Begins a transaction. Returns the last group that its snapshot surely shows, and its reader.
    pub(super) fn begin(self: &Arc<Self>) -> Result<(Group, Reader)> {
        self.readers.expire_idle();
        // Waits for unrecorded writes; later writes are recorded.
        *self.active.write() += 1;
        let begun = self.history.lock().begin();
        let point = self.engine.snapshot().inspect_err(|_| self.end(begun))?;
        self.counters.begun.fetch_add(1, Relaxed);
        let manager = self.clone();
        let on_end = Box::new(move || manager.end(begun));
        Ok((begun, self.readers.begin("transaction", point, on_end)))
    }

    fn end(&self, begun: Group) {
        self.history.lock().end(begun);
        *self.active.write() -= 1;
    }

    /// Applies the writes of an open transaction if nothing that it read has changed.
    pub(super) fn commit(
        &self,
        batch: &WriteBatch,
        durability: Durability,
        view: ReadView,
    ) -> Result<()> {
        let counters = &self.counters;
        self.write_validated(batch, durability, Some(view))
            .inspect(|()| _ = counters.committed.fetch_add(1, Relaxed))
            .inspect_err(|error| {
                _ = counters.conflicts.fetch_add(error.is_retryable().into(), Relaxed)
            })
    }

    fn write_validated(
        &self,
        batch: &WriteBatch,
        durability: Durability,
        view: Option<ReadView>,
    ) -> Result<()> {
        // A batch that the engine would refuse must not fail the rest of its group.
        batch.check(self.engine.capabilities().max_value_bytes)?;
        self.enqueue(batch, false, durability, view)
    }

    fn enqueue(
        &self,
        batch: &WriteBatch,
        clears: bool,
        durability: Durability,
        view: Option<ReadView>,
    ) -> Result<()> {
        let conflict = Arc::new(OnceLock::new());
        let queued = || QueuedCommit {
            batch: batch.clone(),
            clears,
            durability,
            view: view.clone(),
            conflict: conflict.clone(),
        };
        let own =
            PendingCommit { batch, clears, durability, view: view.as_ref(), conflict: &conflict };
        let written = self.commit_queue.commit(queued, |others| self.commit_group(own, others));
        match conflict.get() {
            Some(conflict) => Err(conflict.clone()),
            None => written,
        }
    }

    /// Validates and writes this thread's commit and those of others, as one group.
    fn commit_group(&self, own: PendingCommit<'_>, others: &[QueuedCommit]) -> Result<()> {
        let mut accepted: Vec<PendingCommit<'_>> = Vec::with_capacity(1 + others.len());
        let mut history = self.history.lock();
        for commit in std::iter::once(own).chain(others.iter().map(QueuedCommit::pending)) {
            let valid = commit.view.map_or(Ok(()), |v| history.validate(v.begun, &v.reads));
            match valid {
                Ok(()) => {
                    // Recorded before the later commits of the group are validated.
                    if commit.clears {
                        history.record_clear();
                    }
                    commit.batch.iter().for_each(|op| history.record(op.key()));
                    accepted.push(commit);
                }
                Err(conflict) => _ = commit.conflict.set(conflict),
            }
        }
        drop(history);
        let written = self.write_group(&accepted);
        // Also after a failure: the outcome of the group is unknown then.
        self.history.lock().complete();
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

/// A commit under validation, borrowed from its thread or from the queue.
#[derive(Clone, Copy)]
struct PendingCommit<'a> {
    batch: &'a WriteBatch,
    clears: bool,
    durability: Durability,
    view: Option<&'a ReadView>,
    conflict: &'a OnceLock<siltstone_engine::Error>,
}

impl QueuedCommit {
    fn pending(&self) -> PendingCommit<'_> {
        PendingCommit {
            batch: &self.batch,
            clears: self.clears,
            durability: self.durability,
            view: self.view.as_ref(),
            conflict: &self.conflict,
        }
    }
}

// Everything is forwarded except `behind`, whose writes would bypass validation.
impl Engine for TransactionManager {
    forward_engine!(engine: name capabilities get get_at sync iter range random_key snapshot at);
    forward_engine!(engine: flush checkpoint verify warnings trouble close);

    fn write(&self, batch: &WriteBatch, durability: Durability) -> Result<()> {
        if self.readers.count() > 0
            && self
                .counters
                .writes_beside_readers
                .fetch_add(1, Relaxed)
                .is_multiple_of(WRITES_PER_EXPIRY_CHECK)
        {
            self.readers.expire_idle();
        }
        // An empty batch is a sync, which has no position in the order of writes.
        if batch.is_empty() {
            return self.engine.write(batch, durability);
        }
        {
            let active = self.active.read();
            if *active == 0 {
                return self.engine.write(batch, durability);
            }
        }
        self.counters.tracked_writes.fetch_add(1, Relaxed);
        self.write_validated(batch, durability, None)
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
        let Counters { begun, committed, conflicts, tracked_writes, .. } = &self.counters;
        stats.counters.extend([
            ("transactions_open", active as u64),
            ("transactions_begun", begun.load(Relaxed)),
            ("transactions_committed", committed.load(Relaxed)),
            ("transaction_conflicts", conflicts.load(Relaxed)),
            ("transaction_history_bytes", history_bytes as u64),
            ("transactions_tracked_writes", tracked_writes.load(Relaxed)),
            ("readers", self.readers.count() as u64),
            ("readers_expired", self.readers.expired()),
        ]);
        stats
    }
}
