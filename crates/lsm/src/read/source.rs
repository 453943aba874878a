//! A sorted run of versions: a memtable, an L0 run in files or in persistent memory, or the tables
//! of a level.
//!
//! Versions are ordered by key ascending, then sequence descending. A memtable yields each key at
//! most once, as of the cursor's sequence number; tables yield every version.

use std::sync::Arc;

use siltstone_engine::{Purpose, Result};
use siltstone_structures::{self as structures, BloomProbe};
use siltstone_table::{IterOptions, Kind};

use super::l0_run_iter::L0RunIter;
use super::level::LevelIter;
use super::run_head::{HeadPrefix, RunHead};
use super::value_prefetcher::PrefetchBudget;
use crate::blob_ref::BlobRef;
use crate::memtable::{Memtable, kind_of};
use crate::pool::POOL_FILE;
use crate::rowtable;
use crate::version::L0Run;
use crate::view::View;

/// A sorted run. An enum rather than a trait object: the merge calls it for every entry.
pub(crate) enum Source {
    Memtable(MemtableIter),
    // Boxed, because they are large and a merge moves its runs.
    L0Run(Box<L0RunIter>),
    RowTable(Box<rowtable::RowTableIter>),
    Level(Box<LevelIter>),
    /// The L0 run with this index in the merge's view, in files; the merge creates its iterator
    /// before the first seek.
    Lazy(usize),
}

/// Applies one expression to any kind of run.
macro_rules! run {
    ($source:expr, $it:ident => $do:expr) => {
        match $source {
            Source::Memtable($it) => $do,
            Source::L0Run($it) => $do,
            Source::RowTable($it) => $do,
            Source::Level($it) => $do,
            Source::Lazy(_) => unreachable!("a lazy run is opened before its first seek"),
        }
    };
}

impl Source {
    /// A run over the live part of an L0 run.
    pub(crate) fn of_l0_run(run: &L0Run, purpose: Purpose, options: IterOptions) -> Self {
        if let Some(file) = run.file() {
            return Source::L0Run(Box::new(L0RunIter::new(run, file, purpose, options)));
        }
        let table = run.pmem_table().expect("a run without a table is in persistent memory");
        Source::RowTable(Box::new(rowtable::RowTableIter::new(table.clone(), purpose)))
    }

    /// A run over the live part of an L0 run for a compaction, or over a slice: from the L0 cursor
    /// to before `slice_end` (`Some(None)`: to the last key), without the live keys that the cursor
    /// reaches only after it wraps around. `budget`: for values in a log.
    ///
    /// # Errors
    /// `Corruption` in the searched pages.
    pub(crate) fn for_compaction(
        run: &L0Run,
        slice_end: Option<Option<&[u8]>>,
        budget: &PrefetchBudget,
    ) -> Result<Self> {
        let (purpose, options) = (Purpose::Compaction, IterOptions::COMPACTION);
        if let Some(file) = run.file() {
            let whole = L0RunIter::new(run, file, purpose, options);
            let part = if let Some(to) = slice_end { whole.up_to(to) } else { whole };
            return Ok(Source::L0Run(Box::new(part.with_prefetcher(run, budget))));
        }
        let Some(to) = slice_end else { return Ok(Source::of_l0_run(run, purpose, options)) };
        let table = run.pmem_table().expect("a run without a table is in persistent memory");
        let slice = Arc::new(table.trim(run.live().up_to(to))?);
        Ok(Source::RowTable(Box::new(rowtable::RowTableIter::new(slice, purpose))))
    }

    pub(crate) fn first(&mut self) -> Result<()> {
        run!(self, it => it.first())
    }

    pub(crate) fn last(&mut self) -> Result<()> {
        run!(self, it => it.last())
    }

    /// Moves to the first version at or after (`key`, `sequence`) in run order.
    pub(crate) fn seek(&mut self, key: &[u8], sequence: u64) -> Result<()> {
        run!(self, it => it.seek(key, sequence))
    }

    /// Whether it may contain versions of `key`; `true` without a filter, and for an L0 run, whose
    /// filter is in the version. Cost: one cache line.
    pub(crate) fn may_contain(&self, key: &[u8], probe: &mut BloomProbe) -> bool {
        match self {
            Source::Level(level) => level.may_contain(key, probe),
            Source::L0Run(_) | Source::Memtable(_) | Source::RowTable(_) | Source::Lazy(_) => true,
        }
    }

    /// Whether it may contain versions of keys in `from..=to`; `true` without a filter. Cost: about
    /// three cache lines.
    pub(crate) fn may_contain_range(&self, from: &[u8], to: &[u8]) -> bool {
        match self {
            Source::L0Run(run) => run.may_contain_range(from, to),
            Source::Level(level) => level.may_contain_range(from, to),
            Source::Memtable(_) | Source::RowTable(_) | Source::Lazy(_) => true,
        }
    }

    /// Moves to the last version at or before (`key`, `sequence`) in run order.
    pub(crate) fn seek_back(&mut self, key: &[u8], sequence: u64) -> Result<()> {
        run!(self, it => it.seek_back(key, sequence))
    }

