//! The engine's face and its shared state.
//!
//! Locks, in the order in which they may be taken: the writer's (one write group at a time), the
//! installer's (one manifest edit at a time, in `version`), the state's (short, never over I/O).
//! Readers take none: they load the view.
//!
//! Invariant: what a view names stays readable while the view is held.
//!
//! Source: the contract is `siltstone_engine::contract`'s; the arrangement is that of the house's
//! ordered engine.

use std::sync::atomic::Ordering::{Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use std::sync::{Arc, OnceLock, Weak};

use arc_swap::ArcSwap;
use parking_lot::{Condvar, Mutex, MutexGuard};
use siltstone_engine::{
    Capabilities, CheckpointSink, Cursor, Durability, Engine, Entry, Env, Error, Purpose, Result,
    Stats,
    VerifyReport, WriteBatch,
};
use siltstone_media::{LockGuard, Media};

use crate::compact::Busy;
use crate::counters::Counters;
use crate::files::Homes;
use crate::options::Options;
use crate::read::View;
use crate::version::{Edit, Versions};
use crate::write::{GroupCommit, Queued, Writer};

/// An open table of the LSM-trie engine.
pub struct Trie {
    pub(crate) inner: Arc<Inner>,
    // Dropped after what it guards.
    _lock: Option<LockGuard>,
}

/// What all threads share.
pub(crate) struct Inner {
    pub(crate) me: Weak<Inner>,
    /// Of log and manifest.
    pub(crate) media: Arc<dyn Media>,
    pub(crate) homes: Homes,
    pub(crate) env: Env,
    pub(crate) options: Options,
    pub(crate) versions: Versions,
    pub(crate) group: GroupCommit<Queued>,
    /// `None` once the table is closed.
    pub(crate) writer: Mutex<Option<Writer>>,
    pub(crate) view: ArcSwap<View>,
    /// The newest sequence number that readers see.
    pub(crate) visible: AtomicU64,
    pub(crate) state: Mutex<State>,
    /// Background work has moved on.
    pub(crate) progress: Condvar,
    /// How much writers are to wait, in millionths: 0 not at all, all of it: stop.
    pub(crate) pressure: AtomicU32,
    pub(crate) paused_at: AtomicU64,
    pub(crate) closed: AtomicBool,
    /// Background jobs should end soon.
    pub(crate) stopping: AtomicBool,
    pub(crate) poisoned: OnceLock<String>,
    pub(crate) counters: Counters,
}

/// What background work is under way and due.
#[derive(Default)]
pub(crate) struct State {
    /// Memtables that wait for their flush.
    pub(crate) flushing: usize,
    pub(crate) is_flush_queued: bool,
    /// Compactions queued or running.
    pub(crate) compactions: usize,
    /// Jobs that are running now.
    pub(crate) executing: usize,
    pub(crate) busy: Busy,
    /// Logs below this number are in tables.
    pub(crate) first_log: u64,
    /// Logs that are on the medium.
    pub(crate) logs: Vec<u64>,
    /// Background attempts that failed, and how the last one did if none succeeded since.
    pub(crate) failures: u64,
    pub(crate) background_error: Option<Error>,
}

impl State {
    pub(crate) fn is_busy(&self) -> bool {
        self.is_flush_queued || self.compactions > 0
    }
}

impl Trie {
    /// Opens the table on `media`, or makes a new one if there is none. The caller sees to it that
    /// no one else has it open.
    ///
    /// # Errors
    /// Corruption, a newer format, or a failing medium; nothing is changed then.
    pub fn open(media: Arc<dyn Media>, env: Env, options: Options) -> Result<Self> {
        let second = options.upper.as_deref().map(Homes::second).transpose()?;
        let (upper, lock) = second.unzip();
        let mut trie = Self::open_on(media, upper, env, options)?;
        trie._lock = lock;
        Ok(trie)
    }

    /// Opens the table with `upper` as the second medium, whatever the option says; the caller keeps
    /// others away from it, too.
    ///
    /// # Errors
    /// As [`open`](Trie::open); `Refused` if the second medium is another table's.
    pub fn open_on(
        media: Arc<dyn Media>,
        upper: Option<Arc<dyn Media>>,
        env: Env,
        options: Options,
    ) -> Result<Self> {
        let upper = upper.map(|media| (media, options.upper_levels));
        let homes = Homes { main: media, upper };
        let (inner, leaves_logs) = crate::recover::open(homes, env, options)?;
        let trie = Trie { inner, _lock: None };
        if leaves_logs {
            trie.inner.leave_old_logs()?;
        }
        Ok(trie)
    }
}

impl Inner {
    /// Where files of `level` go.
    pub(crate) fn media_of(&self, level: usize) -> &Arc<dyn Media> {
        self.homes.of(level)
    }

    /// Makes the names of new files durable.
    pub(crate) fn sync_dirs(&self, purpose: Purpose) -> Result<()> {
        self.homes.sync_dirs(purpose)
    }

    /// Changes the view that readers load.
    pub(crate) fn publish(
        &self,
        state: &mut MutexGuard<'_, State>,
        change: impl FnOnce(&mut View),
    ) {
        let mut view = View::clone(&self.view.load());
        change(&mut view);
        state.flushing = view.flushing.len();
        self.pressure.store(self.pressure_of(&view.version), Relaxed);
        self.view.store(Arc::new(view));
        self.progress.notify_all();
    }

    /// Installs an edit durably and lets readers see its version, changed further by `change`.
    pub(crate) fn install(&self, edit: Edit, change: impl FnOnce(&mut View)) -> Result<()> {
        let first_log = edit.first_log;
        self.versions.install(edit, |version| {
            let mut state = self.state.lock();
            state.first_log = first_log.unwrap_or(state.first_log);
            self.publish(&mut state, |view| {
                view.version = version.clone();
                change(view);
            });
        })
    }

    /// Queues what is in memory for its flush and waits for it.
    pub(crate) fn flush(&self) -> Result<()> {
        self.check_writable()?;
        if let Some(writer) = self.writer.lock().as_mut()
            && !writer.memtable.is_empty()
        {
            self.rotate(writer)?;
        }
        self.schedule_flush();
        self.wait_while(|state| state.flushing > 0)?;
        Ok(())
    }

    /// Runs background work until none is due.
    fn maintain(&self) -> Result<()> {
        self.check_writable()?;
        let failures = self.state.lock().failures;
        // One job may make the next due only after it has ended: ask again until none is.
        loop {
            self.schedule_flush();
            self.schedule_compaction();
            let has_waited = self.wait_while(|state| state.flushing > 0 || state.is_busy())?;
            let state = self.state.lock();
            // A failed job is over, too, and would be due again at once.
            if state.failures > failures
                && let Some(error) = state.background_error.clone()
            {
                return Err(error);
            }
            if !has_waited {
                return Ok(());
            }
        }
    }

    fn close(&self) -> Result<()> {
        if self.closed.swap(true, Release) {
            return Ok(());
        }
        self.stop_background();
        let writer = self.writer.lock().take();
        match writer {
            // After a fault the log's state is unknown: the next open finds out.
            Some(writer) if self.poisoned.get().is_none() => {
                let sealed = writer.log.seal()?;
                let edit = Edit { sealed_log: Some(sealed), ..Edit::default() };
                self.versions.install(edit, |_| ())?;
                self.versions.close()
            }
            _ => Ok(()),
        }
    }

    /// Tells background jobs to end, and waits until none is running.
    fn stop_background(&self) {
        self.stopping.store(true, Release);
        let mut state = self.state.lock();
        while state.executing > 0 {
            self.progress.wait(&mut state);
        }
    }
}

impl Drop for Trie {
    fn drop(&mut self) {
        self.inner.closed.store(true, Release);
        self.inner.stop_background();
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
        self.inner.cursor()
    }

    fn flush(&self) -> Result<()> {
        self.inner.flush()
    }

    fn maintain(&self) -> Result<()> {
        self.inner.maintain()
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

    fn close(&self) -> Result<()> {
        self.inner.close()
    }
}
