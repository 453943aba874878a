//! The shared state of one open table, and the trait that an engine implements on top of it.
//!
//! ```text
//!   write ─ commit ─ stall: is there room? ─ WAL ─ memtable          one writer at a time
//!                      │ full: rotate
//!                      └▶ flush job ─ files ─ edit ─ version_set     in the background
//!   read  ─ view                                                     without a lock
//! ```
//!
//! [`Core`] owns the state; the modules of this crate are the steps that all engines share; an
//! engine implements [`LogStructured`] for the steps that differ: the form of log records, the
//! memtable, the files, and when writers must wait.
//!
//! Locks, in the order in which they may be taken: the writer (one write group at a time), the
//! version set (one manifest edit at a time), the state of background work (short, never across
//! I/O).
//!
//! Invariant: a view is changed only while the state of background work is locked.

use std::ops::{Deref, DerefMut};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Release;
use std::sync::{Arc, Weak};

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use siltstone_engine::{FileInfo, Result, WriteBatch};
use siltstone_runtime::{
    Background, BackgroundWork, Env, GroupCommit, StallCounters, WriteController,
};
use siltstone_table::log::LogArchive;
use siltstone_table::{FileKind, FileNumber, WalWriter};
use siltstone_vfs::{Mode, Vfs};

use crate::group::{Group, Write};
use crate::jobs::schedule_flush;
use crate::part::{PartOf, Parts};
use crate::slowdown::Slowdown;
use crate::{VersionSet, VersionState, View};

/// A group commit takes at most this many bytes of other writers' batches.
const MAX_GROUP_BYTES: usize = 1 << 20;

/// The view of an engine.
pub type ViewOf<T> = View<<T as LogStructured>::Memtable, <T as LogStructured>::Version>;

/// The edit of an engine.
pub type EditOf<T> = <<T as LogStructured>::Version as VersionState>::Edit;

/// The state of an engine's background work.
pub type StateOf<T> = State<<T as LogStructured>::Jobs>;

/// Newest writes in memory.
pub trait Memtable: Send + Sync + 'static {
    /// Whether it has no entries.
    fn is_empty(&self) -> bool;

    /// The oldest log that contains writes of this memtable.
    fn first_log(&self) -> u64;
}

