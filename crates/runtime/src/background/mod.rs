//! The background jobs of one open table: how they run, fail and are retried.
//!
//! ```text
//!   schedule ── queue ──▶ run ── on_finish ──▶ progress ──▶ waiting writers check again
//!                          │ failed: counted, error kept for waiters; state in doubt: poisoned
//!   stop ── no job starts any more ── waits until none is running
//! ```
//!
//! An engine keeps its queue of due and running work in a state `S` under the lock of
//! [`Background`]; the engine defines what its jobs are, and writers wait for them
//! ([`BackgroundWork`]). After a transient failure the work is retried: once by each write, flush
//! or maintenance call that needs it, and otherwise after a delay that doubles with each failure.
//! Meanwhile [`Background::trouble`] reports the error.
//!
//! Invariant: every job that started has finished when [`Background::stop`] returns. A job that
//! panics or leaves files in doubt poisons the table, which then is read-only and reports the
//! cause.

mod panic_guard;
mod work;

use std::ops::{Deref, DerefMut};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Release};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use parking_lot::{Condvar, Mutex, MutexGuard};
use siltstone_engine::{Error, EventKind, Result};

pub use self::panic_guard::PanicGuard;
pub use self::work::BackgroundWork;
use crate::{Events, Priority, Scheduler};

/// The delay before the first retry of failed work. It doubles with each failure.
const MIN_RETRY_DELAY: Duration = Duration::from_millis(50);
/// The limit of that delay.
const MAX_RETRY_DELAY: Duration = Duration::from_secs(5);

/// The state shared by the jobs and the writers of one open table.
pub struct Background<S> {
    scheduler: Scheduler,
    events: Events,
    state: Mutex<Shared<S>>,
    progress: Condvar,
    closed: AtomicBool,
    stopping: AtomicBool,
    poisoned: OnceLock<String>,
    /// Schedules the due work again.
    retry: OnceLock<Arc<dyn Fn() + Send + Sync>>,
}

/// The engine's state, and the outcome of its jobs.
pub struct Shared<S> {
    engine: S,
    running: usize,
    failures: u64,
    /// Failures since the last success.
    failures_in_a_row: u32,
    is_retry_queued: bool,
    /// The error of the last attempt, if it failed.
    error: Option<Error>,
}

impl<S> Deref for Shared<S> {
    type Target = S;

    fn deref(&self) -> &S {
        &self.engine
    }
}

impl<S> DerefMut for Shared<S> {
    fn deref_mut(&mut self) -> &mut S {
        &mut self.engine
    }
}

impl<S> Background<S> {
    /// For a table that has just been opened; its jobs are queued with `scheduler`, and their
    /// failures are reported to `events`.
    pub fn new(scheduler: Scheduler, events: Events, state: S) -> Self {
        let state = Shared {
            engine: state,
            running: 0,
            failures: 0,
            failures_in_a_row: 0,
            is_retry_queued: false,
            error: None,
        };
        Background {
            scheduler,
            events,
            state: Mutex::new(state),
            progress: Condvar::new(),
            closed: AtomicBool::new(false),
            stopping: AtomicBool::new(false),
            poisoned: OnceLock::new(),
            retry: OnceLock::new(),
        }
    }

    /// Enables delayed retries of failed work, which is `part` of `whole`.
    pub fn retry_with<T, W>(&self, whole: Weak<T>, part: fn(&T) -> &W)
    where
        T: Send + Sync + 'static,
        W: BackgroundWork<State = S> + 'static,
    {
        let _ = self.retry.set(Arc::new(move || {
            let Some(whole) = whole.upgrade() else { return };
            let work = part(&whole);
            work.background().lock().is_retry_queued = false;
            work.schedule();
        }));
    }

    /// Why the table is degraded, as text: failing background work that is retried, or the cause of
    /// the read-only mode.
    pub fn trouble(&self) -> Option<String> {
        if let Some(cause) = self.poisoned.get() {
            return Some(format!("it is read-only since an earlier fault ({cause})"));
        }
        let state = self.lock();
        let error = state.error.as_ref()?;
        Some(format!("background work fails and is retried: {error}"))
    }

