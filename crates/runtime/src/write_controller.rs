//! Back-pressure: writers slow down in proportion to the debt of background work.
//!
//! ```text
//!   what 16 KiB written owe
//!  100 ms ┤                      │ stop
//!         │                     ╱│
//!    2 ms ┤                   ╱  │
//!       0 ┼──────────────╱‾‾     │
//!         0           slow      full        debt
//! ```
//!
//! So a burst meets a slope and not a wall: of the share `s` that is owed, 16 KiB owe 2 ms · s / (1.02 - s).
//! Near its end it is so steep that a write buffer's last third takes seconds to fill, and a wall is met
//! only by who has been slowed for that long. The engine says how much it owes, as a share of what it
//! takes before writers must stop; and whether the next write buffer can only be begun once one is
//! flushed, in which case the last third of the present one is a slope, too.
//!
//! What writes owe is gathered and paid in pauses of 2.5 ms: a sleep shorter than a tenth of a millisecond
//! takes the system longer than was asked for, so that small debts would slow writers far too much; and
//! the fewer writes pause, the fewer are late. Large writes owe that much so soon that one in a thousand
//! would pause. So one in two thousand may, those that did not before count for the next, and the fewer may, the longer
//! is what writes owe gathered, up to the longest pause that an engine sets, which is what one write takes: pauses come
//! to be as long as they must be. Debt comes and goes with each write buffer: what counts are the
//! last million writes, not the last two thousand. The longer pauses are, the more readers meet of the work that goes on
//! meanwhile: 3 ms at most if nothing is set.
//!
//! Where the last million owe so much that even the longest pauses would take one write in a thousand, with those that are
//! late for other reasons, pauses can't be seldom: then they are of 0.2 ms, and many, so that those writes wait no longer
//! than they must. Of a table just opened it is the writes so far, once they are enough to tell.
//!
//! The system may be late to end one, by several milliseconds where other threads want its processors: by how much is
//! told, too, and writers have paid with it for what they owe next.
//!
//! Source: ours; LevelDB delays writers by 1 ms each in the same place.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64};
use std::time::Duration;

use siltstone_engine::stats::Stalls;

use crate::Scheduler;
use crate::late::{self, Late};

/// No write waits longer for back-pressure, if the engine sets nothing else.
const LONGEST_PAUSE: Duration = Duration::from_millis(3);
/// What is owed is paid once it is this much, if pauses are seldom.
const PAUSE_FROM: Duration = Duration::from_micros(2500);
/// They are while no more than one in so many writes has paused.
const SELDOM: i32 = 2000;
/// They are not if more than one in so many would pause, though each took the longest pause: with the writes that are
/// late for other reasons that is one in a thousand.
const OFTEN: u64 = 1400;
/// What is owed is paid once it is this much, if pauses are not seldom in any case.
const OFTEN_PAUSE: Duration = Duration::from_micros(200);
/// The writes that count as the last: two to the power of this.
const LAST_SHIFT: u32 = 20;
/// So many tell what a load owes: two to the power of this.
const TELLING_SHIFT: u32 = 16;
/// So many pauses may come sooner, when none has come for long; and so many too many are remembered.
const AT_ONCE: i32 = 512;
/// While so many may come sooner, pauses are shortest.
const EASE: i32 = 256;
/// The most that is paid ahead by pauses that ended late.
const MOST_AHEAD: Duration = Duration::from_millis(20);
/// What a byte owes in the middle of the slope: 2 ms for 16 KiB.
const PRICE_NS: f64 = 2e6 / (16 << 10) as f64;
/// How far behind the end of the slope it would be infinitely steep.
const STEEP: f64 = 0.02;
const FULL: u32 = 1_000_000;
/// From this fill of a write buffer on writers wait for the flush of the one before.
const SLOW_AT_FILL: f64 = 0.65;

/// How much writers are to wait.
#[derive(Debug)]
pub struct WriteController {
    longest: Duration,
    /// Millionths: 0 not at all, all of it: stop.
    millionths: AtomicU32,
    is_flush_behind: AtomicBool,
    /// Bytes that have been charged.
    charged_bytes: AtomicU64,
    /// What writes owe by now, in nanoseconds.
    owed: AtomicU64,
    /// What they have paid ahead, in nanoseconds.
    ahead: AtomicU64,
    /// Writes that no pause was counted against; below zero, those that pauses have had too many of.
    unpaused: AtomicI32,
    /// What the last million writes owe, in nanoseconds: a write counts the less, the longer it is ago.
    owed_last: AtomicU64,
    /// What they may owe for pauses to be seldom, counted likewise.
    allowed_last: AtomicU64,
}

