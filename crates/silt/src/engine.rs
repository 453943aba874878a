//! State that all threads of an open table share.
//!
//! What all durable engines share, such as the write path and the manifest, is in [`Core`];
//! [`SiltEngine`] adds what only this engine has. Locks, in the order in which they may be taken:
//! the writer, the version set, the state of background work, a LogStore (a few instructions).
//! Readers take only the last. The lock of what is loaded is taken without any of them.

use std::ops::Deref;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use parking_lot::Mutex;
use siltstone_durable::{self as durable, Core};
use siltstone_engine::Result;
use siltstone_runtime::RateLimiter;

use crate::counters::Counters;
use crate::keys::KeyHasher;
use crate::options::Options;
use crate::store_file::discard;
use crate::version::{Edit, Version};
use crate::view::View;

/// The shared state.
pub struct SiltEngine {
    pub(crate) core: Core<SiltEngine>,
    pub(crate) keys: KeyHasher,
    pub(crate) options: Options,
    /// Bytes that filters and indexes may take; 0: no limit.
    pub(crate) index_memory: AtomicU64,
    /// Held while a filter or an index of the current version is loaded, or those above the limit
    /// are unloaded.
    pub(crate) loading: Mutex<()>,
    pub(crate) convert_rate: RateLimiter,
    pub(crate) merge_rate: RateLimiter,
    pub(crate) counters: Counters,
    /// Identifies this opening of the table in positions of scans.
    pub(crate) opening: u64,
}

impl Deref for SiltEngine {
    type Target = Core<SiltEngine>;

    fn deref(&self) -> &Core<SiltEngine> {
        &self.core
    }
}

/// The queued and running background work. A flush converts a generation.
pub(crate) type State = durable::State<Jobs>;

/// Jobs other than conversions.
#[derive(Default)]
pub struct Jobs {
    /// All generations are to be converted.
    pub(crate) drains: bool,
    pub(crate) is_merge_queued: bool,
    pub(crate) is_loading_queued: bool,
}

impl SiltEngine {
    /// Applies an edit durably and publishes its version, with the view changed further by
    /// `change`. Returns `false`, and changes nothing, if all keys were removed since the view of
    /// `generation`: the stores of the edit are garbage then.
    ///
    /// The stores that the edit adds are removed if it was not applied, unless it is unknown
    /// whether the manifest names them.
    pub(crate) fn install(
        &self,
        generation: u64,
        edit: Edit,
        change: impl FnOnce(&mut View),
    ) -> Result<bool> {
        let added = edit.added();
        let mut are_open = false;
        let make_version = |version: &Version, edit: &mut Edit| {
            let memory = self.index_memory.load(Relaxed);
            let next = version.open_and_apply(&self.vfs, edit, memory)?;
            are_open = true;
            Ok(next)
        };
        let installed = durable::apply_edit(self, generation, edit, make_version, change);
        let are_unnamed = match &installed {
            Ok(applied) => !applied,
            // The manifest is written once the stores are open.
            Err(error) => !are_open || error.is_transient(),
        };
        if are_unnamed {
            added.iter().for_each(|number| discard(self.vfs.as_ref(), *number));
        } else if installed.is_ok() {
            // The limit may have been lowered since they were loaded.
            self.unload_above_limit();
        }
        installed
    }
}
