//! The table as commands see it on the leader: with the writes that are not committed yet.
//!
//! ```text
//!   open         writes of commands since the last proposal      becomes the next proposal
//!   in flight    the writes of the proposal that is under way    dropped once they are applied
//!   table        what is committed and applied here
//! ```
//!
//! Commands run at once against all three, one worker thread after the other's command, so they
//! need no locks that outlast the command. Their replies are held back until what they have seen is
//! committed ([`super`]). If a proposal fails, `open` and `in flight` are dropped together
//! with all these replies. Nothing is proposed while another proposal is in flight, so what depends
//! on a proposal is never proposed without it.
//!
//! The removal of all rows (FLUSHALL) hides what is below it: removed in `open`, the other two;
//! removed in `in flight`, the table. Its proposal removes ranges before and after the group's own
//! rows, and then has the writes that followed.
//!
//! On a follower commands only read, and the node's thread writes meanwhile, so each command reads
//! at a snapshot, and at one time.
//!
//! Invariant: a write is in exactly one of the three when a command reads; between the moment when
//! it is applied and its removal from `in flight` it is in both, with the same value.

use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::{Mutex, RwLock};
use siltstone::transaction::{Overlay, overlay_cursor};
use siltstone_cluster::OWN_ROWS;
use siltstone_cluster::node::NodeHandle;
use siltstone_engine::{
    Capabilities, CheckpointSink, Clock, CompactionFilter, Cursor, Durability, Engine, Entry,
    Error, KeyRange, Op, ReadPoint, Result, Stats, Timestamp, VerifyReport, WriteBatch,
};

use super::clock::GroupClock;
use super::group_table::AFTER_OWN_ROWS;
use super::unexpired::UnexpiredCursor;

/// Maximum size of the writes of one command, transaction or script, in bytes.
pub(crate) const MAX_COMMAND_BYTES: usize = 4 << 20;
/// Size of the open writes from which on no further command runs until they are proposed.
const FULL_BYTES: usize = 2 << 20;

/// The table with its uncommitted writes.
pub(crate) struct SpeculativeTable {
    node: NodeHandle,
    clock: Arc<GroupClock>,
    pending: RwLock<PendingWrites>,
    /// There are uncommitted writes.
    is_pending: AtomicBool,
    /// A command has seen that an entry has expired at a time that is not committed.
    must_commit_time: Arc<AtomicBool>,
    /// The snapshot that commands on a follower read.
    snapshot: Mutex<Option<Snapshot>>,
}

/// A table as of one moment.
#[derive(Clone)]
struct Snapshot {
    table: Arc<dyn Engine>,
    at: ReadPoint,
}

#[derive(Default)]
struct PendingWrites {
    in_flight: Overlay,
    open: Overlay,
}

/// The range without keys.
fn nothing() -> KeyRange {
    KeyRange { start: Bound::Included(Vec::new()), end: Bound::Excluded(Vec::new()) }
}

impl SpeculativeTable {
    pub(crate) fn new(node: NodeHandle, clock: Arc<GroupClock>) -> Self {
        SpeculativeTable {
            node,
            clock,
            pending: RwLock::default(),
            is_pending: AtomicBool::new(false),
            must_commit_time: Arc::default(),
            snapshot: Mutex::default(),
        }
    }

    /// Whether no further command should run before the open writes are proposed.
    pub(crate) fn is_full(&self) -> bool {
        self.is_pending.load(Ordering::Acquire) && self.pending.read().open.bytes() > FULL_BYTES
    }

    /// Whether there are writes to propose.
    pub(crate) fn has_open(&self) -> bool {
        self.is_pending.load(Ordering::Acquire) && !self.pending.read().open.is_empty()
    }

    /// Takes the open writes as the next proposal, with the leader's time; `None` if there is
    /// nothing to be written. Nothing is in flight.
    pub(crate) fn begin_proposal(&self) -> Option<WriteBatch> {
        let must_commit_time = self.must_commit_time.swap(false, Ordering::AcqRel);
        let mut pending = self.pending.write();
        pending.in_flight = std::mem::take(&mut pending.open);
        let mut batch = WriteBatch::new();
        if pending.in_flight.is_cleared() {
            batch.delete_range(..OWN_ROWS).delete_range(AFTER_OWN_ROWS..);
        }
        batch.append(&pending.in_flight.to_batch());
        if batch.is_empty() && !must_commit_time {
            return None;
        }
        self.clock.stamp(&mut batch);
        Some(batch)
    }

    /// Records that the proposal in flight is applied.
    pub(crate) fn end_proposal(&self) {
        let mut pending = self.pending.write();
        pending.in_flight = Overlay::default();
        self.is_pending.store(!pending.open.is_empty(), Ordering::Release);
    }

    /// Drops all uncommitted writes.
    pub(crate) fn discard(&self) {
        *self.pending.write() = PendingWrites::default();
        self.is_pending.store(false, Ordering::Release);
        self.must_commit_time.store(false, Ordering::Release);
    }

    /// Lets commands read the table as it is now, until [`end_snapshot`](Self::end_snapshot).
    pub(crate) fn begin_snapshot(&self) -> Result<()> {
        let table = self.table();
        // Before the snapshot, which then has all that has not expired at that time.
        self.clock.hold();
        let taken = table.snapshot();
        if taken.is_err() {
            self.clock.release();
        }
        *self.snapshot.lock() = Some(Snapshot { table, at: taken? });
        Ok(())
    }

    /// Lets commands read the newest rows. Cost if they do: an uncontended lock.
    pub(crate) fn end_snapshot(&self) {
        *self.snapshot.lock() = None;
        self.clock.release();
    }

