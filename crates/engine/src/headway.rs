//! Whether the write that is under way gets on, and what background work does if it does not.
//!
//! ```text
//!   number   even: no write is under way    odd: one is, and the next one will have the next odd number
//!
//!   a job between two steps: odd, and the same as a step ago ── the writer does not run ──▶ sleep, look again
//! ```
//!
//! A writer that never waits is set aside by the system all the same, in the middle of a write, at a tick of
//! its clock: its share of the processors is used up. Then each thread beside it may run for some
//! ticks, so that of a write of a microsecond one in some thousands takes 8 to 16 ms, as long as the jobs
//! of background work together. No pause of back-pressure is that long. So jobs look between two steps
//! whether the writer gets on, and sleep while it does not: the system then has nobody else to run. That
//! it does not takes two looks to know: to sleep for each write that takes ten microseconds would cost jobs
//! a tenth of their time, and writers would wait for them.
//!
//! A writer that waits on purpose, for room, for the medium or for its turn, says so ([`UnderWay::aside`]):
//! jobs are what it waits for. One that does not come back for other reasons (other programs, a fault of a page) does not
//! hold up background work for long: a write is waited for once, and for some milliseconds.
//!
//! Invariant: the number is odd only while a write is under way that does not wait for a job.
//!
//! Source: ours.

use std::cell::Cell;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// A write that runs is over within this time, nearly always.
const RUNS: Duration = Duration::from_micros(100);
/// How long a job sleeps before it looks again.
const LOOK_AGAIN: Duration = Duration::from_micros(100);
/// So often at most for one write.
const LOOKS: u32 = 100;

/// Which write of a table is under way; of several at once, the first.
#[derive(Debug, Default)]
pub struct Headway {
    number: AtomicU64,
    /// The write that jobs wait for no more.
    given_up: AtomicU64,
}

/// What a job saw when it looked last.
#[derive(Debug, Default)]
pub(crate) struct Sight {
    number: u64,
    at: Option<Instant>,
}

/// A write that is under way until this is dropped, unless another was before it.
pub struct UnderWay<'a> {
    headway: &'a Headway,
    is_told: Cell<bool>,
}

impl Headway {
    /// A write begins. Cost: a compare-and-swap, and a store at its end.
    pub fn begin(&self) -> UnderWay<'_> {
        let under_way = UnderWay { headway: self, is_told: Cell::new(false) };
        under_way.go_on();
        under_way
    }

    /// Sleeps while the write is under way that was so when the job looked last; returns how often. Cost: a
    /// load and a look at the clock.
    pub(crate) fn let_pass(&self, last: &mut Sight) -> u32 {
        let number = self.number.load(Relaxed);
        if number.is_multiple_of(2) || number == self.given_up.load(Relaxed) {
            return 0;
        }
        match last.at.filter(|_| last.number == number) {
            None => *last = Sight { number, at: Some(Instant::now()) },
            Some(at) if at.elapsed() >= RUNS => return self.sleep_while_at(number),
            Some(_) => {}
        }
        0
    }

    fn sleep_while_at(&self, number: u64) -> u32 {
        let mut looks = 0;
        while self.number.load(Relaxed) == number {
            if looks == LOOKS {
                self.given_up.store(number, Relaxed);
                break;
            }
            std::thread::sleep(LOOK_AGAIN);
            looks += 1;
        }
        looks
    }
}

impl UnderWay<'_> {
    /// From now on the write is waited for, if none is.
    pub fn go_on(&self) {
        let number = &self.headway.number;
        let now = number.load(Relaxed);
        if now.is_multiple_of(2) && !self.is_told.get() {
            let is_told = number.compare_exchange(now, now + 1, Relaxed, Relaxed).is_ok();
            self.is_told.set(is_told);
        }
    }

    /// From now on the write is not waited for.
    pub fn stop(&self) {
        if self.is_told.replace(false) {
            // While the number is odd only who made it so changes it.
            self.headway.number.store(self.headway.number.load(Relaxed) + 1, Relaxed);
        }
    }

    /// Waits by `wait`, for jobs or for the medium, amid a write.
    pub fn aside<T>(&self, wait: impl FnOnce() -> T) -> T {
        self.stop();
        let result = wait();
        self.go_on();
        result
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.stop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A job's looks, a step apart each.
    #[derive(Default)]
    struct Job(Sight);

    impl Job {
        fn ends_a_step(&mut self, headway: &Headway) -> u32 {
            std::thread::sleep(RUNS);
            headway.let_pass(&mut self.0)
        }
    }

    #[test]
    fn do_jobs_wait_for_a_write_that_stands_still_and_for_it_alone() {
        let (headway, mut job) = (Headway::default(), Job::default());
        assert_eq!(job.ends_a_step(&headway), 0, "no write is under way");
        let first = headway.begin();
        assert_eq!(first.aside(|| job.ends_a_step(&headway)), 0, "it waits for the job");
        assert_eq!(job.ends_a_step(&headway), 0, "it may have begun just now");
        // A second at once is not told of, and ends nothing that is not its own.
        drop(headway.begin());
        assert_eq!(job.ends_a_step(&headway), LOOKS, "it stands still, but work must go on");
        assert_eq!(job.ends_a_step(&headway), 0, "a write is waited for once");
        drop(first);
        assert_eq!(job.ends_a_step(&headway), 0, "it is over");
        let _second = headway.begin();
        assert_eq!(job.ends_a_step(&headway), 0, "it is another");
        assert_eq!(job.ends_a_step(&headway), LOOKS, "that of another was given up");
    }

    #[test]
    fn does_a_second_write_at_once_not_hide_the_first() {
        let (headway, mut job) = (Headway::default(), Job::default());
        let _first = headway.begin();
        let _second = headway.begin();
        assert_eq!((job.ends_a_step(&headway), job.ends_a_step(&headway)), (0, LOOKS));
    }

    #[test]
    fn do_short_steps_tell_nothing() {
        let (headway, mut last) = (Headway::default(), Sight::default());
        let _write = headway.begin();
        let began = Instant::now();
        while headway.let_pass(&mut last) == 0 {}
        assert!(began.elapsed() >= RUNS);
    }

    #[test]
    fn do_jobs_go_on_once_the_write_does() {
        let headway = Headway::default();
        let (begun, is_begun) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let write = headway.begin();
                begun.send(()).unwrap();
                std::thread::sleep(LOOK_AGAIN * 20);
                drop(write);
                let _next = headway.begin();
                std::thread::sleep(LOOK_AGAIN * 20);
            });
            is_begun.recv().unwrap();
            let mut job = Job::default();
            assert_eq!(job.ends_a_step(&headway), 0);
            let looks = job.ends_a_step(&headway);
            assert!(looks > 0 && looks < LOOKS, "{looks}");
        });
    }

    #[test]
    fn do_jobs_not_wait_for_writes_that_follow_one_another() {
        let headway = Headway::default();
        let stop = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(Relaxed) {
                    drop(headway.begin());
                }
            });
            // The writer may be set aside, too: but not each time.
            let mut job = Job::default();
            let looks: Vec<u32> = (0..1000).map(|_| job.ends_a_step(&headway)).collect();
            stop.store(true, Relaxed);
            assert!(looks.iter().filter(|&&looks| looks == 0).count() > 900, "{looks:?}");
        });
    }
}
