//! Whether a key has been written since, for memcached's `cas`.
//!
//! A table of counters, which a key's hash leads to. Each write takes the next number of all writes and
//! leaves it in its key's counter. What a client gets as *cas unique* is made of the counter, as it was
//! before the value was read, and of the key:
//!
//! ```text
//! 63                    16 15          0
//! number of the write      hash of the key      a key whose counter has been written
//! 0 … | hash of the key                         else: less than any number of a write
//! ```
//!
//! `cas` compares under the key's lock. A counter is shared by all keys that lead to it, so `cas` may
//! answer EXISTS although it was another key that was written; never the other way round. With 2^20
//! counters that is a chance of one in a million for each write in between. Two keys have one number only
//! if some 36 bits of their hashes are the same, or before any write some 61.
//!
//! Nothing is stored with a value, so it stays what it is over every protocol, and writes over all of
//! them count. Numbers begin at one drawn anew by each server: what was read before a restart does not
//! match after it. There are 2^46 of them, four months of ten million writes a second.
//!
//! Invariant: a counter goes up behind each write, and the writer holds the key's lock over both; it
//! never goes down.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering::AcqRel, Ordering::Acquire, Ordering::Relaxed};

use xxhash_rust::xxh3::xxh3_64_with_seed;

const COUNTERS: usize = 1 << 20;
/// Bits of a key's hash behind the number of a write.
const KEY_BITS: u32 = 16;
/// The least number of a write; they end at twice as many.
const FIRST: u64 = 1 << 46;

/// The counters of one table: 8 MiB.
pub(crate) struct Versions {
    /// 0 where none of the keys has been written.
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
            // Half of the numbers are left for the writes of this server.
            next: AtomicU64::new(FIRST + random.hash_one(1) % (FIRST / 2)),
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

    /// The version of a key whose counter stands so. Never 0, which clients take for none.
    #[inline]
    fn version(hash: u64, number: u64) -> u64 {
        match number {
            0 => (hash % (FIRST << KEY_BITS)) | 1,
            number => (number << KEY_BITS) | (hash >> (64 - KEY_BITS)),
        }
    }

    /// The version of a key; to be asked before its value is read.
    #[inline]
    pub(crate) fn of(&self, key: &[u8]) -> u64 {
        let hash = self.hash(key);
        Self::version(hash, self.counter(hash).load(Acquire))
    }

    /// Notes that a key was written; its version from then on.
    #[inline]
    pub(crate) fn count(&self, key: &[u8]) -> u64 {
        let hash = self.hash(key);
        Self::version(hash, self.advance(self.counter(hash)))
    }

    /// Notes that every key was written.
    pub(crate) fn count_all(&self) {
        self.counters.iter().for_each(|counter| _ = self.advance(counter));
    }

    /// Leaves the next number of all writes in a counter.
    #[inline]
    fn advance(&self, counter: &AtomicU64) -> u64 {
        loop {
            let number = self.next.fetch_add(1, Relaxed);
            // A writer of another key may have taken a later number and been here before: the counter
            // must go up for each write.
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

    #[test]
    fn version_is_unique_over_keys_before_and_after_their_writes() {
        let versions = Versions::new();
        let all = || (0u32..100_000).map(|k| versions.of(&k.to_le_bytes()));
        let mut seen: std::collections::HashSet<u64> = all().collect();
        (0..100_000).step_by(2).for_each(|k: u32| {
            let before = versions.of(&k.to_le_bytes());
            assert!(versions.count(&k.to_le_bytes()) > before);
        });
        // Keys that share a counter, some thousands here, are told apart by their own bits.
        let after: std::collections::HashSet<u64> = all().collect();
        assert_eq!((seen.len(), after.len()), (100_000, 100_000));
        let unwritten = 100_000 - all().filter(|version| !seen.contains(version)).count();
        assert!((45_000..=50_000).contains(&unwritten), "{unwritten}");
        seen.extend(&after);
        assert_eq!(seen.len(), 200_000 - unwritten);
    }

    #[test]
    fn counter_goes_up_for_each_of_many_writers() {
        let versions = Versions::new();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let mut last = 0;
                    for _ in 0..10_000 {
                        let version = versions.count(b"a");
                        assert!(version > last && versions.of(b"a") >= version);
                        last = version;
                    }
                });
            }
        });
    }
}
