//! Version counters per key, for memcached's `cas`.
//!
//! A table of counters, selected by a key's hash. Each write takes the next global write number and
//! stores it in its key's counter. The *cas unique* sent to clients combines the counter, as read
//! before the value, with bits of the key's hash:
//!
//! ```text
//! 63                    16 15          0
//! write number             hash of the key      if a key of this counter was written
//! 0 … | hash of the key                         otherwise: less than any write number
//! ```
//!
//! `cas` compares under the key's lock. Colliding keys share a counter, so `cas` may return EXISTS
//! although another key was written, never the reverse. With 2^20 counters the probability is 1e-6
//! per intermediate write. Two keys have equal cas values only if about 36 bits of their hashes
//! agree, or, before any write, about 61.
//!
//! Nothing is stored with a value, and writes over all protocols count. Numbers start at a random
//! one per server, so values read before a restart do not match after it. There are 2^46 numbers:
//! four months at ten million writes per second.
//!
//! Invariant: a counter increases after each write, with the key's lock held over both; it never
//! decreases.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering::AcqRel, Ordering::Acquire, Ordering::Relaxed};

use xxhash_rust::xxh3::xxh3_64_with_seed;

const COUNTERS: usize = 1 << 20;
/// Bits of the key's hash below the write number.
const KEY_BITS: u32 = 16;
/// Smallest write number; the largest is twice as large.
const MIN_NUMBER: u64 = 1 << 46;

/// Counters of one table: 8 MiB.
pub(crate) struct Versions {
    /// 0 if none of the keys was written.
    counters: Box<[AtomicU64]>,
    seed: u64,
    next: AtomicU64,
}

impl Versions {
    pub(crate) fn new() -> Self {
        let random = RandomState::new();
        Versions {
            counters: (0..COUNTERS).map(|_| AtomicU64::new(0)).collect(),
            seed: random.hash_one(0),
            // Half of the numbers are left for this server's writes.
            next: AtomicU64::new(MIN_NUMBER + random.hash_one(1) % (MIN_NUMBER / 2)),
        }
    }

    #[inline]
    fn hash(&self, key: &[u8]) -> u64 {
        xxh3_64_with_seed(key, self.seed)
    }

    #[inline]
    fn counter(&self, hash: u64) -> &AtomicU64 {
        &self.counters[hash as usize % COUNTERS]
    }

    /// Version of a key from its counter. Never 0, which clients take for "none".
    #[inline]
    fn version(hash: u64, number: u64) -> u64 {
        match number {
            0 => (hash % (MIN_NUMBER << KEY_BITS)) | 1,
            number => (number << KEY_BITS) | (hash >> (64 - KEY_BITS)),
        }
    }

    /// Version of a key; must be read before its value.
    #[inline]
    pub(crate) fn of(&self, key: &[u8]) -> u64 {
        let hash = self.hash(key);
        Self::version(hash, self.counter(hash).load(Acquire))
    }

    /// Records a write of a key, and returns its new version.
    #[inline]
    pub(crate) fn record_write(&self, key: &[u8]) -> u64 {
        let hash = self.hash(key);
        Self::version(hash, self.advance(self.counter(hash)))
    }

    /// Records a write of every key.
    pub(crate) fn record_write_of_all(&self) {
        self.counters.iter().for_each(|counter| _ = self.advance(counter));
    }

    /// Stores the next write number in a counter.
    #[inline]
    fn advance(&self, counter: &AtomicU64) -> u64 {
        loop {
            let number = self.next.fetch_add(1, Relaxed);
            // A writer of a colliding key may have stored a later number: retry, since each write
            // must increase the counter.
            if counter.fetch_max(number, AcqRel) < number {
                return number;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn write_changes_the_version_of_its_key_and_few_others() {
        let versions = Versions::new();
        let before: Vec<_> = (0u32..1000).map(|k| versions.of(&k.to_le_bytes())).collect();
        versions.record_write(&7u32.to_le_bytes());
        let changed = (0u32..1000).filter(|k| versions.of(&k.to_le_bytes()) != before[*k as usize]);
        let changed: Vec<_> = changed.collect();
        assert!(changed.contains(&7) && changed.len() < 5, "{changed:?}");
        assert!(before.iter().all(|version| *version > 0));
        assert_ne!(Versions::new().of(b"a"), Versions::new().of(b"a"));
    }

    /// More pairs of keys with equal versions than can be expected.
    const EQUAL_KEYS: usize = 5;

    #[test]
    fn versions_are_unique_over_keys() {
        let versions = Versions::new();
        let all = || (0u32..100_000).map(|k| versions.of(&k.to_le_bytes()));
        let mut seen: std::collections::HashSet<u64> = all().collect();
        (0..100_000).step_by(2).for_each(|k: u32| {
            let before = versions.of(&k.to_le_bytes());
            assert!(versions.record_write(&k.to_le_bytes()) > before);
        });
        // Thousands of keys share counters here, and differ in their own bits.
        let after: std::collections::HashSet<u64> = all().collect();
        // The own bits are drawn, so two keys may have the same.
        let least = 100_000 - EQUAL_KEYS;
        assert!(seen.len() >= least && after.len() >= least, "{} {}", seen.len(), after.len());
        let unwritten = 100_000 - all().filter(|version| !seen.contains(version)).count();
        assert!((45_000..=50_000).contains(&unwritten), "{unwritten}");
        seen.extend(&after);
        assert!(seen.len() >= 200_000 - unwritten - 2 * EQUAL_KEYS, "{}", seen.len());
    }

    #[test]
    fn concurrent_writes_increase_the_counter() {
        let versions = Versions::new();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let mut last = 0;
                    for _ in 0..10_000 {
                        let version = versions.record_write(b"a");
                        assert!(version > last && versions.of(b"a") >= version);
                        last = version;
                    }
                });
            }
        });
    }
}
