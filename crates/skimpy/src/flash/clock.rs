//! The clock of a device.
//!
//! [`RealTime`] makes callers wait for the device. [`VirtualTime`] only advances a counter: a run
//! of hours takes seconds and gives the same times on every machine. It is the time of the current
//! client of a discrete event simulation: one thread runs all clients, always the one with the
//! earliest time, and sets the clock to that client's time ([`VirtualTime::set`]) before its next
//! operation.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

/// The time of a device.
pub trait DeviceClock: Send + Sync {
    /// The time since the clock's start.
    fn now(&self) -> Duration;

    /// Waits until `time`; returns at once if it has passed.
    fn wait_until(&self, time: Duration);
}

/// The system's monotonic clock.
#[derive(Debug, Clone, Copy)]
pub struct RealTime(Instant);

/// Shorter sleeps are too inaccurate: the kernel's timers are late by about 50 µs.
const SLEEP_SLACK: Duration = Duration::from_micros(100);

impl RealTime {
    /// A clock that starts now.
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

/// A clock that advances only by waiting for the device.
#[derive(Debug, Default)]
pub struct VirtualTime(AtomicU64);

impl VirtualTime {
    /// A clock at zero.
    pub fn start() -> Self {
        VirtualTime::default()
    }

    /// Sets the time to that of another client, forwards or backwards.
    pub fn set(&self, time: Duration) {
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

/// Saturates after 584 years.
fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn virtual_time_advances_by_waiting_and_real_time_passes() {
        let clock = VirtualTime::start();
        clock.wait_until(Duration::from_secs(3600));
        clock.wait_until(Duration::from_secs(1));
        assert_eq!(clock.now(), Duration::from_secs(3600));
        clock.set(Duration::from_secs(1));
        assert_eq!(clock.now(), Duration::from_secs(1));

        let (clock, before) = (RealTime::start(), Instant::now());
        clock.wait_until(Duration::from_millis(3));
        assert!(before.elapsed() >= Duration::from_millis(3));
    }
}
