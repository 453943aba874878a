//! An engine and the oracle side by side: each step runs on both, and the results are compared.
//!
//! ```text
//!   step ─┬─▶ engine ──▶ result ─┐
//!         └─▶ oracle ──▶ result ─┴─▶ equal?      and: how much is acknowledged, how much synced
//! ```
//!
//! On an engine with merges every other session, by seed and option set, sets the oracle's merge
//! operator, which excludes entries that expire. The others leave the merges of a history out.
//!
//! Invariant: after a step that succeeded the oracle has the state of the engine. After one that
//! failed it has the engine's state before the step; the check that injected the fault adjusts it.

mod entries;
mod reads;
mod writes;

use std::hash::{DefaultHasher, Hasher};
use std::sync::Arc;

use siltstone_engine::{Clock, Engine, Error, KeyRange, ManualClock, ReadPoint};
use siltstone_runtime::Env;
use siltstone_vfs::Vfs;

pub use self::entries::{contents, entries_of};
use crate::history::{EPOCH, Step};
use crate::oracle::compare;
use crate::{CheckError, CheckedCursor, EngineUnderTest, Oracle};

/// An engine under test with its oracle.
pub struct Session<'s> {
    tested: &'s dyn EngineUnderTest,
    option_set: u32,
    seed: u64,
    vfs: Arc<dyn Vfs>,
    /// `None` after a failed open.
    engine: Option<Box<dyn Engine>>,
    /// The expected state.
    pub oracle: Oracle,
    /// The clock of both.
    pub clock: Arc<ManualClock>,
    /// The number of batches that must survive a process crash.
    pub acknowledged: u64,
    /// The number of batches that must survive a power cut.
    pub synced: u64,
    snapshots: Vec<(ReadPoint, u64)>,
    kept_cursor: Option<CheckedCursor>,
    /// The number of files that were written to be ingested.
    ingested: u64,
    digest: DefaultHasher,
}

impl<'s> Session<'s> {
    /// Opens the engine on an empty disk.
    ///
    /// # Errors
    /// The engine's.
    pub fn begin(
        tested: &'s dyn EngineUnderTest,
        option_set: u32,
        seed: u64,
        vfs: Arc<dyn Vfs>,
    ) -> siltstone_engine::Result<Self> {
        let mut session = Self::unopened(tested, option_set, seed, vfs);
        session.open()?;
        Ok(session)
    }

    /// A session whose engine is not [opened](Session::open) yet.
    pub fn unopened(
        tested: &'s dyn EngineUnderTest,
        option_set: u32,
        seed: u64,
        vfs: Arc<dyn Vfs>,
    ) -> Self {
        Session {
            tested,
            option_set,
            seed,
            vfs,
            engine: None,
            oracle: Oracle::new(),
            clock: Arc::new(ManualClock::at(EPOCH)),
            acknowledged: 0,
            synced: 0,
            snapshots: Vec::new(),
            kept_cursor: None,
            ingested: 0,
            digest: DefaultHasher::new(),
        }
    }

    /// Opens the engine; an engine that is open is dropped first.
    ///
    /// # Errors
    /// The engine's.
    pub fn open(&mut self) -> siltstone_engine::Result<()> {
        self.drop_engine();
        let env = Env::replayable(self.clock.clone(), self.seed);
        let engine = self.tested.open(self.vfs.clone(), env, self.option_set)?;
        if self.has_merges() {
            engine.set_merge_operator(Some(Oracle::operator()))?;
        }
        self.engine = Some(engine);
        Ok(())
    }

    /// Opens the engine on a copy of its disk, besides the session's own.
    ///
    /// # Errors
    /// The engine's.
    pub fn open_on(&self, copy: Arc<dyn Vfs>) -> Result<Box<dyn Engine>, CheckError> {
        let env = Env::replayable(self.clock.clone(), self.seed);
        Ok(self.tested.open(copy, env, self.option_set)?)
    }

    /// Drops the engine without closing it, as a process crash would.
    pub fn drop_engine(&mut self) {
        self.kept_cursor = None;
        self.snapshots.clear();
        self.engine = None;
    }

    /// Continues with the same expectations on another disk, where the engine is not open yet.
    #[must_use]
    pub fn with_vfs(mut self, vfs: Arc<dyn Vfs>) -> Self {
        self.set_vfs(vfs);
        self
    }

    /// [`with_vfs`](Self::with_vfs) in place.
    pub fn set_vfs(&mut self, vfs: Arc<dyn Vfs>) {
        self.drop_engine();
        self.vfs = vfs;
    }

    /// The engine.
    ///
    /// # Panics
    /// If it is not open.
    pub fn engine(&self) -> &dyn Engine {
        self.engine.as_deref().expect("the engine is open")
    }

