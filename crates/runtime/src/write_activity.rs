//! Whether a write is under way on the processor that a job takes, and what the job does then.
//!
//! ```text
//!   processor 0   number   even: no write began here that is not over    odd: one did
//!   processor 1   number   ...
//!
//!   a job between two steps, on processor 0: odd ── the writer does not run, for the job does ──▶ sleep, look again
//! ```
//!
//! A writer that never waits is set aside by the system all the same, in the middle of a write, at a tick of
//! its clock: its share of the processors is used up. Then each thread beside it may run for some
//! ticks, so that of a write of a microsecond one in some thousands takes 8 to 16 ms, as long as the jobs
//! of background work together. No pause of back-pressure is that long. So jobs look between two steps
//! whether a write began on their processor that is not over: whose it is cannot run, for the job does. They
//! sleep until it has; the system then has nobody else to run there. A writer on another processor runs. If the
//! system has moved it amid its write, a job sleeps once for nothing.
//!
//! A writer that waits on purpose, for room, for the medium or for its turn, says so ([`UnderWay::aside`]):
//! jobs are what it waits for. One that does not come back for other reasons (other programs, a fault of a page)
//! does not hold up background work for long: a write is waited for once, and for some milliseconds.
//!
//! Where the system does not tell which processor a thread runs on, nobody waits.
//!
//! Invariant: a number is odd only while a write is under way that does not wait for a job.
//!
//! Source: ours.

use std::cell::Cell;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// How long a job sleeps before it looks again.
const LOOK_AGAIN: Duration = Duration::from_micros(100);
/// So often at most for one write.
const LOOKS: u32 = 100;
/// Processors with the same number up to this share a place: their jobs may sleep for nothing.
const PLACES: usize = 64;

/// The writes of this process, of all its tables.
static WRITES: Headway = Headway::new();

/// A write begins; it is over when what is returned is dropped. Cost: a compare-and-swap, and a store at
/// its end, on a line that this processor has.
pub fn begin() -> UnderWay<'static> {
    WRITES.begin()
}

/// Sleeps while a write stands still for the calling thread. Cost: two loads.
pub fn let_pass() {
    WRITES.let_pass();
}

/// How many writes jobs have been told of so far, and of how many that are not over.
pub fn told() -> (u64, u64) {
    WRITES.told()
}

/// Which processors have a write under way; of several on one, the first.
#[derive(Debug)]
struct Headway {
    places: [Place; PLACES],
}

/// A line of its own, so that a write costs nobody else's.
#[derive(Debug)]
#[repr(align(64))]
struct Place {
    number: AtomicU64,
    /// The write that jobs wait for no more.
    given_up: AtomicU64,
}

/// A write that is under way until this is dropped, unless another was before it.
pub struct UnderWay<'a> {
    headway: &'a Headway,
    /// Where it was told.
    place: Cell<Option<&'a Place>>,
}

impl Headway {
    const fn new() -> Self {
        Headway { places: [const { Place::new() }; PLACES] }
    }

    fn begin(&self) -> UnderWay<'_> {
        let under_way = UnderWay { headway: self, place: Cell::new(None) };
        under_way.go_on();
        under_way
    }

    /// Returns how often it slept.
    fn let_pass(&self) -> u32 {
        self.here().map_or(0, Place::let_pass)
    }

    fn told(&self) -> (u64, u64) {
        let numbers = || self.places.iter().map(|place| place.number.load(Relaxed));
        (numbers().map(|number| number.div_ceil(2)).sum(), numbers().map(|number| number % 2).sum())
    }

    fn here(&self) -> Option<&Place> {
        Some(&self.places[processor()? % PLACES])
    }
}

/// The one that the calling thread runs on now.
fn processor() -> Option<usize> {
    #[cfg(target_os = "linux")]
    return Some(rustix::thread::sched_getcpu());
    #[cfg(not(target_os = "linux"))]
    None
}

