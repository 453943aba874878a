//! Conversions, merges and the loading of indexes in the background.
//!
//! At most one of each is queued or running: conversions come oldest first, and one merge at a time
//! keeps the space of two SortedStores small. A conversion has the priority of a flush, for writers
//! wait for it.
//!
//! Source: Lim, thesis, section 2.2.3; the jobs are ours.

use siltstone_engine::Result;
use siltstone_runtime::{Background, BackgroundWork, Priority};

use crate::engine::{Inner, State};

impl BackgroundWork for Inner {
    type State = State;

    fn background(&self) -> &Background<State> {
        &self.background
    }

    fn is_busy(state: &State) -> bool {
        state.is_conversion_queued || state.is_merge_queued || state.is_loading_queued
    }

    fn schedule(&self) {
        let mut state = self.background.lock();
        if self.background.is_stopping() {
            return;
        }
        // Once as many wait as should, all of them go.
        state.drains |= state.frozen >= self.options.frozen().0;
        state.drains &= state.frozen > 0;
        if state.drains && !state.is_conversion_queued {
            state.is_conversion_queued = true;
            self.spawn(
                Priority::Flush,
                |state| state.is_conversion_queued = false,
                |inner| inner.convert_oldest(),
            );
        }
        if !state.is_merge_queued && self.merge_due().is_some() {
            state.is_merge_queued = true;
            self.spawn(
                Priority::Compaction,
                |state| state.is_merge_queued = false,
                |inner| inner.merge_due().map_or(Ok(()), |partition| inner.merge(partition)),
            );
        }
        if !state.is_loading_queued && self.lacks_indexes() {
            state.is_loading_queued = true;
            self.spawn(
                Priority::Compaction,
                |state| state.is_loading_queued = false,
                |inner| inner.load_indexes(),
            );
        }
    }
}

impl Inner {
    fn spawn(&self, priority: Priority, settle: fn(&mut State), work: fn(&Inner) -> Result<()>) {
        let weak = self.me.clone();
        self.env.scheduler.spawn(priority, move || {
            let Some(inner) = weak.upgrade() else { return };
            if inner.background.run(settle, || work(&inner)) {
                inner.schedule();
            }
        });
    }

    /// Moves what is in LogStores into HashStores, and waits for it.
    pub(crate) fn flush(&self) -> Result<()> {
        self.background.check_writable()?;
        if let Some(writer) = self.writer.lock().as_mut()
            && !writer.active.is_empty()
        {
            self.rotate(writer)?;
        }
        self.drain()
    }

    /// Converts all generations that wait.
    pub(crate) fn drain(&self) -> Result<()> {
        self.background.lock().drains = true;
        self.schedule();
        let until = {
            let state = self.background.lock();
            state.done + state.frozen as u64
        };
        self.wait_while(|state| state.done < until)?;
        Ok(())
    }
}
