//! Whether a key has been written since, for memcached's `cas`.
//!
//! A table of counters, which a key's hash leads to; each write of a key counts its own up. What a
//! client gets as *cas unique* is the counter as it was before the value was read; `cas` compares
//! under the key's lock. A counter is shared by all keys that lead to it, so `cas` may answer EXISTS
//! although it was another key that was written; never the other way round. With 2^20 counters that
//! is a chance of one in a million for each write in between.
//!
//! Nothing is stored with a value, so it stays what it is over every protocol, and writes over all of
//! them count. Counters begin at a number drawn anew by each server: what was read before a restart
//! does not match after it.
//!
//! Invariant: a counter goes up behind the write, and the writer holds the key's lock over both.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering::AcqRel, Ordering::Acquire};

use xxhash_rust::xxh3::xxh3_64_with_seed;

const COUNTERS: usize = 1 << 20;

/// The counters of one table: 8 MiB.
pub(crate) struct Versions {
    counters: Box<[AtomicU64]>,
    seed: u64,
    first: u64,
}

impl Versions {
    pub(crate) fn new() -> Self {
        let random = RandomState::new();
        Versions {
            counters: (0..COUNTERS).map(|_| AtomicU64::new(0)).collect(),
            seed: random.hash_one(0),
            // Never 0, which clients take for none; no counter comes near 2^62.
            first: (random.hash_one(1) >> 2).max(1),
        }
    }

    #[inline]
    fn counter(&self, key: &[u8]) -> &AtomicU64 {
        &self.counters[xxh3_64_with_seed(key, self.seed) as usize % COUNTERS]
    }

    /// The version of a key; to be asked before its value is read.
    #[inline]
    pub(crate) fn of(&self, key: &[u8]) -> u64 {
        self.first + self.counter(key).load(Acquire)
    }

    /// Notes that a key was written.
    #[inline]
    pub(crate) fn count(&self, key: &[u8]) {
        self.counter(key).fetch_add(1, AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn does_a_write_change_the_version_of_its_key_and_of_few_others() {
        let versions = Versions::new();
        let before: Vec<_> = (0u32..1000).map(|k| versions.of(&k.to_le_bytes())).collect();
        versions.count(&7u32.to_le_bytes());
        let changed = (0u32..1000).filter(|k| versions.of(&k.to_le_bytes()) != before[*k as usize]);
        let changed: Vec<_> = changed.collect();
        assert!(changed.contains(&7) && changed.len() < 5, "{changed:?}");
        assert!(before.iter().all(|version| *version > 0));
        assert_ne!(Versions::new().of(b"a"), Versions::new().of(b"a"));
    }
}
