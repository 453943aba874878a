//! Conversions, merges and the loading of indexes in the background.
//!
//! At most one job of each kind is queued or running: conversions run oldest first, and one merge
//! at a time keeps the space of two SortedStores small. A conversion is a flush: writers wait for
//! it.
//!
//! Source: Lim, thesis, section 2.2.3.

use siltstone_durable::spawn_job;
use siltstone_runtime::Priority;

use crate::engine::{SiltEngine, State};

impl SiltEngine {
    /// Queues a merge and the loading of indexes if they are due and not queued yet.
    pub(crate) fn schedule_merges_and_loading(&self) {
        let mut state = self.background.lock();
        if self.background.is_stopping() {
            return;
        }
        if !state.is_merge_queued && self.merge_due().is_some() {
            state.is_merge_queued = true;
            let finish = |state: &mut State| state.is_merge_queued = false;
            spawn_job(self, Priority::Compaction, finish, |engine: &SiltEngine| {
                engine.merge_due().map_or(Ok(()), |partition| engine.merge(partition))
            });
        }
        if !state.is_loading_queued && self.lacks_indexes() {
            state.is_loading_queued = true;
            let finish = |state: &mut State| state.is_loading_queued = false;
            spawn_job(self, Priority::Compaction, finish, |engine: &SiltEngine| {
                engine.load_indexes()
            });
        }
    }
}
