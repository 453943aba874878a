//! Public API of the LSM-trie engine.

use std::sync::Arc;

use parking_lot::Mutex;
use siltstone_durable::{self as durable, commit, flush};
use siltstone_engine::{
    Capabilities, CheckpointSink, Cursor, Durability, Engine, Entry, Result, Stats, VerifyReport,
    WriteBatch,
};
use siltstone_runtime::{BackgroundWork, Env};
use siltstone_vfs::{LockGuard, Vfs};

use crate::engine::Tree;
use crate::files::StorageTiers;
use crate::options::Options;
use crate::recover;
use crate::tiering;

/// An open table of the LSM-trie engine.
pub struct Trie {
    pub(crate) tree: Arc<Tree>,
    // Dropped after what it guards, or when the table is closed.
    lock: Mutex<Option<LockGuard>>,
}

impl Trie {
    /// Opens the table on `vfs`, or creates one. The caller ensures that it is open only once.
    ///
    /// # Errors
    /// Corruption, a newer format, or a failing medium; then nothing has changed.
    pub fn open(vfs: Arc<dyn Vfs>, env: Env, options: Options) -> Result<Self> {
        let second = options.fast_dir.as_deref().map(|upper| tiering::open(vfs.as_ref(), upper));
        let (upper, lock) = second.transpose()?.unzip();
        let trie = Self::open_on(vfs, upper, env, options)?;
        *trie.lock.lock() = lock;
        Ok(trie)
    }

    /// Opens the table with `upper` as the second medium, regardless of the option; the caller
    /// ensures that it is used only once, too.
    ///
    /// # Errors
    /// As [`open`](Trie::open); `Refused` if the second medium is another table's.
    pub fn open_on(
        vfs: Arc<dyn Vfs>,
        upper: Option<Arc<dyn Vfs>>,
        env: Env,
        options: Options,
    ) -> Result<Self> {
        let upper = upper.map(|vfs| (vfs, options.fast_levels));
        let tiers = StorageTiers { main: vfs, fast: upper };
        let (tree, must_flush) = recover::open(tiers, env, options)?;
        let trie = Trie { tree, lock: Mutex::new(None) };
        trie.tree.background.retry_with(trie.tree.me.clone());
        if must_flush {
            flush::flush_recovered(trie.tree.as_ref())?;
        }
        Ok(trie)
    }
}

impl Drop for Trie {
    fn drop(&mut self) {
        self.tree.background.close();
        self.tree.background.stop();
    }
}

impl Engine for Trie {
    fn name(&self) -> &'static str {
        "trie"
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            ordered: false,
            durable: true,
            versioned: false,
            incremental_gc: false,
            max_value_bytes: crate::MAX_VALUE_BYTES,
        }
    }

    fn get(&self, key: &[u8]) -> Result<Option<Entry>> {
        self.tree.get(key)
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
        self.tree.cursor()
    }

    fn flush(&self) -> Result<()> {
        flush::flush(self.tree.as_ref())
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
        let tree = self.tree.as_ref();
        let closed = durable::core::close(tree, || tree.background.stop());
        self.lock.lock().take();
        closed
    }
}
