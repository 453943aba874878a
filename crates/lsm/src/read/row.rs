//! A row of level 0 in files as a sorted run: its table, without the keys that are no longer the row's
//! own, and with the values of a CL-SSTable fetched from its log on demand. (A row in persistent
//! memory is a run by itself: it holds nothing but what is live.)
//!
//! Moving touches keys alone. Who wants the kind, expiry or value of the entry under the iterator
//! calls [`resolve`](RowIter::resolve) first, so that versions which a merge passes over cost no
//! read of the log. A compaction, which wants nearly all, fetches many at once (see
//! [`ahead`](super::ahead)).

use std::ops::Range;
use std::sync::Arc;

use siltstone_engine::{Purpose, Result};
use siltstone_table::{IterOptions, Kind, TableIter};

use super::ahead::{AheadShare, LogAhead};
use crate::live_range::LiveRange;
use crate::version::{LogFile, Logged, Row, TableFile};

/// Walks the live part of a row.
pub(crate) struct RowIter {
    table: TableIter,
    log: Option<Arc<LogFile>>,
    live: LiveRange,
    is_valid: bool,
    value: Found,
    logged: Logged,
    /// The record that was read for the entry.
    record: Vec<u8>,
    // In a box: no seek has it, and each makes an iterator.
    ahead: Option<Box<LogAhead>>,
    purpose: Purpose,
}

/// Where the value of the entry under the iterator is.
enum Found {
    /// In the table, or not yet found.
    Table,
    /// In the record that was read for it.
    Record,
    /// In one that was fetched before.
    Ahead(Range<usize>),
    /// It is not wanted: kind and expiry are known without it.
    Nowhere,
}

impl RowIter {
    /// A run over `row`, whose table is `file`.
    pub(crate) fn new(row: &Row, file: &TableFile, purpose: Purpose, options: IterOptions) -> Self {
        RowIter {
            table: file.table().iter(purpose, options),
            log: row.log().cloned(),
            live: row.live().clone(),
            is_valid: false,
            value: Found::Table,
            logged: Logged::default(),
            record: Vec::new(),
            ahead: None,
            purpose,
        }
    }

    /// Fetches values from the log ahead of the walk, which goes forwards.
    pub(crate) fn with_ahead(mut self, row: &Row, share: &AheadShare) -> Self {
        let mean_bytes = row.data_bytes() as f64 / row.entries().max(1) as f64;
        let ahead = |_| Box::new(LogAhead::new(&self.table, mean_bytes, share.clone()));
        self.ahead = self.log.as_ref().map(ahead);
        self
    }

    /// Without the keys from `to` on (`None`: to the last key): a side of the row, from the cursor
    /// on. What the cursor will come to only after the turn is not part of it.
    pub(crate) fn up_to(self, to: Option<&[u8]>) -> Self {
        let live = self.live.up_to(to);
        RowIter { live, ..self }
    }

    pub(crate) fn first(&mut self) -> Result<()> {
        self.table.first()?;
        self.go_on()
    }

    pub(crate) fn last(&mut self) -> Result<()> {
        self.table.last()?;
        self.go_back()
    }

    pub(crate) fn seek(&mut self, key: &[u8], sequence: u64) -> Result<()> {
        // What is dead is not looked at.
        match self.live.after(key).filter(|_| !self.live.contains(key)) {
            Some(from) => self.table.seek(from, u64::MAX)?,
            None => self.table.seek(key, sequence)?,
        };
        self.go_on()
    }

    /// The keys that are live.
    pub(crate) fn live(&self) -> &LiveRange {
        &self.live
    }

    pub(crate) fn seek_back(&mut self, key: &[u8], sequence: u64) -> Result<()> {
        self.table.seek_back(key, sequence)?;
        self.go_back()
    }

    pub(crate) fn may_hold(&self, hash: u64) -> bool {
        self.table.table().may_contain(hash)
    }

    pub(crate) fn may_hold_between(&self, from: &[u8], to: &[u8]) -> bool {
        self.table.table().may_hold_between(from, to)
    }

