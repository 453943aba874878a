//! The background work of one open table: how jobs begin and end, and how writers wait for them.
//!
//! ```text
//!   schedule ── queue ──▶ run ── settle ──▶ progress ──▶ whoever waits looks again
//!                          │ failed: counted, kept for those who wait; in doubt: poisoned
//!   stop ── no job begins any more ── waits until none runs
//! ```
//!
//! An engine keeps what is due and under way in a state of its own, `S`, under the lock of
//! [`Background`]; what the jobs are is its affair ([`BackgroundWork`]). After a failure that
//! passes the work is tried again: by the next write, flush or call for maintenance that needs it,
//! once each, and without them after a delay that grows with each failure. Until then
//! [`Background::trouble`] says what fails.
//!
//! Invariant: a job that began is over before [`Background::stop`] returns; a job that panics or
//! leaves the medium in doubt poisons the table, which then refuses writes and says why.
//!
//! Source: ours.

use std::ops::{Deref, DerefMut};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Release};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard};
use siltstone_engine::{Error, Result};

use crate::{BackgroundScope, Priority, Scheduler, Stall, StallCounters, yield_point};

/// How long a writer sleeps at most before it looks again.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// Failed work is tried again after this, and after twice as long each time that it fails again …
const FIRST_RETRY: Duration = Duration::from_millis(50);
/// … up to this.
const LAST_RETRY: Duration = Duration::from_secs(5);

/// What the jobs and the writers of one open table share.
pub struct Background<S> {
    scheduler: Scheduler,
    state: Mutex<Shared<S>>,
    progress: Condvar,
    closed: AtomicBool,
    stopping: AtomicBool,
    poisoned: OnceLock<String>,
    /// Schedules what is due once more.
    retry: OnceLock<Arc<dyn Fn() + Send + Sync>>,
}

