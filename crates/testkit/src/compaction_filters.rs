//! Compaction filters that drop the elements of deleted and replaced collections, and change
//! others.
//!
//! ```text
//!   hA      = 7          the header of collection A: its version, never used again
//!   eA:03   = 7 …        an element of version 7: live while the header says 7
//! ```
//!
//! A filter drops each element whose header has another version, so an application that skips such
//! elements must not notice it. It changes the padding of some live elements, which the application
//! ignores. Checked:
//! - now and at snapshots, in random histories: the live elements are the oracle's, and no older
//!   version of a dropped element reappears;
//! - among threads that replace collections, take snapshots and compact: a snapshot shows a whole
//!   collection;
//! - after power cuts: a collection is whole or gone. So the deletion for which an element was
//!   dropped is durable before the element is gone.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use siltstone_engine::{
    Clock, CompactionFilter, Cursor, Durability, Engine, Entry, FilterContent, FilterDecision,
    FilterPass, FilterRow, KeyRange, ReadPoint, WriteBatch,
};
use siltstone_faults::FaultyVfs;
use siltstone_runtime::Env;
use siltstone_vfs::{Ram, Vfs};

use crate::history::Step;
use crate::oracle::{ExpectedEntry, compare};
use crate::scale::Case;
use crate::stop_guard::RunFlag;
use crate::{CheckError, CheckResult, EngineUnderTest, Scale, Session, TestRng, session};

const STEPS: usize = 400;
const COLLECTIONS: u64 = 6;
const ELEMENTS: u64 = 12;
const REPLACEMENTS: u64 = 300;
/// Power goes off before this many operations of the disk.
const CUT_OPERATIONS: u64 = 1500;
/// In a fraction of the histories no snapshot keeps rows from being dropped.
const HISTORIES_WITHOUT_SNAPSHOTS: u64 = 3;

/// Runs histories and threads with a filter.
///
/// # Errors
/// A live element that is missing, a dropped one that reappears, or no element dropped at all.
pub fn compaction_filters(tested: &dyn EngineUnderTest, scale: &Scale) -> CheckResult {
    let (mut drops, mut changes) = (0, 0);
    for case in scale.cases(scale.histories, tested.option_set_count()) {
        let dropped = run_history(tested, case);
        let (dropped, changed) =
            dropped.map_err(|wrong| format!("{}: {wrong}\n{case}", tested.name()))?;
        (drops, changes) = (drops + dropped, changes + changed);
    }
    for case in scale.cases(scale.rounds, tested.option_set_count()) {
        run_threads(tested, case).map_err(|wrong| format!("{}: {wrong}\n{case}", tested.name()))?;
    }
    for case in scale.cases(scale.power_cuts, tested.option_set_count()) {
        let dropped = run_power_cut(tested, case);
        drops += dropped
            .map_err(|wrong| format!("{} after a power cut: {wrong}\n{case}", tested.name()))?;
    }
    match (drops, changes) {
        (0, _) => Err("the filter dropped no row".to_owned()),
        (_, 0) => Err("the filter changed no value".to_owned()),
        (drops, changes) => Ok(format!("{drops} rows dropped, {changes} values changed")),
    }
}

/// Drops elements of other versions than that of their header, and changes the padding of some
/// others.
#[derive(Default)]
struct DropStale {
    drops: AtomicU64,
    changes: AtomicU64,
}

impl CompactionFilter for DropStale {
    fn begin<'a>(&'a self, content: &'a dyn FilterContent) -> Box<dyn FilterPass + 'a> {
        let mut last: Option<(u8, Option<Vec<u8>>)> = None;
        Box::new(move |row: FilterRow<'_>| {
            let [b'e', collection, ..] = *row.key else { return FilterDecision::Keep };
            if last.as_ref().is_none_or(|(known, _)| *known != collection) {
                let Ok(header) = content.get(&header_key(collection)) else {
                    return FilterDecision::Keep;
                };
                last = Some((collection, header.map(|entry| entry.value)));
            }
            let version = last.as_ref().and_then(|(_, version)| version.as_deref());
            if is_of_version(row.value, version) {
                let is_changed = row.key.last().is_some_and(|last| last % 2 == 0);
                if !is_changed || !row.value.ends_with(b".") {
                    return FilterDecision::Keep;
                }
                self.changes.fetch_add(1, Relaxed);
                let changed = [&row.value[..8], &vec![b'!'; row.value.len() - 8]].concat();
                return FilterDecision::Change(changed);
            }
            self.drops.fetch_add(1, Relaxed);
            FilterDecision::Drop
        })
    }
}

