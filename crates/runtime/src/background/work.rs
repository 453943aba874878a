//! How writers wait for background work, and how an engine defines what its jobs are.
//!
//! ```text
//!   wait_while ── blocked? ── background threads: wait for `progress`, which each job notifies
//!                    ▲     └─ manual scheduler:   run a job on this thread
//!                    └────────────────────────────────┘
//! ```
//!
//! A wait fails with the error of the background work once an attempt has failed since it began,
//! so that each write, flush or maintenance call retries the work once.

use std::time::{Duration, Instant};

use parking_lot::MutexGuard;
use siltstone_engine::{Error, EventKind, Result};

use super::{Background, Shared};
use crate::{StallCounters, WriteStall};

/// How often a waiting writer checks again without being notified.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// An engine with background jobs.
pub trait BackgroundWork {
    /// The due and running work.
    type State;

    /// The engine's [`Background`].
    fn background(&self) -> &Background<Self::State>;

    /// Whether jobs are queued or running.
    fn is_busy(state: &Self::State) -> bool;

    /// Queues the work that is due and not queued yet. Takes the state's lock.
    fn schedule(&self);

    /// Waits for background work while `blocked`. `true` if it had to wait. With a manual
    /// scheduler, jobs run inside this call.
    ///
    /// # Errors
    /// The error of the background work, after a retry.
    fn wait_while(&self, blocked: impl Fn(&Self::State) -> bool) -> Result<bool> {
        let background = self.background();
        let mut state = background.lock();
        if !blocked(&state) {
            return Ok(false);
        }
        let attempts = state.failures;
        while blocked(&state) {
            if state.failures > attempts
                && let Some(error) = state.error.clone()
            {
                return Err(error);
            }
            background.check_writable()?;
            state = run_job_or_wait(self, state)?;
        }
        Ok(true)
    }

    /// As [`wait_while`](Self::wait_while), for a writer: counts the time it waited, and reports
    /// the wait.
    ///
    /// # Errors
    /// The same.
    fn stall_while(
        &self,
        counters: &StallCounters,
        stall: WriteStall,
        blocked: impl Fn(&Self::State) -> bool,
    ) -> Result<()> {
        let background = self.background();
        if !blocked(&background.lock()) {
            return Ok(());
        }
        let (events, began) = (&background.events, Instant::now());
        events.emit(|| EventKind::StallBegun { cause: stall });
        let waited = self.wait_while(blocked);
        let duration = began.elapsed();
        events.emit(|| EventKind::StallEnded { cause: stall, duration });
        if waited? {
            counters.add(stall, duration);
        }
        Ok(())
    }

    /// Runs background work until none is due, queued or running.
    ///
    /// # Errors
    /// The error of a job.
    fn drain_jobs(&self) -> Result<()> {
        let background = self.background();
        background.check_writable()?;
        let failures = background.lock().failures;
        // A job may make another one due when it ends, so repeat until none is.
        loop {
            self.schedule();
            let has_waited = self.wait_while(Self::is_busy)?;
            let state = background.lock();
            // A failed job has finished, too, and would be due again at once.
            if state.failures > failures
                && let Some(error) = state.error.clone()
            {
                return Err(error);
            }
            if !has_waited {
                return background.check_open();
            }
        }
    }
}

/// Runs a background job on this thread, or waits until other threads have made progress.
fn run_job_or_wait<'s, W: BackgroundWork + ?Sized>(
    work: &'s W,
    mut state: MutexGuard<'s, Shared<W::State>>,
) -> Result<MutexGuard<'s, Shared<W::State>>> {
    let background = work.background();
    if background.scheduler.is_manual() {
        drop(state);
        // Work is due but nothing is queued: an attempt has failed. Retry once.
        if !background.scheduler.run_one() {
            work.schedule();
            if !background.scheduler.run_one() {
                return Err(Error::Invalid("no background work can make progress".into()));
            }
        }
        return Ok(background.lock());
    }
    if !W::is_busy(&state) {
        drop(state);
        work.schedule();
        state = background.lock();
    }
    background.progress.wait_for(&mut state, POLL_INTERVAL);
    Ok(state)
}
