//! The engine's face and its shared state.
//!
//! Locks, in the order in which they may be taken: the writer's (one write group at a time), the
//! installer's (one manifest edit at a time, in `version`), the state's (short, never over I/O).
//! Readers load the view without one, and take that of a memtable's shard for as long as it takes to copy
//! an item.
//!
//! Invariant: what a view names stays readable while the view is held.
//!
//! Source: the contract is `siltstone_engine::contract`'s; the arrangement is that of the house's
//! ordered engine.

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Weak};

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use siltstone_engine::{
    Capabilities, CheckpointSink, Cursor, Durability, Engine, Entry, Purpose, Result, Stats,
    VerifyReport, WriteBatch,
};
use siltstone_runtime::{Background, BackgroundWork, Env, GroupCommit, WriteController};
use siltstone_table::SegmentLink;
use siltstone_vfs::{LockGuard, Vfs};

use crate::compact::{Candidates, RunningTasks};
use crate::counters::Counters;
use crate::files::StorageTiers;
use crate::options::Options;
use crate::read::View;
use crate::tiering;
use crate::version::{Edit, Versions};
use crate::write::{Queued, Writer};

/// An open table of the LSM-trie engine.
pub struct Trie {
    pub(crate) inner: Arc<Inner>,
    // Dropped after what it guards, or when the table is closed.
    lock: Mutex<Option<LockGuard>>,
}

/// What all threads share.
pub(crate) struct Inner {
    pub(crate) me: Weak<Inner>,
    /// Of log and manifest.
    pub(crate) vfs: Arc<dyn Vfs>,
    pub(crate) tiers: StorageTiers,
    pub(crate) env: Env,
    pub(crate) options: Options,
    pub(crate) versions: Versions,
    pub(crate) group: GroupCommit<Queued>,
    /// `None` once the table is closed.
    pub(crate) writer: Mutex<Option<Writer>>,
    pub(crate) view: ArcSwap<View>,
    /// The newest sequence number that readers see.
    pub(crate) visible: AtomicU64,
    pub(crate) background: Background<State>,
    pub(crate) pressure: WriteController,
    pub(crate) counters: Counters,
    /// The number of the log that this opening began: greater than those of all openings before.
    pub(crate) opening: u64,
    /// The deepest level, from the opening on: it only grows.
    pub(crate) last_level: usize,
}

/// What background work is under way and due.
#[derive(Default)]
pub(crate) struct State {
    /// Memtables that wait for their flush.
    pub(crate) flushing: usize,
    /// How many were done with since the opening: who waits for some need not wait for later ones.
    pub(crate) done: u64,
    pub(crate) is_flush_queued: bool,
    /// Compactions queued or running.
    pub(crate) compactions: usize,
    pub(crate) running: RunningTasks,
    /// Of the containers of the view's version.
    pub(crate) candidates: Candidates,
    /// Logs below this number are in tables.
    pub(crate) first_log: u64,
    /// Logs that are on the medium.
    pub(crate) logs: Vec<u64>,
}

impl BackgroundWork for Inner {
    type State = State;

    fn background(&self) -> &Background<State> {
        &self.background
    }

    fn is_busy(state: &State) -> bool {
        state.is_flush_queued || state.compactions > 0
    }

    fn schedule(&self) {
        self.schedule_flush();
        self.schedule_compaction();
    }
}

impl Trie {
    /// Opens the table on `media`, or makes a new one if there is none. The caller sees to it that
    /// no one else has it open.
    ///
    /// # Errors
    /// Corruption, a newer format, or a failing medium; nothing is changed then.
    pub fn open(vfs: Arc<dyn Vfs>, env: Env, options: Options) -> Result<Self> {
        let second = options.fast_dir.as_deref().map(|upper| tiering::open(vfs.as_ref(), upper));
        let (upper, lock) = second.transpose()?.unzip();
        let trie = Self::open_on(vfs, upper, env, options)?;
        *trie.lock.lock() = lock;
        Ok(trie)
    }

    /// Opens the table with `upper` as the second medium, whatever the option says; the caller keeps
    /// others away from it, too.
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
        let (inner, leaves_logs) = crate::recover::open(tiers, env, options)?;
        let trie = Trie { inner, lock: Mutex::new(None) };
        trie.inner.background.retry_with(trie.inner.me.clone());
        if leaves_logs {
            trie.inner.flush_recovered()?;
        }
        Ok(trie)
    }
}

impl Inner {
    /// Where files of `level` go.
    pub(crate) fn tier_of(&self, level: usize) -> &Arc<dyn Vfs> {
        self.tiers.for_level(level)
    }

    /// Makes the names of new files durable.
    pub(crate) fn sync_dirs(&self, purpose: Purpose) -> Result<()> {
        self.tiers.sync_dirs(purpose)
    }

    /// Changes the view that readers load.
    pub(crate) fn publish(&self, state: &mut State, change: impl FnOnce(&mut View)) {
        let mut view = View::clone(&self.view.load());
        let before = view.flushing.len();
        change(&mut view);
        state.flushing = view.flushing.len();
        state.done += before.saturating_sub(state.flushing) as u64;
        self.pressure.set_memtables_exhausted(self.is_flush_due(state));
        self.pressure.set(self.pressure_of(state));
        self.view.store(Arc::new(view));
        self.background.notify();
    }

    /// Installs an edit durably and lets readers see its version, changed further by `change`.
    /// `false`: all keys were removed since the view of `generation`; nothing is installed then,
    /// and what was written for it is garbage.
    pub(crate) fn install(
        &self,
        generation: u64,
        edit: Edit,
        change: impl FnOnce(&mut View),
    ) -> Result<bool> {
        let (first_log, container_ids) = (edit.first_log, edit.container_ids());
        self.versions.install(generation, edit, |version| {
            let mut state = self.background.lock();
            state.first_log = first_log.unwrap_or(state.first_log);
            container_ids
                .iter()
                .for_each(|&container_id| self.rescore(&mut state, version, container_id));
            self.publish(&mut state, |view| {
                view.version = version.clone();
                change(view);
            });
        })
    }

    /// Queues what is in memory for its flush and waits for it.
    pub(crate) fn flush(&self) -> Result<()> {
        self.background.check_writable()?;
        if let Some(writer) = self.writer.lock().as_mut()
            && !writer.memtable.is_empty()
        {
            self.rotate(writer)?;
        }
        self.schedule_flush();
        let until = {
            let state = self.background.lock();
            state.done + state.flushing as u64
        };
        self.wait_while(|state| state.done < until)?;
        Ok(())
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
                self.versions.install(self.view.load().generation, edit, |_| ())?;
                self.versions.close()
            }
            _ => self.background.check_not_poisoned(),
        }
    }
}

impl Drop for Trie {
    fn drop(&mut self) {
        self.inner.background.close();
        self.inner.background.stop();
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
        self.inner.get(key)
    }

    fn write(&self, batch: &WriteBatch, durability: Durability) -> Result<()> {
        self.inner.write(batch, durability)
    }

    /// Drops the files, at one moment or not at all.
    fn clear(&self) -> Result<()> {
        self.inner.clear()
    }

    fn sync(&self) -> Result<()> {
        self.inner.sync()
    }

    fn iter(&self) -> Result<Box<dyn Cursor>> {
        self.inner.cursor()
    }

    fn flush(&self) -> Result<()> {
        self.inner.flush()
    }

    fn maintain(&self) -> Result<()> {
        self.inner.drain_jobs(|state| state.flushing > 0)
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

    fn close(&self) -> Result<()> {
        let closed = self.inner.close();
        self.lock.lock().take();
        closed
    }
}