/// The engine's state, with how jobs have fared.
pub struct Shared<S> {
    engine: S,
    running: usize,
    failures: u64,
    /// Failures since the last attempt that succeeded.
    failures_in_a_row: u32,
    is_retry_queued: bool,
    /// How the last attempt failed, if none has succeeded since.
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
    /// Of a table that has just been opened; its jobs are queued with `scheduler`.
    pub fn new(scheduler: Scheduler, state: S) -> Self {
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
            state: Mutex::new(state),
            progress: Condvar::new(),
            closed: AtomicBool::new(false),
            stopping: AtomicBool::new(false),
            poisoned: OnceLock::new(),
            retry: OnceLock::new(),
        }
    }

    /// Has failed work tried again without anybody who asks for it.
    pub fn retry_with<W>(&self, work: Weak<W>)
    where
        W: BackgroundWork<State = S> + Send + Sync + 'static,
    {
        let _ = self.retry.set(Arc::new(move || {
            let Some(work) = work.upgrade() else { return };
            work.background().lock().is_retry_queued = false;
            work.schedule();
        }));
    }

    /// What keeps the table from going on as it should, for people: background work that fails and
    /// is tried again, or why it is read-only.
    pub fn trouble(&self) -> Option<String> {
        if let Some(cause) = self.poisoned.get() {
            return Some(format!("it is read-only since an earlier fault ({cause})"));
        }
        let state = self.lock();
        let error = state.error.as_ref()?;
        Some(format!("background work fails and is tried again: {error}"))
    }

    /// The same in figures, for [`Stats`](siltstone_engine::Stats).
    pub fn counters(&self) -> [(&'static str, u64); 3] {
        let state = self.lock();
        [
            ("background_failures", state.failures),
            ("background_failing", u64::from(state.error.is_some())),
            ("read_only", u64::from(self.is_poisoned())),
        ]
    }

    /// Queues another attempt, later the more have failed.
    fn retry_later(&self, state: &mut Shared<S>) {
        let Some(retry) = self.retry.get() else { return };
        // A manual scheduler's jobs run when somebody waits for them, who then tries again.
        if self.scheduler.is_manual() || self.is_stopping() || state.is_retry_queued {
            return;
        }
        state.is_retry_queued = true;
        let doublings = state.failures_in_a_row.saturating_sub(1).min(16);
        let delay = (FIRST_RETRY * (1 << doublings)).min(LAST_RETRY);
        let retry = retry.clone();
        self.scheduler.spawn_after(delay, Priority::Urgent, move || retry());
    }

    /// Locks the state. Never held over I/O.
    pub fn lock(&self) -> MutexGuard<'_, Shared<S>> {
        self.state.lock()
    }

    /// Lets those who wait look again.
    pub fn notify(&self) {
        self.progress.notify_all();
    }

    /// Runs a queued job, unless the table is closing. However it ends, `settle` undoes its queueing
    /// and those who wait hear of it. `true`: it succeeded, and more may be due now.
    pub fn run(&self, settle: impl FnOnce(&mut S), work: impl FnOnce() -> Result<()>) -> bool {
        let mut state = self.lock();
        // Asked under the lock: `stop` waits for `running` to fall after it has raised the flag.
        if self.is_stopping() {
            settle(&mut state);
            self.notify();
            return false;
        }
        state.running += 1;
        drop(state);
        let running = Running { background: self, settle: Some(settle) };
        let scope = self.enter_background();
        let result = work();
        drop(scope);
        let succeeded = result.is_ok();
        running.end(result);
        succeeded
    }

    /// Whether jobs should end soon.
    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Acquire)
    }

    /// The calling thread does part of a job until what is returned is dropped: between its steps it lets
    /// writers pass. Of who calls [`run`](Self::run) it is known.
    pub fn enter_background(&self) -> BackgroundScope {
        BackgroundScope::enter(self.scheduler.clone())
    }

    /// Between two steps of a long job: lets writers pass that are late or cannot run, and ends it soon
    /// if the table is closing. Call it each tenth of a millisecond.
    ///
    /// # Errors
    /// `Closed` then.
    pub fn check_cancelled(&self) -> Result<()> {
        yield_point();
        if self.is_stopping() { Err(Error::Closed) } else { Ok(()) }
    }

    /// Tells jobs to end, and waits until none is running. No job begins afterwards.
    pub fn stop(&self) {
        self.stopping.store(true, Release);
        let mut state = self.lock();
        while state.running > 0 {
            self.progress.wait(&mut state);
        }
    }

    /// Refuses all further work. `false` if that had happened before.
    pub fn close(&self) -> bool {
        !self.closed.swap(true, AcqRel)
    }

    /// Refuses work on a table that is closed.
    ///
    /// # Errors
    /// `Closed`.
    pub fn check_open(&self) -> Result<()> {
        if self.closed.load(Acquire) { Err(Error::Closed) } else { Ok(()) }
    }

    /// Refuses writes to a table that is closed or was poisoned.
    ///
    /// # Errors
    /// `Closed`, or `ReadOnly` with the cause.
    pub fn check_writable(&self) -> Result<()> {
        self.check_open()?;
        self.check_sound()
    }

    /// Whether a fault has left the medium in doubt.
    pub fn is_poisoned(&self) -> bool {
        self.poisoned.get().is_some()
    }

    /// Refuses to call a table closed that a fault has left in doubt.
    ///
    /// # Errors
    /// `ReadOnly` with the cause.
    pub fn check_sound(&self) -> Result<()> {
        match self.poisoned.get() {
            Some(cause) => Err(Error::ReadOnly { cause: cause.clone() }),
            None => Ok(()),
        }
    }

    /// From now on the table refuses writes, and says why. Returns the error.
    pub fn poison(&self, doing: &str, error: Error) -> Error {
        let _ = self.poisoned.set(cause(doing, &error));
        self.notify();
        error
    }

    /// As [`poison`](Self::poison) if the error says that something is read-only from now on.
    pub fn poison_if_read_only(&self, doing: &str, error: Error) -> Error {
        if matches!(error, Error::ReadOnly { .. }) { self.poison(doing, error) } else { error }
    }

    /// As [`poison`](Self::poison), unless the error is [transient](Error::is_transient): then
    /// nothing is in doubt, and the same may be tried again.
    pub fn doubt(&self, doing: &str, error: Error) -> Error {
        if error.is_transient() { error } else { self.poison(doing, error) }
    }
}