    pub(crate) fn next(&mut self) -> Result<()> {
        self.table.next()?;
        self.go_on()
    }

    pub(crate) fn prev(&mut self) -> Result<()> {
        self.table.prev()?;
        self.go_back()
    }

    pub(crate) fn valid(&self) -> bool {
        self.is_valid
    }

    pub(crate) fn key(&self) -> &[u8] {
        self.table.key()
    }

    pub(crate) fn sequence(&self) -> u64 {
        self.table.sequence()
    }

    /// Makes kind, expiry and value known. Cost: a read of the log if the value is there and was not
    /// fetched ahead.
    pub(crate) fn resolve(&mut self) -> Result<()> {
        if !matches!(self.value, Found::Table) || self.table.kind() != Kind::Position {
            return Ok(());
        }
        // A position without a log is damage: no flush writes one. It is told as such by its kind.
        let Some(log) = &self.log else { return Ok(()) };
        let version = (self.table.key(), self.table.sequence());
        let (position, _) = log.position(self.table.value())?;
        if let Some(ahead) = &mut self.ahead
            && let Some(place) = ahead.record(log.access(), &self.live, position, version)
        {
            self.logged = log.find(position, version, &ahead.bytes()[place.clone()])?;
            self.value = Found::Ahead(place);
            return Ok(());
        }
        self.logged = log.read(position, version, &mut self.record, self.purpose)?;
        self.value = Found::Record;
        Ok(())
    }

    /// As [`resolve`](Self::resolve) for who does not want the value, which reads as empty then.
    /// Cost: a read of the log if the table does not say when a value there expires, as those of
    /// earlier versions do not.
    pub(crate) fn resolve_without_value(&mut self) -> Result<()> {
        if matches!(self.value, Found::Table)
            && self.table.kind() == Kind::Position
            && let Some(log) = &self.log
        {
            if !log.tells_expiry() {
                return self.resolve();
            }
            let (_, expires_at) = log.position(self.table.value())?;
            self.logged = Logged::without_value(expires_at);
            self.value = Found::Nowhere;
        }
        Ok(())
    }

    pub(crate) fn kind(&self) -> Kind {
        if self.is_resolved() { self.logged.kind() } else { self.table.kind() }
    }

    pub(crate) fn expires_at(&self) -> u64 {
        if self.is_resolved() { self.logged.expires_at } else { self.table.expires_at() }
    }

    pub(crate) fn value(&self) -> &[u8] {
        match (&self.value, &self.ahead) {
            (Found::Nowhere, _) => &[],
            (Found::Record, _) => self.logged.value(&self.record),
            (Found::Ahead(place), Some(ahead)) => self.logged.value(&ahead.bytes()[place.clone()]),
            _ => self.table.value(),
        }
    }

    fn is_resolved(&self) -> bool {
        !matches!(self.value, Found::Table)
    }

    /// From where the table stands, to the first entry whose key is live.
    fn go_on(&mut self) -> Result<()> {
        self.value = Found::Table;
        self.is_valid = self.table.valid();
        if self.is_valid && !self.live.contains(self.table.key()) {
            match self.live.after(self.table.key()) {
                Some(from) => self.is_valid = self.table.seek(from, u64::MAX)?,
                None => self.is_valid = false,
            }
            // What follows the dead keys may be beyond the live ones again.
            self.is_valid = self.is_valid && self.live.contains(self.table.key());
        }
        Ok(())
    }

    /// From where the table stands, back to the last entry whose key is live.
    fn go_back(&mut self) -> Result<()> {
        self.value = Found::Table;
        self.is_valid = self.table.valid();
        if self.is_valid && !self.live.contains(self.table.key()) {
            match self.live.before(self.table.key()) {
                // The newest version of a key comes first, so nothing of `to` itself is found.
                Some(to) => self.is_valid = self.table.seek_back(to, u64::MAX)?,
                None => self.is_valid = false,
            }
            self.is_valid = self.is_valid && self.live.contains(self.table.key());
        }
        Ok(())
    }
}
