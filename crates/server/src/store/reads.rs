//! Whether and when a key was last asked for, as memcached's clients may ask (`mg` with `h` or `l`).
//!
//! A table of places, which a key's hash leads to, each for one key:
//!
//! ```text
//! 63 .......... 33   32        31 .............. 0
//! rest of the hash   fetched   seconds since the server began
//! ```
//!
//! A key that comes to another's place takes it; who had it seems not to have been fetched yet. So the
//! answers are hints, as clients use them: to refresh early what is read often. Nothing is stored with a
//! value, and a look-up over another protocol leaves no trace.
//!
//! Invariant: memory is fixed; nothing but hints depends on it.
//!
//! Source: memcached's `doc/protocol.txt`, "Meta Commands".

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

use xxhash_rust::xxh3::xxh3_64_with_seed;

const PLACES: usize = 1 << 18;
const FETCHED: u64 = 1 << 32;

/// The places of one table: 2 MiB.
pub(crate) struct Reads {
    places: Box<[AtomicU64]>,
    seed: u64,
    began: Instant,
}

/// What is known of a key.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    /// Whether it was fetched since it was stored.
    pub(crate) is_fetched: bool,
    /// Seconds since it was stored or fetched last.
    pub(crate) ago: u64,
}

impl Reads {
    pub(crate) fn new() -> Self {
        Reads {
            places: (0..PLACES).map(|_| AtomicU64::new(0)).collect(),
            seed: RandomState::new().hash_one(0),
            began: Instant::now(),
        }
    }

    /// The place of a key, and what it begins with if it is the key's.
    #[inline]
    fn place(&self, key: &[u8]) -> (&AtomicU64, u64) {
        let hash = xxh3_64_with_seed(key, self.seed);
        // Never 0, which is an empty place.
        (&self.places[hash as usize % PLACES], (hash >> 33).max(1) << 33)
    }

    fn now(&self) -> u64 {
        self.began.elapsed().as_secs() & (FETCHED - 1)
    }

    /// What is known of a key now.
    pub(crate) fn of(&self, key: &[u8]) -> Seen {
        let (place, name) = self.place(key);
        let word = place.load(Relaxed);
        match word & !(2 * FETCHED - 1) == name {
            false => Seen::default(),
            true => Seen {
                is_fetched: word & FETCHED != 0,
                ago: self.now().saturating_sub(word & (FETCHED - 1)),
            },
        }
    }

    /// Notes that a key is fetched.
    #[inline]
    pub(crate) fn fetch(&self, key: &[u8]) {
        let (place, name) = self.place(key);
        place.store(name | FETCHED | self.now(), Relaxed);
    }

    /// Notes that a key is stored.
    #[inline]
    pub(crate) fn store(&self, key: &[u8]) {
        let (place, name) = self.place(key);
        place.store(name | self.now(), Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_a_key_fetched_from_its_first_look_up_to_its_next_write() {
        let reads = Reads::new();
        assert_eq!(reads.of(b"a"), Seen::default());
        reads.store(b"a");
        assert!(!reads.of(b"a").is_fetched);
        reads.fetch(b"a");
        assert!(reads.of(b"a").is_fetched && reads.of(b"a").ago < 5);
        assert!(!reads.of(b"b").is_fetched);
        reads.store(b"a");
        assert!(!reads.of(b"a").is_fetched);
    }
}
