//! The engine's face and its shared state.
//!
//! Locks, in the order in which they may be taken: the writer's (one write group at a time), the next
//! log's, the installer's (one manifest edit at a time, in `version`), the state's (short, never over I/O).
//! Readers take none: they load the view.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use siltstone_engine::{
    Capabilities, CheckpointSink, Cursor, Durability, Engine, Entry, KeyRange, ReadPoint, Result,
    Stats, VerifyReport, WriteBatch,
};
use siltstone_runtime::{Background, BackgroundWork, Env, GroupCommit, WriteController};
use siltstone_structures::ChunkPool;
use siltstone_table::{BlockCache, SegmentLink, SpareSegment};
use siltstone_vfs::{PmemPool, Vfs};

use crate::checkpoint::Copies;
use crate::compact::{Compaction, InProgress, LevelSizes, Strategy};
use crate::counters::Counters;
use crate::options::Options;
use crate::read::{Merge, TreeCursor, View};
use crate::rowtable::RowTable;
use crate::snapshots::Snapshots;
use crate::version::{Edit, L0Run, Versions};
use crate::write::{Queued, Writer};

/// How long closing waits for jobs that are over to let go.
const LAST_REFERENCES: Duration = Duration::from_secs(1);

/// An open table of the ordered engine.
pub struct Lsm {
    pub(crate) inner: Arc<Inner>,
}

/// What all threads share.
pub(crate) struct Inner {
    pub(crate) me: Weak<Inner>,
    pub(crate) vfs: Arc<dyn Vfs>,
    pub(crate) env: Env,
    pub(crate) options: Options,
    pub(crate) cache: Arc<BlockCache>,
    pub(crate) versions: Versions,
    /// Where flushes put rows, if there is persistent memory; `None` once the table is closed.
    pub(crate) pool: Mutex<Option<PmemPool>>,
    pub(crate) strategy: Box<dyn Strategy>,
    pub(crate) sizes: Arc<LevelSizes>,
    /// Memory of memtables that are no more: of one at most, for the next.
    pub(crate) spares: Arc<ChunkPool>,
    pub(crate) group: GroupCommit<Queued>,
    /// `None` once the table is closed.
    pub(crate) writer: Mutex<Option<Writer>>,
    /// The log in which writers go on when the active memtable is full, if it is there. Locked while a
    /// number is taken for one: their order is that of the chain.
    pub(crate) next_log: Mutex<Option<SpareSegment>>,
    pub(crate) view: ArcSwap<View>,
    /// The newest sequence number that readers see.
    pub(crate) visible: AtomicU64,
    pub(crate) snapshots: Arc<Snapshots>,
    pub(crate) background: Background<State>,
    pub(crate) pressure: WriteController,
    pub(crate) copies: Copies,
    pub(crate) counters: Counters,
}

/// What background work is under way and due.
#[derive(Default)]
pub(crate) struct State {
    /// Memtables that wait for their flush.
    pub(crate) flushing: usize,
    /// How many were done with since the opening: who waits for some need not wait for later ones.
    pub(crate) done: u64,
    pub(crate) is_flush_queued: bool,
    /// The sizes of levels are to be learnt from a memtable.
    pub(crate) is_sizing_queued: bool,
    /// Compactions queued or running.
    pub(crate) compactions: usize,
    /// Those that are queued, by a number of their own, and the generation that they are of. Not
    /// with the scheduler, which may outlive the table: they hold files, and the pool.
    pub(crate) queued: BTreeMap<u64, (u64, Compaction)>,
    pub(crate) next_compaction: u64,
    pub(crate) in_progress: InProgress,
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
        state.is_flush_queued || state.is_sizing_queued || state.compactions > 0
    }

    fn schedule(&self) {
        self.schedule_flush();
        self.schedule_compaction();
    }
}

impl Lsm {
    /// Opens the table on `media`, or makes a new one if there is none. The caller sees to it that
    /// no one else has it open.
    ///
    /// # Errors
    /// Corruption, a newer format, or a failing medium; nothing is changed then.
    pub fn open(vfs: Arc<dyn Vfs>, env: Env, options: Options) -> Result<Self> {
        let (inner, leaves_logs) = crate::recover::open(vfs, env, options)?;
        let lsm = Lsm { inner };
        lsm.inner.background.retry_with(lsm.inner.me.clone());
        if leaves_logs {
            lsm.inner.flush_recovered()?;
        }
        Ok(lsm)
    }
}

impl Inner {
    /// Changes the view that readers load.
    pub(crate) fn publish(&self, state: &mut State, change: impl FnOnce(&mut View)) {
        let mut view = View::clone(&self.view.load());
        let before = view.flushing.len();
        change(&mut view);
        state.flushing = view.flushing.len();
        state.done += before.saturating_sub(state.flushing) as u64;
        self.pressure.set_memtables_exhausted(self.is_flush_due(state));
        self.pressure.set(self.strategy.pressure(&view.version));
        self.view.store(Arc::new(view));
        self.background.notify();
    }

