//! State that all threads of an open trie share.
//!
//! What all durable engines share, such as the write path and the manifest, is in [`Core`];
//! [`Tree`] adds what only this engine has. Locks, in the order in which they may be taken: the
//! writer, the version set, the state of background work. Readers load the view without one, and
//! lock a shard of a memtable while they copy an item.

use std::ops::Deref;
use std::sync::Arc;

use parking_lot::Mutex;
use siltstone_durable::{self as durable, Core};
use siltstone_engine::{Purpose, Result};
use siltstone_vfs::{LockGuard, Vfs};

use crate::compact::{Candidates, RunningTasks};
use crate::config::TrieConfig;
use crate::counters::Counters;
use crate::files::StorageTiers;
use crate::options::Options;
use crate::version::{Edit, Version};
use crate::view::View;

/// The shared state.
pub struct Tree {
    pub(crate) core: Core<Tree>,
    pub(crate) tiers: StorageTiers,
    pub(crate) options: Options,
    /// The parameters that never change in the life of a table.
    pub(crate) config: TrieConfig,
    pub(crate) counters: Counters,
    /// The number of the log that this open began: greater than those of all earlier opens.
    pub(crate) opening: u64,
    /// The deepest level since the table was opened: it only grows.
    pub(crate) last_level: usize,
    /// The lock of the fast tier; released when the table is closed.
    pub(crate) lock: Mutex<Option<LockGuard>>,
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
    /// Compactions queued or running.
    pub(crate) compactions: usize,
    pub(crate) running: RunningTasks,
    /// Of the containers of the view's version.
    pub(crate) candidates: Candidates,
}

impl Tree {
    /// Where files of `level` go.
    pub(crate) fn tier_of(&self, level: usize) -> &Arc<dyn Vfs> {
        self.tiers.for_level(level)
    }

    /// Makes the names of new files durable.
    pub(crate) fn sync_dirs(&self, purpose: Purpose) -> Result<()> {
        self.tiers.sync_dirs(purpose)
    }

    /// Applies an edit durably and publishes its version, with the view changed further by
    /// `change`. Returns `false`, and changes nothing, if all keys were removed since the view of
    /// `generation`: the files of the edit are garbage then.
    pub(crate) fn install(
        &self,
        generation: u64,
        edit: Edit,
        change: impl FnOnce(&mut View),
    ) -> Result<bool> {
        let make_version =
            |version: &Version, edit: &mut Edit| version.open_and_apply(&self.tiers, edit);
        durable::apply_edit(self, generation, edit, make_version, change)
    }
}