/// The parts of a log-structured engine that [`Core`] leaves to it.
pub trait LogStructured: Deref<Target = Core<Self>> + Send + Sync + Sized + 'static {
    /// Takes writes until it is flushed to files.
    type Memtable: Memtable;
    /// The files.
    type Version: VersionState + Clone + Send + Sync + 'static;
    /// The state of the engine's background jobs other than flushes: what is queued, and their
    /// inputs.
    type Jobs: Send + 'static;
    /// State of the writer that is kept between writes, e.g. buffers. One write runs at a time.
    type WriterState: Default + Send + 'static;
    /// The result of [`log_group`](Self::log_group), passed to
    /// [`insert_group`](Self::insert_group): e.g. positions in the log.
    type LoggedGroup<'b>;

    /// The shared state.
    fn core(&self) -> &Core<Self> {
        self
    }

    /// Rejects batches that are too large for the log or a memtable, and those with operations that
    /// the table does not take.
    ///
    /// # Errors
    /// `TooLarge`; `Invalid`.
    fn check_batch(&self, _batch: &WriteBatch) -> Result<()> {
        Ok(())
    }

    /// Appends the batches of a group to the log with one request, by
    /// [`append`](crate::commit::append).
    ///
    /// # Errors
    /// I/O errors. Nothing is in the log if they occur before the append.
    fn log_group<'b>(
        &self,
        writer: &mut Writer<Self>,
        group: &Group<'b>,
    ) -> Result<Self::LoggedGroup<'b>>;

    /// Inserts a group, which is in the log, into the memtable; sets `writer.last_sequence`.
    ///
    /// # Errors
    /// Only internal errors: no valid batch causes one. The table becomes read-only.
    fn insert_group(
        &self,
        writer: &mut Writer<Self>,
        group: &Group<'_>,
        logged: Self::LoggedGroup<'_>,
    ) -> Result<()>;

    /// How full the active memtable is, for throttling: 1 is full.
    fn fill(&self, writer: &Writer<Self>) -> f64;

    /// Whether the active memtable must be rotated before `group` is written.
    fn is_full(&self, writer: &Writer<Self>, _group: &Group<'_>) -> bool {
        self.fill(writer) >= 1.0
    }

    /// The maximum number of memtables, the active one included.
    fn max_memtables(&self) -> usize;

    /// Whether writers must wait for compactions.
    fn is_compaction_behind(&self) -> bool {
        self.core().write_controller.is_full()
    }

    /// Whether writers that found no room must wait for a flush.
    fn is_flush_awaited(&self, state: &StateOf<Self>) -> bool {
        are_memtables_exhausted(self, state)
    }

    /// Whether a full memtable may be rotated now.
    fn may_rotate(&self, _writer: &Writer<Self>) -> bool {
        !are_memtables_exhausted(self, &self.core().background.lock())
            && !self.is_compaction_behind()
    }

    /// Makes room in another place when the full memtable may not be rotated, e.g. in an overlay.
    /// Returns whether there is room.
    ///
    /// # Errors
    /// Those of a rotation.
    fn make_other_room(&self, _writer: &mut Writer<Self>) -> Result<bool> {
        Ok(false)
    }

    /// Continues the log in a new file; returns its number.
    ///
    /// # Errors
    /// I/O errors; the old file is continued.
    fn begin_log(&self, writer: &mut Writer<Self>) -> Result<u64> {
        let number = self.core().versions.new_number();
        writer.log.rotate(number)?;
        Ok(number)
    }

    /// The memtable after the active one, whose log `number` has just been begun. With `overlay`
    /// the overlay is sealed, too.
    fn next_memtable(
        &self,
        writer: &mut Writer<Self>,
        number: u64,
        overlay: bool,
    ) -> Self::Memtable;

    /// Whether a flush has anything to write out.
    fn has_unflushed(&self, writer: &Writer<Self>) -> bool {
        !writer.memtable.is_empty()
    }

    /// Makes the flush of all memtables in `view` due. Called while the writer is locked.
    fn force_flush(&self, _view: &ViewOf<Self>) {}

    /// Whether the oldest full memtable is to be flushed now.
    fn is_flush_due(&self, state: &mut StateOf<Self>) -> bool {
        state.flushing > 0
    }

    /// Whether jobs other than flushes are queued or running.
    fn is_busy(jobs: &Self::Jobs) -> bool;

    /// Queues the jobs other than flushes that are due.
    fn schedule_jobs(&self);

    /// Writes the oldest full memtable of `view` to files and installs them. Returns the files.
    ///
    /// # Errors
    /// I/O errors. The flush is retried.
    fn flush_oldest(&self, view: &ViewOf<Self>) -> Result<Vec<FileInfo>>;

    /// How far compactions are behind once `view` is published, for throttling: 1 stops writers.
    fn pressure(&self, _state: &StateOf<Self>, _view: &ViewOf<Self>) -> f64 {
        0.0
    }

    /// Called after `edit` was applied, before the resulting `version` is published.
    fn on_new_version(
        &self,
        _state: &mut StateOf<Self>,
        _version: &Arc<Self::Version>,
        _edit: &EditOf<Self>,
    ) {
    }
}

