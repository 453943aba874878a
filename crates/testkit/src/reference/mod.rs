//! A small complete engine: the [oracle](crate::oracle) in memory, a [journal](self) on disk.
//!
//! ```text
//!   write   append to the journal ─ [sync] ─ apply to the oracle      under one lock
//!   read    the oracle as of a sequence number; a cursor is a list made when it is created
//!   open    replay the journal
//! ```
//!
//! It tests the kit itself: it passes every check, and with a planted [`Bug`] it must fail one.
//! Tests of other crates can use it in place of a real engine.
//!
//! Invariant: it keeps every promise of [`Engine`], slowly and with everything in memory.

mod bug;
mod journal;

use std::sync::Arc;

use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use siltstone_engine::{
    Capabilities, CheckpointSink, Cursor, Damage, Durability, Engine, Entry, Error, KeyRange, Op,
    ReadPoint, Result, Stats, Timestamp, VerifyReport, WriteBatch,
};
use siltstone_runtime::Env;
use siltstone_vfs::Vfs;

pub use bug::Bug;
use journal::Journal;

use crate::Oracle;

/// The maximum length of a value in the reference engine.
pub const MAX_VALUE_BYTES: usize = 1 << 20;

/// The reference engine.
pub struct Reference {
    state: RwLock<State>,
    env: Env,
    bug: Option<Bug>,
    /// Identifies its snapshots.
    identity: Arc<()>,
}

struct State {
    oracle: Oracle,
    journal: Journal,
    /// The cause, if it refuses writes.
    poisoned: Option<String>,
    closed: bool,
}

impl Reference {
    /// Opens the table on `vfs`, or creates it, with an optional planted bug.
    ///
    /// # Errors
    /// Damage, or I/O errors.
    pub fn open(vfs: Arc<dyn Vfs>, env: Env, bug: Option<Bug>) -> Result<Self> {
        let (journal, batches) = Journal::open(vfs, bug)?;
        let mut oracle = Oracle::new();
        batches.iter().for_each(|batch| oracle.apply(batch, 0));
        let state = State { oracle, journal, poisoned: None, closed: false };
        Ok(Reference { state: RwLock::new(state), env, bug, identity: Arc::default() })
    }

    fn has(&self, bug: Bug) -> bool {
        self.bug == Some(bug)
    }

    fn read(&self) -> Result<RwLockReadGuard<'_, State>> {
        let state = self.state.read();
        if state.closed { Err(Error::Closed) } else { Ok(state) }
    }

    fn lookup(&self, key: &[u8], at: Option<&ReadPoint>) -> Result<Option<Entry>> {
        siltstone_engine::entry::check_key(key)?;
        let state = self.read()?;
        let mut sequence = self.sequence(&state, at)?;
        if self.has(Bug::LagsBehind) && at.is_none() {
            sequence = sequence.saturating_sub(1);
        }
        let now = if self.has(Bug::IgnoresExpiry) { 0 } else { self.env.clock.now() };
        Ok(state.oracle.get(key, sequence, now).map(|expected| expected.entry.clone()))
    }

    fn sequence(&self, state: &State, at: Option<&ReadPoint>) -> Result<u64> {
        let is_own = |point: &ReadPoint| {
            point
                .guard()
                .downcast_ref::<Arc<()>>()
                .is_some_and(|id| Arc::ptr_eq(id, &self.identity))
        };
        match at {
            Some(point) if !is_own(point) => {
                Err(Error::Invalid("this snapshot belongs to another table".into()))
            }
            Some(point) if !self.has(Bug::SeesTheFuture) => Ok(point.sequence()),
            _ => Ok(state.oracle.sequence()),
        }
    }

    /// Logs a batch and applies it.
    fn commit(
        &self,
        mut state: RwLockWriteGuard<'_, State>,
        batch: &WriteBatch,
        durability: Durability,
    ) -> Result<()> {
        state.check_writable()?;
        state.log(&self.logged(batch)).map_err(|error| {
            let is_transient = error.is_disk_full() && !self.has(Bug::FullForEver);
            if is_transient { error } else { state.poison(error) }
        })?;
        if durability == Durability::Synced && !self.has(Bug::ForgetsSync) {
            let synced = state.journal.sync();
            match synced {
                Err(_) if self.has(Bug::HidesFailedSync) => {}
                synced => synced.map_err(|error| state.poison(error))?,
            }
        }
        if self.has(Bug::ShowsHalfBatches) {
            drop(state);
            self.apply_piecewise(batch);
        } else {
            self.apply(&mut state, batch);
        }
        Ok(())
    }

    /// Applies a logged batch, visible at once.
    fn apply(&self, state: &mut State, batch: &WriteBatch) {
        state.oracle.apply(batch, self.env.clock.now());
    }

    /// Applies a batch as a writer without a lock would.
    fn apply_piecewise(&self, batch: &WriteBatch) {
        for op in batch.iter() {
            let mut single = WriteBatch::new();
            single.push(op);
            self.apply(&mut self.state.write(), &single);
            std::thread::yield_now();
        }
    }

    fn check(&self, batch: &WriteBatch) -> Result<()> {
        match batch.check(MAX_VALUE_BYTES) {
            Err(Error::TooLarge { what: "key", .. }) if self.has(Bug::TakesLongKey) => Ok(()),
            Err(error) => {
                if self.has(Bug::AppliesRefused) {
                    let mut good = WriteBatch::new();
                    let fits = |op: &Op<'_>| siltstone_engine::entry::check_key(op.key()).is_ok();
                    for op in batch.iter().filter(fits) {
                        good.push(op);
                    }
                    self.apply(&mut self.state.write(), &good);
                }
                Err(error)
            }
            checked => checked,
        }
    }

    /// The batches for the journal: the batch itself, unless a bug is planted.
    fn logged(&self, batch: &WriteBatch) -> Vec<WriteBatch> {
        let single = |op: Op<'_>| {
            let mut batch = WriteBatch::new();
            batch.push(op);
            batch
        };
        match self.bug {
            Some(Bug::TearsBatch) => batch.iter().map(single).collect(),
            Some(Bug::ResurrectsDeleted) => {
                let puts = batch.iter().filter(|op| matches!(op, Op::Put { .. }));
                puts.map(single).collect()
            }
            _ => vec![batch.clone()],
        }
    }
}

