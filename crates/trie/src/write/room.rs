//! Room for the next write: when the memtable is full, when writers slow down, when they stop.
//!
//! Writers are delayed in proportion to debt before they are stopped: from a certain number of
//! sub-levels in any container that should have been emptied, each 64 KiB written costs a pause that
//! grows to 10 ms at the limit. So a burst meets a slope and not a wall.
//!
//! Invariant: no lock is held while a writer waits.
//!
//! Source: ours; as in the ordered engine.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use parking_lot::MutexGuard;
use siltstone_engine::{Error, Result};

use super::Writer;
use crate::engine::{Inner, State};
use crate::memtable::Memtable;

/// The longest pause for one stretch of [`PAUSE_EVERY_BYTES`].
const LONGEST_PAUSE: Duration = Duration::from_millis(10);
const PAUSE_EVERY_BYTES: u64 = 64 << 10;
/// The pressure at which writers stop.
pub(crate) const PRESSURE_STOP: u32 = 1_000_000;
/// A memtable's memory over the bytes of its log: small values have large headers.
const MEMORY_FACTOR: u64 = 3;

impl Inner {
    /// Sees to it that the active memtable takes the next write. The writer is not locked while
    /// this waits.
    pub(crate) fn make_room(&self, writer: &mut MutexGuard<'_, Option<Writer>>) -> Result<()> {
        MutexGuard::unlocked(writer, || self.slow_down());
        loop {
            let open = writer.as_mut().ok_or(Error::Closed)?;
            let limit = self.options.table_bytes;
            if open.log.len() < limit && open.memtable.bytes() < MEMORY_FACTOR * limit.max(64 << 10)
            {
                return Ok(());
            }
            if !self.is_flush_due(&self.state.lock()) && !self.is_stopped() {
                return self.rotate(open);
            }
            MutexGuard::unlocked(writer, || self.wait_for_room())?;
            self.check_writable()?;
        }
    }

    /// Moves on to a new log and a new memtable, and queues the full one for its flush.
    pub(crate) fn rotate(&self, writer: &mut Writer) -> Result<()> {
        let number = self.versions.new_number();
        writer.log.rotate(number)?;
        let fresh = Arc::new(Memtable::new(number, self.env.seed ^ number));
        let mut state = self.state.lock();
        state.logs.push(number);
        writer.memtable = fresh.clone();
        self.publish(&mut state, |view| {
            let full = std::mem::replace(&mut view.active, fresh);
            view.flushing.push(full);
        });
        writer.log.forget_before(state.first_log);
        drop(state);
        self.schedule_flush();
        Ok(())
    }

    /// A pause in proportion to the debt, once every so many bytes.
    fn slow_down(&self) {
        let pressure = self.pressure.load(Relaxed);
        if pressure == 0 {
            return;
        }
        let stretch = self.counters.user_bytes_written.load(Relaxed) / PAUSE_EVERY_BYTES;
        if self.paused_at.swap(stretch, Relaxed) == stretch {
            return;
        }
        let began = Instant::now();
        // With a manual scheduler a pause would be time lost: work off the debt instead.
        if !self.env.scheduler.help() {
            std::thread::sleep(LONGEST_PAUSE * pressure / PRESSURE_STOP);
        }
        self.counters.stalled(&self.counters.stall_insert_us, began.elapsed());
    }

    /// No further memtable may be begun before one is flushed.
    fn is_flush_due(&self, state: &State) -> bool {
        state.flushing + 1 >= self.options.memtables
    }

    fn is_stopped(&self) -> bool {
        self.pressure.load(Relaxed) >= PRESSURE_STOP
    }

    /// Waits until a memtable is free and no container is over its limit.
    fn wait_for_room(&self) -> Result<()> {
        let began = Instant::now();
        if self.wait_while(|state| self.is_flush_due(state))? {
            self.counters.stalled(&self.counters.stall_flush_us, began.elapsed());
        }
        let began = Instant::now();
        if self.wait_while(|_| self.is_stopped())? {
            self.counters.stalled(&self.counters.stall_compaction_us, began.elapsed());
        }
        Ok(())
    }

    /// Waits for background work while `blocked`; `true` if it had to.
    ///
    /// # Errors
    /// What keeps the background work from succeeding: it was tried again before it is returned.
    pub(crate) fn wait_while(&self, blocked: impl Fn(&State) -> bool) -> Result<bool> {
        let mut state = self.state.lock();
        if !blocked(&state) {
            return Ok(false);
        }
        let attempts = state.failures;
        while blocked(&state) {
            if state.failures > attempts
                && let Some(error) = state.background_error.clone()
            {
                return Err(error);
            }
            self.check_writable()?;
            state = self.help_or_wait(state)?;
        }
        Ok(true)
    }

    /// Runs a background job here, or waits until one has made progress elsewhere.
    fn help_or_wait<'s>(
        &'s self,
        mut state: MutexGuard<'s, State>,
    ) -> Result<MutexGuard<'s, State>> {
        if self.env.scheduler.is_manual() {
            drop(state);
            // Nothing queued although something is due: an attempt failed. Try once more.
            if !self.env.scheduler.help() {
                self.schedule_flush();
                self.schedule_compaction();
                if !self.env.scheduler.help() {
                    return Err(Error::Invalid("no background work can make progress".into()));
                }
            }
            return Ok(self.state.lock());
        }
        if !state.is_busy() {
            drop(state);
            self.schedule_flush();
            self.schedule_compaction();
            state = self.state.lock();
        }
        self.progress.wait_for(&mut state, Duration::from_millis(100));
        Ok(state)
    }
}
