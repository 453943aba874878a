//! Implements [`Engine`] for every engine on top of [`Core`].
//!
//! ```text
//!   open   recover ─ enable retries ─ start: flush what was recovered, if it must be
//!   close  stop background work ─ seal log and manifest ─ release
//!   drop   stop background work ─ release: what was written stays in the logs
//! ```
//!
//! Writes, flushes and closing are the same for all engines. An engine implements reads,
//! checkpoints and reports in [`OpenTable`].
//!
//! Invariant: background work of a table ends with its [`LogStructuredEngine`].

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use siltstone_engine::{
    Capabilities, ChangeCursor, ChangeOptions, CheckpointSink, CompactionFilter, Cursor,
    Durability, Engine, Entry, Error, IngestOptions, KeyRange, MAX_VALUE_BYTES, MergeOperator,
    PreparedIngestion, PreparedPart, ReadPoint, Result, Stats, Timestamp, VerifyReport, VisitKeys,
    WriteBatch, lookup_each, sample,
};
use siltstone_runtime::{BackgroundWork, Env};
use siltstone_table::Manifest;
use siltstone_vfs::Vfs;

use crate::checkpoint::Checkpoint;
use crate::clear::{self, Clear};
use crate::core::{Core, EditOf};
use crate::group::Group;
use crate::offline::Report;
use crate::{
    PartSurvey, VersionEdit, VersionState, commit, flush, prepare, publication, replay_edits, stall,
};

/// The operations of an open table besides writes, which an engine implements. A method with the
/// name of one of [`Engine`] has the same contract and the same errors.
pub trait OpenTable: Checkpoint + Report + Clear {
    /// The options of a table.
    type Options;

    /// Whether keys have an order, and reads may name a snapshot.
    const IS_ORDERED_AND_VERSIONED: bool = false;

    /// Whether batches may have range deletions.
    const HAS_RANGE_DELETES: bool = false;

    /// Whether batches may have merges.
    const HAS_MERGES: bool = false;

    /// Whether there is a change feed.
    const HAS_CHANGE_FEED: bool = false;

    /// Recovers the table in `vfs`, or creates one. Returns `true` if the recovered memtable must
    /// be flushed.
    ///
    /// # Errors
    /// Those of [`LogStructuredEngine::open`].
    fn recover(vfs: Arc<dyn Vfs>, env: Env, options: Self::Options) -> Result<(Arc<Self>, bool)>;

    /// Flushes the recovered memtable if it must be.
    ///
    /// # Errors
    /// Those of the flush.
    fn start(&self, must_flush: bool) -> Result<()> {
        if must_flush { flush::flush_recovered(self) } else { Ok(()) }
    }

    /// The entry of `key` now, or `at` a snapshot.
    fn get(&self, key: &[u8], at: Option<&ReadPoint>) -> Result<Option<Entry>>;

    /// See [`Engine::lookup`]. The default copies the value.
    ///
    /// # Errors
    /// The same.
    fn lookup(
        &self,
        key: &[u8],
        at: Option<&ReadPoint>,
        visit: &mut dyn FnMut(&[u8], Option<Timestamp>),
    ) -> Result<bool> {
        let found = self.get(key, at)?;
        if let Some(entry) = &found {
            visit(&entry.value, entry.expires_at);
        }
        Ok(found.is_some())
    }

    /// See [`Engine::expiry`]. The default looks the entry up.
    ///
    /// # Errors
    /// The same.
    fn expiry(&self, key: &[u8], at: Option<&ReadPoint>) -> Result<Option<Option<Timestamp>>> {
        let mut found = None;
        self.lookup(key, at, &mut |_, expires_at| found = Some(expires_at))?;
        Ok(found)
    }

    /// See [`Engine::multi_lookup`]. The default looks one key up after the other; their reads from
    /// a device overlap with [`begin_reads`](Self::begin_reads).
    ///
    /// # Errors
    /// The same.
    fn multi_lookup(
        &self,
        keys: &[&[u8]],
        at: Option<&ReadPoint>,
        visit: &mut VisitKeys<'_>,
    ) -> Result<()> {
        let lookup =
            |key: &[u8], lend: &mut dyn FnMut(&[u8], Option<Timestamp>)| self.lookup(key, at, lend);
        lookup_each(keys, visit, lookup, |keys| self.begin_reads(keys))
    }

