//! The injected clock. A test controls it to replay a run exactly.
//!
//! # A stopped clock
//! A program that reads several keys for one operation can [stop] the system's clock on its thread,
//! so that nothing expires in between. Background work drops only what has expired on every thread
//! ([`Clock::earliest`]): a key that is still there for one of them can be read, and its expiry
//! changed.
//!
//! ```text
//!   thread    stop ── reads as of t ── resume ── write ── drop of the guard
//!                     key expires at t + 1
//!   compaction            drops what has expired at t, until the guard is dropped
//! ```

use std::cell::Cell;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::Timestamp;

/// The current time, for expiry. It may go backwards; engines must tolerate that.
pub trait Clock: Send + Sync {
    /// Milliseconds since 1970-01-01 UTC.
    fn now(&self) -> Timestamp;

    /// The earliest time that [`now`](Self::now) shows or will show on any thread, for background
    /// work: what has expired then is expired for everybody. A clock made of another one passes on
    /// that of the other.
    fn earliest(&self) -> Timestamp {
        self.now()
    }
}

/// The system clock. It can be [stopped](stop) on a thread.
#[derive(Debug, Default, Clone, Copy)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        millis(unix_time())
    }

    fn earliest(&self) -> Timestamp {
        // Read first: a thread that stops its clock after it has been looked at stops it later.
        let now = millis(running_time());
        if STOPPED.load(Ordering::SeqCst) == 0 {
            return now;
        }
        let holds = holds();
        holds.iter().map(|hold| hold.load(Ordering::SeqCst)).fold(now, Timestamp::min)
    }
}

/// Number of threads that have stopped their clocks.
static STOPPED: AtomicUsize = AtomicUsize::new(0);

/// In a [`Hold`]: none.
const RUNNING: Timestamp = Timestamp::MAX;

/// Times before which threads have not stopped their clocks, or [`RUNNING`].
static HOLDS: Mutex<Vec<Arc<AtomicU64>>> = Mutex::new(Vec::new());

fn holds() -> MutexGuard<'static, Vec<Arc<AtomicU64>>> {
    // Nothing panics while it is locked.
    HOLDS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The entry of a thread in [`HOLDS`].
struct Hold(Arc<AtomicU64>);

impl Hold {
    fn register() -> Self {
        let hold = Arc::new(AtomicU64::new(RUNNING));
        holds().push(hold.clone());
        Hold(hold)
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        holds().retain(|hold| !Arc::ptr_eq(hold, &self.0));
    }
}

thread_local! {
    static STOPPED_AT: Cell<Option<Duration>> = const { Cell::new(None) };
    static HOLD: Hold = Hold::register();
}

fn running_time() -> Duration {
    // A clock before 1970 is wrong: treat nothing as expired.
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

fn millis(time: Duration) -> Timestamp {
    time.as_millis() as Timestamp
}

/// The time of [`SystemClock`] since 1970, in full: that at which this thread has stopped it, or
/// the system's.
pub fn unix_time() -> Duration {
    STOPPED_AT.get().unwrap_or_else(running_time)
}

/// Stops [`SystemClock`] on this thread until the guard resumes it or is dropped. Inside of another
/// guard's life it does nothing. The threads of background work should not stop it.
pub fn stop() -> StoppedClock {
    let is_outer = HOLD.with(|hold| {
        if hold.0.load(Ordering::Relaxed) != RUNNING {
            return false;
        }
        // Before the time is read: `earliest` then shows this one, or one before the other.
        STOPPED.fetch_add(1, Ordering::SeqCst);
        hold.0.store(millis(running_time()), Ordering::SeqCst);
        STOPPED_AT.set(Some(running_time()));
        true
    });
    StoppedClock { is_outer, _thread: PhantomData }
}

/// Keeps [`SystemClock`] stopped on the thread that has [stopped](stop) it.
#[derive(Debug)]
#[must_use = "the clock runs again when this is dropped"]
pub struct StoppedClock {
    is_outer: bool,
    /// It cannot be sent to another thread.
    _thread: PhantomData<*const ()>,
}

impl StoppedClock {
    /// Lets the clock run again. Background work still keeps what had not expired when it was
    /// stopped, until this is dropped: a write may follow from what was read.
    pub fn resume(&self) {
        if self.is_outer {
            STOPPED_AT.set(None);
        }
    }
}

impl Drop for StoppedClock {
    fn drop(&mut self) {
        self.resume();
        if self.is_outer {
            HOLD.with(|hold| hold.0.store(RUNNING, Ordering::SeqCst));
            STOPPED.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

/// A clock that changes only when it is set.
#[derive(Debug, Default)]
pub struct ManualClock(AtomicU64);

impl ManualClock {
    /// A clock that shows `now`.
    pub fn at(now: Timestamp) -> Self {
        ManualClock(AtomicU64::new(now))
    }

    /// Sets the clock, forwards or backwards.
    pub fn set(&self, now: Timestamp) {
        self.0.store(now, Ordering::SeqCst);
    }

    /// Advances the clock by `millis`.
    pub fn advance(&self, millis: u64) {
        self.0.fetch_add(millis, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        self.0.load(Ordering::SeqCst)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEP: Duration = Duration::from_millis(5);

    #[test]
    fn stopped_clock_stands_still_on_its_thread_alone() {
        let stopped = stop();
        let (at, time) = (SystemClock.now(), unix_time());
        std::thread::sleep(STEP);
        assert_eq!((SystemClock.now(), unix_time()), (at, time));
        let inner = stop();
        inner.resume();
        drop(inner);
        assert_eq!(SystemClock.now(), at);
        let elsewhere = || (SystemClock.now(), SystemClock.earliest());
        let (now, earliest) = std::thread::scope(|scope| scope.spawn(elsewhere).join().unwrap());
        assert!(now > at && earliest <= at, "{at} {now} {earliest}");
        drop(stopped);
        assert!(SystemClock.now() > at);
    }

    #[test]
    fn resumed_clock_runs_and_holds_background_work_until_its_guard_goes() {
        std::thread::spawn(|| {
            let stopped = stop();
            let at = SystemClock.now();
            std::thread::sleep(STEP);
            stopped.resume();
            assert!(SystemClock.now() > at && SystemClock.earliest() <= at);
            drop(stopped);
            // Other tests stop it, too, for less than this time.
            let end = std::time::Instant::now() + Duration::from_secs(30);
            while SystemClock.earliest() <= at {
                assert!(std::time::Instant::now() < end, "the clock is still held");
                std::thread::sleep(STEP);
            }
        })
        .join()
        .unwrap();
    }
}
