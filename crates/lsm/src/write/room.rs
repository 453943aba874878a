//! Room for the next write: when the memtable is full, when writers slow down, when they stop.
//!
//! Writers are delayed in proportion to debt before they are ever stopped: from a certain fill of
//! level 0 on (`l0_slow` rows, say), each 64 KiB written costs a pause that grows to 10 ms at
//! its limit. So a burst meets a slope and not a wall.

use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use parking_lot::MutexGuard;
use siltstone_engine::{Error, Result};

use super::Writer;
use crate::engine::{Inner, State};
use crate::memtable::{FullLog, Memtable};

/// The longest pause for one stretch of [`PAUSE_EVERY_BYTES`].
const LONGEST_PAUSE: Duration = Duration::from_millis(10);
const PAUSE_EVERY_BYTES: u64 = 64 << 10;
/// The pressure at which writers stop.
const PRESSURE_STOP: u32 = 1_000_000;

impl Inner {
    /// Sees to it that the active memtable takes the next write. The writer is not locked while
    /// this waits, so that background work can carry hot keys over.
    pub(crate) fn make_room(&self, writer: &mut MutexGuard<'_, Option<Writer>>) -> Result<()> {
        MutexGuard::unlocked(writer, || self.slow_down());
        loop {
            let open = writer.as_mut().ok_or(Error::Closed)?;
            let (log, memory) = self.options.memtable_limits();
            if open.log.len() < log && open.memtable.bytes() < memory {
                return Ok(());
            }
            if !self.is_flush_due(&self.state.lock()) && !self.is_level0_full() {
                return self.rotate(open);
            }
            MutexGuard::unlocked(writer, || self.wait_for_room())?;
            self.check_writable()?;
        }
    }

    /// Moves on to a new log and a new memtable, and queues the full one for its flush.
    pub(crate) fn rotate(&self, writer: &mut Writer) -> Result<()> {
        let number = self.versions.new_number();
        let full = FullLog {
            number: writer.log.number(),
            bytes: writer.log.len(),
            sync: writer.log.sync_handle(),
        };
        writer.log.rotate(number)?;
        writer.memtable.set_full(full);
        let fresh = std::sync::Arc::new(Memtable::new(number, self.env.seed ^ number));
        let mut state = self.state.lock();
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

    /// A pause in proportion to the debt of level 0, once every so many bytes.
    fn slow_down(&self) {
        let pressure = self.pressure.load(Relaxed);
        if pressure == 0 {
            return;
        }
        let written = self.counters.user_bytes_written.load(Relaxed);
        let stretch = written / PAUSE_EVERY_BYTES;
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

    fn is_level0_full(&self) -> bool {
        self.pressure.load(Relaxed) >= PRESSURE_STOP
    }

    /// Waits until a memtable is free and level 0 is below its limit.
    fn wait_for_room(&self) -> Result<()> {
        let began = Instant::now();
        if self.wait_while(|state| self.is_flush_due(state))? {
            self.counters.stalled(&self.counters.stall_flush_us, began.elapsed());
        }
        let began = Instant::now();
        if self.wait_while(|_| self.is_level0_full())? {
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
    pub(crate) fn help_or_wait<'s>(
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