/// Why a table is read-only: of an error that says so itself its own cause.
fn cause(doing: &str, error: &Error) -> String {
    match error {
        Error::ReadOnly { cause } => format!("{doing}: {cause}"),
        error => format!("{doing}: {error}"),
    }
}

/// A job that runs. Dropped without its end, it has panicked.
struct Running<'a, S, F: FnOnce(&mut S)> {
    background: &'a Background<S>,
    settle: Option<F>,
}

impl<S, F: FnOnce(&mut S)> Running<'_, S, F> {
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
                if is_transient(&error) {
                    background.retry_later(&mut state);
                } else {
                    let _ = background.poisoned.set(cause("background work", &error));
                }
            }
        }
        self.finish(&mut state);
    }

    fn finish(&mut self, state: &mut Shared<S>) {
        if let Some(settle) = self.settle.take() {
            settle(state);
            state.running -= 1;
            self.background.notify();
        }
    }
}

impl<S, F: FnOnce(&mut S)> Drop for Running<'_, S, F> {
    fn drop(&mut self) {
        if self.settle.is_some() {
            let background = self.background;
            let _ = background.poisoned.set("a background job panicked".to_owned());
            self.finish(&mut background.lock());
        }
    }
}

/// Faults after which the work is simply tried again: nothing on the medium is in doubt. A failed
/// write or sync is another matter.
fn is_transient(error: &Error) -> bool {
    error.is_transient()
        || error.is_corruption()
        || matches!(error, Error::Io { operation: "read", .. })
}

/// An engine with background work: what it says of itself, and the waiting that follows from it.
pub trait BackgroundWork {
    /// What is due and under way.
    type State;

    /// Where it is kept.
    fn background(&self) -> &Background<Self::State>;

    /// Whether jobs are queued or running.
    fn is_busy(state: &Self::State) -> bool;

    /// Queues what is due and not queued. Takes the state's lock.
    fn schedule(&self);

    /// Waits for background work while `blocked`; `true` if it had to. A manual scheduler's jobs run
    /// here.
    ///
    /// # Errors
    /// What keeps the background work from succeeding: it was tried again before it is returned.
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
            state = help_or_wait(self, state)?;
        }
        Ok(true)
    }

    /// As [`wait_while`](Self::wait_while), for a writer: counts how long it waited.
    ///
    /// # Errors
    /// The same.
    fn stall_while(
        &self,
        counters: &StallCounters,
        stall: Stall,
        blocked: impl Fn(&Self::State) -> bool,
    ) -> Result<()> {
        let began = Instant::now();
        if self.wait_while(blocked)? {
            counters.add(stall, began.elapsed());
        }
        Ok(())
    }

    /// Runs background work until none is due: none is queued or running, and nothing that is
    /// `unfinished`.
    ///
    /// # Errors
    /// What made a job fail.
    fn drain_jobs(&self, unfinished: impl Fn(&Self::State) -> bool) -> Result<()> {
        let background = self.background();
        background.check_writable()?;
        let failures = background.lock().failures;
        // One job may make the next due only after it has ended: ask again until none is.
        loop {
            self.schedule();
            let has_waited = self.wait_while(|state| unfinished(state) || Self::is_busy(state))?;
            let state = background.lock();
            // A failed job is over, too, and would be due again at once.
            if state.failures > failures
                && let Some(error) = state.error.clone()
            {
                return Err(error);
            }
            if !has_waited {
                return Ok(());
            }
        }
    }
}