    /// Counters of failures, for [`Stats`](siltstone_engine::Stats).
    pub fn counters(&self) -> [(&'static str, u64); 3] {
        let state = self.lock();
        [
            ("background_failures", state.failures),
            ("background_failing", u64::from(state.error.is_some())),
            ("read_only", u64::from(self.is_poisoned())),
        ]
    }

    /// Queues a delayed retry.
    fn retry_later(&self, state: &mut Shared<S>) {
        let Some(retry) = self.retry.get() else { return };
        // A manual scheduler runs jobs when somebody waits for them, and the waiter retries.
        if self.scheduler.is_manual() || self.is_stopping() || state.is_retry_queued {
            return;
        }
        state.is_retry_queued = true;
        let doublings = state.failures_in_a_row.saturating_sub(1).min(16);
        let delay = (MIN_RETRY_DELAY * (1 << doublings)).min(MAX_RETRY_DELAY);
        let retry = retry.clone();
        self.scheduler.spawn_after(delay, Priority::L0Compaction, move || retry());
    }

    /// Locks the state. The lock is never held during I/O.
    pub fn lock(&self) -> MutexGuard<'_, Shared<S>> {
        self.state.lock()
    }

    /// Makes waiting writers check again.
    pub fn notify(&self) {
        self.progress.notify_all();
    }

    /// Runs a queued job, unless the table is closing. In any case, `on_finish` undoes its queueing
    /// and waiters are notified. `true`: the job succeeded, and more work may be due.
    pub fn run(&self, on_finish: impl FnOnce(&mut S), work: impl FnOnce() -> Result<()>) -> bool {
        let mut state = self.lock();
        // Checked under the lock: `stop` sets the flag, then waits until `running` is 0.
        if self.is_stopping() {
            on_finish(&mut state);
            self.notify();
            return false;
        }
        state.running += 1;
        drop(state);
        let running = RunningJob { background: self, on_finish: Some(on_finish) };
        let result = work();
        let succeeded = result.is_ok();
        running.end(result);
        succeeded
    }

    /// Whether jobs should end soon.
    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Acquire)
    }

    /// Ends a long job soon if the table is closing. Call it about every millisecond. Cost: one
    /// load.
    ///
    /// # Errors
    /// `Closed` if the table is closing.
    pub fn check_cancelled(&self) -> Result<()> {
        if self.is_stopping() { Err(Error::Closed) } else { Ok(()) }
    }

    /// Cancels jobs, and waits until none is running. No job starts afterwards.
    pub fn stop(&self) {
        self.stopping.store(true, Release);
        let mut state = self.lock();
        while state.running > 0 {
            self.progress.wait(&mut state);
        }
    }

    /// Marks the table as closed. `false` if it was closed already.
    pub fn close(&self) -> bool {
        !self.closed.swap(true, AcqRel)
    }

    /// Returns an error if the table is closed.
    ///
    /// # Errors
    /// `Closed`.
    pub fn check_open(&self) -> Result<()> {
        if self.closed.load(Acquire) { Err(Error::Closed) } else { Ok(()) }
    }

    /// Returns an error if the table is closed or read-only.
    ///
    /// # Errors
    /// `Closed`, or `ReadOnly` with the cause.
    pub fn check_writable(&self) -> Result<()> {
        self.check_open()?;
        self.check_not_poisoned()
    }

    /// Whether the table is read-only because an error has left its files in doubt.
    pub fn is_poisoned(&self) -> bool {
        self.poisoned.get().is_some()
    }

    /// Returns an error if the table is poisoned.
    ///
    /// # Errors
    /// `ReadOnly` with the cause.
    pub fn check_not_poisoned(&self) -> Result<()> {
        match self.poisoned.get() {
            Some(cause) => Err(Error::ReadOnly { cause: cause.clone() }),
            None => Ok(()),
        }
    }

    /// Enters read-only mode with this cause. Returns the error.
    pub fn poison(&self, doing: &str, error: Error) -> Error {
        self.enter_read_only(cause(doing, &error));
        self.notify();
        error
    }

    fn enter_read_only(&self, cause: String) {
        if self.poisoned.set(cause).is_ok() {
            let cause = || self.poisoned.get().cloned().unwrap_or_default();
            self.events.emit(|| EventKind::ReadOnly { cause: cause() });
        }
    }

    /// Calls [`poison`](Self::poison) if the error is itself `ReadOnly`.
    pub fn poison_if_read_only(&self, doing: &str, error: Error) -> Error {
        if matches!(error, Error::ReadOnly { .. }) { self.poison(doing, error) } else { error }
    }

    /// Calls [`poison`](Self::poison) unless the error is [transient](Error::is_transient), in
    /// which case nothing is in doubt and the operation can be retried.
    pub fn poison_unless_transient(&self, doing: &str, error: Error) -> Error {
        if error.is_transient() { error } else { self.poison(doing, error) }
    }
}

