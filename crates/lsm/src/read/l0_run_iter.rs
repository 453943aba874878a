//! An L0 run in files as a sorted run: its table, restricted to the live range, with the values of
//! a CL-SSTable, and those that its table refers to, read on demand. (A RowTable contains live keys
//! only and needs none of this.)
//!
//! Moves read keys alone. The kind, expiry and value of the current entry are available after
//! [`resolve`](L0RunIter::resolve), so versions that a merge skips cost no read of the log. A
//! compaction, which needs nearly all values, prefetches them (see
//! [`value_prefetcher`](super::value_prefetcher)).

use std::ops::Range;
use std::sync::Arc;

use siltstone_engine::{Purpose, Result};
use siltstone_table::{IterOptions, Kind, TableIter};

use super::run_head::{HeadPrefix, RunHead};
use super::value_prefetcher::{PrefetchBudget, ValuePrefetcher};
use crate::blob_ref::BlobRef;
use crate::live_range::LiveRange;
use crate::record::Position;
use crate::version::{L0Run, LogFile, LoggedValue, OpenBlobs, TableFile};

/// Iterates over the live part of an L0 run.
pub(crate) struct L0RunIter {
    table: TableIter,
    log: Option<Arc<LogFile>>,
    blobs: OpenBlobs,
    live: LiveRange,
    is_valid: bool,
    /// Of the current entry, once it is decoded.
    position: Option<DecodedPosition>,
    value: ValueLocation,
    logged: LoggedValue,
    /// The value of the current entry, if it was copied.
    copied: Vec<u8>,
    // Boxed: only compactions use it, and every seek creates an iterator.
    prefetcher: Option<Box<ValuePrefetcher>>,
    purpose: Purpose,
}

/// The position of a value in the log, and its expiry if the table has it.
type DecodedPosition = (Position, Option<u64>);

/// The location of the current value.
enum ValueLocation {
    /// In the table, or not resolved.
    Table,
    /// In `copied`.
    Copied,
    /// In the prefetcher, at this range.
    Prefetched(Range<usize>),
    /// Not read, because the caller needs only kind and expiry, and they are known.
    Skipped,
}

impl L0RunIter {
    /// An iterator over `run`, whose table is `file`.
    pub(crate) fn new(
        run: &L0Run,
        file: &TableFile,
        purpose: Purpose,
        options: IterOptions,
    ) -> Self {
        L0RunIter {
            table: file.table().iter(purpose, options),
            log: run.log().cloned(),
            blobs: file.blobs().clone(),
            live: run.live().clone(),
            is_valid: false,
            position: None,
            value: ValueLocation::Table,
            logged: LoggedValue::default(),
            copied: Vec::new(),
            prefetcher: None,
            purpose,
        }
    }

    /// Prefetches values from the log, for forward iteration.
    pub(crate) fn with_prefetcher(mut self, run: &L0Run, budget: &PrefetchBudget) -> Self {
        let mean_bytes = run.data_bytes() as f64 / run.entries().max(1) as f64;
        let prefetcher =
            |_| Box::new(ValuePrefetcher::new(&self.table, mean_bytes, budget.clone()));
        self.prefetcher = self.log.as_ref().map(prefetcher);
        self
    }

    /// Ends before `to` (`None`: at the last key): the slice from the cursor on, without the live
    /// keys that the cursor reaches only after it wraps around.
    pub(crate) fn up_to(self, to: Option<&[u8]>) -> Self {
        let live = self.live.up_to(to);
        L0RunIter { live, ..self }
    }

    pub(crate) fn first(&mut self) -> Result<()> {
        self.table.first()?;
        self.skip_dead_forward()
    }

    pub(crate) fn last(&mut self) -> Result<()> {
        self.table.last()?;
        self.skip_dead_backward()
    }

    pub(crate) fn seek(&mut self, key: &[u8], sequence: u64) -> Result<()> {
        // Dead keys are skipped.
        match self.live.after(key).filter(|_| !self.live.contains(key)) {
            Some(from) => self.table.seek(from, u64::MAX)?,
            None => self.table.seek(key, sequence)?,
        };
        self.skip_dead_forward()
    }

