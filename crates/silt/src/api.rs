//! Public API of the engine.

use std::sync::Arc;

use siltstone_durable::{self as durable, commit, flush};
use siltstone_engine::{
    Capabilities, CheckpointSink, Cursor, Durability, Engine, Entry, Forward, Result, Stats,
    VerifyReport, WriteBatch,
};
use siltstone_runtime::{BackgroundWork, Env};
use siltstone_vfs::Vfs;

use crate::cursor::SiltCursor;
use crate::engine::SiltEngine;
use crate::options::Options;
use crate::recover;

/// An open table of the engine.
pub struct Silt {
    pub(crate) engine: Arc<SiltEngine>,
}

impl Silt {
    /// Opens the table on `vfs`, or creates one. The caller ensures that it is open only once.
    ///
    /// # Errors
    /// Corruption, a newer format, or a failing medium; then nothing has changed.
    pub fn open(vfs: Arc<dyn Vfs>, env: Env, options: Options) -> Result<Self> {
        let engine = recover::open(vfs, env, options)?;
        let silt = Silt { engine };
        silt.engine.background.retry_with(silt.engine.me.clone());
        if !silt.engine.options.loads_in_background {
            silt.engine.load_indexes()?;
        }
        if silt.engine.background.lock().drains {
            flush::wait_for_flushes(silt.engine.as_ref())?;
        }
        if silt.engine.options.loads_in_background {
            silt.engine.schedule();
        }
        Ok(silt)
    }
}

impl Drop for Silt {
    fn drop(&mut self) {
        self.engine.background.close();
        self.engine.background.stop();
    }
}

impl Silt {
    /// Limits the memory of filters and indexes to `bytes` from now on (0: no limit). Those above
    /// the limit are unloaded before this returns; those that fit are loaded in the background.
    /// Lookups continue with more reads.
    pub fn set_index_memory(&self, bytes: u64) {
        self.engine.set_index_memory(bytes);
    }
}

impl Engine for Silt {
    fn name(&self) -> &'static str {
        crate::version::ENGINE
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
        self.engine.get(key)
    }

    fn write(&self, batch: &WriteBatch, durability: Durability) -> Result<()> {
        commit::write(self.engine.as_ref(), batch, durability)
    }

    fn sync(&self) -> Result<()> {
        commit::sync(self.engine.as_ref())
    }

    fn iter(&self) -> Result<Box<dyn Cursor>> {
        Ok(Box::new(Forward::new(SiltCursor::new(&self.engine)?)))
    }

    fn flush(&self) -> Result<()> {
        flush::flush(self.engine.as_ref())
    }

    fn maintain(&self) -> Result<()> {
        self.engine.drain_jobs(|_| false)
    }

    fn checkpoint(&self, sink: &mut dyn CheckpointSink) -> Result<()> {
        self.engine.checkpoint(sink)
    }

    fn verify(&self, progress: &mut dyn FnMut(u64, u64)) -> Result<VerifyReport> {
        self.engine.verify(progress)
    }

    fn stats(&self) -> Stats {
        self.engine.stats()
    }

    fn trouble(&self) -> Option<String> {
        self.engine.background.trouble()
    }

    fn warnings(&self) -> Vec<String> {
        self.engine.warnings()
    }

    fn close(&self) -> Result<()> {
        let engine = self.engine.as_ref();
        durable::core::close(engine, || engine.background.stop())
    }
}