/// The cause of the read-only mode. An error that is `ReadOnly` itself contributes its own cause.
fn cause(doing: &str, error: &Error) -> String {
    match error {
        Error::ReadOnly { cause } => format!("{doing}: {cause}"),
        error => format!("{doing}: {error}"),
    }
}

/// A running job. If it is dropped before [`end`](Self::end), the job has panicked.
struct RunningJob<'a, S, F: FnOnce(&mut S)> {
    background: &'a Background<S>,
    on_finish: Option<F>,
}

impl<S, F: FnOnce(&mut S)> RunningJob<'_, S, F> {
    fn end(mut self, result: Result<()>) {
        let background = self.background;
        let mut state = background.lock();
        match result {
            Ok(()) => {
                state.error = None;
                state.failures_in_a_row = 0;
            }
            Err(Error::Closed) => {}
            Err(error) => {
                state.failures += 1;
                state.failures_in_a_row = state.failures_in_a_row.saturating_add(1);
                state.error = Some(error.clone());
                background.events.emit_corruption(&error);
                background.events.emit(|| EventKind::BackgroundError { error: error.clone() });
                if is_retriable(&error) {
                    background.retry_later(&mut state);
                } else {
                    background.enter_read_only(cause("background work", &error));
                }
            }
        }
        self.finish(&mut state);
    }

    fn finish(&mut self, state: &mut Shared<S>) {
        if let Some(on_finish) = self.on_finish.take() {
            on_finish(state);
            state.running -= 1;
            self.background.notify();
        }
    }
}

impl<S, F: FnOnce(&mut S)> Drop for RunningJob<'_, S, F> {
    fn drop(&mut self) {
        if self.on_finish.is_some() {
            let background = self.background;
            background.enter_read_only("a background job panicked".to_owned());
            self.finish(&mut background.lock());
        }
    }
}

