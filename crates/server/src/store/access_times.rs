//! When a key was last read or written by a client of Redis's protocol: for OBJECT IDLETIME.
//!
//! A table of times that is shared by all databases. The hash of a table and a key leads to a slot,
//! and keys whose hashes lead to one slot share it. So a slot holds the last access of any of its
//! keys, or nothing since the server began, and what OBJECT IDLETIME returns is a lower bound: the
//! key has been idle for at least so long, but for accesses by other protocols.
//!
//! Invariant: memory is fixed, and an access costs one hash and one store without a lock.
//!
//! Source: the documentation of Redis's OBJECT IDLETIME.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Instant;

use xxhash_rust::xxh3::xxh3_64_with_seed;

const SLOTS: usize = 1 << 18;

/// The times of the last accesses: 1 MiB.
pub(crate) struct AccessTimes {
    /// Seconds since `began`.
    slots: Box<[AtomicU32]>,
    seed: u64,
    began: Instant,
}

impl AccessTimes {
    pub(crate) fn new() -> Self {
        AccessTimes {
            slots: (0..SLOTS).map(|_| AtomicU32::new(0)).collect(),
            seed: RandomState::new().hash_one(0),
            began: Instant::now(),
        }
    }

    #[inline]
    fn slot(&self, table: usize, key: &[u8]) -> &AtomicU32 {
        let seed = self.seed.wrapping_add(table as u64);
        &self.slots[xxh3_64_with_seed(key, seed) as usize % SLOTS]
    }

    fn now(&self) -> u32 {
        u32::try_from(self.began.elapsed().as_secs()).unwrap_or(u32::MAX)
    }

    /// Records an access.
    #[inline]
    pub(crate) fn record(&self, table: usize, key: &[u8], now: Instant) {
        let seconds = now.saturating_duration_since(self.began).as_secs();
        self.slot(table, key).store(u32::try_from(seconds).unwrap_or(u32::MAX), Relaxed);
    }

    /// For how many seconds a key has not been accessed, at least.
    pub(crate) fn idle_seconds(&self, table: usize, key: &[u8]) -> u32 {
        self.now().saturating_sub(self.slot(table, key).load(Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn idle_time_of_a_key_ends_with_its_access_only() {
        let began = Instant::now().checked_sub(Duration::from_secs(100)).unwrap();
        let times = AccessTimes { began, ..AccessTimes::new() };
        assert!((100..160).contains(&times.idle_seconds(0, b"a")));
        times.record(0, b"a", Instant::now());
        assert!(times.idle_seconds(0, b"a") < 60);
        assert!(times.idle_seconds(1, b"a") >= 100, "another table's key of that name");
        assert!(times.idle_seconds(0, b"b") >= 100);
    }
}
