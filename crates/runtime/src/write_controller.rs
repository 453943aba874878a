//! Write throttling: delays writers in proportion to the backlog of background work.
//!
//! ```text
//!   delay of 16 KiB
//!  100 ms ┤                      │ stop
//!         │                     ╱│
//!    2 ms ┤                   ╱  │
//!       0 ┼──────────────╱‾‾     │
//!         0                      1   backlog s, as a share of the hard limit
//! ```
//!
//! The engine reports its backlog as a share `s` of the hard limit (0: none, 1: writes stop).
//! Writing 16 KiB accrues a delay of 2 ms · s / (1.02 - s), so writers slow down gradually and a
//! hard stop is rare. If no further memtable can be started before one is flushed, the last third
//! of the current memtable accrues delays in the same way.
//!
//! Delays are accumulated until `MIN_DELAY` is due, because shorter sleeps are inaccurate, and then
//! slept by the writer that crosses it, up to the maximum delay. Oversleep is credited to later
//! delays.
//!
//! Compare LevelDB's `MakeRoomForWrite` (1 ms per write above a number of files) and RocksDB's
//! `WriteController`.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use std::time::{Duration, Instant};

use siltstone_engine::WriteStall;
use siltstone_engine::stats::Stalls;

use crate::Scheduler;

/// The delay of a byte in the middle of the curve: 2 ms per 16 KiB.
const PRICE_NS_PER_BYTE: f64 = 2e6 / (16 << 10) as f64;
/// The accumulated delay from which on a writer sleeps.
const MIN_DELAY: Duration = Duration::from_micros(100);
/// The longest delay of one write, unless the engine sets another.
const MAX_DELAY: Duration = Duration::from_millis(3);

/// The distance between the hard limit and the pole of the curve.
const POLE_DISTANCE: f64 = 0.02;
/// The limit of the credit for oversleep.
const MAX_CREDIT: Duration = Duration::from_millis(20);
/// The fill of the current memtable above which writers are delayed while no other can be started.
const SLOWDOWN_FILL: f64 = 0.65;
/// The backlog at the hard limit, in millionths.
const FULL: u32 = 1_000_000;

/// Computes and applies the delays of writers.
#[derive(Debug)]
pub struct WriteController {
    max_delay: Duration,
    /// The backlog in millionths of the hard limit.
    backlog: AtomicU32,
    is_memtables_exhausted: AtomicBool,
    /// The bytes written at the last call of [`delay_for`](Self::delay_for).
    charged_bytes: AtomicU64,
    /// The accumulated delay that is not slept yet.
    debt_ns: AtomicU64,
    /// The oversleep that is not used yet.
    credit_ns: AtomicU64,
}

impl Default for WriteController {
    fn default() -> Self {
        Self::with_max_delay(MAX_DELAY)
    }
}

impl WriteController {
    /// A controller without backlog; no delay will be longer than `max_delay`.
    pub fn with_max_delay(max_delay: Duration) -> Self {
        WriteController {
            max_delay,
            backlog: AtomicU32::default(),
            is_memtables_exhausted: AtomicBool::default(),
            charged_bytes: AtomicU64::default(),
            debt_ns: AtomicU64::default(),
            credit_ns: AtomicU64::default(),
        }
    }

    /// Sets the backlog, as a share of the hard limit.
    pub fn set(&self, share: f64) {
        self.backlog.store((share.clamp(0.0, 1.0) * f64::from(FULL)) as u32, Relaxed);
    }

    /// Sets whether a memtable must be flushed before another can be started.
    pub fn set_memtables_exhausted(&self, is_exhausted: bool) {
        self.is_memtables_exhausted.store(is_exhausted, Relaxed);
    }

    /// Whether the backlog has reached the hard limit, so that writers must stop.
    pub fn is_full(&self) -> bool {
        self.backlog.load(Relaxed) >= FULL
    }

    /// The delay that is due now, if any. `bytes_written` is the total of the table so far, of
    /// which the bytes since the last call are charged; `memtable_fill` is the fill of the current
    /// memtable, from 0 to 1. One writer at a time. Cost: a few loads and a store.
    pub fn delay_for(&self, bytes_written: u64, memtable_fill: f64) -> Option<Duration> {
        let bytes = bytes_written.saturating_sub(self.charged_bytes.load(Relaxed));
        self.charged_bytes.store(bytes_written, Relaxed);
        let share = self.share(memtable_fill);
        if share <= 0.0 {
            return None;
        }
        // The conversion of a float saturates, so nothing overflows.
        let price = PRICE_NS_PER_BYTE * share / (1.0 + POLE_DISTANCE - share);
        let charge_ns = (bytes as f64 * price) as u64;
        let credit_ns = self.credit_ns.load(Relaxed);
        let paid_ns = credit_ns.min(charge_ns);
        self.credit_ns.store(credit_ns - paid_ns, Relaxed);
        let debt_ns = self.debt_ns.load(Relaxed).saturating_add(charge_ns - paid_ns);
        let debt = Duration::from_nanos(debt_ns);
        if debt < MIN_DELAY {
            self.debt_ns.store(debt_ns, Relaxed);
            return None;
        }
        self.debt_ns.store(0, Relaxed);
        Some(debt.min(self.max_delay))
    }

