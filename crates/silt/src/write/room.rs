//! Room for the next write: when LogStores are full, and when writers stop.
//!
//! Invariant: a batch goes whole into one generation, and every position in it fits in 32 bits.
//!
//! Source: ours.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::MutexGuard;
use siltstone_engine::{Error, Result};

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
            let is_full = log >= self.options.log_bytes
                || log + bytes > u64::from(u32::MAX)
                || open.active.is_full(self.options.load);
            if !is_full || open.active.is_empty() {
                return Ok(());
            }
            let state = self.state.lock();
            let must_wait = self.is_conversion_behind(&state) || self.is_merge_behind();
            drop(state);
            if !must_wait {
                return self.rotate(open);
            }
            MutexGuard::unlocked(writer, || self.wait_for_room())?;
            self.check_writable()?;
        }
    }

    /// Moves on to a new log and new LogStores, and queues the full ones for their conversion.
    pub(crate) fn rotate(&self, writer: &mut Writer) -> Result<()> {
        let number = self.versions.new_number();
        writer.log.rotate(number)?;
        let mut fresh = Generation::new(self.versions.keys().partitions, self.options.slots);
        fresh.add_log(number, writer.log.access(), 0);
        let fresh = Arc::new(fresh);
        let mut state = self.state.lock();
        state.logs.push(number);
        writer.active = fresh.clone();
        self.publish(&mut state, |view| {
            let full = std::mem::replace(&mut view.active, fresh);
            view.frozen.push(full);
        });
        writer.log.forget_before(state.first_log);
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
        let began = Instant::now();
        if self.wait_while(|state| self.is_conversion_behind(state))? {
            self.counters.stalled(&self.counters.stall_flush_us, began.elapsed());
        }
        let began = Instant::now();
        if self.wait_while(|_| self.is_merge_behind())? {
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
                self.schedule();
                if !self.env.scheduler.help() {
                    return Err(Error::Invalid("no background work can make progress".into()));
                }
            }
            return Ok(self.state.lock());
        }
        if !state.is_busy() {
            drop(state);
            self.schedule();
            state = self.state.lock();
        }
        self.progress.wait_for(&mut state, Duration::from_millis(100));
        Ok(state)
    }
}
