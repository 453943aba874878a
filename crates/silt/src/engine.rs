//! The engine's face and its shared state.
//!
//! Locks, in the order in which they may be taken: the writer's (one write group at a time), the
//! installer's (one manifest edit at a time, in `version`), the state's (short, never over I/O), a
//! LogStore's (a few instructions). Readers take the last alone.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Weak};

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use siltstone_engine::{
    Capabilities, CheckpointSink, Cursor, Durability, Engine, Entry, Forward, Result, Stats,
    VerifyReport, WriteBatch,
};
use siltstone_runtime::{Background, BackgroundWork, Env, GroupCommit, RateLimiter};
use siltstone_table::SegmentLink;
use siltstone_vfs::Vfs;

use crate::counters::Counters;
use crate::cursor::SiltCursor;
use crate::options::Options;
use crate::version::{Edit, Versions};
use crate::view::View;
use crate::write::{Queued, Writer};

/// An open table of the engine.
pub struct Silt {
    pub(crate) inner: Arc<Inner>,
}

/// What all threads share.
pub(crate) struct Inner {
    pub(crate) me: Weak<Inner>,
    pub(crate) vfs: Arc<dyn Vfs>,
    pub(crate) env: Env,
    pub(crate) options: Options,
    pub(crate) versions: Versions,
    pub(crate) group: GroupCommit<Queued>,
    /// `None` once the table is closed.
    pub(crate) writer: Mutex<Option<Writer>>,
    pub(crate) view: ArcSwap<View>,
    pub(crate) background: Background<State>,
    /// Bytes that filters and indexes may take; 0: no limit.
    pub(crate) index_memory: AtomicU64,
    pub(crate) convert_rate: RateLimiter,
    pub(crate) merge_rate: RateLimiter,
    pub(crate) counters: Counters,
    /// The number of the log that this opening began: greater than those of all openings before.
    pub(crate) opening: u64,
}

/// What background work is under way and due.
#[derive(Default)]
pub(crate) struct State {
    /// Generations that wait for their conversion.
    pub(crate) frozen: usize,
    /// How many were done with since the opening: who waits for some need not wait for later ones.
    pub(crate) done: u64,
    /// All of them are to be converted.
    pub(crate) drains: bool,
    pub(crate) is_conversion_queued: bool,
    pub(crate) is_merge_queued: bool,
    pub(crate) is_loading_queued: bool,
    /// Logs below this number are in stores.
    pub(crate) first_log: u64,
    /// Logs that are on the medium.
    pub(crate) logs: Vec<u64>,
}

impl Silt {
    /// Opens the table on `media`, or makes a new one if there is none. The caller sees to it that
    /// no one else has it open.
    ///
    /// # Errors
    /// Corruption, a newer format, or a failing medium; nothing is changed then.
    pub fn open(vfs: Arc<dyn Vfs>, env: Env, options: Options) -> Result<Self> {
        let inner = crate::recover::open(vfs, env, options)?;
        let silt = Silt { inner };
        silt.inner.background.retry_with(silt.inner.me.clone());
        if !silt.inner.options.loads_in_background {
            silt.inner.load_indexes()?;
        }
        if silt.inner.background.lock().drains {
            silt.inner.drain()?;
        }
        if silt.inner.options.loads_in_background {
            silt.inner.schedule();
        }
        Ok(silt)
    }
}

impl Inner {
    /// Changes the view that readers load.
    pub(crate) fn publish(&self, state: &mut State, change: impl FnOnce(&mut View)) {
        let mut view = View::clone(&self.view.load());
        let before = view.frozen.len();
        change(&mut view);
        state.frozen = view.frozen.len();
        state.done += before.saturating_sub(state.frozen) as u64;
        self.view.store(Arc::new(view));
        self.background.notify();
    }

    /// Installs an edit durably and lets readers see its version, changed further by `change`.
    pub(crate) fn install(&self, edit: Edit, change: impl FnOnce(&mut View)) -> Result<()> {
        let first_log = edit.first_log;
        let memory = self.index_memory.load(Relaxed);
        self.versions.install(edit, memory, |version| {
            let mut state = self.background.lock();
            state.first_log = first_log.unwrap_or(state.first_log);
            self.publish(&mut state, |view| {
                view.version = version.clone();
                change(view);
            });
        })
    }

    fn close(&self) -> Result<()> {
        if !self.background.close() {
            return Ok(());
        }
        self.background.stop();
        let writer = self.writer.lock().take();
        match writer {
            // After a fault the log's state is unknown: the next open finds out.
            Some(writer) if !self.background.is_poisoned() => {
                let SegmentLink { number, bytes } = writer.log.seal()?;
                let edit = Edit { sealed_log: Some((number, bytes)), ..Edit::default() };
                let memory = self.index_memory.load(Relaxed);
                self.versions.install(edit, memory, |_| ())?;
                self.versions.close()
            }
            _ => self.background.check_not_poisoned(),
        }
    }
}

impl Drop for Silt {
    fn drop(&mut self) {
        self.inner.background.close();
        self.inner.background.stop();
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
        self.inner.get(key)
    }

    fn write(&self, batch: &WriteBatch, durability: Durability) -> Result<()> {
        self.inner.write(batch, durability)
    }

    fn sync(&self) -> Result<()> {
        self.inner.sync()
    }

    fn iter(&self) -> Result<Box<dyn Cursor>> {
        Ok(Box::new(Forward::new(SiltCursor::new(&self.inner)?)))
    }

    fn flush(&self) -> Result<()> {
        self.inner.flush()
    }

    fn maintain(&self) -> Result<()> {
        self.inner.drain_jobs(|_| false)
    }

    fn checkpoint(&self, sink: &mut dyn CheckpointSink) -> Result<()> {
        self.inner.checkpoint(sink)
    }

    fn verify(&self, progress: &mut dyn FnMut(u64, u64)) -> Result<VerifyReport> {
        self.inner.verify(progress)
    }

    fn stats(&self) -> Stats {
        self.inner.stats()
    }

    fn trouble(&self) -> Option<String> {
        self.inner.background.trouble()
    }

    fn warnings(&self) -> Vec<String> {
        self.inner.warnings()
    }

    fn close(&self) -> Result<()> {
        self.inner.close()
    }
}
