//! A level as one sorted run: its disjoint tables in key order, each opened when it is reached.

use std::sync::Arc;

use siltstone_engine::{Purpose, Result};
use siltstone_structures::BloomProbe;
use siltstone_table::{IterOptions, Kind, TableIter};

use super::run_head::{HeadPrefix, RunHead};
use crate::blob_ref::BlobRef;
use crate::version::{LoggedValue, TableFile, Tables};

/// Iterates over the tables of a level.
pub(crate) struct LevelIter {
    tables: Tables,
    at: usize,
    current: Option<TableIter>,
    purpose: Purpose,
    options: IterOptions,
    /// Of the current entry, if it refers to its value and is resolved.
    logged: Option<LoggedValue>,
    /// The value that was read.
    copied: Vec<u8>,
}

impl LevelIter {
    /// A run over `tables`, disjoint and in key order, which it keeps alive.
    pub(crate) fn new(tables: Tables, purpose: Purpose, options: IterOptions) -> Self {
        let (at, current, logged, copied) = (0, None, None, Vec::new());
        LevelIter { tables, at, current, purpose, options, logged, copied }
    }

    pub(crate) fn first(&mut self) -> Result<()> {
        self.open(0);
        self.on_current(TableIter::first)?;
        self.skip_table_end()
    }

    pub(crate) fn last(&mut self) -> Result<()> {
        self.open(self.tables.len().wrapping_sub(1));
        self.on_current(TableIter::last)?;
        self.skip_table_start()
    }

    pub(crate) fn seek(&mut self, key: &[u8], sequence: u64) -> Result<()> {
        self.open(self.tables.find(key));
        self.on_current(|it| it.seek(key, sequence))?;
        self.skip_table_end()
    }

    pub(crate) fn may_contain(&self, key: &[u8], probe: &mut BloomProbe) -> bool {
        let table = self.tables.get(self.tables.find(key)).filter(|table| table.smallest() <= key);
        table.is_some_and(|table| table.may_contain(probe))
    }

    /// Whether one of the tables may contain a key in `from..=to`.
    pub(crate) fn may_contain_range(&self, from: &[u8], to: &[u8]) -> bool {
        let following = self.tables[self.tables.find(from)..].iter();
        let mut overlapping = following.take_while(|table| table.smallest() <= to);
        overlapping.any(|table| table.may_contain_range(from, to))
    }

    pub(crate) fn seek_back(&mut self, key: &[u8], sequence: u64) -> Result<()> {
        self.open(self.tables.partition_point(|table| table.smallest() <= key).wrapping_sub(1));
        self.on_current(|it| it.seek_back(key, sequence))?;
        self.skip_table_start()
    }

    /// Moves to the first version from `end` on in the current table, or else to the next table.
    pub(crate) fn skip_to(&mut self, end: Option<&[u8]>) -> Result<()> {
        match end.filter(|end| *end <= self.tables[self.at].largest()) {
            Some(end) => self.on_current(|it| it.seek(end, u64::MAX))?,
            None => {
                self.open(self.at + 1);
                self.on_current(TableIter::first)?;
            }
        }
        self.skip_table_end()
    }

    /// Moves to the last version before `start` in the current table, or else to the table before.
    pub(crate) fn skip_back(&mut self, start: &[u8]) -> Result<()> {
        if start > self.tables[self.at].smallest() {
            self.on_current(|it| it.seek_back(start, u64::MAX))?;
        } else {
            self.open(self.at.wrapping_sub(1));
            self.on_current(TableIter::last)?;
        }
        self.skip_table_start()
    }

    /// Moves to the next version and returns its head; `None` at the end.
    #[inline]
    pub(super) fn next(&mut self, prefix: &HeadPrefix) -> Result<Option<RunHead>> {
        self.logged = None;
        let Some(current) = &mut self.current else { return Ok(None) };
        if !current.next()? {
            self.skip_table_end()?;
        }
        let current = self.current.as_ref().filter(|current| current.valid());
        Ok(current.map(|it| RunHead::of(it.key(), it.sequence(), prefix)))
    }