impl Default for WriteController {
    fn default() -> Self {
        Self::with_longest(LONGEST_PAUSE)
    }
}

impl WriteController {
    /// Without debt; no pause will be longer than this.
    pub fn with_longest(longest: Duration) -> Self {
        WriteController {
            longest,
            millionths: AtomicU32::default(),
            is_flush_behind: AtomicBool::default(),
            charged_bytes: AtomicU64::default(),
            owed: AtomicU64::default(),
            ahead: AtomicU64::default(),
            unpaused: AtomicI32::default(),
            owed_last: AtomicU64::default(),
            allowed_last: AtomicU64::default(),
        }
    }

    /// Sets the debt, as a share of what makes writers stop.
    pub fn set(&self, share: f64) {
        self.millionths.store((share.clamp(0.0, 1.0) * f64::from(FULL)) as u32, Relaxed);
    }

    /// Sets whether the next write buffer must wait for a flush.
    pub fn set_memtables_exhausted(&self, is_behind: bool) {
        self.is_flush_behind.store(is_behind, Relaxed);
    }

    /// Whether writers must stop.
    pub fn is_full(&self) -> bool {
        self.millionths.load(Relaxed) >= FULL
    }

    /// The pause that is due now: the bytes `written` since the last call owe in proportion to the
    /// debt, when the write buffer has been filled to the share `fill`. `None`, nearly always: write on.
    /// One writer at a time. Cost: a few loads and a store.
    pub fn due(&self, written: u64, fill: f64) -> Option<Duration> {
        let mut millionths = self.millionths.load(Relaxed);
        if self.is_flush_behind.load(Relaxed) {
            let share = ((fill - SLOW_AT_FILL) / (1.0 - SLOW_AT_FILL)).clamp(0.0, 1.0);
            millionths = millionths.max((share * f64::from(FULL)) as u32);
        }
        let bytes = written.saturating_sub(self.charged_bytes.load(Relaxed));
        self.charged_bytes.store(written, Relaxed);
        let unpaused = (self.unpaused.load(Relaxed) + 1).min(AT_ONCE * SELDOM);
        self.unpaused.store(unpaused, Relaxed);
        let share = f64::from(millionths) / f64::from(FULL);
        // A float's conversion saturates, so nothing overflows.
        let charge = (bytes as f64 * PRICE_NS * share / (1.0 + STEEP - share)) as u64;
        let is_often = self.note_owed(charge);
        if millionths == 0 {
            return None;
        }
        let ahead = self.ahead.load(Relaxed);
        let paid = ahead.min(charge);
        self.ahead.store(ahead - paid, Relaxed);
        let charge = charge - paid;
        let owed = self.owed.load(Relaxed).saturating_add(charge);
        let pause = Duration::from_nanos(owed);
        let from = if is_often { OFTEN_PAUSE } else { self.pause_from(unpaused) };
        if pause < from {
            self.owed.store(owed, Relaxed);
            return None;
        }
        self.owed.store(0, Relaxed);
        self.unpaused.store((unpaused - SELDOM).max(-AT_ONCE * SELDOM), Relaxed);
        Some(pause.min(self.longest))
    }

    /// Notes what a write owes; whether more than one in `OFTEN` would pause, by whatever pauses.
    fn note_owed(&self, owed: u64) -> bool {
        let longest = self.longest.as_nanos() as u64;
        let allowed = longest / OFTEN;
        let owed_last = count_in(&self.owed_last, owed.min(longest));
        let allowed_last = count_in(&self.allowed_last, allowed);
        allowed_last >= allowed << TELLING_SHIFT && owed_last > allowed_last
    }

    /// What must be owed for a pause: the less, the more pauses may come sooner.
    fn pause_from(&self, unpaused: i32) -> Duration {
        let spare = f64::from(unpaused.max(0)) / f64::from(EASE * SELDOM);
        let more = self.longest.saturating_sub(PAUSE_FROM);
        self.longest.saturating_sub(more.mul_f64(spare.min(1.0)))
    }