/// The shared state of one open table.
pub struct Core<T: LogStructured> {
    /// The engine that contains this core.
    pub me: Weak<T>,
    /// The directory of log and manifest.
    pub vfs: Arc<dyn Vfs>,
    /// Clock, seed, scheduler and rate limit.
    pub env: Env,
    /// Where logs go that the table does not need any more.
    pub logs: Arc<LogArchive>,
    /// The manifest.
    pub versions: VersionSet<T::Version>,
    /// `None` once the table is closed.
    pub writer: Mutex<Option<Writer<T>>>,
    /// Held while the table is closed: a second caller waits until it is.
    pub(crate) closing: Mutex<()>,
    /// The current view: what a read sees.
    pub view: ArcSwap<ViewOf<T>>,
    /// The newest sequence number that reads see.
    pub visible: AtomicU64,
    /// Every change up to this sequence number is durable, in this table and, as far as it is a
    /// part of a batch over several tables, in the others. There may be more.
    pub durable: AtomicU64,
    /// Background jobs, and the threads that wait for them.
    pub background: Background<StateOf<T>>,
    /// Throttles writers.
    pub write_controller: WriteController,
    pub(crate) slowdown: Slowdown,
    /// Counts writes.
    pub written: WriteCounters,
    /// Batches over several tables.
    pub(crate) parts: Parts,
    pub(crate) commits: GroupCommit<Write>,
}

/// The parts of the [`Core`] of a table that has been recovered.
pub struct CoreParts<T: LogStructured> {
    /// The directory of log and manifest.
    pub vfs: Arc<dyn Vfs>,
    /// Clock, seed, scheduler and rate limit.
    pub env: Env,
    /// The manifest.
    pub versions: VersionSet<T::Version>,
    /// Where logs go that the table does not need any more.
    pub archive: Arc<LogArchive>,
    /// The log that was begun for new writes.
    pub log: WalWriter,
    /// The logs on disk that contain unflushed writes, `log` the last.
    pub logs: Vec<u64>,
    /// The newest sequence number.
    pub last_sequence: u64,
    /// The last batch over several tables that the table took part in; 0 if there was none.
    pub last_batch: u64,
    /// The memtable for new writes.
    pub active: Arc<T::Memtable>,
    /// Recovered memtables that wait for their flush, the oldest first.
    pub flushing: Vec<Arc<T::Memtable>>,
    /// The files.
    pub version: Arc<T::Version>,
    /// Throttles writers.
    pub write_controller: WriteController,
    /// The engine's jobs.
    pub jobs: T::Jobs,
}

/// The state that only the current writer may access.
pub struct Writer<T: LogStructured> {
    /// The write-ahead log.
    pub log: WalWriter,
    /// The memtable that takes writes: the active one of the view.
    pub memtable: Arc<T::Memtable>,
    /// The newest sequence number in log and memtable.
    pub last_sequence: u64,
    /// The batch over several tables of which the next append is a part.
    pub(crate) part: Option<PartOf>,
    /// The engine's own.
    pub state: T::WriterState,
}

/// The queued and running background work.
#[derive(Default)]
pub struct State<J> {
    /// Memtables that wait for their flush.
    pub flushing: usize,
    /// Memtables flushed since the table was opened: a caller that waits for certain memtables does
    /// not wait for later ones.
    pub flushed: u64,
    /// A flush job is queued or running.
    pub is_flush_queued: bool,
    /// Logs that are on disk.
    pub logs: Vec<u64>,
    /// The engine's own.
    pub jobs: J,
}

impl<J> Deref for State<J> {
    type Target = J;

    fn deref(&self) -> &J {
        &self.jobs
    }
}

impl<J> DerefMut for State<J> {
    fn deref_mut(&mut self) -> &mut J {
        &mut self.jobs
    }
}

/// Counts writes; relaxed, because nothing is decided by them but throttling.
#[derive(Debug, Default)]
pub struct WriteCounters {
    /// Bytes of keys and values.
    pub user_bytes: AtomicU64,
    /// Operations.
    pub operations: AtomicU64,
    /// The time that writers waited, by cause.
    pub stalls: StallCounters,
}

impl<T: LogStructured> BackgroundWork for Core<T> {
    type State = StateOf<T>;