    /// Whether the engine is open.
    pub fn is_open(&self) -> bool {
        self.engine.is_some()
    }

    /// A hash of all results so far.
    pub fn digest(&self) -> u64 {
        self.digest.finish()
    }

    /// Runs a step and checks its result.
    ///
    /// # Errors
    /// The engine's, or a mismatch.
    pub fn step(&mut self, step: &Step) -> Result<(), CheckError> {
        match step {
            Step::Write(batch, durability) => self.write(batch, *durability)?,
            Step::Get(key) => self.get(key, None)?,
            Step::GetAt(key, number) => self.get(key, Some(*number))?,
            Step::Scan(..) | Step::OpenCursor(..) if !self.tested.capabilities().ordered => {
                self.read_all()?;
            }
            Step::Scan(range, at, moves) => {
                let mut cursor = self.checked_cursor(range, *at, self.clock.now())?;
                self.move_cursor(&mut cursor, moves)?;
            }
            Step::OpenCursor(range, at) => {
                // The clock will move while the cursor lives: what expires may be there or not.
                let mut cursor = self.checked_cursor(range, *at, 0)?;
                cursor.allow_expiry();
                self.kept_cursor = Some(cursor);
            }
            Step::MoveCursor(moves) => {
                if let Some(mut cursor) = self.kept_cursor.take() {
                    let moved = self.move_cursor(&mut cursor, moves);
                    self.kept_cursor = Some(cursor);
                    moved?;
                }
            }
            Step::Snapshot => {
                if self.tested.capabilities().versioned && self.snapshots.len() < 8 {
                    let point = self.engine().snapshot()?;
                    self.snapshots.push((point, self.oracle.sequence()));
                }
            }
            Step::Release(number) => {
                if let Some(at) = number.checked_rem(self.snapshots.len()) {
                    self.snapshots.remove(at);
                }
            }
            Step::ReadAll => self.read_all()?,
            Step::Flush => {
                self.engine().flush()?;
                self.synced = self.oracle.sequence();
            }
            Step::Maintain => self.engine().maintain()?,
            Step::Compact(range) => match self.engine().compact_range(range) {
                Err(Error::Unsupported { .. }) if !self.tested.capabilities().ordered => {
                    self.engine().maintain()?;
                }
                compacted => compacted?,
            },
            Step::Sync => {
                self.engine().sync()?;
                self.synced = self.oracle.sequence();
            }
            Step::Reopen => {
                self.kept_cursor = None;
                self.snapshots.clear();
                self.engine().close()?;
                self.synced = self.oracle.sequence();
                self.open()?;
                self.forget_volatile();
            }
            Step::Crash => {
                self.open()?;
                self.forget_volatile();
            }
            Step::Clock(now) => {
                self.clock.set(*now);
                self.oracle.pass_time(*now);
            }
            Step::Checkpoint => self.checkpoint()?,
            Step::Verify => self.verify()?,
            Step::Ingest(files, mode) => self.ingest(files, *mode)?,
            Step::Clear => {
                self.engine().clear()?;
                self.oracle.clear(self.clock.now());
                self.acknowledged = self.oracle.sequence();
                self.synced = self.acknowledged;
            }
        }
        Ok(())
    }

    /// Resets the oracle for an engine in memory, which is empty at every open.
    fn forget_volatile(&mut self) {
        if !self.tested.capabilities().durable {
            self.oracle.rewind(0);
            (self.acknowledged, self.synced) = (0, 0);
        }
    }

    /// Whether the session merges.
    fn has_merges(&self) -> bool {
        let is_odd = (self.seed + u64::from(self.option_set)) % 2 == 1;
        self.tested.capabilities().merge && is_odd
    }

    /// Finds how many batches the engine shows, at least `floor`, and rewinds the oracle to them.
    ///
    /// # Errors
    /// The engine's, or a state that no number of batches explains.
    pub fn align_oracle(&mut self, floor: u64) -> Result<u64, CheckError> {
        let found = contents(self.engine())?;
        let now = self.clock.now();
        let Some(sequence) = self.oracle.find_sequence(&found, floor, now) else {
            let last = self.oracle.sequence();
            let nearest = self.oracle.find_sequence(&found, 0, now);
            let at =
                |sequence| compare(&self.oracle.range(&KeyRange::all(), sequence, now), &found);
            return Err(CheckError::Mismatch(match nearest {
                Some(nearest) => {
                    format!("the state is that after batch {nearest}, expected at least {floor}")
                }
                None => format!(
                    "the state matches no number of batches; against {floor}: {}; against \
                     {last}: {}",
                    at(floor).err().unwrap_or_default(),
                    at(last).err().unwrap_or_default()
                ),
            }));
        };
        self.oracle.rewind(sequence);
        self.acknowledged = sequence;
        self.synced = self.synced.min(sequence);
        Ok(sequence)
    }
}
