//! Room for the next write: when the memtable is full, when writers slow down, when they stop.
//!
//! Writers are delayed in proportion to debt before they are stopped: from a certain number of
//! sub-levels in any container that should have been emptied, bytes written owe a pause that grows to
//! 2 ms for 16 KiB at the limit.
//!
//! Invariant: no lock is held while a writer waits.
//!
//! Source: ours; as in the ordered engine.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use parking_lot::MutexGuard;
use siltstone_engine::{Error, Result};
use siltstone_runtime::{BackgroundWork, WriteStall};

use super::Writer;
use crate::engine::{Inner, State};
use crate::memtable::Memtable;

/// A memtable's memory over the bytes of its log: small values have large headers.
const MEMORY_FACTOR: u64 = 3;

impl Inner {
    /// Sees to it that the active memtable takes the next write. The writer is not locked while
    /// this waits.
    pub(crate) fn make_room(&self, writer: &mut MutexGuard<'_, Option<Writer>>) -> Result<()> {
        let fill = writer.as_ref().map_or(0.0, |open| self.fill(open));
        let written = self.counters.user_bytes_written.load(Relaxed);
        if let Some(pause) = self.pressure.delay_for(written, fill) {
            let take =
                || self.pressure.apply_delay(pause, &self.env.scheduler, &self.counters.stalls);
            MutexGuard::unlocked(writer, take);
        }
        loop {
            let open = writer.as_mut().ok_or(Error::Closed)?;
            if self.fill(open) < 1.0 {
                return Ok(());
            }
            if !self.is_flush_due(&self.background.lock()) && !self.pressure.is_full() {
                return self.rotate(open);
            }
            MutexGuard::unlocked(writer, || self.wait_for_room())?;
            self.background.check_writable()?;
        }
    }

    /// Moves on to a new log and a new memtable, and queues the full one for its flush.
    pub(crate) fn rotate(&self, writer: &mut Writer) -> Result<()> {
        let number = self.versions.new_number();
        let rotated = writer.log.rotate(number);
        rotated.map_err(|error| self.background.poison_if_read_only("beginning a log", error))?;
        let full = &writer.memtable;
        // After a batch of unusual size the next memtable is not to be as large.
        let fresh = match full.bytes() <= self.memory_limit() {
            true => Memtable::with_capacity_of(full, number),
            false => Memtable::new(number, self.versions.config.hash.seed),
        };
        let fresh = Arc::new(fresh);
        let mut state = self.background.lock();
        state.logs.push(number);
        writer.memtable = fresh.clone();
        self.publish(&mut state, |view| {
            let full = std::mem::replace(&mut view.active, fresh);
            view.flushing.push(full);
        });
        drop(state);
        self.schedule_flush();
        Ok(())
    }

    /// How full the active memtable is.
    fn fill(&self, open: &Writer) -> f64 {
        let limit = self.options.htable_bytes;
        let share = |part: u64, whole: u64| part as f64 / whole as f64;
        let memory = share(open.memtable.bytes(), self.memory_limit());
        share(open.log.len(), limit).max(memory)
    }

    /// Bytes of memory at which a memtable is full, whatever its log.
    fn memory_limit(&self) -> u64 {
        MEMORY_FACTOR * self.options.htable_bytes.max(64 << 10)
    }

    /// No further memtable may be begun before one is flushed.
    pub(crate) fn is_flush_due(&self, state: &State) -> bool {
        state.flushing + 1 >= self.options.memtables
    }

    /// Waits until a memtable is free and no container is over its limit.
    fn wait_for_room(&self) -> Result<()> {
        let stalls = &self.counters.stalls;
        self.stall_while(stalls, WriteStall::Flush, |state| self.is_flush_due(state))?;
        self.stall_while(stalls, WriteStall::Compaction, |_| self.pressure.is_full())
    }
}
