//! A level as one sorted run: its disjoint tables one after the other, each opened when reached.

use std::cell::Cell;
use std::sync::Arc;

use siltstone_engine::{Purpose, Result};
use siltstone_table::{IterOptions, Kind, TableIter};

use crate::version::{TableFile, Tables};

/// Walks the tables of a level.
pub(crate) struct LevelIter {
    tables: Tables,
    at: usize,
    /// Where a key was found that is likely to be sought again.
    found: Cell<usize>,
    current: Option<TableIter>,
    purpose: Purpose,
    options: IterOptions,
}

impl LevelIter {
    /// A run over `tables`, disjoint and in key order; it holds on to them.
    pub(crate) fn new(tables: Tables, purpose: Purpose, options: IterOptions) -> Self {
        LevelIter { tables, at: 0, found: Cell::new(0), current: None, purpose, options }
    }

    pub(crate) fn first(&mut self) -> Result<()> {
        self.open(0);
        self.on_current(TableIter::first)?;
        self.go_on()
    }

    pub(crate) fn last(&mut self) -> Result<()> {
        self.open(self.tables.len().wrapping_sub(1));
        self.on_current(TableIter::last)?;
        self.go_back()
    }

    pub(crate) fn seek(&mut self, key: &[u8], sequence: u64) -> Result<()> {
        self.open(self.find(key));
        self.on_current(|it| it.seek(key, sequence))?;
        self.go_on()
    }

    pub(crate) fn may_hold(&self, key: &[u8], hash: u64) -> bool {
        let table = self.tables.get(self.find(key)).filter(|table| table.smallest() <= key);
        table.is_some_and(|table| table.table().may_contain(hash))
    }

    /// Whether one of the tables may hold a key from `from` to `to`, both counted.
    pub(crate) fn may_hold_between(&self, from: &[u8], to: &[u8]) -> bool {
        let behind = self.tables[self.find(from)..].iter();
        let mut touched = behind.take_while(|table| table.smallest() <= to);
        touched.any(|table| table.may_hold_between(from, to))
    }

    pub(crate) fn seek_back(&mut self, key: &[u8], sequence: u64) -> Result<()> {
        self.open(self.tables.partition_point(|table| table.smallest() <= key).wrapping_sub(1));
        self.on_current(|it| it.seek_back(key, sequence))?;
        self.go_back()
    }

    pub(crate) fn next(&mut self) -> Result<()> {
        self.on_current(TableIter::next)?;
        self.go_on()
    }

    pub(crate) fn prev(&mut self) -> Result<()> {
        self.on_current(TableIter::prev)?;
        self.go_back()
    }

    pub(crate) fn valid(&self) -> bool {
        self.current.as_ref().is_some_and(TableIter::valid)
    }

    pub(crate) fn key(&self) -> &[u8] {
        self.here().key()
    }

    pub(crate) fn sequence(&self) -> u64 {
        self.here().sequence()
    }

    pub(crate) fn kind(&self) -> Kind {
        self.here().kind()
    }

    pub(crate) fn expires_at(&self) -> u64 {
        self.here().expires_at()
    }

    pub(crate) fn value(&self) -> &[u8] {
        self.here().value()
    }

    /// The first table that does not end before `key`. Cost: two comparisons for the key of the call before, else
    /// a binary search.
    fn find(&self, key: &[u8]) -> usize {
        let is_before = |at: usize| self.tables.get(at).is_some_and(|table| table.largest() < key);
        let found = self.found.get();
        if is_before(found) || found.checked_sub(1).is_some_and(|before| !is_before(before)) {
            self.found.set(self.tables.partition_point(|table| table.largest() < key));
        }
        self.found.get()
    }

    fn here(&self) -> &TableIter {
        self.current.as_ref().expect("the caller checked that the run is valid")
    }

    /// Opens table `at` unless it is open; past either end there is none.
    fn open(&mut self, at: usize) {
        if at == self.at && self.current.is_some() {
            return;
        }
        self.at = at;
        let iter = |file: &Arc<TableFile>| file.table().iter(self.purpose, self.options);
        self.current = self.tables.get(at).map(iter);
    }

    fn on_current(&mut self, step: impl FnOnce(&mut TableIter) -> Result<bool>) -> Result<()> {
        self.current.as_mut().map_or(Ok(()), |it| step(it).map(drop))
    }

    /// At the end of a table, to the first entry of the next.
    fn go_on(&mut self) -> Result<()> {
        while self.current.as_ref().is_some_and(|it| !it.valid()) {
            self.open(self.at + 1);
            self.on_current(TableIter::first)?;
        }
        Ok(())
    }

    /// At the start of a table, to the last entry of the one before.
    fn go_back(&mut self) -> Result<()> {
        while self.current.as_ref().is_some_and(|it| !it.valid()) {
            self.open(self.at.wrapping_sub(1));
            self.on_current(TableIter::last)?;
        }
        Ok(())
    }
}
