//! What a background thread does so that the threads of the user's need not wait for it.
//!
//! * It takes less of a processor that both want (niceness).
//! * It does not push a running thread aside when it wakes (`SCHED_BATCH`). A background thread wakes often,
//!   for each answer of the medium and for each piece of work, and then does what the kernel will not
//!   interrupt for a while, so that who waited for 60 µs of I/O waited for a millisecond of that. In
//!   `siltstone repro run trie-latency` the 99th percentile is 149 to 180 µs with it, 182 to 187 without.
//! * Between two steps of a long job it sleeps while a writer whose pause is over is not yet running
//!   (`Awaited`). A thread that has run for long is in the system's debt; when it wakes, the threads beside
//!   it come first until they have made that up, which takes some
//!   milliseconds (`siltstone repro run write-stalls` tells how many). If all of them sleep, it runs.
//!
//! The first two are each thread's own on Linux, need no rights, and do nothing elsewhere: slower tails,
//! nothing worse.
//!
//! Source: ours; sched(7); I. Stoica, H. Abdel-Wahab, "Earliest Eligible Virtual Deadline First", 1995 (lag).

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// In the system's steps of niceness: about a third of what a thread of the user's gets. Less would starve
/// compactions where every processor is taken, and writers would wait for them after all.
#[cfg(target_os = "linux")]
const NICENESS: i32 = 5;

/// The system takes so long to end a sleep where nothing is in its way.
const IN_TIME: Duration = Duration::from_micros(100);
/// How long a background thread sleeps before it looks again whether the writer is back.
const LOOK_AGAIN: Duration = Duration::from_micros(100);
/// So often at most: a writer that other programs keep from running is not to hold up background work.
const LOOKS: u32 = 100;
/// The time at which nobody is awaited.
const NEVER: u64 = u64::MAX;

/// The calling thread takes less of a processor that others want.
pub fn lower_priority() {
    #[cfg(target_os = "linux")]
    let _ = rustix::process::nice(NICENESS);
}

/// The calling thread waits, when it wakes, until what runs has had its turn.
pub fn set_batch_policy() {
    #[cfg(target_os = "linux")]
    {
        let parameters = libc::sched_param { sched_priority: 0 };
        // SAFETY: the call reads the parameters, which live until it returns, and changes this thread's
        // order among others only.
        let _ = unsafe { libc::sched_setscheduler(0, libc::SCHED_BATCH, &raw const parameters) };
    }
}

/// When the writer that pauses wants to be back. Of several that pause at once the first is awaited; the
/// others may be late.
#[derive(Debug)]
pub(crate) struct Awaited {
    began: Instant,
    /// In nanoseconds since then.
    back: AtomicU64,
}

impl Default for Awaited {
    fn default() -> Self {
        Awaited { began: Instant::now(), back: AtomicU64::new(NEVER) }
    }
}

impl Awaited {
    /// Sleeps, and is awaited when that is over.
    pub(crate) fn sleep(&self, pause: Duration) {
        let back = (self.began.elapsed() + pause).as_nanos() as u64;
        self.back.fetch_min(back, Relaxed);
        std::thread::sleep(pause);
        // If it is not there, another's is.
        let _ = self.back.compare_exchange(back, NEVER, Relaxed, Relaxed);
    }

    /// Sleeps while somebody is late; returns how often. Cost: a load, nearly always.
    pub(crate) fn let_pass(&self) -> u32 {
        let is_late = || {
            let back = self.back.load(Relaxed);
            back != NEVER && Duration::from_nanos(back) + IN_TIME <= self.began.elapsed()
        };
        let mut looks = 0;
        while looks < LOOKS && is_late() {
            std::thread::sleep(LOOK_AGAIN);
            looks += 1;
        }
        looks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn do_jobs_wait_for_a_writer_that_is_late_and_for_nobody_else() {
        let awaited = Awaited::default();
        let now = || awaited.began.elapsed().as_nanos() as u64;
        assert_eq!(awaited.let_pass(), 0, "nobody is awaited");
        awaited.back.store(now() + 3_600_000_000_000, Relaxed);
        assert_eq!(awaited.let_pass(), 0, "it has time");
        awaited.back.store(now(), Relaxed);
        std::thread::sleep(IN_TIME);
        assert_eq!(awaited.let_pass(), LOOKS, "it is late, but work must go on");
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(LOOK_AGAIN * 10);
                awaited.back.store(NEVER, Relaxed);
            });
            assert!(awaited.let_pass() > 0, "it is late, and comes");
        });
    }

    #[test]
    fn is_the_first_awaited_and_nobody_after_it() {
        let awaited = Awaited::default();
        let back_after_a_pause = |other| {
            awaited.back.store(other, Relaxed);
            awaited.sleep(Duration::from_millis(1));
            awaited.back.load(Relaxed)
        };
        assert_eq!(back_after_a_pause(NEVER), NEVER);
        // Who wanted to be back before is awaited still; who wanted to be back after was never.
        assert_eq!(back_after_a_pause(0), 0);
        assert_eq!(back_after_a_pause(NEVER - 1), NEVER);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn is_it_the_thread_alone_that_is_patient() {
        // SAFETY: the call takes no pointer.
        let policy = || unsafe { libc::sched_getscheduler(0) };
        let before = policy();
        std::thread::spawn(move || {
            set_batch_policy();
            assert_eq!(policy(), libc::SCHED_BATCH);
        })
        .join()
        .unwrap();
        assert_eq!(policy(), before);
    }
}
