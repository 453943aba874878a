//! Archives the changes of the running store, one step per interval.
//!
//! ```text
//!   thread `siltstone-archive`:   step ─ wait ─ step ─ wait …        INFO, metrics
//!                                  └ a new series: asks for a backup ─▶ `siltstone-backup`
//!   stop: clients have gone ─ tables are synced ─ the last step
//! ```
//!
//! What a step does, and where, is the caller's: [`ArchiveOptions::step`].

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use siltstone_engine::{Clock, Result, Timestamp};

/// The time until a backup that is still needed is asked for again; it doubles each time.
const MIN_BACKUP_PAUSE: Duration = Duration::from_secs(60);
const MAX_BACKUP_PAUSE: Duration = Duration::from_secs(3600);

/// Archives the changes since the last step.
pub type ArchiveChanges = Arc<dyn Fn() -> Result<ArchiveStep> + Send + Sync>;

/// The result of a step.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ArchiveStep {
    /// The newest moment that the archive reaches, in milliseconds since 1970.
    pub mark: Timestamp,
    /// Bytes that were written to the archive.
    pub bytes: u64,
    /// No moment can be restored before the next backup.
    pub needs_backup: bool,
}

/// How and when the server archives the changes of its store.
#[derive(Clone)]
pub struct ArchiveOptions {
    /// Does a step. Runs on a thread of its own, while clients are served.
    pub step: ArchiveChanges,
    /// The time from one step to the next.
    pub interval: Duration,
}

impl fmt::Debug for ArchiveOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ArchiveOptions").field("interval", &self.interval).finish_non_exhaustive()
    }
}

/// The archive so far.
#[derive(Debug, Clone, Default)]
pub(crate) struct ArchiveState {
    /// The newest moment that it reaches; 0 before the first step.
    pub(crate) mark: Timestamp,
    pub(crate) bytes: u64,
    pub(crate) failures: u64,
    pub(crate) has_last_failed: bool,
}

/// The thread that archives changes.
pub(crate) struct Archive {
    options: ArchiveOptions,
    clock: Arc<dyn Clock>,
    started: Timestamp,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    is_stopping: bool,
    archive: ArchiveState,
}

impl Archive {
    pub(crate) fn new(options: ArchiveOptions, clock: Arc<dyn Clock>) -> Self {
        let started = clock.now();
        Archive { options, clock, started, state: Mutex::default(), changed: Condvar::new() }
    }

    pub(crate) fn state(&self) -> ArchiveState {
        self.state.lock().archive.clone()
    }

    /// The age of the newest moment that the archive reaches. Before the first one, the time since
    /// the start.
    pub(crate) fn lag(&self) -> Duration {
        let mark = self.state.lock().archive.mark.max(self.started);
        Duration::from_millis(self.clock.now().saturating_sub(mark))
    }

    /// Ends [`run`](Self::run).
    pub(crate) fn stop(&self) {
        self.state.lock().is_stopping = true;
        self.changed.notify_one();
    }

    /// Archives until [`stop`](Self::stop). `request_backup` has a backup taken soon, and returns
    /// `false` if one runs.
    pub(crate) fn run(&self, request_backup: &dyn Fn() -> bool) {
        let (mut asked_at, mut pause) = (None::<Instant>, MIN_BACKUP_PAUSE);
        loop {
            let needs_backup = self.step().map(|step| step.needs_backup);
            if needs_backup == Some(false) {
                (asked_at, pause) = (None, MIN_BACKUP_PAUSE);
            } else if needs_backup == Some(true)
                && asked_at.is_none_or(|at| at.elapsed() >= pause)
                && request_backup()
            {
                if asked_at.is_some() {
                    pause = (2 * pause).min(MAX_BACKUP_PAUSE);
                }
                asked_at = Some(Instant::now());
            }
            let due = Instant::now() + self.options.interval;
            let mut state = self.state.lock();
            while !state.is_stopping && Instant::now() < due {
                self.changed.wait_until(&mut state, due);
            }
            if state.is_stopping {
                return;
            }
        }
    }

    /// Archives what there is. An error is the caller's to report.
    pub(crate) fn step(&self) -> Option<ArchiveStep> {
        let done = (self.options.step)();
        let archive = &mut self.state.lock().archive;
        archive.has_last_failed = done.is_err();
        archive.failures += u64::from(done.is_err());
        let step = done.ok()?;
        archive.mark = step.mark;
        archive.bytes += step.bytes;
        Some(step)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

    use siltstone_engine::{Error, ManualClock};

    use super::*;

    #[test]
    fn needed_backup_is_requested_until_one_begins_and_failures_are_counted() {
        let clock = Arc::new(ManualClock::at(5000));
        let steps = Arc::new(AtomicU64::new(0));
        let counter = steps.clone();
        let step: ArchiveChanges = Arc::new(move || match counter.fetch_add(1, SeqCst) {
            1 => Err(Error::Closed),
            number => Ok(ArchiveStep { mark: 6000 + number, bytes: 10, needs_backup: true }),
        });
        let options = ArchiveOptions { step, interval: Duration::from_millis(1) };
        let archive = Archive::new(options, clock.clone());
        clock.set(9000);
        assert_eq!(archive.lag(), Duration::from_secs(4));
        let requests = AtomicU64::new(0);
        // A backup runs at the first two requests.
        let request = || requests.fetch_add(1, SeqCst) >= 2;
        std::thread::scope(|scope| {
            scope.spawn(|| archive.run(&request));
            while steps.load(SeqCst) < 20 {
                std::thread::yield_now();
            }
            archive.stop();
        });
        assert_eq!(requests.load(SeqCst), 3);
        let state = archive.state();
        assert_eq!((state.failures, state.has_last_failed), (1, false));
        assert_eq!(state.bytes, 10 * (steps.load(SeqCst) - 1));
        assert_eq!(archive.lag(), Duration::from_millis(9000 - state.mark));
    }
}
