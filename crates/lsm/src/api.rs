//! Public API of the ordered engine: [`Lsm`], an open table.
//!
//! [`LogStructuredEngine`] implements the trait `Engine`; [`OpenTable`] has what differs by engine.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use siltstone_durable::{self as durable, LogStructuredEngine, OpenTable, flush};
use siltstone_engine::{
    ChangeCursor, ChangeOptions, CompactionFilter, Cursor, Entry, IngestOptions, KeyRange,
    MergeOperator, PreparedIngestion, ReadPoint, Result, Timestamp, VisitKeys,
};
use siltstone_runtime::Env;
use siltstone_table::BlockCache;
use siltstone_vfs::Vfs;

use crate::engine::Tree;
use crate::options::Options;
use crate::recover;
use crate::version::Version;

/// How long closing waits for finished jobs to release the table.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// An open table of the ordered engine.
pub type Lsm = LogStructuredEngine<Tree>;

/// Opens the table on `vfs`, or creates one, with a block cache that other tables may share, in
/// place of one of [`Options::cache_bytes`]. The caller ensures that the table is open only once.
///
/// # Errors
/// As from [`Lsm::open`].
pub fn open_shared(
    vfs: Arc<dyn Vfs>,
    env: Env,
    options: Options,
    cache: Arc<BlockCache>,
) -> Result<Lsm> {
    let (tree, must_flush) = recover::open(vfs, env, options, Some(cache))?;
    Lsm::start(tree, must_flush)
}

impl OpenTable for Tree {
    type Options = Options;

    const IS_ORDERED_AND_VERSIONED: bool = true;
    const HAS_RANGE_DELETES: bool = true;
    const HAS_MERGES: bool = true;
    const HAS_CHANGE_FEED: bool = true;

    fn recover(vfs: Arc<dyn Vfs>, env: Env, options: Options) -> Result<(Arc<Self>, bool)> {
        recover::open(vfs, env, options, None)
    }

    fn get(&self, key: &[u8], at: Option<&ReadPoint>) -> Result<Option<Entry>> {
        self.get(key, at)
    }

    /// Lends values from memtables and cached blocks.
    fn lookup(
        &self,
        key: &[u8],
        at: Option<&ReadPoint>,
        visit: &mut dyn FnMut(&[u8], Option<Timestamp>),
    ) -> Result<bool> {
        self.lookup(key, at, visit)
    }

    /// Reads no value in a log or blob file.
    fn expiry(&self, key: &[u8], at: Option<&ReadPoint>) -> Result<Option<Option<Timestamp>>> {
        self.expiry(key, at)
    }

    /// As of one moment. Reads from a device overlap.
    fn multi_lookup(
        &self,
        keys: &[&[u8]],
        at: Option<&ReadPoint>,
        visit: &mut VisitKeys<'_>,
    ) -> Result<()> {
        self.multi_lookup(keys, at, visit)
    }

    fn begin_reads(&self, keys: &[&[u8]]) {
        self.begin_reads(keys);
    }

    fn cursor(&self, range: KeyRange, at: Option<&ReadPoint>) -> Result<Box<dyn Cursor>> {
        self.cursor(range, at)
    }

    fn snapshot(&self) -> Option<ReadPoint> {
        Some(self.snapshots.take(&self.visible))
    }

    /// Uniformly distributed, unless nearly all stored entries are dead.
    fn random_key(lsm: &Lsm, below: &mut dyn FnMut(u64) -> u64) -> Result<Option<Vec<u8>>> {
        lsm.table().random_key(below)
    }

    fn set_compaction_filter(&self, filter: Option<Arc<dyn CompactionFilter>>) -> bool {
        *self.compaction_filter.lock() = filter;
        true
    }

    fn set_merge_operator(&self, operator: Option<Arc<dyn MergeOperator>>) -> Result<()> {
        self.set_operator(operator)
    }

    fn merge_operator(&self) -> Option<Arc<dyn MergeOperator>> {
        self.merges.operator()
    }

    /// Cost: reads and writes the data of the range at each level, and all of level 0 that overlaps
    /// it, with the tables of level 1 below.
    fn compact_range(&self, range: &KeyRange) -> Result<()> {
        self.compact_range(range)
    }

    fn prepare_ingestion<'a>(
        &'a self,
        files: &[&Path],
        options: IngestOptions,
    ) -> Result<Box<dyn PreparedIngestion + 'a>> {
        Ok(Box::new(self.prepare_files(files, options)?))
    }

    fn set_options(&self, changes: &BTreeMap<String, String>) -> Result<()> {
        self.change_options(changes)
    }

    /// Reads the logs: see `changes`.
    fn changes(&self, options: ChangeOptions) -> Result<Box<dyn ChangeCursor>> {
        Ok(Box::new(self.feed(options)?))
    }

    /// With an overlay, a rotation leaves two memtables to flush. The lock excludes checkpoints,
    /// which wait for both.
    fn flush(&self) -> Result<()> {
        let _lock = self.has_overlay().then(|| self.checkpoint_lock.lock());
        flush::flush(self)
    }

    /// Ends background work, and drops queued compactions, because they keep files and the pool
    /// open.
    fn stop(&self) {
        self.background.stop();
        self.background.lock().queued.clear();
    }

    /// Removes the log that was created in advance.
    fn before_seal(&self) {
        let next = self.next_log.lock().take();
        next.into_iter().for_each(|next| next.remove(self.vfs.as_ref()));
    }

    /// Releases all runs in persistent memory and the pool, and waits until finished jobs have
    /// released theirs, so that the lock of the pool is free. Open cursors keep their runs.
    fn release(&self) {
        self.versions.release(Version::without_pmem_runs);
        let mut state = self.background.lock();
        durable::publish(self, &mut state, |view| {
            view.version = Arc::new(view.version.without_pmem_runs());
        });
        drop(state);
        *self.pool.lock() = None;
        let began = Instant::now();
        while self.me.strong_count() > 1 && began.elapsed() < CLOSE_TIMEOUT {
            std::thread::yield_now();
        }
    }
}
