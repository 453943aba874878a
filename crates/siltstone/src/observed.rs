//! A table whose damage is reported to event listeners.
//!
//! Engines report what their background work does and finds. Reads and verifications find damage,
//! too, and return it as an error or in a report. Here it becomes an event as well, for all engines
//! in one place. Only tables of stores with listeners are wrapped; other reads pay nothing.

use std::any::Any;
use std::sync::Arc;

use siltstone_engine::{
    ChangeBatch, ChangeCursor, ChangeOptions, CheckpointSink, Cursor, Durability, Engine, Entry,
    EventKind, KeyRange, ReadPoint, Result, Timestamp, VerifyReport, VisitKeys, WriteBatch,
    forward_cursor, forward_engine,
};
use siltstone_runtime::Events;

/// Forwards everything, and reports damage.
pub(crate) struct ObservedEngine {
    engine: Arc<dyn Engine>,
    events: Events,
}

impl ObservedEngine {
    /// Wraps the engine of a table, if there are listeners.
    pub(crate) fn wrap(engine: Arc<dyn Engine>, events: &Events) -> Arc<dyn Engine> {
        match events.is_enabled() {
            true => Arc::new(ObservedEngine { engine, events: events.clone() }),
            false => engine,
        }
    }

    fn report<T>(&self, result: Result<T>) -> Result<T> {
        result.inspect_err(|error| self.events.emit_corruption(error))
    }

    fn cursor(&self, cursor: Result<Box<dyn Cursor>>) -> Result<Box<dyn Cursor>> {
        let (inner, events) = (self.report(cursor)?, self.events.clone());
        Ok(Box::new(ObservedCursor { inner, events }))
    }
}

impl Engine for ObservedEngine {
    forward_engine!(engine: name capabilities prepare must_wait clear sync snapshot at flush);
    forward_engine!(engine: compact_range set_compaction_filter set_merge_operator check_write);
    forward_engine!(engine: merge_operator prepare_ingestion set_options stats warnings trouble);
    forward_engine!(engine: maintain check_open close);

    fn get(&self, key: &[u8]) -> Result<Option<Entry>> {
        self.report(self.engine.get(key))
    }

    fn get_at(&self, key: &[u8], at: &ReadPoint) -> Result<Option<Entry>> {
        self.report(self.engine.get_at(key, at))
    }

    fn lookup(
        &self,
        key: &[u8],
        at: Option<&ReadPoint>,
        visit: &mut dyn FnMut(&[u8], Option<Timestamp>),
    ) -> Result<bool> {
        self.report(self.engine.lookup(key, at, visit))
    }

    fn expiry(&self, key: &[u8], at: Option<&ReadPoint>) -> Result<Option<Option<Timestamp>>> {
        self.report(self.engine.expiry(key, at))
    }

    fn multi_lookup(
        &self,
        keys: &[&[u8]],
        at: Option<&ReadPoint>,
        visit: &mut VisitKeys<'_>,
    ) -> Result<()> {
        self.report(self.engine.multi_lookup(keys, at, visit))
    }

    fn begin_reads(&self, keys: &[&[u8]]) {
        self.engine.begin_reads(keys);
    }

    /// An engine with incremental garbage collection reads, too.
    fn write(&self, batch: &WriteBatch, durability: Durability) -> Result<()> {
        self.report(self.engine.write(batch, durability))
    }

    fn iter(&self) -> Result<Box<dyn Cursor>> {
        self.cursor(self.engine.iter())
    }

    fn range(&self, range: KeyRange, at: Option<&ReadPoint>) -> Result<Box<dyn Cursor>> {
        self.cursor(self.engine.range(range, at))
    }

    fn random_key(&self, below: &mut dyn FnMut(u64) -> u64) -> Result<Option<Vec<u8>>> {
        self.report(self.engine.random_key(below))
    }

    fn changes(&self, options: ChangeOptions) -> Result<Box<dyn ChangeCursor>> {
        let inner = self.report(self.engine.changes(options))?;
        Ok(Box::new(ObservedChanges { inner, events: self.events.clone() }))
    }

    fn checkpoint(&self, sink: &mut dyn CheckpointSink) -> Result<()> {
        self.report(self.engine.checkpoint(sink))
    }

    fn verify(&self, progress: &mut dyn FnMut(u64, u64)) -> Result<VerifyReport> {
        let report = self.engine.verify(progress)?;
        for damage in &report.damage {
            self.events.emit(|| EventKind::Corruption(damage.clone()));
        }
        Ok(report)
    }

    fn as_any(&self) -> Option<Arc<dyn Any + Send + Sync>> {
        self.engine.as_any()
    }
}

struct ObservedCursor {
    inner: Box<dyn Cursor>,
    events: Events,
}

impl ObservedCursor {
    fn go(&mut self, step: impl FnOnce(&mut dyn Cursor) -> Result<bool>) -> Result<bool> {
        step(self.inner.as_mut()).inspect_err(|error| self.events.emit_corruption(error))
    }
}

impl Cursor for ObservedCursor {
    forward_cursor!(inner);

    fn first(&mut self) -> Result<bool> {
        self.go(|inner| inner.first())
    }

    fn last(&mut self) -> Result<bool> {
        self.go(|inner| inner.last())
    }

    fn seek(&mut self, key: &[u8]) -> Result<bool> {
        self.go(|inner| inner.seek(key))
    }

    fn seek_back(&mut self, key: &[u8]) -> Result<bool> {
        self.go(|inner| inner.seek_back(key))
    }

    fn next(&mut self) -> Result<bool> {
        self.go(|inner| inner.next())
    }

    fn prev(&mut self) -> Result<bool> {
        self.go(|inner| inner.prev())
    }

    fn position(&self) -> Vec<u8> {
        self.inner.position()
    }

    fn resume(&mut self, position: &[u8]) -> Result<bool> {
        self.go(|inner| inner.resume(position))
    }
}

struct ObservedChanges {
    inner: Box<dyn ChangeCursor>,
    events: Events,
}

impl ChangeCursor for ObservedChanges {
    fn next(&mut self) -> Result<Option<ChangeBatch>> {
        self.inner.next().inspect_err(|error| self.events.emit_corruption(error))
    }
}