    /// Whether writes accrue delays now.
    pub fn is_throttling(&self, memtable_fill: f64) -> bool {
        self.share(memtable_fill) > 0.0
    }

    /// The backlog, as a share of the hard limit.
    fn share(&self, memtable_fill: f64) -> f64 {
        let share = f64::from(self.backlog.load(Relaxed)) / f64::from(FULL);
        if !self.is_memtables_exhausted.load(Relaxed) {
            return share;
        }
        let excess = (memtable_fill - SLOWDOWN_FILL) / (1.0 - SLOWDOWN_FILL);
        share.max(excess.clamp(0.0, 1.0))
    }

    /// Sleeps for a delay that is due, and counts it. Call it without locks that a job takes.
    pub fn apply_delay(&self, delay: Duration, scheduler: &Scheduler, counters: &StallCounters) {
        let began = Instant::now();
        // With a manual scheduler a sleep would be wasted: reduce the backlog instead.
        if !scheduler.run_one() {
            std::thread::sleep(delay);
        }
        let took = began.elapsed();
        // A replayed run must not depend on how late the system's timers are.
        if !scheduler.is_manual() {
            self.add_credit(took.saturating_sub(delay));
        }
        counters.add(WriteStall::Slowdown, took);
    }

    fn add_credit(&self, oversleep: Duration) {
        let credit_ns = self.credit_ns.load(Relaxed).saturating_add(oversleep.as_nanos() as u64);
        self.credit_ns.store(credit_ns.min(MAX_CREDIT.as_nanos() as u64), Relaxed);
    }
}

/// The time that writers waited, by cause.
#[derive(Debug, Default)]
pub struct StallCounters {
    micros: [AtomicU64; 3],
    longest_us: AtomicU64,
}

impl StallCounters {
    /// Counts a wait.
    pub fn add(&self, stall: WriteStall, waited: Duration) {
        let micros = waited.as_micros() as u64;
        self.micros[stall as usize].fetch_add(micros, Relaxed);
        self.longest_us.fetch_max(micros, Relaxed);
    }

