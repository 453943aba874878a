//! State that all threads of an open tree share.
//!
//! What all durable engines share, such as the write path and the manifest, is in [`Core`];
//! [`Tree`] adds what only this engine has. Locks, in the order in which they may be taken: the
//! writer, the spare log, the version set, the state of background work. Readers take none: they
//! load the view.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::Arc;

use parking_lot::Mutex;
use siltstone_durable::{self as durable, Core};
use siltstone_engine::Result;
use siltstone_runtime::{Background, BackgroundWork};
use siltstone_structures::ChunkPool;
use siltstone_table::{BlockCache, SpareSegment};
use siltstone_vfs::PmemPool;

use crate::checkpoint_lock::CheckpointLock;
use crate::compact::{Compaction, InProgress, LevelSizes, Strategy};
use crate::counters::Counters;
use crate::options::Options;
use crate::rowtable::RowTable;
use crate::snapshots::Snapshots;
use crate::version::{Edit, L0Run, Version};
use crate::view::View;

/// The shared state.
pub(crate) struct Tree {
    pub(crate) core: Core<Tree>,
    pub(crate) options: Options,
    pub(crate) cache: Arc<BlockCache>,
    /// Where flushes put runs, if there is persistent memory; `None` once the table is closed.
    pub(crate) pool: Mutex<Option<PmemPool>>,
    pub(crate) strategy: Box<dyn Strategy>,
    pub(crate) sizes: Arc<LevelSizes>,
    /// Memory of up to one dropped memtable, for the next.
    pub(crate) spares: Arc<ChunkPool>,
    /// The log in which writers continue when the active memtable is full, if it exists already.
    /// Locked while a number is assigned to one: their order is that of the chain.
    pub(crate) next_log: Mutex<Option<SpareSegment>>,
    pub(crate) snapshots: Arc<Snapshots>,
    pub(crate) checkpoint_lock: CheckpointLock,
    pub(crate) counters: Counters,
}

impl Deref for Tree {
    type Target = Core<Tree>;

    fn deref(&self) -> &Core<Tree> {
        &self.core
    }
}

/// What background work is queued and running.
pub(crate) type State = durable::State<Jobs>;

/// Jobs other than flushes.
#[derive(Default)]
pub(crate) struct Jobs {
    /// The sizes of levels are to be learnt from a memtable.
    pub(crate) is_sizing_queued: bool,
    /// Compactions queued or running.
    pub(crate) compactions: usize,
    /// Those that are queued, by a number of their own, and the generation that they are of. Not
    /// with the scheduler, which may outlive the table: they hold files, and the pool.
    pub(crate) queued: BTreeMap<u64, (u64, Compaction)>,
    pub(crate) next_compaction: u64,
    pub(crate) in_progress: InProgress,
}

impl BackgroundWork for Tree {
    type State = State;

    fn background(&self) -> &Background<State> {
        &self.core.background
    }

    fn is_busy(state: &State) -> bool {
        state.is_flush_queued || state.is_sizing_queued || state.compactions > 0
    }

    fn schedule(&self) {
        durable::schedule_flush(self);
        self.schedule_compaction();
    }
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
            version.open_and_apply(&self.vfs, &self.cache, edit, built.as_ref(), merged)
        };
        durable::apply_edit(self, generation, edit, make_version, change)
    }
}