/// Runs a background job here, or waits until one has made progress elsewhere.
fn help_or_wait<'s, W: BackgroundWork + ?Sized>(
    work: &'s W,
    mut state: MutexGuard<'s, Shared<W::State>>,
) -> Result<MutexGuard<'s, Shared<W::State>>> {
    let background = work.background();
    if background.scheduler.is_manual() {
        drop(state);
        // Nothing queued although something is due: an attempt failed. Try once more.
        if !background.scheduler.help() {
            work.schedule();
            if !background.scheduler.help() {
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
    background.progress.wait_for(&mut state, LOOK_AGAIN);
    Ok(state)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counts down by one a job; jobs whose number is in `failing` fail once.
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
                background: Background::new(scheduler, state),
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
    fn does_work_end_and_are_waiters_told() {
        for scheduler in [Scheduler::manual(), Scheduler::threads(1)] {
            let work = Countdown::new(scheduler, 5, Vec::new());
            work.schedule();
            assert!(work.wait_while(|state| state.left > 2).unwrap());
            work.drain_jobs(|state| state.left > 0).unwrap();
            assert_eq!(work.background.lock().left, 0);
            assert!(!work.wait_while(|state| state.left > 0).unwrap());
        }
    }

    #[test]
    fn does_a_passing_fault_reach_waiters_and_is_the_work_tried_again() {
        for scheduler in [Scheduler::manual(), Scheduler::threads(1)] {
            let work = Countdown::new(scheduler, 3, vec![(2, read_fault())]);
            assert!(work.drain_jobs(|state| state.left > 0).is_err());
            assert!(work.background.check_writable().is_ok());
            work.drain_jobs(|state| state.left > 0).unwrap();
        }
    }

    #[test]
    fn failed_work_succeeds_without_anybody_who_asks_once_the_fault_is_over() {
        let lacking = || Error::io("create", "x", &std::io::Error::from_raw_os_error(libc::EMFILE));
        let work = Countdown::new(Scheduler::threads(1), 3, vec![(2, lacking()), (2, lacking())]);
        work.background.retry_with(Arc::downgrade(&work));
        work.schedule();
        let began = Instant::now();
        let mut troubles = Vec::new();
        while work.background.lock().left > 0 {
            troubles.extend(work.background.trouble());
            assert!(began.elapsed() < Duration::from_secs(20), "it was not tried again");
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(began.elapsed() >= 3 * FIRST_RETRY, "the second delay is twice the first");
        assert!(troubles.iter().any(|line| line.contains("cannot create x")), "{troubles:?}");
        assert_eq!(work.background.trouble(), None);
        let counters = work.background.counters();
        assert_eq!(counters.map(|(_, count)| count), [2, 0, 0]);
    }

    #[test]
    fn do_doubt_and_panics_poison() {
        let doubtful = Error::io("sync", "x", &std::io::Error::other("gone"));
        for error in [doubtful, Error::Invalid("panic".into())] {
            let work = Countdown::new(Scheduler::threads(1), 3, vec![(3, error)]);
            work.schedule();
            while !work.background.is_poisoned() {
                std::thread::yield_now();
            }
            let refused = work.background.check_writable();
            assert!(matches!(refused, Err(Error::ReadOnly { .. })), "{refused:?}");
            work.background.stop();
            assert!(!work.background.lock().queued, "the job's queueing was not undone");
        }
    }

    #[test]
    fn does_no_job_begin_after_the_stop() {
        let work = Countdown::new(Scheduler::manual(), 3, Vec::new());
        work.schedule();
        work.background.stop();
        assert!(work.background.scheduler.help());
        let state = work.background.lock();
        assert_eq!((state.left, state.queued), (3, false));
        drop(state);
        assert!(work.background.close() && !work.background.close());
        assert!(matches!(work.background.check_writable(), Err(Error::Closed)));
    }
}