    /// The waits so far.
    pub fn get(&self) -> Stalls {
        let [insert, flush, compaction] = &self.micros;
        Stalls {
            slowdown_us: insert.load(Relaxed),
            flush_us: flush.load(Relaxed),
            compaction_us: compaction.load(Relaxed),
            longest_us: self.longest_us.load(Relaxed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: u64 = 1 << 10;
    const MIB: u64 = 1 << 20;

    /// The delays of `bytes` written in pieces of 1 KiB: their sum and number.
    fn delays(controller: &WriteController, from: u64, bytes: u64, fill: f64) -> (Duration, u32) {
        let pieces = (0..bytes).step_by(KIB as usize);
        let delays = pieces.filter_map(|offset| controller.delay_for(from + offset, fill));
        delays.fold((Duration::ZERO, 0), |(sum, count), delay| {
            assert!(delay >= MIN_DELAY && delay <= MAX_DELAY, "{delay:?}");
            (sum + delay, count + 1)
        })
    }

    #[test]
    fn delay_is_proportional_to_the_backlog() {
        let controller = WriteController::default();
        assert_eq!(delays(&controller, 0, MIB, 1.0), (Duration::ZERO, 0));
        // Bytes written before there was a backlog are not charged.
        assert_eq!(controller.delay_for(MIB, 0.0), None);
        controller.set(0.51);
        assert_eq!(controller.delay_for(MIB, 0.0), None);
        let middle = 64 * Duration::from_millis(2);
        let (sum, count) = delays(&controller, MIB, MIB, 0.0);
        assert!(sum > middle * 9 / 10 && sum <= middle, "{sum:?}");
        // A KiB accrues 125 us, so each is delayed.
        assert!(count > 1000, "{count}");
        assert!(!controller.is_full() && controller.is_throttling(0.0));
        controller.set(0.17);
        let (fifth, _) = delays(&controller, 2 * MIB, MIB, 0.0);
        assert!(fifth > middle / 6 && fifth < middle / 4, "{fifth:?}");
    }

    #[test]
    fn full_backlog_is_50_times_as_slow_as_half() {
        let controller = WriteController::default();
        controller.set(1.0);
        assert!(controller.is_full());
        // The delay of each KiB is cut at the maximum.
        let (sum, count) = delays(&controller, 0, MIB, 0.0);
        assert_eq!(sum, count * MAX_DELAY);
        let unlimited = WriteController::with_max_delay(Duration::MAX);
        unlimited.set(1.0);
        let delay = unlimited.delay_for(16 * KIB, 0.0).unwrap();
        assert!(delay > Duration::from_millis(99) && delay <= Duration::from_millis(100));
    }

    #[test]
    fn small_delays_accumulate_to_the_minimum() {
        let controller = WriteController::default();
        controller.set(0.02);
        // A write of 100 bytes accrues 0.24 us.
        let delays: Vec<_> =
            (1..2000).filter_map(|write| controller.delay_for(write * 100, 0.0)).collect();
        assert!((3..=5).contains(&delays.len()), "{}", delays.len());
        let is_minimal = |delay: &Duration| (MIN_DELAY..MIN_DELAY * 2).contains(delay);
        assert!(delays.iter().all(is_minimal), "{delays:?}");
    }

    #[test]
    fn exhausted_memtables_delay_writes_to_the_last_third_of_the_current_one() {
        let controller = WriteController::default();
        controller.set_memtables_exhausted(true);
        assert_eq!(delays(&controller, 0, MIB, 0.6).1, 0);
        assert!(!controller.is_throttling(0.6) && controller.is_throttling(0.9));
        assert!(delays(&controller, MIB, MIB, 0.9).0 > Duration::from_millis(64));
    }

    #[test]
    fn filling_the_last_memtable_takes_seconds_for_any_write_size() {
        for (bytes, seconds) in [(100, 4), (1000, 3), (10_000, 1)] {
            let controller = WriteController::default();
            controller.set_memtables_exhausted(true);
            let (memtable, start) = (32 * MIB, 1 << 40);
            controller.delay_for(start, 0.0);
            let delay =
                |written| controller.delay_for(start + written, written as f64 / memtable as f64);
            let sum: Duration = (0..memtable).step_by(bytes).filter_map(delay).sum();
            assert!(sum > Duration::from_secs(seconds), "writes of {bytes} bytes: {sum:?}");
        }
    }

    #[test]
    fn huge_write_is_delayed_up_to_the_maximum() {
        let controller = WriteController::default();
        controller.set(1.0);
        assert_eq!(controller.delay_for(1 << 40, 0.0), Some(MAX_DELAY));
        assert_eq!(controller.delay_for((1 << 40) + 1, 0.0), None);
    }

    #[test]
    fn oversleep_is_credited_up_to_a_limit() {
        let sum_after = |oversleep| {
            let controller = WriteController::default();
            controller.set(0.51);
            controller.add_credit(oversleep);
            delays(&controller, 0, MIB, 0.0).0
        };
        let uncredited = sum_after(Duration::ZERO);
        let credit = Duration::from_millis(10);
        let reduction = uncredited - sum_after(credit);
        assert!(reduction > credit * 9 / 10 && reduction < credit * 11 / 10, "{reduction:?}");
        let reduction = uncredited - sum_after(1000 * MAX_CREDIT);
        assert!(reduction < MAX_CREDIT * 11 / 10, "{reduction:?}");
        let manual = WriteController::default();
        manual.apply_delay(Duration::ZERO, &Scheduler::manual(), &StallCounters::default());
        assert_eq!(manual.credit_ns.load(Relaxed), 0);
    }

    #[test]
    fn applied_delay_is_slept_and_counted() {
        let counters = StallCounters::default();
        WriteController::default().apply_delay(MAX_DELAY, &Scheduler::threads(1), &counters);
        assert!(u128::from(counters.get().slowdown_us) >= MAX_DELAY.as_micros());
    }

    #[test]
    fn waits_are_counted_by_cause() {
        let counters = StallCounters::default();
        counters.add(WriteStall::Flush, Duration::from_micros(7));
        counters.add(WriteStall::Compaction, Duration::from_micros(2));
        counters.add(WriteStall::Flush, Duration::from_micros(3));
        let stalls = counters.get();
        assert_eq!((stalls.slowdown_us, stalls.flush_us), (0, 10));
        assert_eq!((stalls.compaction_us, stalls.longest_us), (2, 7));
    }
}
