//! Backups of the running store: on a schedule, and when BGSAVE asks for one.
//!
//! ```text
//!   BGSAVE ─ requested ─┐
//!                       ├─▶ thread `siltstone-backup`: one backup at a time ─▶ report
//!   schedule ── due ────┘                                  INFO, LASTSAVE, metrics
//! ```
//!
//! How a backup is taken, and where it is kept, is the caller's: [`BackupOptions::take`].
//!
//! Invariant: at most one backup runs, and the server does not stop before it has ended.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use siltstone_engine::{Clock, Result};

use crate::archive::ArchiveOptions;

/// Takes one backup of the store.
pub type TakeBackup = Arc<dyn Fn() -> Result<()> + Send + Sync>;

/// How and when the server backs its store up.
#[derive(Clone)]
pub struct BackupOptions {
    /// Takes a backup. Runs on a thread of its own, while clients are served.
    pub take: TakeBackup,
    /// The time from one scheduled backup to the next; `None`: only when BGSAVE asks for one.
    pub interval: Option<Duration>,
    /// Archives the changes between backups; `None`: nobody does.
    pub archive: Option<ArchiveOptions>,
}

impl fmt::Debug for BackupOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BackupOptions").field("interval", &self.interval).finish_non_exhaustive()
    }
}

/// The backups of a server so far.
#[derive(Debug, Clone, Default)]
pub(crate) struct BackupReport {
    pub(crate) completed: u64,
    pub(crate) failed: u64,
    /// When the last complete backup ended, in seconds since 1970.
    pub(crate) completed_at_s: Option<u64>,
    /// How long the last backup took, complete or not.
    pub(crate) last_duration: Option<Duration>,
    pub(crate) has_last_failed: bool,
    /// A backup is about to begin.
    pub(crate) is_requested: bool,
    /// When the backup that runs began.
    pub(crate) running_since: Option<Instant>,
}

impl BackupReport {
    /// Whether a backup runs or is about to begin. With the reply to BGSAVE it does.
    pub(crate) fn is_in_progress(&self) -> bool {
        self.is_requested || self.running_since.is_some()
    }
}

/// The thread that takes backups, and what it has to do.
pub(crate) struct Backups {
    options: BackupOptions,
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    is_stopping: bool,
    report: BackupReport,
}

impl Backups {
    pub(crate) fn new(options: BackupOptions, clock: Arc<dyn Clock>) -> Self {
        Backups { options, clock, state: Mutex::default(), changed: Condvar::new() }
    }

    /// Has a backup taken soon; `false` if one runs or is about to begin.
    pub(crate) fn request(&self) -> bool {
        let mut state = self.state.lock();
        let is_free = !state.report.is_in_progress();
        if is_free {
            state.report.is_requested = true;
            self.changed.notify_one();
        }
        is_free
    }

    pub(crate) fn report(&self) -> BackupReport {
        self.state.lock().report.clone()
    }

    /// Ends [`run`](Self::run) after the backup that it takes.
    pub(crate) fn stop(&self) {
        self.state.lock().is_stopping = true;
        self.changed.notify_one();
    }

    /// Takes backups until [`stop`](Self::stop). The first scheduled one is due an interval after
    /// the start, each further one an interval after the last backup.
    pub(crate) fn run(&self) {
        let mut due = self.next_due();
        let mut state = self.state.lock();
        while !state.is_stopping {
            let is_due = due.is_some_and(|due| Instant::now() >= due);
            if !is_due && !state.report.is_requested {
                match due {
                    None => self.changed.wait(&mut state),
                    Some(due) => drop(self.changed.wait_until(&mut state, due)),
                }
                continue;
            }
            let start = Instant::now();
            state.report.is_requested = false;
            state.report.running_since = Some(start);
            drop(state);
            let taken = (self.options.take)();
            due = self.next_due();
            state = self.state.lock();
            let report = &mut state.report;
            report.running_since = None;
            report.last_duration = Some(start.elapsed());
            report.has_last_failed = taken.is_err();
            if taken.is_ok() {
                report.completed += 1;
                report.completed_at_s = Some(self.clock.now() / 1000);
            } else {
                report.failed += 1;
            }
        }
    }

    fn next_due(&self) -> Option<Instant> {
        self.options.interval.and_then(|interval| Instant::now().checked_add(interval))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
    use std::sync::mpsc;

    use siltstone_engine::{Error, SystemClock};

    use super::*;

    /// Runs `test` beside the thread that takes backups.
    fn with_backups(options: BackupOptions, test: impl FnOnce(&Backups)) {
        let backups = Backups::new(options, Arc::new(SystemClock));
        std::thread::scope(|scope| {
            scope.spawn(|| backups.run());
            test(&backups);
            backups.stop();
        });
    }

    #[test]
    fn request_while_a_backup_runs_is_refused() {
        let (began, wait_for_start) = mpsc::channel();
        let (finish, wait_for_finish) = mpsc::channel::<()>();
        let wait_for_finish = Mutex::new(wait_for_finish);
        let take: TakeBackup = Arc::new(move || {
            began.send(()).unwrap();
            wait_for_finish.lock().recv().map_err(|_| Error::Closed)
        });
        with_backups(BackupOptions { take, interval: None, archive: None }, |backups| {
            assert!(backups.request() && backups.report().is_in_progress());
            wait_for_start.recv().unwrap();
            assert!(backups.report().running_since.is_some());
            assert!(!backups.request());
            finish.send(()).unwrap();
            while backups.report().completed == 0 {
                std::thread::yield_now();
            }
            let report = backups.report();
            assert!(report.running_since.is_none() && report.completed_at_s.is_some());
            assert!(!report.has_last_failed);
            // The next one fails.
            assert!(backups.request());
            drop(finish);
            while backups.report().failed == 0 {
                std::thread::yield_now();
            }
            assert!(backups.report().has_last_failed);
        });
    }

    #[test]
    fn schedule_takes_backups_without_a_request() {
        let count = Arc::new(AtomicU64::new(0));
        let counter = count.clone();
        let take: TakeBackup = Arc::new(move || {
            counter.fetch_add(1, SeqCst);
            Ok(())
        });
        let interval = Some(Duration::from_millis(1));
        with_backups(BackupOptions { take, interval, archive: None }, |_| {
            while count.load(SeqCst) < 3 {
                std::thread::yield_now();
            }
        });
    }
}
