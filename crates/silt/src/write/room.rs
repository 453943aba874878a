//! Room for the next write: when LogStores are full, and when writers stop.
//!
//! Invariant: a batch goes whole into one generation, and every position in it fits in 32 bits.
//!
//! Source: ours.

use std::sync::Arc;

use parking_lot::MutexGuard;
use siltstone_engine::{Error, Result};
use siltstone_runtime::{BackgroundWork, WriteStall};

use super::Writer;
use crate::engine::{Inner, State};
use crate::generation::Generation;

impl Inner {
    /// Sees to it that the active generation takes `bytes` more of log. The writer is not locked
    /// while this waits.
    pub(crate) fn make_room(
        &self,
        writer: &mut MutexGuard<'_, Option<Writer>>,
        bytes: u64,
    ) -> Result<()> {
        loop {
            let open = writer.as_mut().ok_or(Error::Closed)?;
            let log = open.active.base() + open.log.len();
            // With at most 2 GB more this stays within 32 bits.
            let is_full = log >= self.options.max_log_bytes
                || log + bytes > u64::from(u32::MAX)
                || open.active.is_full(self.options.max_load_factor);
            if !is_full || open.active.is_empty() {
                return Ok(());
            }
            let state = self.background.lock();
            let must_wait = self.is_conversion_behind(&state) || self.is_merge_behind();
            drop(state);
            if !must_wait {
                return self.rotate(open);
            }
            MutexGuard::unlocked(writer, || self.wait_for_room())?;
            self.background.check_writable()?;
        }
    }

    /// Moves on to a new log and new LogStores, and queues the full ones for their conversion.
    pub(crate) fn rotate(&self, writer: &mut Writer) -> Result<()> {
        let number = self.versions.new_number();
        let rotated = writer.log.rotate(number);
        rotated.map_err(|error| self.background.poison_if_read_only("beginning a log", error))?;
        let mut fresh =
            Generation::new(self.versions.keys().partitions, self.options.log_store_slots);
        fresh.add_log(number, writer.log.access(), 0);
        let fresh = Arc::new(fresh);
        let mut state = self.background.lock();
        state.logs.push(number);
        writer.active = fresh.clone();
        self.publish(&mut state, |view| {
            let full = std::mem::replace(&mut view.active, fresh);
            view.frozen.push(full);
        });
        drop(state);
        self.schedule();
        Ok(())
    }

    /// No further generation may be begun before one is converted.
    fn is_conversion_behind(&self, state: &State) -> bool {
        state.frozen.saturating_add(1) >= self.options.frozen().1
    }

    /// Some partition has too many HashStores.
    fn is_merge_behind(&self) -> bool {
        let stop = self.options.merge_at().1;
        let view = self.view.load();
        view.version.partitions.iter().any(|partition| partition.hash_stores.len() >= stop)
    }

    fn wait_for_room(&self) -> Result<()> {
        let stalls = &self.counters.stalls;
        self.stall_while(stalls, WriteStall::Flush, |state| self.is_conversion_behind(state))?;
        self.stall_while(stalls, WriteStall::Compaction, |_| self.is_merge_behind())
    }
}
