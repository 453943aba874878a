//! One sorted run of versions: a memtable, a row of level 0 in files or in persistent memory, or tables
//! one after the other.
//!
//! Versions are ordered by key ascending, then sequence descending. A memtable shows each key at
//! most once, as of the cursor's moment; tables show every version they hold.

use std::sync::Arc;

use siltstone_engine::{Purpose, Result};
use siltstone_structures as structures;
use siltstone_table::{IterOptions, Kind};

use super::ahead::AheadShare;
use super::level::LevelIter;
use super::row::RowIter;
use crate::memtable::kind_of;
use crate::rowtable;
use crate::version::Row;

/// A sorted run. An enum rather than a trait object: the merge calls it for every entry.
pub(crate) enum Source {
    Memtable(MemtableIter),
    // In boxes: a merge moves its runs about, and these are large.
    Row(Box<RowIter>),
    RowTable(Box<rowtable::RowIter>),
    Level(Box<LevelIter>),
    /// The row of this number of the merge's view, in files and not yet begun: the merge begins it before it
    /// places it.
    Waiting(usize),
}

/// Applies one expression to whichever run it is.
macro_rules! run {
    ($source:expr, $it:ident => $do:expr) => {
        match $source {
            Source::Memtable($it) => $do,
            Source::Row($it) => $do,
            Source::RowTable($it) => $do,
            Source::Level($it) => $do,
            Source::Waiting(_) => unreachable!("a run is begun before it is placed"),
        }
    };
}

impl Source {
    /// A run over the live part of a row.
    pub(crate) fn of_row(row: &Row, purpose: Purpose, options: IterOptions) -> Self {
        if let Some(file) = row.file() {
            return Source::Row(Box::new(RowIter::new(row, file, purpose, options)));
        }
        let table = row.nvm().expect("a row without a table is in persistent memory");
        Source::RowTable(Box::new(rowtable::RowIter::new(table.clone(), purpose)))
    }

    /// A run over the live part of a row for a compaction, or over the part from the cursor over
    /// level 0 to before `side` (`Some(None)`: to the last key): a side of the row. What the cursor will
    /// come to only after the turn is not part of it. `share`: for values that are in a log.
    ///
    /// # Errors
    /// `Corruption` in what is searched.
    pub(crate) fn of_input(
        row: &Row,
        side: Option<Option<&[u8]>>,
        share: &AheadShare,
    ) -> Result<Self> {
        let (purpose, options) = (Purpose::Compaction, IterOptions::COMPACTION);
        if let Some(file) = row.file() {
            let whole = RowIter::new(row, file, purpose, options);
            let part = if let Some(to) = side { whole.up_to(to) } else { whole };
            return Ok(Source::Row(Box::new(part.with_ahead(row, share))));
        }
        let Some(to) = side else { return Ok(Source::of_row(row, purpose, options)) };
        let table = row.nvm().expect("a row without a table is in persistent memory");
        let side = Arc::new(table.trim(row.live().up_to(to))?);
        Ok(Source::RowTable(Box::new(rowtable::RowIter::new(side, purpose))))
    }

    pub(crate) fn first(&mut self) -> Result<()> {
        run!(self, it => it.first())
    }

    pub(crate) fn last(&mut self) -> Result<()> {
        run!(self, it => it.last())
    }

    /// To the first version at or after (`key`, `sequence`) in run order.
    pub(crate) fn seek(&mut self, key: &[u8], sequence: u64) -> Result<()> {
        run!(self, it => it.seek(key, sequence))
    }

    /// Whether it may have versions of `key`. Cost: a cache line if a filter knows; where there is none, `true`.
    pub(crate) fn may_hold(&self, key: &[u8], hash: u64) -> bool {
        match self {
            Source::Row(row) => row.may_hold(hash),
            Source::Level(level) => level.may_hold(key, hash),
            Source::Memtable(_) | Source::RowTable(_) | Source::Waiting(_) => true,
        }
    }

    /// Whether it may have versions of keys from `from` to `to`, both counted. Cost: some three cache lines if a
    /// filter knows; where there is none, `true`.
    pub(crate) fn may_hold_between(&self, from: &[u8], to: &[u8]) -> bool {
        match self {
            Source::Row(row) => row.may_hold_between(from, to),
            Source::Level(level) => level.may_hold_between(from, to),
            Source::Memtable(_) | Source::RowTable(_) | Source::Waiting(_) => true,
        }
    }