    /// See [`Engine::begin_reads`]. The default does nothing.
    fn begin_reads(&self, _keys: &[&[u8]]) {}

    /// The entries in `range` now, or `at` a snapshot. For an unordered engine, `range` is always
    /// all keys.
    fn cursor(&self, range: KeyRange, at: Option<&ReadPoint>) -> Result<Box<dyn Cursor>>;

    /// A snapshot; `None` if the engine has none.
    fn snapshot(&self) -> Option<ReadPoint> {
        None
    }

    /// A random key.
    fn random_key(
        engine: &LogStructuredEngine<Self>,
        below: &mut dyn FnMut(u64) -> u64,
    ) -> Result<Option<Vec<u8>>> {
        sample::random_of_first(engine.iter()?, below)
    }

    /// See [`Engine::set_compaction_filter`]. `false`: the engine has no compaction filters.
    fn set_compaction_filter(&self, _filter: Option<Arc<dyn CompactionFilter>>) -> bool {
        false
    }

    /// See [`Engine::set_merge_operator`].
    ///
    /// # Errors
    /// The same; the default refuses every call.
    fn set_merge_operator(&self, _operator: Option<Arc<dyn MergeOperator>>) -> Result<()> {
        Err(Error::Unsupported { engine: Self::Version::ENGINE, operation: "merges" })
    }

    /// See [`Engine::merge_operator`].
    fn merge_operator(&self) -> Option<Arc<dyn MergeOperator>> {
        None
    }

    /// See [`Engine::compact_range`].
    ///
    /// # Errors
    /// The same; the default refuses every call.
    fn compact_range(&self, _range: &KeyRange) -> Result<()> {
        let operation = "compaction of a range of keys";
        Err(Error::Unsupported { engine: Self::Version::ENGINE, operation })
    }

    /// See [`Engine::prepare_ingestion`].
    ///
    /// # Errors
    /// The same; the default refuses every call.
    fn prepare_ingestion<'a>(
        &'a self,
        _files: &[&Path],
        _options: IngestOptions,
    ) -> Result<Box<dyn PreparedIngestion + 'a>> {
        let operation = "ingestion of sorted files";
        Err(Error::Unsupported { engine: Self::Version::ENGINE, operation })
    }

    /// See [`Engine::set_options`].
    ///
    /// # Errors
    /// The same; the default refuses every call.
    fn set_options(&self, _changes: &BTreeMap<String, String>) -> Result<()> {
        let operation = "options that change while the table is open";
        Err(Error::Unsupported { engine: Self::Version::ENGINE, operation })
    }

    /// See [`Engine::changes`].
    ///
    /// # Errors
    /// The same; the default refuses every call.
    fn changes(&self, _options: ChangeOptions) -> Result<Box<dyn ChangeCursor>> {
        Err(Error::Unsupported { engine: Self::Version::ENGINE, operation: "a change feed" })
    }

    /// Writes everything in memory to files.
    fn flush(&self) -> Result<()> {
        flush::flush(self)
    }

    /// Ends background work.
    fn stop(&self) {
        self.core().background.stop();
    }

    /// Called when a close has ended background work, before log and manifest are sealed.
    fn before_seal(&self) {}

    /// Releases what the next open needs, e.g. a lock.
    fn release(&self) {}
}

/// An open table of a log-structured engine.
pub struct LogStructuredEngine<T: OpenTable> {
    table: Arc<T>,
}

impl<T: OpenTable> LogStructuredEngine<T> {
    /// Opens the table on `vfs`, or creates one. The caller ensures that it is open only once.
    ///
    /// # Errors
    /// Corruption, a newer format, I/O errors; then nothing has changed.
    pub fn open(vfs: Arc<dyn Vfs>, env: Env, options: T::Options) -> Result<Self> {
        let (table, must_flush) = T::recover(vfs, env, options)?;
        Self::start(table, must_flush)
    }