    /// Moves to the first version from `end` on (`None`: past all), or behind the current table of
    /// a level; returns its head if there is one. A run that is moved past all keeps its position.
    pub(super) fn skip_to(
        &mut self,
        end: Option<&[u8]>,
        prefix: &HeadPrefix,
    ) -> Result<Option<RunHead>> {
        match (&mut *self, end) {
            (Source::Level(level), end) => level.skip_to(end)?,
            (run, Some(end)) => run.seek(end, u64::MAX)?,
            (_, None) => return Ok(None),
        }
        Ok(self.head(prefix))
    }

    /// Moves to the last version before `start`, or before the current table of a level; returns
    /// its head if there is one.
    pub(super) fn skip_back(
        &mut self,
        start: &[u8],
        prefix: &HeadPrefix,
    ) -> Result<Option<RunHead>> {
        match &mut *self {
            Source::Level(level) => level.skip_back(start)?,
            // Versions are newest first, so this finds no version of `start` itself.
            run => run.seek_back(start, u64::MAX)?,
        }
        Ok(self.head(prefix))
    }

    /// Moves to the next version and returns its head; `None` at the end.
    #[inline]
    pub(super) fn next(&mut self, prefix: &HeadPrefix) -> Result<Option<RunHead>> {
        match self {
            Source::L0Run(run) => run.next(prefix),
            Source::Level(run) => run.next(prefix),
            Source::Memtable(run) => Ok(run.next(prefix)),
            Source::RowTable(run) => {
                run.next()?;
                Ok(self.head(prefix))
            }
            Source::Lazy(_) => unreachable!("a lazy run is opened before its first seek"),
        }
    }

    /// Moves to the version before and returns its head; `None` at the start.
    pub(super) fn prev(&mut self, prefix: &HeadPrefix) -> Result<Option<RunHead>> {
        run!(self, it => it.prev())?;
        Ok(self.head(prefix))
    }

    /// The head of the current version; `None` if the run is not valid.
    #[inline]
    pub(super) fn head(&self, prefix: &HeadPrefix) -> Option<RunHead> {
        run!(self, it => it.valid().then(|| RunHead::of(it.key(), it.sequence(), prefix)))
    }

    #[inline]
    pub(crate) fn key(&self) -> &[u8] {
        run!(self, it => it.key())
    }

    pub(crate) fn sequence(&self) -> u64 {
        run!(self, it => it.sequence())
    }

    /// Makes the value available, which may be in a log or blob file. Returns kind and expiry.
    #[inline]
    pub(crate) fn resolve(&mut self) -> Result<(Kind, u64)> {
        match self {
            Source::L0Run(run) => run.resolve(),
            Source::Level(level) => level.resolve(),
            Source::Memtable(run) => Ok((run.kind(), run.expires_at())),
            Source::RowTable(run) => Ok((run.kind(), run.expires_at())),
            Source::Lazy(_) => unreachable!("a lazy run is opened before its first seek"),
        }
    }

    /// The reference to the value of the current version; `None` if it has none.
    pub(crate) fn reference(&self) -> Result<Option<BlobRef>> {
        match self {
            Source::L0Run(run) => run.reference(),
            Source::Level(level) => level.reference(),
            Source::Memtable(_) | Source::RowTable(_) | Source::Lazy(_) => Ok(None),
        }
    }

    /// As [`resolve`](Self::resolve) for callers without use for the value, which may be empty
    /// then.
    #[inline]
    pub(crate) fn resolve_without_value(&mut self) -> Result<(Kind, u64)> {
        match self {
            Source::L0Run(run) => run.resolve_without_value(),
            Source::Level(level) => level.resolve_without_value(),
            run => run.resolve(),
        }
    }

    /// The file of the current version; the run must be valid.
    pub(crate) fn file_name(&self) -> String {
        match self {
            Source::L0Run(run) => run.file_name().to_owned(),
            Source::Level(level) => level.file_name(),
            Source::RowTable(_) => POOL_FILE.to_owned(),
            Source::Memtable(_) | Source::Lazy(_) => "memtable".to_owned(),
        }
    }

    /// An upper bound of the sequence numbers of its visible versions; of a level those in the
    /// current table. The run must be valid.
    pub(crate) fn max_sequence(&self) -> u64 {
        run!(self, it => it.max_sequence())
    }

    pub(crate) fn kind(&self) -> Kind {
        run!(self, it => it.kind())
    }

    pub(crate) fn expires_at(&self) -> u64 {
        run!(self, it => it.expires_at())
    }

    #[inline]
    pub(crate) fn value(&self) -> &[u8] {
        run!(self, it => it.value())
    }

    /// Whether this run's version precedes the other's; both must be valid.
    pub(crate) fn is_before(&self, other: &Source) -> bool {
        self.key().cmp(other.key()).then_with(|| other.sequence().cmp(&self.sequence())).is_lt()
    }
}

/// Every sorted run, for a cursor at sequence `at`. L0 runs in files are lazy: most seeks need
/// few.
pub(super) fn runs(view: &View, at: u64) -> Vec<Source> {
    let files = view.version.level0.len() + view.version.levels.len();
    let mut runs = Vec::with_capacity(view.memtables().count() + files);
    runs.extend(view.memtables().map(|m| Source::Memtable(MemtableIter::new(m, at))));
    push_file_runs(view, &mut runs);
    runs
}

