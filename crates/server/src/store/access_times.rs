//! Time of the last access per key by Redis clients, for OBJECT IDLETIME.
//!
//! One table of slots is shared by all databases. A hash of table and key selects the slot, and
//! colliding keys share it. So a slot has the last access of any of its keys, or none since the
//! server started, and OBJECT IDLETIME is a lower bound on the idle time (accesses over other
//! protocols are not counted).
//!
//! Invariant: memory is fixed, and an access costs one hash and one relaxed store.
//!
//! Source: the documentation of Redis's OBJECT IDLETIME.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::{Duration, Instant};

use xxhash_rust::xxh3::xxh3_64_with_seed;

const SLOTS: usize = 1 << 18;
/// The time at which the server started: RESTORE records earlier ones.
const START_S: u32 = 1 << 31;

/// Access times: 1 MiB.
pub(crate) struct AccessTimes {
    /// Seconds; [`START_S`] is `began`.
    slots: Box<[AtomicU32]>,
    seed: u64,
    began: Instant,
}

impl AccessTimes {
    pub(crate) fn new() -> Self {
        AccessTimes {
            slots: (0..SLOTS).map(|_| AtomicU32::new(START_S)).collect(),
            seed: RandomState::new().hash_one(0),
            began: Instant::now(),
        }
    }

    #[inline]
    fn slot(&self, table: usize, key: &[u8]) -> &AtomicU32 {
        let seed = self.seed.wrapping_add(table as u64);
        &self.slots[xxh3_64_with_seed(key, seed) as usize % SLOTS]
    }

    fn seconds(&self, at: Instant) -> u32 {
        let whole = |time: Duration| u32::try_from(time.as_secs()).unwrap_or(u32::MAX);
        match at.checked_duration_since(self.began) {
            Some(after) => START_S.saturating_add(whole(after)),
            None => START_S.saturating_sub(whole(self.began.saturating_duration_since(at))),
        }
    }

    /// Records an access.
    #[inline]
    pub(crate) fn record(&self, table: usize, key: &[u8], now: Instant) {
        self.slot(table, key).store(self.seconds(now), Relaxed);
    }

    /// Lower bound on the seconds since the last access.
    pub(crate) fn idle_seconds(&self, table: usize, key: &[u8]) -> u32 {
        self.seconds(Instant::now()).saturating_sub(self.slot(table, key).load(Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_access_of_the_key_resets_its_idle_time() {
        let began = Instant::now().checked_sub(Duration::from_secs(100)).unwrap();
        let times = AccessTimes { began, ..AccessTimes::new() };
        assert!((100..160).contains(&times.idle_seconds(0, b"a")));
        times.record(0, b"a", Instant::now());
        assert!(times.idle_seconds(0, b"a") < 60);
        assert!(times.idle_seconds(1, b"a") >= 100, "the same key in another table");
        assert!(times.idle_seconds(0, b"b") >= 100);
    }

    #[test]
    fn access_before_the_start_of_the_server_is_recorded() {
        let times = AccessTimes::new();
        let at = Instant::now().checked_sub(Duration::from_secs(1000)).unwrap();
        times.record(0, b"a", at);
        assert!((999..1060).contains(&times.idle_seconds(0, b"a")));
        assert!(times.idle_seconds(0, b"b") < 60);
    }
}
