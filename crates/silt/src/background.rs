//! Conversions, merges and the loading of indexes in the background.
//!
//! At most one job of each kind is queued or running: conversions run oldest first, and one merge
//! at a time keeps the space of two SortedStores small. A conversion is a flush: writers wait for
//! it.
//!
//! Source: Lim, thesis, section 2.2.3.

use siltstone_durable::{schedule_flush, spawn_job};
use siltstone_runtime::{Background, BackgroundWork, Priority};

use crate::engine::{SiltEngine, State};

impl BackgroundWork for SiltEngine {
    type State = State;

    fn background(&self) -> &Background<State> {
        &self.core.background
    }

    fn is_busy(state: &State) -> bool {
        state.is_flush_queued || state.is_merge_queued || state.is_loading_queued
    }

    fn schedule(&self) {
        schedule_flush(self);
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
