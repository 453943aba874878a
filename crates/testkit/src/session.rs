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

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use siltstone_engine::{
    BatchOp, Clock, Cursor, Durability, Engine, Entry, Error, IngestMode, IngestOptions,
    IngestReport, KeyRange, ManualClock, Op, ReadPoint, Timestamp, WriteBatch,
};
use siltstone_runtime::Env;
use siltstone_vfs::{Ram, Vfs};

use crate::history::{EPOCH, Step};
use crate::oracle::{compare, show, show_entry};
use crate::sink::VfsSink;
use crate::{CheckError, CheckedCursor, EngineUnderTest, Move, Oracle};

/// The directory of files to be ingested, in the table's.
const SORTED_FILES: &str = "sorted";

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

    /// The operations of a batch that the engine takes: histories delete ranges, merge, and put
    /// entries that expire.
    fn supported<'b>(&self, batch: &'b WriteBatch) -> Cow<'b, WriteBatch> {
        let (has_ranges, has_merges) =
            (self.tested.capabilities().range_deletes, self.has_merges());
        let is_supported = (batch.range_deletions() == 0 || has_ranges)
            && if has_merges { batch.expiring_puts() == 0 } else { batch.merges() == 0 };
        if is_supported {
            return Cow::Borrowed(batch);
        }
        let mut supported = WriteBatch::new();
        for op in batch.iter_all() {
            match op {
                BatchOp::Merge { .. } if !has_merges => &mut supported,
                BatchOp::DeleteRange { .. } if !has_ranges => &mut supported,
                BatchOp::Point(Op::Put { key, value, .. }) if has_merges => {
                    supported.put(key, value)
                }
                other => supported.push_any(other),
            };
        }
        Cow::Owned(supported)
    }

    fn write(&mut self, batch: &WriteBatch, durability: Durability) -> Result<(), CheckError> {
        let batch = &*self.supported(batch);
        self.engine().write(batch, durability)?;
        self.oracle.apply(batch, self.clock.now());
        self.acknowledged = self.oracle.sequence();
        if durability == Durability::Synced {
            self.synced = self.acknowledged;
        }
        Ok(())
    }

    fn ingest(&mut self, files: &[WriteBatch], mode: IngestMode) -> Result<(), CheckError> {
        let files: Vec<_> = files.iter().map(|file| self.supported(file).into_owned()).collect();
        let mut all = WriteBatch::new();
        files.iter().for_each(|file| _ = all.append(file));
        if !self.tested.ingests(self.option_set) {
            return self.write(&all, Durability::Synced);
        }
        let names = 0..files.len() as u64;
        let names = names.map(|at| format!("{}.sorted", self.ingested + at)).collect::<Vec<_>>();
        self.ingested += files.len() as u64;
        let directory = self.vfs.subdirectory(SORTED_FILES)?;
        let outcome = self.ingest_files(&files, &names, &directory, mode);
        for name in &names {
            let found = directory.exists(name);
            let _ = directory.remove(name);
            let is_expected = match &outcome {
                Ok(report) if mode == IngestMode::Move => {
                    let is_named = |path: &PathBuf| path.ends_with(name);
                    (!report.not_removed.iter().any(is_named)).then_some(false)
                }
                Ok(_) | Err((true, _)) => Some(true),
                // It may not have been written.
                Err((false, _)) => None,
            };
            if let (Ok(found), Some(expected)) = (found, is_expected)
                && found != expected
            {
                let what = if expected { "is lost" } else { "was not moved" };
                return Err(CheckError::Mismatch(format!("the sorted file {name} {what}")));
            }
        }
        outcome.map_err(|(_, error)| error)?;
        self.oracle.apply(&all, self.clock.now());
        self.acknowledged = self.oracle.sequence();
        self.synced = self.acknowledged;
        Ok(())
    }

    /// Writes sorted files and ingests them; an error comes with whether all were written.
    fn ingest_files(
        &self,
        files: &[WriteBatch],
        names: &[String],
        directory: &Arc<dyn Vfs>,
        mode: IngestMode,
    ) -> Result<IngestReport, (bool, Error)> {
        let (tested, set) = (self.tested, self.option_set);
        for (file, name) in files.iter().zip(names) {
            // Left by an earlier session on this disk.
            if directory.exists(name).map_err(|error| (false, error))? {
                directory.remove(name).map_err(|error| (false, error))?;
            }
            let written = tested.write_sorted_file(directory.clone(), name, file, set);
            written.map_err(|error| (false, error))?;
        }
        let paths: Vec<_> = names.iter().map(|name| Path::new(SORTED_FILES).join(name)).collect();
        let paths: Vec<&Path> = paths.iter().map(PathBuf::as_path).collect();
        let options = IngestOptions { mode, ..IngestOptions::default() };
        let prepared = self.engine().prepare_ingestion(&paths, options);
        let ingested = prepared.and_then(|prepared| prepared.commit());
        ingested.map_err(|error| (true, error))
    }

    /// Applies a write with an unknown outcome to the oracle: it may appear after the next open.
    pub fn apply_uncertain(&mut self, step: &Step) {
        match step {
            Step::Write(batch, _) => {
                let batch = self.supported(batch);
                self.oracle.apply(&batch, self.clock.now());
            }
            Step::Clear => self.oracle.clear(self.clock.now()),
            Step::Ingest(files, _) => {
                let mut all = WriteBatch::new();
                files.iter().for_each(|file| _ = all.append(&self.supported(file)));
                self.oracle.apply(&all, self.clock.now());
            }
            _ => {}
        }
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

    /// The snapshot that a step names, if there is any.
    fn snapshot(&self, number: Option<usize>) -> Option<&(ReadPoint, u64)> {
        number?.checked_rem(self.snapshots.len()).map(|at| &self.snapshots[at])
    }

    fn get(&mut self, key: &[u8], number: Option<usize>) -> Result<(), CheckError> {
        let (found, sequence) = match self.snapshot(number) {
            Some((point, sequence)) => (self.engine().get_at(key, point)?, *sequence),
            None => (self.engine().get(key)?, self.oracle.sequence()),
        };
        let expected = self.oracle.get(key, sequence, self.clock.now());
        let fits = match (&expected, &found) {
            (None, None) => true,
            (Some(expected), None) => !expected.certain,
            (Some(expected), Some(found)) => expected.entry == found,
            (None, Some(_)) => false,
        };
        if !fits {
            let (should, is) = (show_entry(expected.map(|e| e.entry)), show_entry(found.as_ref()));
            let at = if sequence == self.oracle.sequence() { "" } else { " at a snapshot" };
            let what = format!("get {}{at} should return {should} and returns {is}", show(key));
            return Err(CheckError::Mismatch(what));
        }
        self.record(found.map(|entry| (entry.value, entry.expires_at)));
        Ok(())
    }

    /// A cursor over a range, at a snapshot or now, for a clock that never shows less than `now`.
    ///
    /// # Errors
    /// The engine's.
    pub fn checked_cursor(
        &self,
        range: &KeyRange,
        number: Option<usize>,
        now: Timestamp,
    ) -> Result<CheckedCursor, CheckError> {
        let (point, sequence) = match self.snapshot(number) {
            Some((point, sequence)) => (Some(point), *sequence),
            None => (None, self.oracle.sequence()),
        };
        let cursor = self.engine().range(range.clone(), point)?;
        Ok(CheckedCursor::new(cursor, &self.oracle.range(range, sequence, now)))
    }

    fn move_cursor(
        &mut self,
        cursor: &mut CheckedCursor,
        moves: &[Move],
    ) -> Result<(), CheckError> {
        for step in moves {
            let key = cursor.step(step)?;
            key.hash(&mut self.digest);
        }
        Ok(())
    }

    /// Reads everything and compares.
    ///
    /// # Errors
    /// The engine's, or a mismatch.
    pub fn read_all(&mut self) -> Result<(), CheckError> {
        let found = contents(self.engine())?;
        let expected =
            self.oracle.range(&KeyRange::all(), self.oracle.sequence(), self.clock.now());
        compare(&expected, &found).map_err(CheckError::Mismatch)?;
        self.record(found.into_iter().map(|(key, entry)| (key, entry.value)).collect::<Vec<_>>());
        Ok(())
    }

    fn checkpoint(&mut self) -> Result<(), CheckError> {
        let copy: Arc<dyn Vfs> = Arc::new(Ram::new());
        let copying = self.engine().checkpoint(&mut VfsSink::new(self.tested.view(copy.clone())));
        if !self.tested.capabilities().durable {
            return match copying {
                Err(Error::Unsupported { .. }) => Ok(()),
                other => Err(CheckError::Mismatch(format!(
                    "a checkpoint of an engine in memory: {other:?}"
                ))),
            };
        }
        copying?;
        let copied = self.open_on(copy)?;
        let found = contents(copied.as_ref())?;
        let expected =
            self.oracle.range(&KeyRange::all(), self.oracle.sequence(), self.clock.now());
        compare(&expected, &found)
            .map_err(|what| CheckError::Mismatch(format!("in the checkpoint: {what}")))?;
        Ok(copied.close()?)
    }

    /// Runs `verify` on the engine.
    ///
    /// # Errors
    /// The engine's, or the damage that it found.
    pub fn verify(&mut self) -> Result<(), CheckError> {
        let report = self.engine().verify(&mut |_, _| ())?;
        match report.damage.first() {
            None => Ok(()),
            Some(damage) => Err(CheckError::Mismatch(format!("verify found {damage:?}"))),
        }
    }

    fn record(&mut self, result: impl Hash) {
        result.hash(&mut self.digest);
    }
}

/// All entries of an engine.
///
/// # Errors
/// The engine's, or a key that comes twice.
pub fn contents(engine: &dyn Engine) -> Result<BTreeMap<Vec<u8>, Entry>, CheckError> {
    entries_of(engine.iter()?)
}

/// All entries of a cursor.
///
/// # Errors
/// The engine's, or a key that comes twice.
pub fn entries_of(mut cursor: Box<dyn Cursor>) -> Result<BTreeMap<Vec<u8>, Entry>, CheckError> {
    let mut entries = BTreeMap::new();
    let mut is_valid = cursor.first()?;
    while is_valid {
        let entry = Entry { value: cursor.value().to_vec(), expires_at: cursor.expires_at() };
        if entries.insert(cursor.key().to_vec(), entry).is_some() {
            let what = format!("a scan returns key {} twice", show(cursor.key()));
            return Err(CheckError::Mismatch(what));
        }
        is_valid = cursor.next()?;
    }
    Ok(entries)
}
