//! Room for the next write: when the memtable is full, when writers slow down, when they stop.
//!
//! Writers are delayed in proportion to debt before they are ever stopped: from a certain fill of
//! level 0 on (`l0_slow` rows, say), bytes written owe a pause that grows to 2 ms for 16 KiB at its
//! limit; and while the memtable before is being flushed, from two thirds of this one on.

use std::sync::atomic::Ordering::Relaxed;

use parking_lot::MutexGuard;
use siltstone_engine::{Error, Result};
use siltstone_runtime::{BackgroundWork, WriteStall};
use siltstone_table::SpareSegment;

use super::Writer;
use crate::engine::{Inner, State};
use crate::memtable::{Memtable, SealedWal};

impl Inner {
    /// Sees to it that the active memtable takes the next write. The writer is not locked while
    /// this waits, so that background work can carry hot keys over.
    pub(crate) fn make_room(&self, writer: &mut MutexGuard<'_, Option<Writer>>) -> Result<()> {
        // Nobody waits for flushes whose writes a large memtable takes meanwhile.
        let waits = writer.as_ref().filter(|_| !self.has_large());
        let fill = waits.map_or(0.0, |open| self.fill(open));
        let written = self.counters.user_bytes_written.load(Relaxed);
        if let Some(delay) = self.pressure.delay_for(written, fill) {
            MutexGuard::unlocked(writer, || {
                self.pressure.apply_delay(delay, &self.env.scheduler, &self.counters.stalls);
            });
        }
        loop {
            let open = writer.as_mut().ok_or(Error::Closed)?;
            let is_large_full = self.is_large_full(open);
            if self.fill(open) < 1.0 && !is_large_full {
                return Ok(());
            }
            let may_rotate = !self.is_flush_due(&self.background.lock())
                && !self.pressure.is_full()
                && !self.holds_for_copy();
            if may_rotate && !is_large_full {
                return self.rotate(open, false);
            }
            if self.make_large_room(open)? {
                return Ok(());
            }
            MutexGuard::unlocked(writer, || self.wait_for_room())?;
            self.background.check_writable()?;
        }
    }

    /// Moves on to a new log and a new memtable, and queues the full one for its flush; with
    /// `large`, behind it the large one too.
    pub(crate) fn rotate(&self, writer: &mut Writer, large: bool) -> Result<()> {
        let full = SealedWal {
            number: writer.log.number(),
            bytes: writer.log.len(),
            sync: writer.log.sync_handle(),
        };
        let next = self.take_next_log()?;
        let number = next.number();
        let rotated = writer.log.rotate_to(next);
        rotated.map_err(|error| self.background.poison_if_read_only("beginning a log", error))?;
        writer.memtable.seal(full);
        let fresh = Memtable::with_chunk_pool(number, &self.spares);
        let fresh = std::sync::Arc::new(fresh);
        let mut state = self.background.lock();
        state.logs.push(number);
        writer.memtable = fresh.clone();
        writer.bytes = 0;
        if large {
            writer.large = None;
        }
        self.publish(&mut state, |view| {
            let full = std::mem::replace(&mut view.active, fresh);
            view.flushing.push(full);
            if large {
                view.flushing.extend(view.large.take());
            }
        });
        drop(state);
        self.schedule_flush();
        Ok(())
    }

    /// Has the log after the active one there before it is wanted: to create it and make its first pages
    /// ready would take one write in many far longer than the rest. If that fails, the writer will try.
    pub(crate) fn prepare_next_log(&self) {
        let mut slot = self.next_log.lock();
        if slot.is_none()
            && let Ok(next) = SpareSegment::create(self.vfs.as_ref(), self.versions.new_number())
        {
            next.preallocate(self.options.memtable_limits().0, 0);
            *slot = Some(next);
        }
    }

    fn take_next_log(&self) -> Result<SpareSegment> {
        let mut slot = self.next_log.lock();
        let create = || SpareSegment::create(self.vfs.as_ref(), self.versions.new_number());
        slot.take().map_or_else(create, Ok)
    }

    /// How full the active memtable is.
    pub(super) fn fill(&self, open: &Writer) -> f64 {
        if let Some(fill) = self.fill_beside_large(open) {
            return fill;
        }
        let (log, memory) = self.options.memtable_limits();
        let share = |part: u64, whole: u64| part as f64 / whole as f64;
        share(open.log.len(), log).max(share(open.memtable.bytes(), memory))
    }

    /// No further memtable may be begun before one is flushed.
    pub(crate) fn is_flush_due(&self, state: &State) -> bool {
        state.flushing + 1 >= self.options.memtables
    }

    /// Waits until a memtable is free and level 0 is below its limit.
    fn wait_for_room(&self) -> Result<()> {
        let stalls = &self.counters.stalls;
        // Two large memtables are full: room is where one was.
        let is_due =
            |state: &State| self.is_flush_due(state) || (self.has_large() && state.flushing > 0);
        self.stall_while(stalls, WriteStall::Flush, is_due)?;
        self.stall_while(stalls, WriteStall::Compaction, |_| self.pressure.is_full())
    }
}