    /// Completes the opening of a table that has been recovered.
    ///
    /// # Errors
    /// Those of [`OpenTable::start`].
    pub fn start(table: Arc<T>, must_flush: bool) -> Result<Self> {
        let engine = LogStructuredEngine { table };
        engine.core().background.retry_with(engine.core().me.clone(), T::core);
        engine.table.start(must_flush)?;
        // Those that were due when the table was closed, or are due by other options.
        engine.table.schedule_jobs();
        Ok(engine)
    }

    /// The parts of batches over several tables in the log of the table on `vfs`, which is not
    /// open.
    ///
    /// # Errors
    /// Corruption, a newer format, I/O errors.
    pub fn survey_parts(vfs: &Arc<dyn Vfs>) -> Result<PartSurvey> {
        PartSurvey::read::<T::Version>(vfs)
    }

    /// The first log that recovery of the table on `vfs` needs.
    ///
    /// # Errors
    /// `Refused` without a manifest; corruption, a newer format, I/O errors.
    pub fn first_log(vfs: &Arc<dyn Vfs>) -> Result<u64> {
        let (_, edits) = Manifest::open(vfs.clone(), T::Version::ENGINE)?;
        let header = *replay_edits::<EditOf<T>>(&edits)?.header();
        Ok(header.first_log.unwrap_or(0))
    }

    /// The state of the table.
    pub fn table(&self) -> &T {
        &self.table
    }

    fn core(&self) -> &Core<T> {
        self.table.core()
    }

    /// Checks that the engine has the operations of a batch.
    fn check_supported(&self, batch: &WriteBatch) -> Result<()> {
        if !T::HAS_RANGE_DELETES {
            batch.reject_range_deletions(self.name())?;
        }
        if T::HAS_MERGES { Ok(()) } else { batch.reject_merges(self.name()) }
    }

    fn check_snapshot(&self, at: Option<&ReadPoint>) -> Result<()> {
        match at.is_none() || T::IS_ORDERED_AND_VERSIONED {
            true => Ok(()),
            false => Err(self.unsupported("reads at a snapshot")),
        }
    }
}

impl<T: OpenTable> Drop for LogStructuredEngine<T> {
    fn drop(&mut self) {
        self.core().background.close();
        self.table.stop();
        self.table.release();
    }
}