fn header_key(collection: u8) -> Vec<u8> {
    vec![b'h', collection]
}

fn element_key(collection: u8, element: u64) -> Vec<u8> {
    format!("e{}:{element:02}", char::from(collection)).into_bytes()
}

/// An element's value: the version in 8 bytes, then padding.
fn element(version: u64, padding: usize) -> Vec<u8> {
    [&version.to_be_bytes()[..], &vec![b'.'; padding]].concat()
}

/// The value with the padding that it had before the filter changed it.
fn unchanged(mut value: Vec<u8>) -> Vec<u8> {
    if value.len() > 8 && value.ends_with(b"!") {
        value[8..].fill(b'.');
    }
    value
}

fn is_of_version(value: &[u8], version: Option<&[u8]>) -> bool {
    version.is_some_and(|version| value.starts_with(version))
}

fn draw_collection(rng: &mut TestRng) -> u8 {
    b'A' + rng.below(COLLECTIONS) as u8
}

struct FilteredHistory<'s> {
    session: Session<'s>,
    rng: TestRng,
    filter: Arc<DropStale>,
    snapshots: Vec<(ReadPoint, u64)>,
    next_version: u64,
    /// The version of each collection that exists.
    versions: BTreeMap<u8, u64>,
}

fn run_history(tested: &dyn EngineUnderTest, case: Case) -> Result<(u64, u64), CheckError> {
    let filter = Arc::new(DropStale::default());
    let mut run = FilteredHistory {
        session: Session::begin(tested, case.option_set, case.seed, Arc::new(Ram::new()))?,
        rng: TestRng::of(case.seed, 3),
        filter: filter.clone(),
        snapshots: Vec::new(),
        next_version: 1,
        versions: BTreeMap::new(),
    };
    let takes_snapshots = !case.seed.is_multiple_of(HISTORIES_WITHOUT_SNAPSHOTS);
    run.set_filter()?;
    for _ in 0..STEPS {
        run.step(takes_snapshots)?;
    }
    run.snapshots.clear();
    for step in [Step::Flush, Step::Maintain, Step::Verify] {
        run.session.step(&step)?;
    }
    run.check()?;
    let counted = run.session.engine().stats().counters.get("compaction_filter_drops").copied();
    let drops = filter.drops.load(Relaxed);
    if counted.is_none_or(|counted| counted > drops) {
        let what = format!("the filter dropped {drops} rows, {counted:?} were counted");
        return Err(CheckError::Mismatch(what));
    }
    Ok((drops, filter.changes.load(Relaxed)))
}