impl Place {
    const fn new() -> Self {
        Place { number: AtomicU64::new(0), given_up: AtomicU64::new(0) }
    }

    /// Sleeps while the write is under way that is so now; returns how often.
    fn let_pass(&self) -> u32 {
        let number = self.number.load(Relaxed);
        if number.is_multiple_of(2) || number == self.given_up.load(Relaxed) {
            return 0;
        }
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
    /// From now on the write is waited for, if no other is here.
    pub fn go_on(&self) {
        if self.place.get().is_some() {
            return;
        }
        let Some(place) = self.headway.here() else { return };
        let now = place.number.load(Relaxed);
        if now.is_multiple_of(2)
            && place.number.compare_exchange(now, now + 1, Relaxed, Relaxed).is_ok()
        {
            self.place.set(Some(place));
        }
    }

    /// From now on the write is not waited for.
    pub fn stop(&self) {
        if let Some(place) = self.place.take() {
            // While the number is odd only who made it so changes it.
            place.number.store(place.number.load(Relaxed) + 1, Relaxed);
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

#[cfg(all(test, target_os = "linux"))]
pub(crate) mod tests {
    use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

    use super::*;

    /// Keeps the calling thread on the first processor that it may run on.
    pub(crate) fn stay_on_one_processor() {
        stay_on(processors()[0]);
    }

    fn processors() -> Vec<usize> {
        let allowed = sched_getaffinity(None).expect("a thread may ask where it may run");
        (0..CpuSet::MAX_CPU).filter(|&processor| allowed.is_set(processor)).collect()
    }

    fn stay_on(processor: usize) {
        let mut set = CpuSet::new();
        set.set(processor);
        sched_setaffinity(None, &set).expect("a thread may stay where it may run");
    }

    #[test]
    fn do_jobs_wait_for_a_write_that_stands_still_and_for_it_alone() {
        stay_on_one_processor();
        let headway = Headway::new();
        assert_eq!(headway.let_pass(), 0, "no write is under way");
        let first = headway.begin();
        assert_eq!(first.aside(|| headway.let_pass()), 0, "it waits for the job");
        // A second at once is not told of, and ends nothing that is not its own.
        drop(headway.begin());
        assert_eq!(headway.told(), (2, 1), "the first, twice");
        assert_eq!(headway.let_pass(), LOOKS, "it stands still, but work must go on");
        assert_eq!(headway.let_pass(), 0, "a write is waited for once");
        drop(first);
        assert_eq!(headway.let_pass(), 0, "it is over");
        let _second = headway.begin();
        assert_eq!(headway.let_pass(), LOOKS, "that of another was given up");
    }

    #[test]
    fn do_jobs_not_wait_for_writes_on_other_processors() {
        let processors = processors();
        let headway = Headway::new();
        stay_on(processors[0]);
        let write = headway.begin();
        for &other in processors[1..].iter().filter(|&&other| other % PLACES != processors[0]) {
            stay_on(other);
            assert_eq!(headway.let_pass(), 0, "it runs");
        }
        // It ends where it began, wherever its thread is by now.
        drop(write);
        stay_on(processors[0]);
        assert_eq!((headway.let_pass(), headway.told()), (0, (1, 0)));
    }

    #[test]
    fn do_jobs_go_on_once_the_write_does() {
        stay_on_one_processor();
        let headway = Headway::new();
        let (begun, is_begun) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            // A thread runs where the one runs that began it.
            scope.spawn(|| {
                let write = headway.begin();
                begun.send(()).unwrap();
                std::thread::sleep(LOOK_AGAIN * 20);
                drop(write);
                let _next = headway.begin();
                std::thread::sleep(LOOK_AGAIN * 20);
            });
            is_begun.recv().unwrap();
            let looks = headway.let_pass();
            assert!(looks > 0 && looks < LOOKS, "{looks}");
        });
    }
}
