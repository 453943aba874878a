//! The time that a device's latencies are taken from.
//!
//! [`RealTime`] makes callers wait, so threads feel the device. [`VirtualTime`] only counts: a run
//! of hours takes seconds and gives the same times on every machine. It stands for the time of whoever
//! is running: one thread plays all clients, always the one that is furthest behind, and moves the
//! clock to that client's time ([`VirtualTime::go_to`]) before it runs its next operation.
//!
//! Source: ours; the loop over clients is the usual discrete event simulation.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

/// Tells and spends the time of a device, from its start.
pub trait DeviceClock: Send + Sync {
    /// The time since the clock's start.
    fn now(&self) -> Duration;

    /// Returns at that time, at once if it has passed.
    fn wait_until(&self, time: Duration);
}

/// The machine's time.
#[derive(Debug, Clone, Copy)]
pub struct RealTime(Instant);

/// Below this a sleep is no longer to the point: the kernel's timers are late by about 50 µs.
const SLEEP_SLACK: Duration = Duration::from_micros(100);

impl RealTime {
    /// Starts now.
    pub fn start() -> Self {
        RealTime(Instant::now())
    }
}

impl DeviceClock for RealTime {
    fn now(&self) -> Duration {
        self.0.elapsed()
    }

    fn wait_until(&self, time: Duration) {
        loop {
            let left = time.saturating_sub(self.now());
            match left.checked_sub(SLEEP_SLACK) {
                _ if left.is_zero() => return,
                Some(long) if !long.is_zero() => thread::sleep(long),
                _ => thread::yield_now(),
            }
        }
    }
}

/// A time that passes only by waiting for the device.
#[derive(Debug, Default)]
pub struct VirtualTime(AtomicU64);

impl VirtualTime {
    /// Stands at zero.
    pub fn start() -> Self {
        VirtualTime::default()
    }

    /// Moves to the time of another client, back or forth.
    pub fn go_to(&self, time: Duration) {
        self.0.store(nanos(time), SeqCst);
    }
}

impl DeviceClock for VirtualTime {
    fn now(&self) -> Duration {
        Duration::from_nanos(self.0.load(SeqCst))
    }

    fn wait_until(&self, time: Duration) {
        self.0.fetch_max(nanos(time), SeqCst);
    }
}

/// 584 years are enough.
fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_moves_time_forward_only_and_real_time_is_spent() {
        let clock = VirtualTime::start();
        clock.wait_until(Duration::from_secs(3600));
        clock.wait_until(Duration::from_secs(1));
        assert_eq!(clock.now(), Duration::from_secs(3600));
        clock.go_to(Duration::from_secs(1));
        assert_eq!(clock.now(), Duration::from_secs(1));

        let (clock, before) = (RealTime::start(), Instant::now());
        clock.wait_until(Duration::from_millis(3));
        assert!(before.elapsed() >= Duration::from_millis(3));
    }
}