    /// Installs an edit durably and lets readers see its version, changed further by `change`.
    /// `taken` are the rows that a compaction which moves the cursor over level 0 has merged;
    /// `built` is the row in persistent memory that a flush adds. `false`: all keys were removed
    /// since the view of `generation`; nothing is installed then, and what was written for it is
    /// garbage.
    pub(crate) fn install(
        &self,
        generation: u64,
        edit: Edit,
        built: Option<Arc<RowTable>>,
        taken: &[L0Run],
        change: impl FnOnce(&mut View),
    ) -> Result<bool> {
        let first_log = edit.first_log;
        self.versions.install(generation, edit, built, taken, |version| {
            let mut state = self.background.lock();
            state.first_log = first_log.unwrap_or(state.first_log);
            self.publish(&mut state, |view| {
                view.version = version.clone();
                change(view);
            });
        })
    }

    pub(crate) fn cursor(
        &self,
        range: KeyRange,
        point: Option<&ReadPoint>,
    ) -> Result<Box<dyn Cursor>> {
        let (view, at) = self.pin(point)?;
        let merge = Merge::of_view(view.clone(), at, self.options.hints);
        let tree = self.me.clone();
        Ok(Box::new(TreeCursor::new(merge, at, range, self.env.clock.clone(), view, tree)))
    }

    /// Counts the rows that a cursor was placed in and those that it passed by, and begins the compaction that it
    /// may have paid for.
    pub(crate) fn count_looks(&self, view: &View, placed: u64, passed: u64) {
        if self.strategy.record_seeks(&view.version, placed, passed) {
            self.schedule_compaction();
        }
    }

    /// Queues what is in memory for its flush and waits for it.
    pub(crate) fn flush(&self) -> Result<()> {
        // A copy waits for both memtables that a rotation leaves, if there is a large one.
        let _alone = self.has_large().then(|| self.copies.alone());
        self.flush_beside_copy()
    }

    pub(crate) fn flush_beside_copy(&self) -> Result<()> {
        self.background.check_writable()?;
        if let Some(writer) = self.writer.lock().as_mut() {
            if !writer.memtable.is_empty() || writer.large.is_some() {
                self.rotate(writer, true)?;
            }
            self.view.load().flushing.iter().for_each(|memtable| memtable.force_flush());
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
        self.stop();
        let sealed = self.seal();
        self.let_go_of_pool();
        sealed
    }

    fn seal(&self) -> Result<()> {
        let next = self.next_log.lock().take();
        next.into_iter().for_each(|next| next.remove(self.vfs.as_ref()));
        let writer = self.writer.lock().take();
        match writer {
            // After a fault the log's state is unknown: the next open finds out.
            Some(writer) if !self.background.is_poisoned() => {
                let SegmentLink { number, bytes } = writer.log.seal()?;
                let edit = Edit { sealed_log: Some((number, bytes)), ..Edit::default() };
                let generation = self.view.load().generation;
                self.versions.install(generation, edit, None, &[], |_| ())?;
                self.versions.close()
            }
            _ => self.background.check_not_poisoned(),
        }
    }

    /// Ends background work, also what is queued: that holds files, and the pool.
    fn stop(&self) {
        self.background.stop();
        self.background.lock().queued.clear();
    }

    /// Lets go of all rows in persistent memory, and so of the pool's lock, which whoever opens the
    /// table next needs. Cursors that are still there keep theirs.
    fn let_go_of_pool(&self) {
        self.versions.let_go_of_nvm();
        let mut state = self.background.lock();
        self.publish(&mut state, |view| {
            view.version = Arc::new(view.version.without_pmem_runs());
        });
        *self.pool.lock() = None;
    }
}

impl Drop for Lsm {
    fn drop(&mut self) {
        self.inner.background.close();
        self.inner.stop();
        self.inner.let_go_of_pool();
        self.wait_for_jobs();
    }
}

impl Lsm {
    /// Waits until jobs that are over have let go of what they worked on, the pool for one.
    fn wait_for_jobs(&self) {
        let began = Instant::now();
        while Arc::strong_count(&self.inner) > 1 && began.elapsed() < LAST_REFERENCES {
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
        self.inner.get(key, None)
    }

    fn get_at(&self, key: &[u8], at: &ReadPoint) -> Result<Option<Entry>> {
        self.inner.get(key, Some(at))
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
        self.inner.cursor(KeyRange::all(), None)
    }

    fn range(&self, range: KeyRange, at: Option<&ReadPoint>) -> Result<Box<dyn Cursor>> {
        self.inner.cursor(range, at)
    }

    /// Each is as likely as any other, unless nearly all that is stored is dead.
    fn random_key(&self, below: &mut dyn FnMut(u64) -> u64) -> Result<Option<Vec<u8>>> {
        self.inner.random_key(below)
    }

    fn snapshot(&self) -> Result<ReadPoint> {
        self.inner.background.check_open()?;
        Ok(self.inner.snapshots.take(&self.inner.visible))
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
        self.wait_for_jobs();
        closed
    }
}
