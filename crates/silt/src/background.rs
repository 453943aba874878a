//! Conversions and merges in the background.
//!
//! At most one of each is queued or running: conversions come oldest first, and one merge at a time
//! keeps the space of two SortedStores small. A conversion has the priority of a flush, for writers
//! wait for it.
//!
//! Source: Lim, thesis, section 2.2.3; the jobs are ours.

use std::sync::Arc;
use std::sync::atomic::Ordering::Acquire;

use siltstone_engine::{Error, Priority, Result};

use crate::engine::{Inner, State};

/// A job that runs: however it ends, its queueing is undone and those who wait hear of it.
struct BackgroundJob<'a> {
    inner: &'a Arc<Inner>,
    settle: Option<fn(&mut State)>,
}

impl<'a> BackgroundJob<'a> {
    /// `None` if the table is closing.
    fn begin(inner: &'a Arc<Inner>, settle: fn(&mut State)) -> Option<Self> {
        let mut state = inner.state.lock();
        // Asked under the lock: whoever stops the table waits for `executing` to fall after it has
        // raised the flag.
        if inner.stopping.load(Acquire) {
            settle(&mut state);
            inner.progress.notify_all();
            return None;
        }
        state.executing += 1;
        Some(BackgroundJob { inner, settle: Some(settle) })
    }

    /// Ends the job with its result, which waiting writers hear.
    fn end(mut self, result: Result<()>) {
        let inner = self.inner;
        let mut state = inner.state.lock();
        match result {
            Ok(()) => state.background_error = None,
            Err(Error::Closed) => {}
            Err(error) => {
                state.failures += 1;
                state.background_error = Some(error.clone());
                if !is_passing(&error) {
                    let _ = inner.poisoned.set(format!("background work: {error}"));
                }
            }
        }
        self.finish(&mut state);
    }

    fn finish(&mut self, state: &mut State) {
        if let Some(settle) = self.settle.take() {
            settle(state);
            state.executing -= 1;
            self.inner.progress.notify_all();
        }
    }
}

impl Drop for BackgroundJob<'_> {
    fn drop(&mut self) {
        if self.settle.is_some() {
            let _ = self.inner.poisoned.set("a background job panicked".to_owned());
            let inner = self.inner;
            self.finish(&mut inner.state.lock());
        }
    }
}

/// Faults after which the work is simply tried again: nothing on the medium is in doubt. A failed
/// write or sync is another matter.
fn is_passing(error: &Error) -> bool {
    error.is_disk_full()
        || error.is_corruption()
        || matches!(error, Error::Io { operation: "read", .. })
}

impl Inner {
    /// Queues what is due and not queued.
    pub(crate) fn schedule(&self) {
        let mut state = self.state.lock();
        if self.stopping.load(Acquire) {
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
    }

    fn spawn(&self, priority: Priority, settle: fn(&mut State), work: fn(&Inner) -> Result<()>) {
        let weak = self.me.clone();
        self.env.scheduler.spawn(priority, move || {
            let Some(inner) = weak.upgrade() else { return };
            let Some(job) = BackgroundJob::begin(&inner, settle) else { return };
            let result = work(&inner);
            let failed = result.is_err();
            job.end(result);
            // After a failure the next write, flush or call for maintenance tries again, not a hot
            // loop.
            if !failed {
                inner.schedule();
            }
        });
    }

    /// Moves what is in LogStores into HashStores, and waits for it.
    pub(crate) fn flush(&self) -> Result<()> {
        self.check_writable()?;
        if let Some(writer) = self.writer.lock().as_mut()
            && !writer.active.is_empty()
        {
            self.rotate(writer)?;
        }
        self.drain()
    }

    /// Converts all generations that wait.
    pub(crate) fn drain(&self) -> Result<()> {
        self.state.lock().drains = true;
        self.schedule();
        self.wait_while(|state| state.frozen > 0)?;
        Ok(())
    }

    /// Runs background work until none is due.
    pub(crate) fn maintain(&self) -> Result<()> {
        self.check_writable()?;
        let failures = self.state.lock().failures;
        // One job may make the next due only after it has ended: ask again until none is.
        loop {
            self.schedule();
            let has_waited = self.wait_while(State::is_busy)?;
            let state = self.state.lock();
            // A failed job is over, too, and would be due again at once.
            if state.failures > failures
                && let Some(error) = state.background_error.clone()
            {
                return Err(error);
            }
            if !has_waited {
                return Ok(());
            }
        }
    }

    /// Tells background jobs to end, and waits until none is running.
    pub(crate) fn stop_background(&self) {
        self.stopping.store(true, std::sync::atomic::Ordering::Release);
        let mut state = self.state.lock();
        while state.executing > 0 {
            self.progress.wait(&mut state);
        }
    }
}