impl FilteredHistory<'_> {
    fn set_filter(&self) -> Result<(), CheckError> {
        Ok(self.session.engine().set_compaction_filter(Some(self.filter.clone()))?)
    }

    fn step(&mut self, takes_snapshots: bool) -> Result<(), CheckError> {
        match self.rng.below(40) {
            0..8 => self.replace(),
            8..24 => self.add(),
            24..27 => self.delete_collection(),
            27..29 => {
                let key = element_key(draw_collection(&mut self.rng), self.rng.below(ELEMENTS));
                self.write(WriteBatch::new().delete(&key))
            }
            29..31 if takes_snapshots && self.snapshots.len() < 4 => {
                let point = self.session.engine().snapshot()?;
                self.snapshots.push((point, self.session.oracle.sequence()));
                Ok(())
            }
            31..33 => {
                if !self.snapshots.is_empty() {
                    let at = self.rng.index(self.snapshots.len());
                    self.snapshots.swap_remove(at);
                }
                Ok(())
            }
            33 => {
                let now = self.session.clock.now() + self.rng.below(40);
                self.session.step(&Step::Clock(now))
            }
            34 => self.session.step(&Step::Flush),
            35 => self.session.step(&Step::Maintain),
            36 => self.reopen(),
            _ => self.check(),
        }
    }

    fn reopen(&mut self) -> Result<(), CheckError> {
        self.snapshots.clear();
        let step = if self.rng.one_in(2) { Step::Reopen } else { Step::Crash };
        self.session.step(&step)?;
        self.set_filter()
    }

    /// Replaces a collection: a new version with some elements, in one batch.
    fn replace(&mut self) -> Result<(), CheckError> {
        let collection = draw_collection(&mut self.rng);
        let version = self.next_version;
        self.next_version += 1;
        self.versions.insert(collection, version);
        let mut batch = WriteBatch::new();
        batch.put(&header_key(collection), &version.to_be_bytes());
        for element in 0..self.rng.below(ELEMENTS) {
            self.push_element(&mut batch, collection, version, element);
        }
        self.write(&batch)
    }

    /// Adds an element to a collection, if it exists.
    fn add(&mut self) -> Result<(), CheckError> {
        let collection = draw_collection(&mut self.rng);
        let Some(&version) = self.versions.get(&collection) else { return Ok(()) };
        let mut batch = WriteBatch::new();
        let element = self.rng.below(ELEMENTS);
        self.push_element(&mut batch, collection, version, element);
        self.write(&batch)
    }

    fn push_element(&mut self, batch: &mut WriteBatch, collection: u8, version: u64, at: u64) {
        let key = element_key(collection, at);
        let value = element(version, self.rng.index(300));
        match self.rng.one_in(6) {
            true => batch.put_until(&key, &value, self.session.clock.now() + self.rng.below(200)),
            false => batch.put(&key, &value),
        };
    }

    fn delete_collection(&mut self) -> Result<(), CheckError> {
        let collection = draw_collection(&mut self.rng);
        self.versions.remove(&collection);
        self.write(WriteBatch::new().delete(&header_key(collection)))
    }

    fn write(&mut self, batch: &WriteBatch) -> Result<(), CheckError> {
        self.session.step(&Step::Write(batch.clone(), Durability::Buffered))
    }

    fn check(&self) -> Result<(), CheckError> {
        let engine = self.session.engine();
        self.compare(engine.iter()?, self.session.oracle.sequence())?;
        self.snapshots.iter().try_for_each(|(point, sequence)| {
            self.compare(engine.range(KeyRange::all(), Some(point))?, *sequence)
        })
    }

    fn compare(&self, cursor: Box<dyn Cursor>, sequence: u64) -> Result<(), CheckError> {
        let found = session::entries_of(cursor)?;
        let unchanged = |entry: Entry| Entry { value: unchanged(entry.value), ..entry };
        let found: Vec<_> = found.into_iter().map(|(key, entry)| (key, unchanged(entry))).collect();
        let (all, now) = (KeyRange::all(), self.session.clock.now());
        let expected = self.session.oracle.range(&all, sequence, now);
        for (key, entry) in &found {
            if !expected.iter().any(|known| known.key == key && known.entry == entry) {
                let what = format!("{} reappears: {entry:?}", key.escape_ascii());
                return Err(CheckError::Mismatch(what));
            }
        }
        let headers: BTreeMap<_, _> =
            expected.iter().map(|known| (known.key.to_vec(), known.entry.value.clone())).collect();
        let is_live = |key: &[u8], entry: &Entry| {
            let header = |collection| headers.get(&header_key(collection)).map(Vec::as_slice);
            key[0] == b'h' || is_of_version(&entry.value, header(key[1]))
        };
        let expected: Vec<ExpectedEntry<'_>> =
            expected.iter().copied().filter(|known| is_live(known.key, known.entry)).collect();
        let found = found.into_iter().filter(|(key, entry)| is_live(key, entry)).collect();
        compare(&expected, &found).map_err(CheckError::Mismatch)
    }
}