    /// To the last version at or before (`key`, `sequence`) in run order.
    pub(crate) fn seek_back(&mut self, key: &[u8], sequence: u64) -> Result<()> {
        run!(self, it => it.seek_back(key, sequence))
    }

    pub(crate) fn next(&mut self) -> Result<()> {
        run!(self, it => it.next())
    }

    pub(crate) fn prev(&mut self) -> Result<()> {
        run!(self, it => it.prev())
    }

    pub(crate) fn valid(&self) -> bool {
        run!(self, it => it.valid())
    }

    pub(crate) fn key(&self) -> &[u8] {
        run!(self, it => it.key())
    }

    pub(crate) fn sequence(&self) -> u64 {
        run!(self, it => it.sequence())
    }

    /// Makes kind, expiry and value of the version known, which only a row may have elsewhere.
    pub(crate) fn resolve(&mut self) -> Result<()> {
        match self {
            Source::Row(row) => row.resolve(),
            Source::Memtable(_) | Source::RowTable(_) | Source::Level(_) | Source::Waiting(_) => {
                Ok(())
            }
        }
    }

    /// The same for who does not want the value, which may read as empty then.
    pub(crate) fn resolve_without_value(&mut self) -> Result<()> {
        match self {
            Source::Row(row) => row.resolve_without_value(),
            Source::Memtable(_) | Source::RowTable(_) | Source::Level(_) | Source::Waiting(_) => {
                Ok(())
            }
        }
    }

    pub(crate) fn kind(&self) -> Kind {
        run!(self, it => it.kind())
    }

    pub(crate) fn expires_at(&self) -> u64 {
        run!(self, it => it.expires_at())
    }

    pub(crate) fn value(&self) -> &[u8] {
        run!(self, it => it.value())
    }

    /// Whether this run's version comes before the other's; both must be valid.
    pub(crate) fn is_before(&self, other: &Source) -> bool {
        self.key().cmp(other.key()).then_with(|| other.sequence().cmp(&self.sequence())).is_lt()
    }
}

/// A memtable as of one moment: each key once, with the version seen then.
pub(crate) struct MemtableIter {
    cursor: structures::Cursor,
    at: u64,
}

impl MemtableIter {
    pub(crate) fn new(cursor: structures::Cursor, at: u64) -> Self {
        MemtableIter { cursor, at }
    }

    fn first(&mut self) -> Result<()> {
        self.cursor.seek_to_first();
        self.skip(structures::Cursor::next)
    }

    fn last(&mut self) -> Result<()> {
        self.cursor.seek_to_last();
        self.skip(structures::Cursor::prev)
    }

    fn seek(&mut self, key: &[u8], sequence: u64) -> Result<()> {
        self.cursor.seek(key);
        // The version shown may stand before the target in run order: newer than it.
        if self.version().is_some_and(|v| v.sequence > sequence) && self.cursor.key() == key {
            self.cursor.next();
        }
        self.skip(structures::Cursor::next)
    }

    fn seek_back(&mut self, key: &[u8], sequence: u64) -> Result<()> {
        self.cursor.seek_back(key);
        if self.version().is_some_and(|v| v.sequence < sequence) && self.cursor.key() == key {
            self.cursor.prev();
        }
        self.skip(structures::Cursor::prev)
    }

    fn next(&mut self) -> Result<()> {
        self.cursor.next();
        self.skip(structures::Cursor::next)
    }

    fn prev(&mut self) -> Result<()> {
        self.cursor.prev();
        self.skip(structures::Cursor::prev)
    }

    /// Moves on while the key under the cursor has no version as of the moment.
    fn skip(&mut self, step: fn(&mut structures::Cursor)) -> Result<()> {
        while self.cursor.valid() && self.version().is_none() {
            step(&mut self.cursor);
        }
        Ok(())
    }

    fn version(&self) -> Option<structures::Version<'_>> {
        if self.cursor.valid() { self.cursor.version_at(self.at) } else { None }
    }

    fn shown(&self) -> structures::Version<'_> {
        self.version().expect("a valid cursor shows a version: `skip` saw it")
    }

    fn valid(&self) -> bool {
        self.cursor.valid()
    }

    fn key(&self) -> &[u8] {
        self.cursor.key()
    }

    fn sequence(&self) -> u64 {
        self.shown().sequence
    }

    fn kind(&self) -> Kind {
        kind_of(self.shown().kind)
    }

    fn expires_at(&self) -> u64 {
        self.shown().expires_at
    }

    fn value(&self) -> &[u8] {
        self.shown().value
    }
}