/// Every sorted run in files.
pub(super) fn file_runs(view: &View) -> Vec<Source> {
    let mut runs = Vec::new();
    push_file_runs(view, &mut runs);
    runs
}

fn push_file_runs(view: &View, runs: &mut Vec<Source>) {
    let (purpose, options) = (Purpose::Scan, IterOptions::SCAN);
    runs.extend(view.version.level0.iter().enumerate().map(|(i, run)| match run.pmem_table() {
        None => Source::Lazy(i),
        Some(_) => Source::of_l0_run(run, purpose, options),
    }));
    let levels = view.version.levels.iter().filter(|tables| !tables.is_empty()).cloned();
    runs.extend(
        levels.map(|tables| Source::Level(Box::new(LevelIter::new(tables, purpose, options)))),
    );
}

/// A memtable as of one sequence number: each key once, with its visible version.
pub(crate) struct MemtableIter {
    cursor: structures::Cursor,
    at: u64,
    /// An upper bound of the sequence numbers of the versions up to `at`.
    max_sequence: u64,
    /// Of the visible version of the cursor's key; `None`: the iterator is not valid.
    current: Option<VersionHeader>,
}

/// What most moves need of a version. It stays visible, whatever is inserted meanwhile.
#[derive(Clone, Copy)]
struct VersionHeader {
    sequence: u64,
    expires_at: u64,
    kind: Kind,
}

impl MemtableIter {
    /// An iterator over `memtable`, in which all writes up to `at` are.
    pub(crate) fn new(memtable: &Memtable, at: u64) -> Self {
        let (cursor, max_sequence) = (memtable.tree().cursor(), memtable.max_sequence());
        MemtableIter { cursor, at, max_sequence, current: None }
    }

    fn first(&mut self) -> Result<()> {
        self.cursor.seek_to_first();
        self.find_visible(structures::Cursor::next);
        Ok(())
    }

    fn last(&mut self) -> Result<()> {
        self.cursor.seek_to_last();
        self.find_visible(structures::Cursor::prev);
        Ok(())
    }

    fn seek(&mut self, key: &[u8], sequence: u64) -> Result<()> {
        self.cursor.seek(key);
        self.find_visible(structures::Cursor::next);
        // The visible version may precede the target in run order, if it is newer.
        let is_before = self.current.is_some_and(|version| version.sequence > sequence);
        if is_before && self.cursor.key() == key {
            self.cursor.next();
            self.find_visible(structures::Cursor::next);
        }
        Ok(())
    }

    fn seek_back(&mut self, key: &[u8], sequence: u64) -> Result<()> {
        self.cursor.seek_back(key);
        self.find_visible(structures::Cursor::prev);
        let is_after = self.current.is_some_and(|version| version.sequence < sequence);
        if is_after && self.cursor.key() == key {
            self.cursor.prev();
            self.find_visible(structures::Cursor::prev);
        }
        Ok(())
    }

    /// Moves to the next key and returns its head; `None` at the end.
    #[inline]
    fn next(&mut self, prefix: &HeadPrefix) -> Option<RunHead> {
        self.cursor.next();
        self.find_visible(structures::Cursor::next);
        self.current.map(|version| RunHead::of(self.cursor.key(), version.sequence, prefix))
    }

    fn prev(&mut self) -> Result<()> {
        self.cursor.prev();
        self.find_visible(structures::Cursor::prev);
        Ok(())
    }

    /// Moves on by `step` while the current key has no visible version.
    #[inline]
    fn find_visible(&mut self, step: impl Fn(&mut structures::Cursor)) {
        self.current = None;
        while let Some(entry) = self.cursor.entry() {
            if let Some(version) = entry.version_at(self.at) {
                self.current = Some(VersionHeader::of(&version));
                return;
            }
            step(&mut self.cursor);
        }
    }

    #[inline]
    fn header(&self) -> &VersionHeader {
        self.current.as_ref().expect("the caller checked that the run is valid")
    }

    fn valid(&self) -> bool {
        self.current.is_some()
    }

    #[inline]
    fn key(&self) -> &[u8] {
        self.cursor.key()
    }

    fn sequence(&self) -> u64 {
        self.header().sequence
    }

    fn max_sequence(&self) -> u64 {
        self.max_sequence.min(self.at)
    }

    #[inline]
    fn kind(&self) -> Kind {
        self.header().kind
    }

    #[inline]
    fn expires_at(&self) -> u64 {
        self.header().expires_at
    }

    #[inline]
    fn value(&self) -> &[u8] {
        let version = self.cursor.version_at(self.at);
        version.expect("a version that was visible stays visible").value
    }
}

impl VersionHeader {
    #[inline]
    fn of(version: &structures::Version<'_>) -> Self {
        let structures::Version { sequence, expires_at, kind, .. } = *version;
        VersionHeader { sequence, expires_at, kind: kind_of(kind) }
    }
}
