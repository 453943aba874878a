//! An engine and the oracle, side by side: each step is done to both, and the answers compared.
//!
//! ```text
//!   step ─┬─▶ engine ──▶ answer ─┐
//!         └─▶ oracle ──▶ answer ─┴─▶ equal?      and: how much is acknowledged, how much synced
//! ```
//!
//! Invariant: after a step that went well the oracle stands where the engine does. After one that
//! failed it stands where the engine stood before; whoever injected the fault knows more.
//!
//! Source: ours.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use siltstone_engine::{
    Clock, Durability, Engine, Entry, Error, KeyRange, ManualClock, ReadPoint, Timestamp,
    WriteBatch,
};
use siltstone_runtime::Env;
use siltstone_vfs::{Ram, Vfs};

use crate::history::{EPOCH, Step};
use crate::oracle::{compare, show, show_entry};
use crate::sink::MediaSink;
use crate::{Move, Oracle, Subject, Walker, Wrong};

/// An engine under test, and what it should know.
pub struct Session<'s> {
    subject: &'s dyn Subject,
    variant: u32,
    seed: u64,
    vfs: Arc<dyn Vfs>,
    /// `None` while opening failed.
    engine: Option<Box<dyn Engine>>,
    /// What it should know.
    pub oracle: Oracle,
    /// The clock of both.
    pub clock: Arc<ManualClock>,
    /// How many batches the death of the process must leave.
    pub acknowledged: u64,
    /// How many batches a power cut must leave.
    pub synced: u64,
    snapshots: Vec<(ReadPoint, u64)>,
    held: Option<Walker>,
    answers: DefaultHasher,
}

impl<'s> Session<'s> {
    /// Opens the engine on an empty medium.
    ///
    /// # Errors
    /// The engine's.
    pub fn begin(
        subject: &'s dyn Subject,
        variant: u32,
        seed: u64,
        vfs: Arc<dyn Vfs>,
    ) -> siltstone_engine::Result<Self> {
        let mut session = Self::unopened(subject, variant, seed, vfs);
        session.open()?;
        Ok(session)
    }

    /// A session whose engine is yet to be [opened](Session::open).
    pub fn unopened(subject: &'s dyn Subject, variant: u32, seed: u64, vfs: Arc<dyn Vfs>) -> Self {
        Session {
            subject,
            variant,
            seed,
            vfs,
            engine: None,
            oracle: Oracle::new(),
            clock: Arc::new(ManualClock::at(EPOCH)),
            acknowledged: 0,
            synced: 0,
            snapshots: Vec::new(),
            held: None,
            answers: DefaultHasher::new(),
        }
    }

    /// Opens the engine, dropping the one that was open.
    ///
    /// # Errors
    /// The engine's.
    pub fn open(&mut self) -> siltstone_engine::Result<()> {
        self.drop_engine();
        let env = Env::replayable(self.clock.clone(), self.seed);
        self.engine = Some(self.subject.open(self.vfs.clone(), env, self.variant)?);
        Ok(())
    }

    /// The same engine opened on a copy of its medium; this one stays as it is.
    ///
    /// # Errors
    /// The engine's.
    pub fn reopened_on(&self, copy: Arc<dyn Vfs>) -> Result<Box<dyn Engine>, Wrong> {
        let env = Env::replayable(self.clock.clone(), self.seed);
        Ok(self.subject.open(copy, env, self.variant)?)
    }

    /// Drops the engine as the death of the process would.
    pub fn drop_engine(&mut self) {
        self.held = None;
        self.snapshots.clear();
        self.engine = None;
    }

    /// Goes on, with what is known, on another medium: the engine is not open there yet.
    #[must_use]
    pub fn moved_to(mut self, vfs: Arc<dyn Vfs>) -> Self {
        self.move_to(vfs);
        self
    }

