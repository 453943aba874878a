//! Public API of the ordered engine.

use std::sync::Arc;
use std::time::{Duration, Instant};

use siltstone_durable::{self as durable, commit, flush};
use siltstone_engine::{
    Capabilities, CheckpointSink, Cursor, Durability, Engine, Entry, KeyRange, ReadPoint, Result,
    Stats, VerifyReport, WriteBatch,
};
use siltstone_runtime::{BackgroundWork, Env};
use siltstone_vfs::Vfs;

use crate::engine::Tree;
use crate::options::Options;
use crate::recover;
use crate::version::Version;

/// How long closing waits for finished jobs to release the table.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// An open table of the ordered engine.
pub struct Lsm {
    pub(crate) tree: Arc<Tree>,
}

impl Lsm {
    /// Opens the table on `vfs`, or creates one. The caller ensures that it is open only once.
    ///
    /// # Errors
    /// Corruption, a newer format, or a failing medium; then nothing has changed.
    pub fn open(vfs: Arc<dyn Vfs>, env: Env, options: Options) -> Result<Self> {
        let (tree, must_flush) = recover::open(vfs, env, options)?;
        let lsm = Lsm { tree };
        lsm.tree.background.retry_with(lsm.tree.me.clone());
        if must_flush {
            flush::flush_recovered(lsm.tree.as_ref())?;
        }
        Ok(lsm)
    }
}

impl Tree {
    /// Writes everything in memory to files and waits for it.
    pub(crate) fn flush(&self) -> Result<()> {
        // A checkpoint waits for both memtables that a rotation leaves, if there is an overlay.
        let _lock = self.has_overlay().then(|| self.checkpoint_lock.lock());
        flush::flush(self)
    }

    fn close(&self) -> Result<()> {
        let closed = durable::core::close(self, || {
            self.stop();
            let next = self.next_log.lock().take();
            next.into_iter().for_each(|next| next.remove(self.vfs.as_ref()));
        });
        self.release_pool();
        closed
    }

    /// Ends background work, also what is queued: that holds files, and the pool.
    fn stop(&self) {
        self.background.stop();
        self.background.lock().queued.clear();
    }

    /// Releases all runs in persistent memory, and so the lock of the pool, which the next open
    /// needs. Open cursors keep theirs.
    fn release_pool(&self) {
        self.versions.release(Version::without_pmem_runs);
        let mut state = self.background.lock();
        durable::publish(self, &mut state, |view| {
            view.version = Arc::new(view.version.without_pmem_runs());
        });
        *self.pool.lock() = None;
    }
}

impl Drop for Lsm {
    fn drop(&mut self) {
        self.tree.background.close();
        self.tree.stop();
        self.tree.release_pool();
        self.wait_for_jobs();
    }
}

impl Lsm {
    /// Waits until finished jobs have released what they worked on, e.g. the pool.
    fn wait_for_jobs(&self) {
        let began = Instant::now();
        while Arc::strong_count(&self.tree) > 1 && began.elapsed() < CLOSE_TIMEOUT {
            std::thread::yield_now();
        }
    }
}

impl Engine for Lsm {
    fn name(&self) -> &'static str {
        "lsm"
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            ordered: true,
            durable: true,
            versioned: true,
            incremental_gc: false,
            max_value_bytes: crate::MAX_VALUE_BYTES,
        }
    }

    fn get(&self, key: &[u8]) -> Result<Option<Entry>> {
        self.tree.get(key, None)
    }

    fn get_at(&self, key: &[u8], at: &ReadPoint) -> Result<Option<Entry>> {
        self.tree.get(key, Some(at))
    }

    fn write(&self, batch: &WriteBatch, durability: Durability) -> Result<()> {
        commit::write(self.tree.as_ref(), batch, durability)
    }

    /// Drops the files, atomically.
    fn clear(&self) -> Result<()> {
        durable::clear::clear(self.tree.as_ref())
    }

    fn sync(&self) -> Result<()> {
        commit::sync(self.tree.as_ref())
    }

    fn iter(&self) -> Result<Box<dyn Cursor>> {
        self.tree.cursor(KeyRange::all(), None)
    }

    fn range(&self, range: KeyRange, at: Option<&ReadPoint>) -> Result<Box<dyn Cursor>> {
        self.tree.cursor(range, at)
    }

    /// Uniformly distributed, unless nearly all stored entries are dead.
    fn random_key(&self, below: &mut dyn FnMut(u64) -> u64) -> Result<Option<Vec<u8>>> {
        self.tree.random_key(below)
    }

    fn snapshot(&self) -> Result<ReadPoint> {
        self.tree.background.check_open()?;
        Ok(self.tree.snapshots.take(&self.tree.visible))
    }

    fn flush(&self) -> Result<()> {
        self.tree.flush()
    }

    fn maintain(&self) -> Result<()> {
        self.tree.drain_jobs(|state| state.flushing > 0)
    }

    fn checkpoint(&self, sink: &mut dyn CheckpointSink) -> Result<()> {
        self.tree.checkpoint(sink)
    }

    fn verify(&self, progress: &mut dyn FnMut(u64, u64)) -> Result<VerifyReport> {
        self.tree.verify(progress)
    }

    fn stats(&self) -> Stats {
        self.tree.stats()
    }

    fn trouble(&self) -> Option<String> {
        self.tree.background.trouble()
    }

    fn close(&self) -> Result<()> {
        let closed = self.tree.close();
        self.wait_for_jobs();
        closed
    }
}