    /// The live keys.
    pub(crate) fn live(&self) -> &LiveRange {
        &self.live
    }

    pub(crate) fn seek_back(&mut self, key: &[u8], sequence: u64) -> Result<()> {
        self.table.seek_back(key, sequence)?;
        self.skip_dead_backward()
    }

    pub(crate) fn may_contain_range(&self, from: &[u8], to: &[u8]) -> bool {
        self.table.table().may_contain_range(from, to)
    }

    /// Moves to the next version and returns its head; `None` at the end. Prefetches the value,
    /// which a scan needs when the keys before it in other runs have been passed.
    #[inline]
    pub(super) fn next(&mut self, prefix: &HeadPrefix) -> Result<Option<RunHead>> {
        (self.position, self.value, self.is_valid) = (None, ValueLocation::Table, false);
        if !self.table.next()? {
            return Ok(None);
        }
        if !self.live.is_full() && !self.live.contains(self.table.key()) {
            self.skip_dead_forward()?;
            if !self.is_valid {
                return Ok(None);
            }
        }
        self.is_valid = true;
        let entry = self.table.entry();
        if self.purpose == Purpose::Scan
            && entry.kind == Kind::Position
            && let Some(log) = &self.log
            // One that is malformed is reported when its value is read.
            && let Some(decoded) = Position::decode(entry.value)
        {
            log.prefetch(decoded.0);
            self.position = Some(decoded);
        }
        Ok(Some(RunHead::of(entry.key, entry.sequence, prefix)))
    }

    /// The position of the current entry's value in `log`.
    #[inline]
    fn position(&self, log: &LogFile) -> Result<DecodedPosition> {
        match self.position {
            Some(decoded) => Ok(decoded),
            None => log.position(self.table.value()),
        }
    }

    pub(crate) fn prev(&mut self) -> Result<()> {
        self.table.prev()?;
        self.skip_dead_backward()
    }

    pub(crate) fn valid(&self) -> bool {
        self.is_valid
    }

    pub(crate) fn key(&self) -> &[u8] {
        self.table.key()
    }

    pub(crate) fn file_name(&self) -> &str {
        self.table.table().name()
    }

    pub(crate) fn max_sequence(&self) -> u64 {
        self.table.table().meta().max_sequence
    }

    pub(crate) fn sequence(&self) -> u64 {
        self.table.sequence()
    }

    /// Makes the value available. Returns kind and expiry. Cost: a read of the log if the value is
    /// there and was not prefetched.
    #[inline]
    pub(crate) fn resolve(&mut self) -> Result<(Kind, u64)> {
        let kind = self.table.kind();
        if !matches!(kind, Kind::Position | Kind::Reference) {
            return Ok((kind, self.table.expires_at()));
        }
        if let (Some((position, _)), Some(log)) = (self.position, &self.log)
            && matches!(self.value, ValueLocation::Table)
            && self.prefetcher.is_none()
        {
            self.copied.clear();
            let version = (self.table.key(), self.table.sequence());
            if let Some(logged) = log.copy_cached_put(position, version, &mut self.copied) {
                (self.logged, self.value) = (logged, ValueLocation::Copied);
                return Ok((self.kind(), self.expires_at()));
            }
        }
        self.resolve_any()?;
        Ok((self.kind(), self.expires_at()))
    }

    /// As [`resolve`](Self::resolve), wherever the value is.
    #[inline(never)]
    fn resolve_any(&mut self) -> Result<()> {
        if !matches!(self.value, ValueLocation::Table) {
            return Ok(());
        }
        match self.table.kind() {
            Kind::Position => {}
            Kind::Reference => return self.resolve_reference(),
            _ => return Ok(()),
        }
        // No flush writes a position without a log: the kind `Position` is reported as corruption.
        let Some(log) = &self.log else { return Ok(()) };
        let version = (self.table.key(), self.table.sequence());
        let (position, _) = self.position(log)?;
        if let Some(prefetcher) = &mut self.prefetcher
            && let Some(range) = prefetcher.find(log.access(), &self.live, position, version)
        {
            self.logged = log.find(position, version, &prefetcher.bytes()[range.clone()])?;
            self.value = ValueLocation::Prefetched(range);
            return Ok(());
        }
        self.copied.clear();
        self.logged = log.read_value(position, version, &mut self.copied, self.purpose)?;
        self.value = ValueLocation::Copied;
        Ok(())
    }