    fn table(&self) -> Arc<dyn Engine> {
        self.node.table()
    }

    /// The uncommitted writes of a range, and whether they follow the removal of all rows. Whoever
    /// reads it does not see those that have expired.
    fn pending_in(&self, range: &KeyRange, now: Timestamp) -> (Overlay, bool) {
        let (mut writes, mut is_cleared) = (Overlay::default(), false);
        if self.is_pending.load(Ordering::Acquire) {
            let pending = self.pending.read();
            is_cleared = pending.in_flight.is_cleared() || pending.open.is_cleared();
            let in_flight = Some(&pending.in_flight).filter(|_| !pending.open.is_cleared());
            for overlay in in_flight.into_iter().chain([&pending.open]) {
                for (start, end) in overlay.deleted_ranges() {
                    writes.delete_range(start, end);
                }
                for (key, entry) in overlay.range(range) {
                    if entry.is_some_and(|entry| entry.is_expired(now)) {
                        self.must_commit_time.store(true, Ordering::Release);
                    }
                    writes.push(match entry {
                        Some(Entry { value, expires_at }) => {
                            Op::Put { key, value, expires_at: *expires_at }
                        }
                        None => Op::Delete { key },
                    });
                }
            }
        }
        (writes, is_cleared)
    }

    fn visible(&self, entry: Entry, now: Timestamp) -> Option<Entry> {
        if entry.is_expired(now) {
            self.must_commit_time.store(true, Ordering::Release);
            return None;
        }
        Some(entry)
    }

    fn refused(&self, operation: &'static str) -> Error {
        Error::Unsupported { engine: "lsm (replicated)", operation }
    }
}

impl Engine for SpeculativeTable {
    fn name(&self) -> &'static str {
        "lsm"
    }

    fn capabilities(&self) -> Capabilities {
        let table = self.table().capabilities();
        Capabilities {
            versioned: false,
            merge: false,
            change_feed: false,
            max_value_bytes: table.max_value_bytes.min(MAX_COMMAND_BYTES),
            ..table
        }
    }

    fn get(&self, key: &[u8]) -> Result<Option<Entry>> {
        let now = self.clock.now();
        if self.is_pending.load(Ordering::Acquire) {
            let pending = self.pending.read();
            let written = pending.open.get(key).or_else(|| pending.in_flight.get(key));
            if let Some(entry) = written {
                let entry = entry.cloned();
                drop(pending);
                return Ok(entry.and_then(|entry| self.visible(entry, now)));
            }
        }
        let snapshot = self.snapshot.lock().clone();
        let stored = match snapshot {
            Some(Snapshot { table, at }) => table.get_at(key, &at)?,
            None => self.table().get(key)?,
        };
        Ok(stored.and_then(|entry| self.visible(entry, now)))
    }

    fn write(&self, batch: &WriteBatch, _durability: Durability) -> Result<()> {
        let bytes = batch.as_bytes().len();
        if bytes > MAX_COMMAND_BYTES {
            let (size, limit) = (bytes as u64, MAX_COMMAND_BYTES as u64);
            let what = "command's or transaction's write to a replicated table";
            return Err(Error::TooLarge { what, size, limit });
        }
        batch.check(self.capabilities().max_value_bytes)?;
        self.pending.write().open.apply(batch);
        self.is_pending.store(true, Ordering::Release);
        Ok(())
    }

    /// Removes all rows with the next proposal.
    fn clear(&self) -> Result<()> {
        self.pending.write().open.clear();
        self.is_pending.store(true, Ordering::Release);
        Ok(())
    }

    /// Nothing to do: the log of the group is synced before a write is acknowledged.
    fn sync(&self) -> Result<()> {
        Ok(())
    }

    fn iter(&self) -> Result<Box<dyn Cursor>> {
        self.range(KeyRange::all(), None)
    }

    fn range(&self, range: KeyRange, at: Option<&ReadPoint>) -> Result<Box<dyn Cursor>> {
        if at.is_some() {
            return Err(self.refused("reads at a snapshot"));
        }
        // The pending writes first: what is applied meanwhile is in both.
        let now = self.clock.now();
        let (writes, is_cleared) = self.pending_in(&range, now);
        let visible = if is_cleared { nothing() } else { range.clone() };
        let snapshot = self.snapshot.lock().clone();
        let stored = match snapshot {
            Some(Snapshot { table, at }) => table.range(visible, Some(&at))?,
            None => self.table().range(visible, None)?,
        };
        let stored = match now > self.clock.committed() {
            true => Box::new(UnexpiredCursor::new(stored, now, self.must_commit_time.clone())),
            false => stored,
        };
        if writes.is_empty() {
            return Ok(stored);
        }
        Ok(overlay_cursor(stored, Arc::new(writes), range, now))
    }

    fn flush(&self) -> Result<()> {
        self.table().flush()
    }

    fn maintain(&self) -> Result<()> {
        self.table().maintain()
    }

    /// The node sets the table's filter.
    fn set_compaction_filter(&self, _filter: Option<Arc<dyn CompactionFilter>>) -> Result<()> {
        Ok(())
    }

    fn checkpoint(&self, _sink: &mut dyn CheckpointSink) -> Result<()> {
        Err(self.refused("checkpoints"))
    }

    fn verify(&self, progress: &mut dyn FnMut(u64, u64)) -> Result<VerifyReport> {
        self.table().verify(progress)
    }

    fn stats(&self) -> Stats {
        self.table().stats()
    }

    fn warnings(&self) -> Vec<String> {
        self.table().warnings()
    }

    fn trouble(&self) -> Option<String> {
        self.table().trouble()
    }

    /// The node closes its table.
    fn close(&self) -> Result<()> {
        Ok(())
    }
}