impl State {
    fn check_writable(&self) -> Result<()> {
        match (self.closed, &self.poisoned) {
            (true, _) => Err(Error::Closed),
            (_, Some(cause)) => Err(Error::ReadOnly { cause: cause.clone() }),
            _ => Ok(()),
        }
    }

    fn log(&mut self, batches: &[WriteBatch]) -> Result<()> {
        let mut logged = batches.iter().filter(|batch| !batch.is_empty());
        logged.try_for_each(|batch| self.journal.append(batch))
    }

    /// Enters read-only mode after a fault whose outcome is unknown.
    fn poison(&mut self, error: Error) -> Error {
        self.poisoned.get_or_insert_with(|| error.to_string());
        error
    }
}

impl Engine for Reference {
    fn name(&self) -> &'static str {
        "reference"
    }

    fn capabilities(&self) -> Capabilities {
        CAPABILITIES
    }

    fn get(&self, key: &[u8]) -> Result<Option<Entry>> {
        self.lookup(key, None)
    }

    fn get_at(&self, key: &[u8], at: &ReadPoint) -> Result<Option<Entry>> {
        self.lookup(key, Some(at))
    }

    fn write(&self, batch: &WriteBatch, durability: Durability) -> Result<()> {
        batch.reject_range_deletions(self.name())?;
        batch.reject_merges(self.name())?;
        self.check(batch)?;
        self.commit(self.state.write(), batch, durability)
    }

    fn clear(&self) -> Result<()> {
        let state = self.state.write();
        let mut batch = WriteBatch::new();
        let now = self.env.clock.now();
        for expected in state.oracle.range(&KeyRange::all(), state.oracle.sequence(), now) {
            batch.delete(expected.key);
        }
        self.commit(state, &batch, Durability::Synced)
    }

    fn sync(&self) -> Result<()> {
        self.write(&WriteBatch::new(), Durability::Synced)
    }

    fn iter(&self) -> Result<Box<dyn Cursor>> {
        self.range(KeyRange::all(), None)
    }

    fn range(&self, range: KeyRange, at: Option<&ReadPoint>) -> Result<Box<dyn Cursor>> {
        range.check()?;
        let state = self.read()?;
        let sequence = self.sequence(&state, at)?;
        let now = self.env.clock.now();
        let own =
            |expected: &crate::ExpectedEntry<'_>| (expected.key.to_vec(), expected.entry.clone());
        let entries = state.oracle.range(&range, sequence, now).iter().map(own).collect();
        let skips = self.has(Bug::SkipsOnTurn);
        Ok(Box::new(ListCursor { entries, at: None, came_forward: false, skips }))
    }

    fn snapshot(&self) -> Result<ReadPoint> {
        let sequence = self.read()?.oracle.sequence();
        Ok(ReadPoint::new(sequence, Arc::new(self.identity.clone())))
    }

    fn flush(&self) -> Result<()> {
        self.sync()
    }

    fn maintain(&self) -> Result<()> {
        self.state.read().check_writable()
    }

    fn compact_range(&self, range: &KeyRange) -> Result<()> {
        range.check()?;
        self.maintain()
    }

    fn checkpoint(&self, sink: &mut dyn CheckpointSink) -> Result<()> {
        let state = self.read()?;
        let mut batch = WriteBatch::new();
        for expected in state.oracle.range(&KeyRange::all(), state.oracle.sequence(), 0) {
            batch.put_entry(expected.key, expected.entry);
        }
        drop(state);
        for (name, bytes) in journal::files_with(&batch) {
            sink.create(name)?;
            sink.write(&bytes)?;
            sink.finish()?;
        }
        Ok(())
    }

    fn verify(&self, progress: &mut dyn FnMut(u64, u64)) -> Result<VerifyReport> {
        let mut report = VerifyReport { files: 2, ..VerifyReport::default() };
        match self.read()?.journal.verify() {
            Ok(bytes) => {
                report.bytes = bytes;
                progress(bytes, bytes);
            }
            Err(Error::Corruption { file, offset, reason }) => {
                report.damage.push(Damage { file, offset, reason });
            }
            Err(other) => return Err(other),
        }
        Ok(report)
    }

    fn stats(&self) -> Stats {
        Stats { engine: self.name(), ..Stats::default() }
    }

    fn close(&self) -> Result<()> {
        let mut state = self.state.write();
        if std::mem::replace(&mut state.closed, true) {
            return Ok(());
        }
        match &state.poisoned {
            Some(_) if self.has(Bug::ClosesInDoubt) => Ok(()),
            Some(cause) => Err(Error::ReadOnly { cause: cause.clone() }),
            None => state.journal.close(),
        }
    }
}