    /// Takes a pause that is due and counts it. Call it without locks that a job takes.
    pub fn take(&self, pause: Duration, scheduler: &Scheduler, counters: &StallCounters) {
        let (took, late) = late::timed(pause, || {
            // With a manual scheduler a pause would be time lost: work off the debt instead.
            if !scheduler.help() {
                scheduler.sleep(pause);
            }
        });
        // A run that is to be replayed must not depend on how late a system was.
        if !scheduler.is_manual() {
            self.pay_ahead(late.all);
        }
        counters.add_pause(took, late);
    }

    fn pay_ahead(&self, late: Duration) {
        let ahead = self.ahead.load(Relaxed).saturating_add(late.as_nanos() as u64);
        self.ahead.store(ahead.min(MOST_AHEAD.as_nanos() as u64), Relaxed);
    }
}

/// Adds what is of one write more to what is of the last million.
fn count_in(last: &AtomicU64, of_one: u64) -> u64 {
    let before = last.load(Relaxed);
    let now = before - (before >> LAST_SHIFT) + of_one;
    last.store(now, Relaxed);
    now
}

/// What writers wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stall {
    /// Back-pressure.
    Slowdown,
    /// A write buffer that is not yet flushed.
    Flush,
    /// Background work that is too far behind.
    Compaction,
}

/// How long writers have waited, by cause.
#[derive(Debug, Default)]
pub struct StallCounters {
    micros: [AtomicU64; 3],
    longest_us: AtomicU64,
    longest_own_us: AtomicU64,
    late_us: AtomicU64,
}

impl StallCounters {
    /// Counts a wait.
    pub fn add(&self, stall: Stall, waited: Duration) {
        self.add_wait(stall, waited, waited);
    }

    fn add_wait(&self, stall: Stall, waited: Duration, own: Duration) {
        let micros = waited.as_micros() as u64;
        self.micros[stall as usize].fetch_add(micros, Relaxed);
        self.longest_us.fetch_max(micros, Relaxed);
        self.longest_own_us.fetch_max(own.as_micros() as u64, Relaxed);
    }

    /// Counts a pause, which may have ended late.
    fn add_pause(&self, took: Duration, late: Late) {
        self.add_wait(Stall::Slowdown, took, took.saturating_sub(late.of_clock));
        self.late_us.fetch_max(late.all.as_micros() as u64, Relaxed);
    }