/// Replaces and deletes collections until power goes off, and checks what is left.
fn run_power_cut(tested: &dyn EngineUnderTest, case: Case) -> Result<u64, CheckError> {
    let mut rng = TestRng::of(case.seed, 5);
    let vfs = FaultyVfs::new(case.seed);
    let filter = Arc::new(DropStale::default());
    let mut session = Session::begin(tested, case.option_set, case.seed, Arc::new(vfs.clone()))?;
    session.engine().set_compaction_filter(Some(filter.clone()))?;
    vfs.cut_power_at(vfs.operations() + rng.below(CUT_OPERATIONS));
    let outcome = (1..=REPLACEMENTS).try_for_each(|version| {
        let collection = draw_collection(&mut rng);
        let mut batch = WriteBatch::new();
        if rng.one_in(3) {
            batch.delete(&header_key(collection));
        } else {
            batch.put(&header_key(collection), &version.to_be_bytes());
            for at in 0..ELEMENTS {
                batch.put(&element_key(collection, at), &element(version, rng.index(300)));
            }
        }
        let durability = if rng.one_in(10) { Durability::Synced } else { Durability::Buffered };
        session.step(&Step::Write(batch, durability))?;
        match rng.below(20) {
            0 => session.step(&Step::Flush),
            1 => session.step(&Step::Maintain),
            _ => Ok(()),
        }
    });
    match outcome {
        Err(CheckError::Engine(_)) if vfs.power_is_off() => {}
        outcome => outcome?,
    }
    vfs.cut_power();
    drop(session);
    let survivors = Arc::new(vfs.survivors(case.seed));
    let mut after = Session::unopened(tested, case.option_set, case.seed, survivors);
    after.open()?;
    check_whole(after.engine())?;
    Ok(filter.drops.load(Relaxed))
}

/// Replaces collections in one thread while others compact and read snapshots.
fn run_threads(tested: &dyn EngineUnderTest, case: Case) -> Result<(), CheckError> {
    let vfs: Arc<dyn Vfs> = Arc::new(Ram::new());
    let engine = tested.open(vfs, Env::system(2), case.option_set)?;
    engine.set_compaction_filter(Some(Arc::new(DropStale::default())))?;
    let (engine, running) = (engine.as_ref(), &RunFlag::default());
    std::thread::scope(|scope| {
        let compacting = scope.spawn(move || -> Result<(), CheckError> {
            while running.is_set() {
                engine.flush()?;
                engine.maintain()?;
            }
            Ok(())
        });
        let reading = scope.spawn(move || -> Result<(), CheckError> {
            while running.is_set() {
                check_whole(engine)?;
            }
            Ok(())
        });
        let written = {
            let _stop = running.clear_on_drop();
            let mut rng = TestRng::of(case.seed, 4);
            (1..=REPLACEMENTS).try_for_each(|version| {
                let collection = draw_collection(&mut rng);
                let mut batch = WriteBatch::new();
                batch.put(&header_key(collection), &version.to_be_bytes());
                for at in 0..ELEMENTS {
                    batch.put(&element_key(collection, at), &element(version, rng.index(100)));
                }
                engine.write(&batch, Durability::Buffered)
            })
        };
        for thread in [compacting, reading] {
            thread.join().map_err(|_| CheckError::Mismatch("a thread panicked".to_owned()))??;
        }
        Ok::<(), CheckError>(written?)
    })?;
    check_whole(engine)?;
    Ok(engine.close()?)
}

/// Checks that each collection in a snapshot has all of its elements.
fn check_whole(engine: &dyn Engine) -> Result<(), CheckError> {
    let point = engine.snapshot()?;
    for collection in (0..COLLECTIONS).map(|at| b'A' + at as u8) {
        let Some(header) = engine.get_at(&header_key(collection), &point)? else { continue };
        for at in 0..ELEMENTS {
            let found = engine.get_at(&element_key(collection, at), &point)?;
            if !found.is_some_and(|entry| is_of_version(&entry.value, Some(&header.value))) {
                let collection = char::from(collection);
                let what = format!("a snapshot lacks element {at} of collection {collection}");
                return Err(CheckError::Mismatch(what));
            }
        }
    }
    Ok(())
}