    fn background(&self) -> &Background<StateOf<T>> {
        &self.background
    }

    fn is_busy(state: &StateOf<T>) -> bool {
        state.is_flush_queued || T::is_busy(&state.jobs)
    }

    fn schedule(&self) {
        if let Some(table) = self.me.upgrade() {
            schedule_flush(table.as_ref());
            table.schedule_jobs();
        }
    }
}

impl<T: LogStructured> Core<T> {
    /// The state of a table that has just been recovered.
    pub fn new(me: Weak<T>, parts: CoreParts<T>) -> Self {
        let CoreParts { vfs, env, versions, log, logs, last_sequence, last_batch, .. } = parts;
        let (active, flushing) = (parts.active, parts.flushing);
        let state = State {
            flushing: flushing.len(),
            flushed: 0,
            is_flush_queued: false,
            logs,
            jobs: parts.jobs,
        };
        let writer = Writer {
            log,
            memtable: active.clone(),
            last_sequence,
            part: None,
            state: T::WriterState::default(),
        };
        let view = View { active, overlay: None, flushing, version: parts.version, generation: 0 };
        Core {
            me,
            vfs,
            logs: parts.archive,
            versions,
            writer: Mutex::new(Some(writer)),
            closing: Mutex::default(),
            view: ArcSwap::from_pointee(view),
            visible: AtomicU64::new(last_sequence),
            // Recovery makes everything that it has found durable before the table is used.
            durable: AtomicU64::new(last_sequence),
            background: Background::new(env.scheduler.clone(), env.events.clone(), state),
            env,
            write_controller: parts.write_controller,
            slowdown: Slowdown::default(),
            written: WriteCounters::default(),
            parts: Parts::new(last_batch),
            commits: GroupCommit::new(MAX_GROUP_BYTES),
        }
    }

    /// Notes that every change up to `sequence` is durable.
    pub(crate) fn note_durable(&self, sequence: u64) {
        self.durable.fetch_max(sequence, Release);
    }

    /// Whether all keys were removed since the view of `generation`.
    pub fn is_cleared_since(&self, generation: u64) -> bool {
        self.view.load().generation != generation
    }

    /// Runs `work`, a part of a job, with the current view. If all keys were removed meanwhile, its
    /// error is discarded, since its input no longer exists.
    ///
    /// # Errors
    /// Those of `work`.
    pub fn with_view(&self, work: impl FnOnce(&ViewOf<T>) -> Result<()>) -> Result<()> {
        let view = self.view.load_full();
        let done = work(&view);
        if self.is_cleared_since(view.generation) { Ok(()) } else { done }
    }

    /// Forgets the logs before `first_log`, whose writes are all in files, and discards those that
    /// are not in `kept`, because they have become files of the table.
    pub fn discard_logs_before(&self, first_log: u64, kept: &[u64]) {
        // Dropped without the lock: that may take as long as freeing the pages of the file.
        let unused = self.writer.lock().as_mut().map(|writer| writer.log.release_before(first_log));
        drop(unused);
        let mut state = self.background.lock();
        let gone: Vec<u64> = state.logs.extract_if(.., |number| *number < first_log).collect();
        drop(state);
        let gone = gone.into_iter().filter(|number| !kept.contains(number));
        gone.for_each(|number| self.logs.discard(number));
    }

    /// Bytes of the logs on disk.
    pub fn log_bytes(&self) -> u64 {
        let logs = self.background.lock().logs.clone();
        let len = |number: &u64| {
            let name = FileKind::Log.name(FileNumber(*number));
            self.vfs.open(&name, Mode::Read).and_then(|file| file.len()).unwrap_or(0)
        };
        logs.iter().map(len).sum()
    }
}

/// Whether no further memtable may be begun before one is flushed.
pub fn are_memtables_exhausted<T: LogStructured>(table: &T, state: &StateOf<T>) -> bool {
    state.flushing.saturating_add(1) >= table.max_memtables()
}