    pub(crate) fn prev(&mut self) -> Result<()> {
        self.on_current(TableIter::prev)?;
        self.skip_table_start()
    }

    pub(crate) fn valid(&self) -> bool {
        self.current.as_ref().is_some_and(TableIter::valid)
    }

    pub(crate) fn key(&self) -> &[u8] {
        self.current().key()
    }

    pub(crate) fn sequence(&self) -> u64 {
        self.current().sequence()
    }

    /// The current table's.
    pub(crate) fn file_name(&self) -> String {
        self.tables[self.at].name()
    }

    /// An upper bound of the sequence numbers in the current table.
    pub(crate) fn max_sequence(&self) -> u64 {
        self.tables[self.at].max_sequence()
    }

    /// Makes the value available. Returns kind and expiry.
    #[inline]
    pub(crate) fn resolve(&mut self) -> Result<(Kind, u64)> {
        let current = self.current();
        if current.kind() != Kind::Reference {
            return Ok((current.kind(), current.expires_at()));
        }
        if self.logged.is_none() {
            self.read_value()?;
        }
        Ok((self.kind(), self.expires_at()))
    }

    /// Reads the value that the entry refers to.
    fn read_value(&mut self) -> Result<()> {
        let Some(reference) = self.reference()? else { return Ok(()) };
        self.copied.clear();
        let current = self.current.as_ref().expect("the caller checked that the run is valid");
        let version = (current.key(), current.sequence());
        let blobs = self.tables[self.at].blobs();
        self.logged = Some(blobs.read(&reference, version, &mut self.copied, self.purpose)?);
        Ok(())
    }

    /// As [`resolve`](Self::resolve) for callers without use for the value, which is empty then.
    #[inline]
    pub(crate) fn resolve_without_value(&mut self) -> Result<(Kind, u64)> {
        if self.logged.is_none()
            && let Some(reference) = self.reference()?
        {
            self.logged = Some(LoggedValue::without_value(reference.expires_at));
        }
        Ok((self.kind(), self.expires_at()))
    }

    /// The reference to the value of the current entry; `None` if it has none.
    #[inline]
    pub(crate) fn reference(&self) -> Result<Option<BlobRef>> {
        let current = self.current();
        if current.kind() != Kind::Reference {
            return Ok(None);
        }
        BlobRef::decode(current.value(), current.table().name()).map(Some)
    }

    pub(crate) fn kind(&self) -> Kind {
        self.logged.as_ref().map_or_else(|| self.current().kind(), LoggedValue::kind)
    }

    pub(crate) fn expires_at(&self) -> u64 {
        self.logged.as_ref().map_or_else(|| self.current().expires_at(), |it| it.expires_at)
    }

    pub(crate) fn value(&self) -> &[u8] {
        match &self.logged {
            Some(logged) => logged.value(&self.copied),
            None => self.current().value(),
        }
    }

    fn current(&self) -> &TableIter {
        self.current.as_ref().expect("the caller checked that the run is valid")
    }

    /// Opens table `at` unless it is open; there is none past either end.
    fn open(&mut self, at: usize) {
        if at == self.at && self.current.is_some() {
            return;
        }
        self.at = at;
        let iter = |file: &Arc<TableFile>| file.table().iter(self.purpose, self.options);
        self.current = self.tables.get(at).map(iter);
    }

    fn on_current(&mut self, step: impl FnOnce(&mut TableIter) -> Result<bool>) -> Result<()> {
        self.logged = None;
        self.current.as_mut().map_or(Ok(()), |it| step(it).map(drop))
    }

    /// At the end of a table, moves to the first entry of the next.
    fn skip_table_end(&mut self) -> Result<()> {
        while self.current.as_ref().is_some_and(|it| !it.valid()) {
            self.open(self.at + 1);
            self.on_current(TableIter::first)?;
        }
        Ok(())
    }

    /// At the start of a table, moves to the last entry of the previous.
    fn skip_table_start(&mut self) -> Result<()> {
        while self.current.as_ref().is_some_and(|it| !it.valid()) {
            self.open(self.at.wrapping_sub(1));
            self.on_current(TableIter::last)?;
        }
        Ok(())
    }
}