    /// The waits so far.
    pub fn get(&self) -> Stalls {
        let [insert, flush, compaction] = &self.micros;
        Stalls {
            insert_us: insert.load(Relaxed),
            flush_us: flush.load(Relaxed),
            compaction_us: compaction.load(Relaxed),
            longest_us: self.longest_us.load(Relaxed),
            longest_own_us: self.longest_own_us.load(Relaxed),
            late_us: self.late_us.load(Relaxed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What `written` bytes, a KiB at a time, cost in pauses, and how many there are.
    fn paid(pressure: &WriteController, from: u64, written: u64, fill: f64) -> (Duration, u32) {
        let pauses = (0..written >> 10).filter_map(|kib| pressure.due(from + (kib << 10), fill));
        pauses.fold((Duration::ZERO, 0), |(sum, n), pause| {
            assert!(pause >= PAUSE_FROM && pause <= LONGEST_PAUSE);
            (sum + pause, n + 1)
        })
    }

    #[test]
    fn do_writers_pay_in_proportion_to_the_debt_in_few_pauses() {
        let pressure = WriteController::default();
        let mib = 1 << 20;
        assert_eq!(paid(&pressure, 0, mib, 1.0), (Duration::ZERO, 0));
        // What was written before the debt owes nothing.
        pressure.set(0.51);
        assert_eq!(pressure.due(mib, 0.0), None);
        let middle = 64 * Duration::from_millis(2);
        let (paid_in_the_middle, pauses) = paid(&pressure, mib, mib, 0.0);
        assert!(paid_in_the_middle > middle * 9 / 10 && paid_in_the_middle <= middle);
        assert!(pauses <= 52, "{pauses}");
        assert!(!pressure.is_full());
        pressure.set(0.17);
        let (a_fifth, _) = paid(&pressure, 2 * mib, mib, 0.0);
        assert!(a_fifth > middle / 6 && a_fifth < middle / 4, "{a_fifth:?}");

        let full = WriteController::default();
        full.set(1.0);
        assert!(paid(&full, 0, mib, 0.0).0 > 20 * middle);
        assert!(full.is_full());

        pressure.set(0.0);
        pressure.set_memtables_exhausted(true);
        assert_eq!(paid(&pressure, 4 * mib, mib, 0.6).1, 0);
        assert!(paid(&pressure, 5 * mib, mib, 0.9).0 > middle / 2);
    }

    /// Writes of a KiB each, which owe in turn, with the pauses that they take.
    struct Load {
        pressure: WriteController,
        written: u64,
    }

    impl Load {
        const LONGEST: Duration = Duration::from_millis(6);

        fn new() -> Self {
            Load { pressure: WriteController::with_longest(Self::LONGEST), written: 0 }
        }

        /// The pauses of so many writes, each of which owes so much.
        fn write(&mut self, writes: u64, owed: Duration) -> Vec<Duration> {
            let price = 1024.0 * PRICE_NS;
            let ratio = owed.as_nanos() as f64 / price;
            self.pressure.set(ratio * (1.0 + STEEP) / (1.0 + ratio));
            let due = (0..writes).filter_map(|_| {
                self.written += 1024;
                self.pressure.due(self.written, 0.0)
            });
            due.collect()
        }

        /// The pauses of a million writes, each of which owes so much, as so many more have before.
        fn settled(&mut self, owed: Duration) -> Vec<Duration> {
            self.write(4_000_000, owed);
            self.write(1_000_000, owed)
        }

        /// Enough that as many pauses may come at once as ever.
        fn write_at_ease(&mut self) {
            let writes = (2 * AT_ONCE * SELDOM) as u64;
            assert_eq!(self.write(writes, Duration::ZERO), []);
        }
    }

    fn is_about(pause: Duration, expected: Duration) -> bool {
        pause >= expected && pause < expected + Duration::from_micros(100)
    }

    #[test]
    fn are_pauses_short_while_they_are_seldom_and_longest_while_they_are_not() {
        let (seldom, often) = (Duration::from_nanos(300), Duration::from_micros(5));
        let mut load = Load::new();
        load.write_at_ease();
        let short = load.write(1_000_000, seldom);
        assert!((115..=120).contains(&short.len()), "{}", short.len());
        assert!(short.iter().all(|&pause| is_about(pause, PAUSE_FROM)), "{short:?}");
        // Now they are not seldom: some hundred may come before the rest is longest.
        let pauses = load.write(1_000_000, often);
        let before = pauses.iter().position(|&pause| is_about(pause, Load::LONGEST)).unwrap();
        assert!((AT_ONCE / 2..2 * AT_ONCE).contains(&(before as i32)), "{before}");
        assert!(pauses[before..].iter().all(|&pause| is_about(pause, Load::LONGEST)));
        let first = pauses.iter().position(|&pause| !is_about(pause, PAUSE_FROM)).unwrap();
        assert!((first as i32) >= AT_ONCE - EASE, "{first}");
        assert!(pauses.is_sorted_by(|a, b| *a <= *b + Duration::from_micros(100)), "{pauses:?}");
    }

    #[test]
    fn are_pauses_as_long_as_they_must_be_for_one_write_in_two_thousand() {
        let mut load = Load::new();
        // 4 ms for two thousand writes.
        let pauses = load.settled(Duration::from_micros(2));
        let allowed = 1_000_000 / SELDOM as usize;
        assert!((allowed - 5..=allowed + 5).contains(&pauses.len()), "{}", pauses.len());
        assert!(
            pauses.iter().all(|&pause| is_about(pause, Duration::from_micros(3950))),
            "{pauses:?}"
        );
    }

    #[test]
    fn are_pauses_short_where_even_the_longest_would_be_too_many() {
        let mut load = Load::new();
        // One write in 667 would pause, however long pauses are.
        let owed = Duration::from_micros(9);
        let pauses = load.settled(owed);
        assert!(pauses.iter().all(|&pause| is_about(pause, OFTEN_PAUSE)), "{pauses:?}");
        let paid: Duration = pauses.iter().sum();
        assert!(paid > 990_000 * owed && paid < 1_010_000 * owed, "{paid:?}");
        // One in 1,500: those that pause are few again.
        let pauses = load.settled(Duration::from_micros(4));
        assert!(pauses.iter().all(|&pause| is_about(pause, Load::LONGEST)), "{pauses:?}");
    }

    #[test]
    fn are_pauses_short_soon_if_a_load_owes_too_much_from_its_beginning() {
        let mut load = Load::new();
        load.write(100_000, Duration::from_micros(9));
        let pauses = load.write(100_000, Duration::from_micros(9));
        let long = pauses.iter().filter(|&&pause| !is_about(pause, OFTEN_PAUSE)).count();
        assert!(long <= 5, "{long} of {}", pauses.len());
    }

    #[test]
    fn are_pauses_that_were_too_many_remembered_while_debt_comes_and_goes() {
        let mut load = Load::new();
        for round in 0..30 {
            // On the average more than one write in two thousand pauses, even by the longest.
            let much = load.write(100_000, Duration::from_micros(6));
            let little = load.write(100_000, Duration::from_nanos(300));
            let are_longest =
                much.iter().chain(&little).all(|&pause| is_about(pause, Load::LONGEST));
            assert!(round < 10 || are_longest, "{round}: {much:?}, {little:?}");
        }
    }

    #[test]
    fn does_a_write_buffer_take_seconds_to_fill_while_the_one_before_is_flushed() {
        let pressure = WriteController::default();
        pressure.set_memtables_exhausted(true);
        for (piece, seconds) in [(100, 4), (1000, 3), (10_000, 1)] {
            let buffer = 32 << 20;
            let start = 1 << 40;
            pressure.due(start, 0.0);
            let due = |written| pressure.due(start + written, written as f64 / buffer as f64);
            let paid: Duration = (0..buffer).step_by(piece).filter_map(due).sum();
            assert!(paid > Duration::from_secs(seconds), "in pieces of {piece}: {paid:?}");
        }
    }

    #[test]
    fn is_no_write_paused_for_all_that_a_huge_one_owes() {
        let pressure = WriteController::default();
        pressure.set(1.0);
        assert_eq!(pressure.due(1 << 40, 0.0), Some(LONGEST_PAUSE));
        assert_eq!(pressure.due((1 << 40) + 100, 0.0), None);
    }

    #[test]
    fn is_what_the_system_adds_to_a_pause_paid_ahead() {
        let pauses_of_a_mib = |late| {
            let pressure = WriteController::default();
            pressure.set(0.51);
            pressure.pay_ahead(late);
            paid(&pressure, 0, 1 << 20, 0.0).1
        };
        let (none, some, most) = (Duration::ZERO, 4 * LONGEST_PAUSE, 1000 * MOST_AHEAD);
        let owed = pauses_of_a_mib(none);
        assert_eq!(owed - pauses_of_a_mib(some), 4);
        assert_eq!(owed - pauses_of_a_mib(most), 7, "at most so much");
        let manual = WriteController::default();
        manual.take(Duration::ZERO, &Scheduler::manual(), &StallCounters::default());
        assert_eq!(manual.ahead.load(Relaxed), 0);
    }

    #[test]
    fn is_a_pause_taken_and_counted() {
        let counters = StallCounters::default();
        WriteController::default().take(LONGEST_PAUSE, &Scheduler::threads(1), &counters);
        assert!(u128::from(counters.get().insert_us) >= LONGEST_PAUSE.as_micros());
    }

    #[test]
    fn is_what_the_system_adds_to_a_pause_told() {
        let counters = StallCounters::default();
        let ms = Duration::from_millis;
        counters.add_pause(ms(11), Late { all: ms(8), of_clock: ms(6) });
        counters.add_pause(ms(7), Late { all: ms(4), of_clock: ms(1) });
        let stalls = counters.get();
        assert_eq!((stalls.insert_us, stalls.longest_us, stalls.late_us), (18_000, 11_000, 8_000));
        assert_eq!(stalls.longest_own_us, 6_000);
        // A wait for a job is the engine's whole.
        counters.add(Stall::Flush, ms(9));
        assert_eq!(counters.get().longest_own_us, 9_000);
    }

    #[test]
    fn are_waits_kept_apart() {
        let counters = StallCounters::default();
        counters.add(Stall::Flush, Duration::from_micros(7));
        counters.add(Stall::Compaction, Duration::from_micros(2));
        counters.add(Stall::Flush, Duration::from_micros(3));
        let stalls = counters.get();
        assert_eq!((stalls.insert_us, stalls.flush_us), (0, 10));
        assert_eq!((stalls.compaction_us, stalls.longest_us), (2, 7));
    }
}
