//! State that all threads of an open tree share.
//!
//! What all durable engines share, such as the write path and the manifest, is in [`Core`];
//! [`Tree`] adds what only this engine has. Locks, in the order in which they may be taken: the
//! writer, the spare log, the version set, the state of background work. Readers take none: they
//! load the view.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize};

use parking_lot::Mutex;
use siltstone_durable::{self as durable, Core};
use siltstone_engine::{CompactionFilter, Result};
use siltstone_structures::ChunkPool;
use siltstone_table::{BlockCache, SpareSegment};
use siltstone_vfs::PmemPool;

use crate::checkpoint_lock::CheckpointLock;
use crate::compact::{Compaction, InProgress, LevelSizes, Strategy, TombstoneAccounts};
use crate::counters::Counters;
use crate::merge_state::MergeState;
use crate::options::{L0Policy, LiveOptions, MemtableLimits};
use crate::rowtable::RowTable;
use crate::snapshots::Snapshots;
use crate::version::{Edit, L0Run, Version};
use crate::view::View;

/// The shared state.
pub struct Tree {
    pub(crate) core: Core<Tree>,
    /// The options in force.
    pub(crate) options: Arc<LiveOptions>,
    pub(crate) memtable_limits: MemtableLimits,
    /// That of the options, which does not change while the table is open.
    pub(crate) l0_policy: L0Policy,
    /// The option `pmem.hints`, which does not change while the table is open: reads use it.
    pub(crate) hints: bool,
    pub(crate) cache: Arc<BlockCache>,
    /// Whether other tables use the cache, too.
    pub(crate) shares_cache: bool,
    /// Where flushes put runs, if there is persistent memory; `None` once the table is closed.
    pub(crate) pool: Mutex<Option<PmemPool>>,
    /// Set by the application; each compaction uses the one that is set when it begins.
    pub(crate) compaction_filter: Mutex<Option<Arc<dyn CompactionFilter>>>,
    pub(crate) merges: MergeState,
    /// Held while a range is compacted on request.
    pub(crate) range_compaction: Mutex<()>,
    /// Requests that wait for compactions in progress: no other one begins meanwhile.
    pub(crate) compaction_waiters: AtomicUsize,
    pub(crate) strategy: Box<dyn Strategy>,
    pub(crate) sizes: Arc<LevelSizes>,
    /// Recycled memory of up to one dropped memtable, for the next one.
    pub(crate) spares: Arc<ChunkPool>,
    /// The next log, created in advance: writers continue in it when the active memtable is full.
    /// The lock is held while a log gets its number, so that the numbers of logs ascend along the
    /// chain.
    pub(crate) next_log: Mutex<Option<SpareSegment>>,
    pub(crate) snapshots: Arc<Snapshots>,
    pub(crate) checkpoint_lock: CheckpointLock,
    /// Held while files are ingested.
    pub(crate) ingestion: Mutex<()>,
    /// An ingestion flushes: writers wait.
    pub(crate) writers_paused: AtomicBool,
    pub(crate) counters: Counters,
}

impl Deref for Tree {
    type Target = Core<Tree>;

    fn deref(&self) -> &Core<Tree> {
        &self.core
    }
}

/// The queued and running background work.
pub(crate) type State = durable::State<Jobs>;

/// Jobs other than flushes.
#[derive(Default)]
pub struct Jobs {
    /// A job that computes the target sizes of levels from a memtable is queued.
    pub(crate) is_sizing_queued: bool,
    /// Compactions queued or running.
    pub(crate) compactions: usize,
    /// The queued compactions, each with its generation, by an id. They are kept here and not in
    /// the scheduler's closures, which may outlive the table, because they keep files and the pool
    /// open.
    pub(crate) queued: BTreeMap<u64, (u64, Compaction)>,
    pub(crate) next_compaction: u64,
    pub(crate) in_progress: InProgress,
    /// Of tombstones that cursors have passed and flushes have written.
    pub(crate) tombstones: TombstoneAccounts,
}

impl Tree {
    /// Applies an edit durably and publishes its version, with the view changed further by
    /// `change`. `merged` are the runs that a compaction which moves the cursor over level 0 has
    /// merged; `built` is the run in persistent memory that a flush adds. Returns `false`, and
    /// changes nothing, if all keys were removed since the view of `generation`: the files of the
    /// edit are garbage then.
    pub(crate) fn install(
        &self,
        generation: u64,
        edit: Edit,
        built: Option<Arc<RowTable>>,
        merged: &[L0Run],
        change: impl FnOnce(&mut View),
    ) -> Result<bool> {
        let make_version = |version: &Version, edit: &mut Edit| {
            version.open_and_apply(&self.logs, &self.cache, edit, built.as_ref(), merged)
        };
        durable::apply_edit(self, generation, edit, make_version, change)
    }
}