/// Whether failed work can be retried: no file is in doubt. False for a failed write or sync.
pub fn is_retriable(error: &Error) -> bool {
    error.is_transient() || error.is_corruption() || error.is_failed_read()
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    /// Each job decrements a counter; a job whose number is in `failing` fails once.
    struct Countdown {
        background: Background<State>,
        me: std::sync::Weak<Countdown>,
    }

    #[derive(Default)]
    struct State {
        left: u32,
        queued: bool,
        failing: Vec<(u32, Error)>,
    }

    impl Countdown {
        fn new(scheduler: Scheduler, left: u32, failing: Vec<(u32, Error)>) -> Arc<Self> {
            let state = State { left, queued: false, failing };
            Arc::new_cyclic(|me| Countdown {
                background: Background::new(scheduler, Events::default(), state),
                me: me.clone(),
            })
        }

        fn step(&self) -> Result<()> {
            let mut state = self.background.lock();
            let left = state.left;
            if let Some(at) = state.failing.iter().position(|&(number, _)| number == left) {
                let error = state.failing.swap_remove(at).1;
                assert!(!matches!(error, Error::Invalid(_)), "a panic on request");
                return Err(error);
            }
            state.left -= 1;
            Ok(())
        }
    }

    impl BackgroundWork for Countdown {
        type State = State;

        fn background(&self) -> &Background<State> {
            &self.background
        }

        fn is_busy(state: &State) -> bool {
            state.queued
        }

        fn schedule(&self) {
            let mut state = self.background.lock();
            if state.left == 0 || state.queued || self.background.is_stopping() {
                return;
            }
            state.queued = true;
            let me = self.me.clone();
            self.background.scheduler.spawn(Priority::Flush, move || {
                let Some(me) = me.upgrade() else { return };
                if me.background.run(|state| state.queued = false, || me.step()) {
                    me.schedule();
                }
            });
        }
    }

    fn read_fault() -> Error {
        Error::io("read", "x", &std::io::Error::other("once"))
    }

    #[test]
    fn waiters_are_notified_when_work_is_done() {
        for scheduler in [Scheduler::manual(), Scheduler::threads(1)] {
            let work = Countdown::new(scheduler, 5, Vec::new());
            work.schedule();
            assert!(work.wait_while(|state| state.left > 2).unwrap());
            work.drain_jobs().unwrap();
            assert_eq!(work.background.lock().left, 0);
            assert!(!work.wait_while(|state| state.left > 0).unwrap());
        }
    }

    #[test]
    fn transient_error_reaches_waiters_and_work_is_retried() {
        for scheduler in [Scheduler::manual(), Scheduler::threads(1)] {
            let work = Countdown::new(scheduler, 3, vec![(2, read_fault())]);
            assert!(work.drain_jobs().is_err());
            assert!(work.background.check_writable().is_ok());
            work.drain_jobs().unwrap();
        }
    }

    #[test]
    fn failed_work_is_retried_after_a_delay() {
        let code = siltstone_engine::error::TOO_MANY_FILES[0];
        let lacking = || Error::io("create", "x", &std::io::Error::from_raw_os_error(code));
        let work = Countdown::new(Scheduler::threads(1), 3, vec![(2, lacking()), (2, lacking())]);
        work.background.retry_with(Arc::downgrade(&work), |work| work);
        work.schedule();
        let began = Instant::now();
        let mut troubles = Vec::new();
        while work.background.lock().left > 0 {
            troubles.extend(work.background.trouble());
            assert!(began.elapsed() < Duration::from_secs(60), "it was not retried");
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(began.elapsed() >= 3 * MIN_RETRY_DELAY, "the second delay is twice the first");
        assert!(troubles.iter().any(|line| line.contains("cannot create x")), "{troubles:?}");
        assert_eq!(work.background.trouble(), None);
        let counters = work.background.counters();
        assert_eq!(counters.map(|(_, count)| count), [2, 0, 0]);
    }

    #[test]
    fn failed_sync_or_panic_poisons() {
        let permanent = Error::io("sync", "x", &std::io::Error::other("gone"));
        for error in [permanent, Error::Invalid("panic".into())] {
            let work = Countdown::new(Scheduler::threads(1), 3, vec![(3, error)]);
            work.schedule();
            while !work.background.is_poisoned() {
                std::thread::yield_now();
            }
            let refused = work.background.check_writable();
            assert!(matches!(refused, Err(Error::ReadOnly { .. })), "{refused:?}");
            work.background.stop();
            assert!(!work.background.lock().queued, "the job is still marked as queued");
        }
    }

    #[test]
    fn no_job_starts_after_stop() {
        let work = Countdown::new(Scheduler::manual(), 3, Vec::new());
        work.schedule();
        work.background.stop();
        assert!(work.background.scheduler.run_one());
        let state = work.background.lock();
        assert_eq!((state.left, state.queued), (3, false));
        drop(state);
        assert!(work.background.close() && !work.background.close());
        assert!(matches!(work.background.check_writable(), Err(Error::Closed)));
    }
}
