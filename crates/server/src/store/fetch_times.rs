//! Whether and when a key was last fetched, for memcached's `mg` with flags `h` and `l`.
//!
//! A table of slots, selected by a key's hash, each for one key:
//!
//! ```text
//! 63 .......... 33   32        31 .............. 0
//! rest of the hash   fetched   seconds since the server began
//! ```
//!
//! A colliding key replaces the previous one, which then appears not fetched. So the results are
//! hints, used by clients to refresh frequently read values early. Nothing is stored with a value,
//! and lookups over other protocols are not recorded.
//!
//! Invariant: memory is fixed; only hints depend on it.
//!
//! Source: memcached's `doc/protocol.txt`, "Meta Commands".

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

use xxhash_rust::xxh3::xxh3_64_with_seed;

const SLOTS: usize = 1 << 18;
const FETCHED: u64 = 1 << 32;

/// Slots of one table: 2 MiB.
pub(crate) struct FetchTimes {
    slots: Box<[AtomicU64]>,
    seed: u64,
    began: Instant,
}

/// Fetch state of a key.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct FetchState {
    /// Whether it was fetched since it was stored.
    pub(crate) is_fetched: bool,
    /// Seconds since it was last stored or fetched.
    pub(crate) seconds_ago: u64,
}

impl FetchTimes {
    pub(crate) fn new() -> Self {
        FetchTimes {
            slots: (0..SLOTS).map(|_| AtomicU64::new(0)).collect(),
            seed: RandomState::new().hash_one(0),
            began: Instant::now(),
        }
    }

    /// Slot of a key, and the tag that identifies the key in it.
    #[inline]
    fn slot(&self, key: &[u8]) -> (&AtomicU64, u64) {
        let hash = xxh3_64_with_seed(key, self.seed);
        // Never 0, which marks an empty slot.
        (&self.slots[hash as usize % SLOTS], (hash >> 33).max(1) << 33)
    }

    fn now(&self) -> u64 {
        self.began.elapsed().as_secs() & (FETCHED - 1)
    }

    /// Current fetch state of a key.
    pub(crate) fn of(&self, key: &[u8]) -> FetchState {
        let (slot, tag) = self.slot(key);
        let word = slot.load(Relaxed);
        match word & !(2 * FETCHED - 1) == tag {
            false => FetchState::default(),
            true => FetchState {
                is_fetched: word & FETCHED != 0,
                seconds_ago: self.now().saturating_sub(word & (FETCHED - 1)),
            },
        }
    }

    /// Records that a key is fetched.
    #[inline]
    pub(crate) fn fetch(&self, key: &[u8]) {
        let (slot, tag) = self.slot(key);
        slot.store(tag | FETCHED | self.now(), Relaxed);
    }

    /// Records that a key is stored.
    #[inline]
    pub(crate) fn store(&self, key: &[u8]) {
        let (slot, tag) = self.slot(key);
        slot.store(tag | self.now(), Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_is_fetched_from_its_first_lookup_until_its_next_write() {
        let times = FetchTimes::new();
        assert_eq!(times.of(b"a"), FetchState::default());
        times.store(b"a");
        assert!(!times.of(b"a").is_fetched);
        times.fetch(b"a");
        assert!(times.of(b"a").is_fetched && times.of(b"a").seconds_ago < 5);
        assert!(!times.of(b"b").is_fetched);
        times.store(b"a");
        assert!(!times.of(b"a").is_fetched);
    }
}
