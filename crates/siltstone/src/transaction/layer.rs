//! The layer between a table and its engine: it knows which transactions are open, and brings their
//! commits and everyone's writes into one order.
//!
//! ```text
//!   no transaction open       write ─ gate, shared ────────────────────────────── engine
//!   else      write, commit ─ line ─ leader: validate each ─ one batch of those that may ─ engine
//!   begin     gate, alone: earlier writes are done ─ note the last complete group ─ snapshot
//! ```
//!
//! **What is serialised, and why.** Between the validation of a transaction and the moment its writes
//! are visible no write to what it read may become visible: otherwise a reader in between would see
//! the later write without the transaction that comes before it. Without knowledge of the engine's
//! inner order that means one group of writes at a time. So the leader of the line validates its own
//! request and all that wait, one after the other and against one another, and hands those that may go
//! to the engine as one batch with one sync; if the engine fails, all of the group do. Everything before
//! the line is concurrent, and who only reads never comes to it.
//!
//! **What a plain write costs.** While no transaction is open: taking the gate for reading, one
//! uncontended atomic each way, and no record of its keys. While one is: a place in the line, and a
//! remembered key for each that it writes.
//!
//! Both are measured: `cargo bench -p siltstone --bench transactions`.
//!
//! **Beginning** waits for plain writes that are under way if no other transaction is open, for those
//! were not recorded: at most as long as the slowest of them takes, its sync included.
//!
//! Invariant: a write that became visible after the snapshot of an open transaction was taken is in
//! [`Recent`] with a group after the transaction's, or a group in flight. The order of
//! [`Layer::begin`] is what makes it so: count as open, wait for the unrecorded, note the last complete
//! group, and only then take the snapshot, of which the contract says that it shows every write that has
//! returned. A group that becomes visible between the last two is taken
//! for a conflict though the snapshot shows it: rare, and safe.
//!
//! Source: optimistic concurrency control with backward validation, Kung and Robinson, TODS 6(2), 1981;
//! reads of a snapshot, Bernstein and Goodman, "Multiversion Concurrency Control", TODS 8(4), 1983.

use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use parking_lot::{Mutex, RwLock};
use siltstone_engine::{Durability, Engine, Result, Stats, WriteBatch, forward_engine};
use siltstone_runtime::GroupCommit;
use siltstone_runtime::group_commit::Size;

use super::reads::Reads;
use super::recent::{Group, Recent};
use crate::reader::{Reader, Readers};

/// A leader takes this much of others' writes.
const GROUP_BYTES: usize = 1 << 20;
/// Writes between two looks for silent readers.
const WRITES_A_LOOK: u64 = 64;

/// An engine whose writers and transactions hear of one another. It is itself an engine, so whoever
/// writes through it takes part.
pub(crate) struct Layer {
    engine: Arc<dyn Engine>,
    /// How many transactions that may write are open. Who writes without record holds it for reading.
    gate: RwLock<usize>,
    line: GroupCommit<Request>,
    recent: Mutex<Recent>,
    readers: Arc<Readers>,
    counters: Counters,
}

#[derive(Default)]
struct Counters {
    begun: AtomicU64,
    committed: AtomicU64,
    refused: AtomicU64,
    tracked_writes: AtomicU64,
    writes_beside_readers: AtomicU64,
}

/// What a transaction was shown, to be validated.
#[derive(Clone)]
pub(super) struct Shown {
    pub(super) begun: Group,
    pub(super) reads: Arc<Reads>,
}

/// A write, a commit or a removal of all keys in line.
struct Request {
    batch: WriteBatch,
    /// Every key is removed; the batch is empty then.
    clears: bool,
    durability: Durability,
    shown: Option<Shown>,
    /// Why it was refused, if it was.
    refusal: Arc<OnceLock<siltstone_engine::Error>>,
}

impl Size for Request {
    fn size_bytes(&self) -> usize {
        self.batch.as_bytes().len()
    }
}

impl Layer {
    pub(crate) fn new(engine: Arc<dyn Engine>, readers: Arc<Readers>, budget: usize) -> Arc<Self> {
        Arc::new(Layer {
            engine,
            gate: RwLock::new(0),
            line: GroupCommit::new(GROUP_BYTES),
            recent: Mutex::new(Recent::new(budget)),
            readers,
            counters: Counters::default(),
        })
    }

    pub(crate) fn readers(&self) -> &Arc<Readers> {
        &self.readers
    }

    /// Begins a transaction that may write: the group that its snapshot shows at least, and its reader.
    pub(super) fn begin(self: &Arc<Self>) -> Result<(Group, Reader)> {
        self.readers.look();
        // Waits for writes that nobody recorded; those that come from now on are recorded.
        *self.gate.write() += 1;
        let begun = self.recent.lock().begin();
        let point = self.engine.snapshot().inspect_err(|_| self.end(begun))?;
        self.counters.begun.fetch_add(1, Relaxed);
        let layer = self.clone();
        let ended = Box::new(move || layer.end(begun));
        Ok((begun, self.readers.begin("transaction", point, ended)))
    }

    fn end(&self, begun: Group) {
        self.recent.lock().end(begun);
        *self.gate.write() -= 1;
    }

    /// Applies a transaction's writes if what it was shown still holds. The transaction must be open.
    pub(super) fn commit(
        &self,
        batch: &WriteBatch,
        durability: Durability,
        shown: Shown,
    ) -> Result<()> {
        let counters = &self.counters;
        self.write_in_line(batch, durability, Some(shown))
            .inspect(|()| _ = counters.committed.fetch_add(1, Relaxed))
            .inspect_err(|error| {
                _ = counters.refused.fetch_add(error.is_retryable().into(), Relaxed)
            })
    }

