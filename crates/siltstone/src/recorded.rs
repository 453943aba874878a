//! The engine of a table that can move to another one: it records which keys are written.
//!
//! ```text
//!   IDLE ──▶ RECORDING ──▶ SEALED      Closed to every call but `close`
//!     ▲          │
//!     └──────────┘ the move has ended
//! ```
//!
//! A write is applied first and recorded afterwards, within the locks that order it. So whoever
//! begins to record and then reads the table sees each write, or finds its keys in the record; and
//! whoever reads a recorded key sees the write of the record, or a later one that is recorded, too.
//!
//! Invariant: while recording, every write whose locks are free is in the record. Writers that
//! bypass this engine (`mica`'s own interface) are not recorded.
//!
//! Cost: a virtual call and a load per call, none per step of a cursor.

use std::any::Any;
use std::collections::HashSet;
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering::SeqCst};

use parking_lot::Mutex;
use siltstone_engine::{
    BatchOp, Cursor, Durability, Engine, Entry, Error, IngestOptions, IngestReport, KeyRange,
    LogPosition, PartDependencies, PartHeader, PreparedIngestion, PreparedPart, ReadPoint, Result,
    Timestamp, VisitKeys, WriteBatch, forward_engine,
};

const IDLE: u8 = 0;
const RECORDING: u8 = 1;
const SEALED: u8 = 2;
/// Recorded ranges from which on the record only says that all keys may have changed.
const MAX_RANGES: usize = 1000;

/// What was written since the record was last taken.
#[derive(Debug, Default)]
pub(crate) struct Record {
    pub(crate) keys: HashSet<Vec<u8>>,
    /// Ranges that were deleted, or into which files were ingested: their keys are not known.
    pub(crate) ranges: Vec<KeyRange>,
    /// All keys were removed, or too many ranges.
    pub(crate) is_cleared: bool,
}

impl Record {
    fn add_range(&mut self, range: KeyRange) {
        if self.ranges.len() == MAX_RANGES {
            self.ranges.clear();
            self.is_cleared = true;
        }
        self.ranges.push(range);
    }
}

/// The record of one table.
#[derive(Debug, Default)]
pub(crate) struct WriteRecorder {
    state: AtomicU8,
    record: Mutex<Record>,
}

impl WriteRecorder {
    /// Begins to record. Returns whether nobody else does.
    pub(crate) fn begin(&self) -> bool {
        *self.record.lock() = Record::default();
        self.state.compare_exchange(IDLE, RECORDING, SeqCst, SeqCst).is_ok()
    }

    /// Ends the recording, and forgets the record.
    pub(crate) fn end(&self) {
        let _ = self.state.compare_exchange(RECORDING, IDLE, SeqCst, SeqCst);
        *self.record.lock() = Record::default();
    }

    /// Refuses all calls from now on.
    pub(crate) fn seal(&self) {
        self.state.store(SEALED, SeqCst);
    }

    /// Whether a move is in progress.
    pub(crate) fn is_recording(&self) -> bool {
        self.state.load(SeqCst) == RECORDING
    }

    /// Whether ranges, or more keys than this, are recorded.
    pub(crate) fn has_more_than(&self, keys: usize) -> bool {
        let record = self.record.lock();
        record.keys.len() > keys || !record.ranges.is_empty()
    }

    /// Takes the record.
    pub(crate) fn take(&self) -> Record {
        std::mem::take(&mut *self.record.lock())
    }

    fn check(&self) -> Result<()> {
        if self.state.load(SeqCst) == SEALED { Err(Error::Closed) } else { Ok(()) }
    }

    /// Records a write that has been applied, or whose outcome is unknown.
    #[inline]
    fn record(&self, batch: &WriteBatch) {
        if self.is_recording() {
            self.add(batch);
        }
    }

    #[cold]
    fn add(&self, batch: &WriteBatch) {
        let mut record = self.record.lock();
        for op in batch.iter_all() {
            match op {
                BatchOp::Point(op) => _ = record.keys.insert(op.key().to_vec()),
                BatchOp::Merge { key, .. } => _ = record.keys.insert(key.to_vec()),
                BatchOp::DeleteRange { start, end } => {
                    let end = end.map_or(Bound::Unbounded, |end| Bound::Excluded(end.to_vec()));
                    record.add_range(KeyRange { start: Bound::Included(start.to_vec()), end });
                }
            }
        }
    }

    fn record_clear(&self) {
        if self.is_recording() {
            self.record.lock().is_cleared = true;
        }
    }

    fn record_ranges(&self, ranges: impl Iterator<Item = KeyRange>) {
        if self.is_recording() {
            let mut record = self.record.lock();
            ranges.for_each(|range| record.add_range(range));
        }
    }
}

/// Forwards everything, and records what is written.
pub(crate) struct RecordedEngine {
    engine: Arc<dyn Engine>,
    recorder: Arc<WriteRecorder>,
}

impl RecordedEngine {
    pub(crate) fn new(engine: Arc<dyn Engine>, recorder: Arc<WriteRecorder>) -> Self {
        RecordedEngine { engine, recorder }
    }
}

impl Engine for RecordedEngine {
    forward_engine!(engine: name capabilities must_wait sync at flush compact_range);
    forward_engine!(engine: set_compaction_filter set_merge_operator check_write merge_operator);
    forward_engine!(engine: set_options checkpoint verify stats warnings trouble maintain close);
    forward_engine!(engine: changes);

    fn get(&self, key: &[u8]) -> Result<Option<Entry>> {
        self.recorder.check()?;
        self.engine.get(key)
    }

    fn get_at(&self, key: &[u8], at: &ReadPoint) -> Result<Option<Entry>> {
        self.recorder.check()?;
        self.engine.get_at(key, at)
    }