    fn resolve_reference(&mut self) -> Result<()> {
        let reference = BlobRef::decode(self.table.value(), self.file_name())?;
        let version = (self.table.key(), self.table.sequence());
        self.copied.clear();
        self.logged = self.blobs.read(&reference, version, &mut self.copied, self.purpose)?;
        self.value = ValueLocation::Copied;
        Ok(())
    }

    /// The reference to the value of the current entry; `None` if it has none.
    pub(crate) fn reference(&self) -> Result<Option<BlobRef>> {
        let is_reference = self.table.kind() == Kind::Reference;
        let decode = || BlobRef::decode(self.table.value(), self.file_name());
        is_reference.then(decode).transpose()
    }

    /// As [`resolve`](Self::resolve) for callers without use for the value, which is empty then.
    /// Cost: a read of the log if the table, of an earlier version, does not store expiry times.
    #[inline]
    pub(crate) fn resolve_without_value(&mut self) -> Result<(Kind, u64)> {
        let kind = self.table.kind();
        if !matches!(kind, Kind::Position | Kind::Reference) {
            return Ok((kind, self.table.expires_at()));
        }
        if matches!(self.value, ValueLocation::Table) {
            self.skip_value()?;
        }
        Ok((self.kind(), self.expires_at()))
    }

    /// Makes the kind and the expiry of an entry that refers to its value available.
    fn skip_value(&mut self) -> Result<()> {
        if let Some(reference) = self.reference()? {
            self.logged = LoggedValue::without_value(reference.expires_at);
            self.value = ValueLocation::Skipped;
        } else if let Some(log) = &self.log {
            if !log.has_expiry() {
                return self.resolve_any();
            }
            let (_, expires_at) = self.position(log)?;
            self.logged = LoggedValue::without_value(expires_at);
            self.value = ValueLocation::Skipped;
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
        match (&self.value, &self.prefetcher) {
            (ValueLocation::Skipped, _) => &[],
            (ValueLocation::Copied, _) => self.logged.value(&self.copied),
            (ValueLocation::Prefetched(range), Some(prefetcher)) => {
                self.logged.value(&prefetcher.bytes()[range.clone()])
            }
            _ => self.table.value(),
        }
    }

    fn is_resolved(&self) -> bool {
        !matches!(self.value, ValueLocation::Table)
    }

    /// Moves forwards to the first live key.
    fn skip_dead_forward(&mut self) -> Result<()> {
        (self.position, self.value) = (None, ValueLocation::Table);
        self.is_valid = self.table.valid();
        if self.is_valid && !self.live.contains(self.table.key()) {
            match self.live.after(self.table.key()) {
                Some(from) => self.is_valid = self.table.seek(from, u64::MAX)?,
                None => self.is_valid = false,
            }
            // The next key after the dead ones may be past the live range again.
            self.is_valid = self.is_valid && self.live.contains(self.table.key());
        }
        Ok(())
    }

    /// Moves backwards to the last live key.
    fn skip_dead_backward(&mut self) -> Result<()> {
        (self.position, self.value) = (None, ValueLocation::Table);
        self.is_valid = self.table.valid();
        if self.is_valid && !self.live.contains(self.table.key()) {
            match self.live.before(self.table.key()) {
                // Versions are newest first, so this finds no version of `to` itself.
                Some(to) => self.is_valid = self.table.seek_back(to, u64::MAX)?,
                None => self.is_valid = false,
            }
            self.is_valid = self.is_valid && self.live.contains(self.table.key());
        }
        Ok(())
    }
}
