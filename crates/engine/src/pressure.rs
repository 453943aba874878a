//! Back-pressure: writers slow down in proportion to the debt of background work.
//!
//! ```text
//!   pause for 16 KiB written
//!    2 ms ┤                    ╱│ stop
//!         │                 ╱   │
//!       0 ┼──────────────╱      │
//!         0           slow     full        debt
//! ```
//!
//! So a burst meets a slope and not a wall. The engine says how much it owes, as a share of what it
//! takes before writers must stop; and whether the next write buffer can only be begun once one is
//! flushed, in which case the last third of the present one is a slope, too. A pause is short, because
//! it is what one write takes.
//!
//! Source: ours; LevelDB delays writers by 1 ms each in the same place.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use std::time::{Duration, Instant};

use crate::Scheduler;
use crate::stats::Stalls;

/// The longest pause for one stretch of [`PAUSE_EVERY_BYTES`].
const LONGEST_PAUSE: Duration = Duration::from_millis(2);
const PAUSE_EVERY_BYTES: u64 = 16 << 10;
const FULL: u32 = 1_000_000;
/// From this fill of a write buffer on writers wait for the flush of the one before.
const SLOW_AT_FILL: f64 = 0.65;

/// How much writers are to wait.
#[derive(Debug, Default)]
pub struct Pressure {
    /// Millionths: 0 not at all, all of it: stop.
    millionths: AtomicU32,
    is_flush_behind: AtomicBool,
    paused_at: AtomicU64,
}

impl Pressure {
    /// Sets the debt, as a share of what makes writers stop.
    pub fn set(&self, share: f64) {
        self.millionths.store((share.clamp(0.0, 1.0) * f64::from(FULL)) as u32, Relaxed);
    }

    /// Sets whether the next write buffer must wait for a flush.
    pub fn set_flush_behind(&self, is_behind: bool) {
        self.is_flush_behind.store(is_behind, Relaxed);
    }

    /// Whether writers must stop.
    pub fn is_full(&self) -> bool {
        self.millionths.load(Relaxed) >= FULL
    }

    /// The pause that is due now, in proportion to the debt: once every so many of the bytes
    /// `written` so far, when the write buffer has been filled to the share `fill`. `None`, nearly
    /// always: write on. Cost: two loads.
    pub fn due(&self, written: u64, fill: f64) -> Option<Duration> {
        let mut millionths = self.millionths.load(Relaxed);
        if self.is_flush_behind.load(Relaxed) {
            let share = ((fill - SLOW_AT_FILL) / (1.0 - SLOW_AT_FILL)).clamp(0.0, 1.0);
            millionths = millionths.max((share * f64::from(FULL)) as u32);
        }
        let stretch = written / PAUSE_EVERY_BYTES;
        if millionths == 0 || self.paused_at.swap(stretch, Relaxed) == stretch {
            return None;
        }
        Some(LONGEST_PAUSE * millionths / FULL)
    }

    /// Takes a pause that is due and counts it. Call it without locks that a job takes.
    pub fn take(pause: Duration, scheduler: &Scheduler, counters: &StallCounters) {
        let began = Instant::now();
        // With a manual scheduler a pause would be time lost: work off the debt instead.
        if !scheduler.help() {
            std::thread::sleep(pause);
        }
        counters.add(Stall::Insert, began.elapsed());
    }
}

/// What writers wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stall {
    /// Back-pressure.
    Insert,
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
}

impl StallCounters {
    /// Counts a wait.
    pub fn add(&self, stall: Stall, waited: Duration) {
        let micros = waited.as_micros() as u64;
        self.micros[stall as usize].fetch_add(micros, Relaxed);
        self.longest_us.fetch_max(micros, Relaxed);
    }

    /// The waits so far.
    pub fn get(&self) -> Stalls {
        let [insert, flush, compaction] = &self.micros;
        Stalls {
            insert_us: insert.load(Relaxed),
            flush_us: flush.load(Relaxed),
            compaction_us: compaction.load(Relaxed),
            longest_us: self.longest_us.load(Relaxed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn does_the_pause_grow_with_the_debt_and_come_once_a_stretch() {
        let pressure = Pressure::default();
        assert_eq!(pressure.due(1 << 20, 1.0), None);
        pressure.set(0.2);
        assert_eq!(pressure.due(1 << 20, 1.0), Some(LONGEST_PAUSE / 5));
        assert_eq!(pressure.due(1 << 20, 1.0), None);
        assert!(!pressure.is_full());
        pressure.set(7.0);
        assert!(pressure.is_full());
        assert_eq!(pressure.due(2 << 20, 0.0), Some(LONGEST_PAUSE));
        pressure.set(0.0);
        pressure.set_flush_behind(true);
        assert_eq!(pressure.due(3 << 20, 0.6), None);
        assert!(pressure.due(4 << 20, 0.9) >= Some(LONGEST_PAUSE / 2));
        assert!(pressure.due(5 << 20, 1.0) == Some(LONGEST_PAUSE));
    }

    #[test]
    fn is_a_pause_taken_and_counted() {
        let counters = StallCounters::default();
        Pressure::take(LONGEST_PAUSE, &Scheduler::threads(1), &counters);
        assert!(u128::from(counters.get().insert_us) >= LONGEST_PAUSE.as_micros());
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