/// The capabilities of the reference engine: all of them.
pub const CAPABILITIES: Capabilities = Capabilities {
    ordered: true,
    durable: true,
    versioned: true,
    incremental_gc: false,
    range_deletes: false,
    merge: false,
    change_feed: false,
    max_value_bytes: MAX_VALUE_BYTES,
};

/// A cursor over a list.
struct ListCursor {
    entries: Vec<(Vec<u8>, Entry)>,
    at: Option<usize>,
    came_forward: bool,
    skips: bool,
}

impl ListCursor {
    fn move_to(&mut self, at: Option<usize>, forward: bool) -> Result<bool> {
        self.at = at.filter(|&at| at < self.entries.len());
        self.came_forward = forward;
        Ok(self.at.is_some())
    }

    fn position(&self) -> Result<usize> {
        self.at.ok_or_else(|| Error::Invalid("the cursor has no position".into()))
    }

    fn entry(&self) -> &(Vec<u8>, Entry) {
        &self.entries[self.at.expect("the cursor is on an entry")]
    }
}

impl Cursor for ListCursor {
    fn first(&mut self) -> Result<bool> {
        self.move_to(Some(0), true)
    }

    fn last(&mut self) -> Result<bool> {
        self.move_to(self.entries.len().checked_sub(1), false)
    }

    fn seek(&mut self, key: &[u8]) -> Result<bool> {
        self.move_to(Some(self.entries.partition_point(|(k, _)| k.as_slice() < key)), true)
    }

    fn seek_back(&mut self, key: &[u8]) -> Result<bool> {
        let after = self.entries.partition_point(|(k, _)| k.as_slice() <= key);
        self.move_to(after.checked_sub(1), false)
    }

    fn next(&mut self) -> Result<bool> {
        let at = self.position()?;
        self.move_to(Some(at + 1), true)
    }

    fn prev(&mut self) -> Result<bool> {
        let back = if self.skips && self.came_forward { 2 } else { 1 };
        let at = self.position()?;
        self.move_to(at.checked_sub(back), false)
    }

    fn valid(&self) -> bool {
        self.at.is_some()
    }

    fn key(&self) -> &[u8] {
        &self.entry().0
    }

    fn value(&self) -> &[u8] {
        &self.entry().1.value
    }

    fn expires_at(&self) -> Option<Timestamp> {
        self.entry().1.expires_at
    }
}