    fn write_in_line(
        &self,
        batch: &WriteBatch,
        durability: Durability,
        shown: Option<Shown>,
    ) -> Result<()> {
        // A batch that the engine would refuse must not take others' down.
        batch.check(self.engine.capabilities().max_value_bytes)?;
        self.stand_in_line(batch, false, durability, shown)
    }

    fn stand_in_line(
        &self,
        batch: &WriteBatch,
        clears: bool,
        durability: Durability,
        shown: Option<Shown>,
    ) -> Result<()> {
        let refusal = Arc::new(OnceLock::new());
        let request = || Request {
            batch: batch.clone(),
            clears,
            durability,
            shown: shown.clone(),
            refusal: refusal.clone(),
        };
        let own = Asked { batch, clears, durability, shown: shown.as_ref(), refusal: &refusal };
        let written = self.line.commit(request, |others| self.lead(own, others));
        match refusal.get() {
            Some(refusal) => Err(refusal.clone()),
            None => written,
        }
    }

    /// Validates and writes this thread's request and those of others, as one group.
    fn lead(&self, own: Asked<'_>, others: &[Request]) -> Result<()> {
        let mut accepted: Vec<Asked<'_>> = Vec::with_capacity(1 + others.len());
        let mut recent = self.recent.lock();
        for asked in std::iter::once(own).chain(others.iter().map(Request::asked)) {
            let valid = asked.shown.map_or(Ok(()), |s| recent.validate(s.begun, &s.reads));
            match valid {
                Ok(()) => {
                    // Before those behind it are validated: they come after it.
                    if asked.clears {
                        recent.note_clear();
                    }
                    asked.batch.iter().for_each(|op| recent.note(op.key()));
                    accepted.push(asked);
                }
                Err(refusal) => _ = asked.refusal.set(refusal),
            }
        }
        drop(recent);
        let written = self.write_group(&accepted);
        // Also if it failed: then it is not known what became of it.
        self.recent.lock().complete();
        written
    }

    /// Writes a group: one batch of what stands before and behind each removal of all keys.
    fn write_group(&self, group: &[Asked<'_>]) -> Result<()> {
        let mut parts = group.split(|asked| asked.clears);
        self.write_batch(parts.next().unwrap_or_default())?;
        parts.try_for_each(|part| {
            self.engine.clear()?;
            self.write_batch(part)
        })
    }

    fn write_batch(&self, group: &[Asked<'_>]) -> Result<()> {
        let wants_sync = group.iter().any(|asked| asked.durability == Durability::Synced);
        let durability = if wants_sync { Durability::Synced } else { Durability::Buffered };
        match group {
            [] => Ok(()),
            [one] => self.engine.write(one.batch, durability),
            many => {
                let mut batch = WriteBatch::new();
                for asked in many {
                    batch.append(asked.batch);
                }
                self.engine.write(&batch, durability)
            }
        }
    }
}

/// A request as the leader sees it.
#[derive(Clone, Copy)]
struct Asked<'a> {
    batch: &'a WriteBatch,
    clears: bool,
    durability: Durability,
    shown: Option<&'a Shown>,
    refusal: &'a OnceLock<siltstone_engine::Error>,
}

impl Request {
    fn asked(&self) -> Asked<'_> {
        Asked {
            batch: &self.batch,
            clears: self.clears,
            durability: self.durability,
            shown: self.shown.as_ref(),
            refusal: &self.refusal,
        }
    }
}

// All is handed on but `behind`: whoever writes past the layer would not be heard of.
impl Engine for Layer {
    forward_engine!(engine: name capabilities get get_at sync iter range random_key snapshot at);
    forward_engine!(engine: flush checkpoint verify warnings trouble close);

    fn write(&self, batch: &WriteBatch, durability: Durability) -> Result<()> {
        if self.readers.count() > 0
            && self
                .counters
                .writes_beside_readers
                .fetch_add(1, Relaxed)
                .is_multiple_of(WRITES_A_LOOK)
        {
            self.readers.look();
        }
        // An empty batch is a sync, which has no place in the order of writes.
        if batch.is_empty() {
            return self.engine.write(batch, durability);
        }
        {
            let open = self.gate.read();
            if *open == 0 {
                return self.engine.write(batch, durability);
            }
        }
        self.counters.tracked_writes.fetch_add(1, Relaxed);
        self.write_in_line(batch, durability, None)
    }

    fn clear(&self) -> Result<()> {
        {
            // Alone, since nothing is recorded: who begins meanwhile sees all keys or none.
            let open = self.gate.write();
            if *open == 0 {
                return self.engine.clear();
            }
        }
        self.stand_in_line(&WriteBatch::new(), true, Durability::Synced, None)
    }

    fn maintain(&self) -> Result<()> {
        self.readers.look();
        self.engine.maintain()
    }

    fn stats(&self) -> Stats {
        let mut stats = self.engine.stats();
        let open = *self.gate.read();
        let remembered = self.recent.lock().bytes();
        let Counters { begun, committed, refused, tracked_writes, .. } = &self.counters;
        stats.counters.extend([
            ("transactions_open", open as u64),
            ("transactions_begun", begun.load(Relaxed)),
            ("transactions_committed", committed.load(Relaxed)),
            ("transactions_refused", refused.load(Relaxed)),
            ("transactions_remembered_bytes", remembered as u64),
            ("transactions_tracked_writes", tracked_writes.load(Relaxed)),
            ("readers", self.readers.count() as u64),
            ("readers_expired", self.readers.expired()),
        ]);
        stats
    }
}