impl<T: OpenTable> Engine for LogStructuredEngine<T> {
    fn name(&self) -> &'static str {
        T::Version::ENGINE
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            ordered: T::IS_ORDERED_AND_VERSIONED,
            durable: true,
            versioned: T::IS_ORDERED_AND_VERSIONED,
            incremental_gc: false,
            range_deletes: T::HAS_RANGE_DELETES,
            merge: T::HAS_MERGES,
            change_feed: T::HAS_CHANGE_FEED,
            max_value_bytes: MAX_VALUE_BYTES,
        }
    }

    fn get(&self, key: &[u8]) -> Result<Option<Entry>> {
        self.table.get(key, None)
    }

    fn get_at(&self, key: &[u8], at: &ReadPoint) -> Result<Option<Entry>> {
        self.check_snapshot(Some(at))?;
        self.table.get(key, Some(at))
    }

    fn lookup(
        &self,
        key: &[u8],
        at: Option<&ReadPoint>,
        visit: &mut dyn FnMut(&[u8], Option<Timestamp>),
    ) -> Result<bool> {
        self.check_snapshot(at)?;
        self.table.lookup(key, at, visit)
    }

    fn expiry(&self, key: &[u8], at: Option<&ReadPoint>) -> Result<Option<Option<Timestamp>>> {
        self.check_snapshot(at)?;
        self.table.expiry(key, at)
    }

    fn multi_lookup(
        &self,
        keys: &[&[u8]],
        at: Option<&ReadPoint>,
        visit: &mut VisitKeys<'_>,
    ) -> Result<()> {
        self.check_snapshot(at)?;
        self.table.multi_lookup(keys, at, visit)
    }

    fn begin_reads(&self, keys: &[&[u8]]) {
        self.table.begin_reads(keys);
    }

    fn write(&self, batch: &WriteBatch, durability: Durability) -> Result<()> {
        self.check_supported(batch)?;
        commit::write(self.table(), batch, durability)
    }

    fn must_wait(&self, batch: &WriteBatch) -> bool {
        stall::would_wait(self.table(), &Group::of_one(batch))
    }

    fn prepare<'a>(
        &'a self,
        batch: &'a WriteBatch,
        may_wait: bool,
    ) -> Result<Option<Box<dyn PreparedPart + 'a>>> {
        self.check_supported(batch)?;
        let prepared = prepare::prepare(self.table(), batch, may_wait)?;
        Ok(prepared.map(|part| Box::new(part) as Box<dyn PreparedPart + 'a>))
    }

    /// Drops the files, atomically.
    fn clear(&self) -> Result<()> {
        clear::clear(self.table())
    }

    fn sync(&self) -> Result<()> {
        commit::sync(self.table())
    }

    fn iter(&self) -> Result<Box<dyn Cursor>> {
        self.table.cursor(KeyRange::all(), None)
    }

    fn range(&self, range: KeyRange, at: Option<&ReadPoint>) -> Result<Box<dyn Cursor>> {
        range.check()?;
        match T::IS_ORDERED_AND_VERSIONED {
            true => self.table.cursor(range, at),
            false => Err(self.unsupported("range scans")),
        }
    }

    fn random_key(&self, below: &mut dyn FnMut(u64) -> u64) -> Result<Option<Vec<u8>>> {
        T::random_key(self, below)
    }

    fn snapshot(&self) -> Result<ReadPoint> {
        self.core().background.check_open()?;
        self.table.snapshot().ok_or_else(|| self.unsupported("snapshots"))
    }

    fn flush(&self) -> Result<()> {
        self.table.flush()
    }

    fn maintain(&self) -> Result<()> {
        let logs = &self.core().logs;
        if logs.is_enabled() {
            logs.trim();
        }
        self.core().drain_jobs()
    }

    fn set_compaction_filter(&self, filter: Option<Arc<dyn CompactionFilter>>) -> Result<()> {
        self.core().background.check_open()?;
        match self.table.set_compaction_filter(filter) {
            true => Ok(()),
            false => Err(self.unsupported("compaction filters")),
        }
    }

    fn check_write(&self, batch: &WriteBatch) -> Result<()> {
        self.check_supported(batch)?;
        batch.check(MAX_VALUE_BYTES)?;
        self.table.check_batch(batch)
    }

    fn set_merge_operator(&self, operator: Option<Arc<dyn MergeOperator>>) -> Result<()> {
        self.core().background.check_open()?;
        self.table.set_merge_operator(operator)
    }

    fn merge_operator(&self) -> Option<Arc<dyn MergeOperator>> {
        self.table.merge_operator()
    }

    fn compact_range(&self, range: &KeyRange) -> Result<()> {
        range.check()?;
        self.table.compact_range(range)
    }

    fn prepare_ingestion<'a>(
        &'a self,
        files: &[&Path],
        options: IngestOptions,
    ) -> Result<Box<dyn PreparedIngestion + 'a>> {
        self.core().background.check_writable()?;
        self.table.prepare_ingestion(files, options)
    }

    fn set_options(&self, changes: &BTreeMap<String, String>) -> Result<()> {
        self.core().background.check_open()?;
        self.table.set_options(changes)
    }

    fn changes(&self, options: ChangeOptions) -> Result<Box<dyn ChangeCursor>> {
        self.core().background.check_open()?;
        self.table.changes(options)
    }

    fn checkpoint(&self, sink: &mut dyn CheckpointSink) -> Result<()> {
        self.table.checkpoint(sink)
    }

    fn verify(&self, progress: &mut dyn FnMut(u64, u64)) -> Result<VerifyReport> {
        self.table.verify(progress)
    }

    fn stats(&self) -> Stats {
        self.table.stats()
    }

    fn warnings(&self) -> Vec<String> {
        self.table.warnings()
    }

    fn trouble(&self) -> Option<String> {
        self.core().background.trouble()
    }

    fn check_open(&self) -> Result<()> {
        self.core().background.check_open()
    }

    fn close(&self) -> Result<()> {
        let _lock = self.core().closing.lock();
        let closed = publication::close(self.table(), || {
            self.table.stop();
            self.table.before_seal();
        });
        self.table.release();
        closed
    }
}