    /// The same in place.
    pub fn move_to(&mut self, vfs: Arc<dyn Vfs>) {
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

    /// A number that stands for all answers so far.
    pub fn answers(&self) -> u64 {
        self.answers.finish()
    }

    /// Does a step and checks its answer.
    ///
    /// # Errors
    /// The engine's, or what is wrong.
    pub fn step(&mut self, step: &Step) -> Result<(), Wrong> {
        match step {
            Step::Write(batch, durability) => self.write(batch, *durability)?,
            Step::Get(key) => self.get(key, None)?,
            Step::GetAt(key, number) => self.get(key, Some(*number))?,
            Step::Walk(..) | Step::Hold(..) if !self.subject.capabilities().ordered => {
                self.read_all()?;
            }
            Step::Walk(range, at, moves) => {
                let mut walker = self.walker(range, *at, self.clock.now())?;
                self.walk(&mut walker, moves)?;
            }
            Step::Hold(range, at) => {
                // It will see the clock move: whatever expires may be there or not.
                let mut walker = self.walker(range, *at, 0)?;
                walker.doubt_what_expires();
                self.held = Some(walker);
            }
            Step::MoveHeld(moves) => {
                if let Some(mut walker) = self.held.take() {
                    let walked = self.walk(&mut walker, moves);
                    self.held = Some(walker);
                    walked?;
                }
            }
            Step::Snapshot => {
                if self.subject.capabilities().versioned && self.snapshots.len() < 8 {
                    let point = self.engine().snapshot()?;
                    self.snapshots.push((point, self.oracle.moment()));
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
                self.synced = self.oracle.moment();
            }
            Step::Maintain => self.engine().maintain()?,
            Step::Sync => {
                self.engine().sync()?;
                self.synced = self.oracle.moment();
            }
            Step::Reopen => {
                self.held = None;
                self.snapshots.clear();
                self.engine().close()?;
                self.synced = self.oracle.moment();
                self.open()?;
                self.forget();
            }
            Step::Crash => {
                self.open()?;
                self.forget();
            }
            Step::Clock(now) => {
                self.clock.set(*now);
                self.oracle.pass_time(*now);
            }
            Step::Checkpoint => self.checkpoint()?,
            Step::Verify => self.verify()?,
            Step::Clear => {
                self.engine().clear()?;
                self.oracle.clear(self.clock.now());
                self.acknowledged = self.oracle.moment();
                self.synced = self.acknowledged;
            }
        }
        Ok(())
    }

    /// An engine in memory begins empty whenever it is opened.
    fn forget(&mut self) {
        if !self.subject.capabilities().durable {
            self.oracle.rewind(0);
            (self.acknowledged, self.synced) = (0, 0);
        }
    }

    fn write(&mut self, batch: &WriteBatch, durability: Durability) -> Result<(), Wrong> {
        self.engine().write(batch, durability)?;
        self.oracle.apply(batch, self.clock.now());
        self.acknowledged = self.oracle.moment();
        if durability == Durability::Synced {
            self.synced = self.acknowledged;
        }
        Ok(())
    }

    /// A write failed in a way that leaves open whether it happened: it may turn up after the next
    /// opening.
    pub fn doubt(&mut self, step: &Step) {
        match step {
            Step::Write(batch, _) => self.oracle.apply(batch, self.clock.now()),
            Step::Clear => self.oracle.clear(self.clock.now()),
            _ => {}
        }
    }

    /// Which number of batches the engine shows, at least `floor`; the oracle goes there.
    ///
    /// # Errors
    /// The engine's, or that the state is none that it should be.
    pub fn settle(&mut self, floor: u64) -> Result<u64, Wrong> {
        let found = contents(self.engine())?;
        let now = self.clock.now();
        let Some(moment) = self.oracle.find_moment(&found, floor, now) else {
            let last = self.oracle.moment();
            let nearest = self.oracle.find_moment(&found, 0, now);
            let at = |moment| compare(&self.oracle.range(&KeyRange::all(), moment, now), &found);
            return Err(Wrong::Answer(match nearest {
                Some(nearest) => format!("state is that after batch {nearest}, {floor} were due"),
                None => format!(
                    "state is that after no number of batches; against {floor}: {}; against \
                     {last}: {}",
                    at(floor).err().unwrap_or_default(),
                    at(last).err().unwrap_or_default()
                ),
            }));
        };
        self.oracle.rewind(moment);
        self.acknowledged = moment;
        self.synced = self.synced.min(moment);
        Ok(moment)
    }

    /// The snapshot that a step means, if there is any.
    fn snapshot(&self, number: Option<usize>) -> Option<&(ReadPoint, u64)> {
        number?.checked_rem(self.snapshots.len()).map(|at| &self.snapshots[at])
    }

    fn get(&mut self, key: &[u8], number: Option<usize>) -> Result<(), Wrong> {
        let (found, moment) = match self.snapshot(number) {
            Some((point, moment)) => (self.engine().get_at(key, point)?, *moment),
            None => (self.engine().get(key)?, self.oracle.moment()),
        };
        let expected = self.oracle.get(key, moment, self.clock.now());
        let fits = match (&expected, &found) {
            (None, None) => true,
            (Some(expected), None) => !expected.certain,
            (Some(expected), Some(found)) => expected.entry == found,
            (None, Some(_)) => false,
        };
        if !fits {
            let (should, is) = (show_entry(expected.map(|e| e.entry)), show_entry(found.as_ref()));
            let at = if moment == self.oracle.moment() { "" } else { " at a snapshot" };
            let what = format!("get {}{at} should be {should} and is {is}", show(key));
            return Err(Wrong::Answer(what));
        }
        self.note(found.map(|entry| (entry.value, entry.expires_at)));
        Ok(())
    }

    /// A cursor over a range, at a snapshot or now, for a clock that shows at least `now` while it is used.
    ///
    /// # Errors
    /// The engine's.
    pub fn walker(
        &self,
        range: &KeyRange,
        number: Option<usize>,
        now: Timestamp,
    ) -> Result<Walker, Wrong> {
        let (point, moment) = match self.snapshot(number) {
            Some((point, moment)) => (Some(point), *moment),
            None => (None, self.oracle.moment()),
        };
        let cursor = self.engine().range(range.clone(), point)?;
        Ok(Walker::new(cursor, &self.oracle.range(range, moment, now)))
    }

    fn walk(&mut self, walker: &mut Walker, moves: &[Move]) -> Result<(), Wrong> {
        for step in moves {
            let key = walker.step(step)?;
            key.hash(&mut self.answers);
        }
        Ok(())
    }

    /// Reads everything and compares.
    ///
    /// # Errors
    /// The engine's, or what is wrong.
    pub fn read_all(&mut self) -> Result<(), Wrong> {
        let found = contents(self.engine())?;
        let expected = self.oracle.range(&KeyRange::all(), self.oracle.moment(), self.clock.now());
        compare(&expected, &found).map_err(Wrong::Answer)?;
        self.note(found.into_iter().map(|(key, entry)| (key, entry.value)).collect::<Vec<_>>());
        Ok(())
    }

    fn checkpoint(&mut self) -> Result<(), Wrong> {
        let copy: Arc<dyn Vfs> = Arc::new(Ram::new());
        let copying = self.engine().checkpoint(&mut MediaSink::new(copy.clone()));
        if !self.subject.capabilities().durable {
            return match copying {
                Err(Error::Unsupported { .. }) => Ok(()),
                other => Err(Wrong::Answer(format!("a checkpoint that cannot open: {other:?}"))),
            };
        }
        copying?;
        let copied = self.reopened_on(copy)?;
        let found = contents(copied.as_ref())?;
        let expected = self.oracle.range(&KeyRange::all(), self.oracle.moment(), self.clock.now());
        compare(&expected, &found)
            .map_err(|what| Wrong::Answer(format!("in the checkpoint: {what}")))?;
        Ok(copied.close()?)
    }

    /// Checks that the engine finds its files sound.
    ///
    /// # Errors
    /// The engine's, or the damage that it found.
    pub fn verify(&mut self) -> Result<(), Wrong> {
        let report = self.engine().verify(&mut |_, _| ())?;
        match report.damage.first() {
            None => Ok(()),
            Some(damage) => Err(Wrong::Answer(format!("verify found {damage:?}"))),
        }
    }

    fn note(&mut self, answer: impl Hash) {
        answer.hash(&mut self.answers);
    }
}

/// All entries of an engine.
///
/// # Errors
/// The engine's, or a key that comes twice.
pub fn contents(engine: &dyn Engine) -> Result<BTreeMap<Vec<u8>, Entry>, Wrong> {
    let mut entries = BTreeMap::new();
    let mut cursor = engine.iter()?;
    let mut there = cursor.first()?;
    while there {
        let entry = Entry { value: cursor.value().to_vec(), expires_at: cursor.expires_at() };
        if entries.insert(cursor.key().to_vec(), entry).is_some() {
            let what = format!("a walk meets key {} twice", show(cursor.key()));
            return Err(Wrong::Answer(what));
        }
        there = cursor.next()?;
    }
    Ok(entries)
}