    fn lookup(
        &self,
        key: &[u8],
        at: Option<&ReadPoint>,
        visit: &mut dyn FnMut(&[u8], Option<Timestamp>),
    ) -> Result<bool> {
        self.recorder.check()?;
        self.engine.lookup(key, at, visit)
    }

    fn expiry(&self, key: &[u8], at: Option<&ReadPoint>) -> Result<Option<Option<Timestamp>>> {
        self.recorder.check()?;
        self.engine.expiry(key, at)
    }

    fn multi_lookup(
        &self,
        keys: &[&[u8]],
        at: Option<&ReadPoint>,
        visit: &mut VisitKeys<'_>,
    ) -> Result<()> {
        self.recorder.check()?;
        self.engine.multi_lookup(keys, at, visit)
    }

    fn begin_reads(&self, keys: &[&[u8]]) {
        self.engine.begin_reads(keys);
    }

    fn iter(&self) -> Result<Box<dyn Cursor>> {
        self.recorder.check()?;
        self.engine.iter()
    }

    fn range(&self, range: KeyRange, at: Option<&ReadPoint>) -> Result<Box<dyn Cursor>> {
        self.recorder.check()?;
        self.engine.range(range, at)
    }

    fn random_key(&self, below: &mut dyn FnMut(u64) -> u64) -> Result<Option<Vec<u8>>> {
        self.recorder.check()?;
        self.engine.random_key(below)
    }

    fn snapshot(&self) -> Result<ReadPoint> {
        self.recorder.check()?;
        self.engine.snapshot()
    }

    fn check_open(&self) -> Result<()> {
        self.recorder.check()?;
        self.engine.check_open()
    }

    fn write(&self, batch: &WriteBatch, durability: Durability) -> Result<()> {
        self.recorder.check()?;
        let written = self.engine.write(batch, durability);
        self.recorder.record(batch);
        written
    }

    fn clear(&self) -> Result<()> {
        self.recorder.check()?;
        let cleared = self.engine.clear();
        self.recorder.record_clear();
        cleared
    }

    fn prepare<'a>(
        &'a self,
        batch: &'a WriteBatch,
        may_wait: bool,
    ) -> Result<Option<Box<dyn PreparedPart + 'a>>> {
        self.recorder.check()?;
        let recorder = &*self.recorder;
        let part = self.engine.prepare(batch, may_wait)?;
        Ok(part.map(|part| -> Box<dyn PreparedPart + 'a> {
            Box::new(RecordedPart { part, batch, recorder })
        }))
    }

    fn prepare_ingestion<'a>(
        &'a self,
        files: &[&Path],
        options: IngestOptions,
    ) -> Result<Box<dyn PreparedIngestion + 'a>> {
        self.recorder.check()?;
        let prepared = self.engine.prepare_ingestion(files, options)?;
        Ok(Box::new(RecordedIngestion { prepared, recorder: &self.recorder }))
    }

    fn as_any(&self) -> Option<Arc<dyn Any + Send + Sync>> {
        self.engine.as_any()
    }
}

/// A part of a batch over several tables.
struct RecordedPart<'a> {
    part: Box<dyn PreparedPart + 'a>,
    batch: &'a WriteBatch,
    recorder: &'a WriteRecorder,
}

impl PreparedPart for RecordedPart<'_> {
    fn last_batch(&self) -> u64 {
        self.part.last_batch()
    }

    fn append(
        &mut self,
        header: PartHeader<'_>,
        dependencies: &Arc<dyn PartDependencies>,
    ) -> Result<Box<dyn LogPosition>> {
        self.part.append(header, dependencies)
    }

    fn commit(self: Box<Self>, is_durable: bool) -> Result<()> {
        let committed = self.part.commit(is_durable);
        self.recorder.record(self.batch);
        committed
    }
}

struct RecordedIngestion<'a> {
    prepared: Box<dyn PreparedIngestion + 'a>,
    recorder: &'a WriteRecorder,
}

impl PreparedIngestion for RecordedIngestion<'_> {
    fn ranges(&self) -> Vec<(Vec<u8>, Vec<u8>)> {
        self.prepared.ranges()
    }

    fn commit(self: Box<Self>) -> Result<IngestReport> {
        self.recorder.check()?;
        let ranges = self.prepared.ranges().into_iter();
        let ingested = self.prepared.commit();
        self.recorder.record_ranges(ranges.map(|(first, last)| KeyRange::new(first..=last)));
        ingested
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn record_has_what_was_written_while_it_was_taken() {
        let recorder = WriteRecorder::default();
        let mut batch = WriteBatch::new();
        batch.put(b"a", b"1").delete(b"b").merge(b"c", b"2");
        recorder.record(&batch);
        assert!(recorder.begin() && !recorder.begin());
        assert!(recorder.take().keys.is_empty());
        recorder.record(&batch);
        let record = recorder.take();
        assert_eq!(record.keys, [b"a", b"b", b"c"].map(|key| key.to_vec()).into());
        assert!(record.ranges.is_empty() && !record.is_cleared && recorder.take().keys.is_empty());
        batch.delete_range(b"a".as_slice()..b"c".as_slice());
        recorder.record(&batch);
        recorder.record_clear();
        let record = recorder.take();
        assert_eq!(record.ranges, [KeyRange::new(&b"a"[..]..b"c")]);
        assert!(record.is_cleared);
        recorder.end();
        recorder.record(&batch);
        assert!(recorder.take().keys.is_empty() && recorder.check().is_ok());
        recorder.seal();
        assert!(matches!(recorder.check(), Err(Error::Closed)));
    }
}
