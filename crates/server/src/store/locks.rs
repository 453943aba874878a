//! Striped locks by key, so that read-modify-write is atomic.
//!
//! A key hashes to one of 1,024 locks. Whoever writes a key holds its lock over its reads and its
//! write; whoever only reads takes none. Several keys are locked in the order of their stripes, so
//! two holders never wait for one another.
//!
//! Invariant: no one asks for a second guard of the same table while holding one.
//!
//! The hash is seeded anew by each server, so that a client cannot choose keys that all share a
//! lock.

use std::hash::{BuildHasher, Hasher, RandomState};

use parking_lot::{Mutex, MutexGuard};
use xxhash_rust::xxh3::xxh3_64_with_seed;

const STRIPES: usize = 1024;

/// The locks of one table.
pub(crate) struct KeyLocks {
    stripes: Box<[Mutex<()>]>,
    seed: u64,
}

/// Locks that are held until this is dropped.
#[must_use = "the keys are unlocked when this is dropped"]
pub(crate) enum Guard<'a> {
    /// None: the caller holds what it needs already.
    Held,
    One {
        _guard: MutexGuard<'a, ()>,
    },
    Many {
        _guards: Vec<MutexGuard<'a, ()>>,
    },
}

impl KeyLocks {
    pub(crate) fn new() -> Self {
        let stripes = (0..STRIPES).map(|_| Mutex::new(())).collect();
        KeyLocks { stripes, seed: RandomState::new().build_hasher().finish() }
    }

    /// Locks one key.
    #[inline]
    pub(crate) fn one(&self, key: &[u8]) -> Guard<'_> {
        Guard::One { _guard: self.stripes[self.stripe(key)].lock() }
    }

    /// Locks several keys, in any order and with repetitions.
    pub(crate) fn many<'k>(&self, keys: impl Iterator<Item = &'k [u8]>) -> Guard<'_> {
        // One bit a stripe: ordered and without repetitions by its shape, and on the stack.
        let mut wanted = [0u64; STRIPES / 64];
        let mut count = 0;
        for key in keys {
            let stripe = self.stripe(key);
            wanted[stripe / 64] |= 1 << (stripe % 64);
            count += 1;
        }
        let mut guards = Vec::with_capacity(count.min(STRIPES));
        for (word, mut bits) in wanted.into_iter().enumerate() {
            while bits != 0 {
                guards.push(self.stripes[word * 64 + bits.trailing_zeros() as usize].lock());
                bits &= bits - 1;
            }
        }
        Guard::Many { _guards: guards }
    }

    /// Locks the whole table against writers.
    pub(crate) fn all(&self) -> Guard<'_> {
        Guard::Many { _guards: self.stripes.iter().map(Mutex::lock).collect() }
    }

    #[inline]
    fn stripe(&self, key: &[u8]) -> usize {
        xxh3_64_with_seed(key, self.seed) as usize % STRIPES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_holders_of_overlapping_keys_do_not_block_for_ever() {
        let locks = KeyLocks::new();
        let keys: Vec<[u8; 1]> = (0..8).map(|i| [i]).collect();
        let total = Mutex::new(0);
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let (locks, keys, total) = (&locks, &keys, &total);
                scope.spawn(move || {
                    for turn in 0..500 {
                        let from = (thread + turn) % keys.len();
                        let order = keys[from..].iter().chain(&keys[..from]);
                        let _guard = locks.many(order.map(|key| &key[..]));
                        *total.lock() += 1;
                    }
                });
            }
        });
        assert_eq!(total.into_inner(), 2000);
    }

    #[test]
    fn a_key_named_twice_is_locked_once() {
        let locks = KeyLocks::new();
        drop(locks.many([&b"a"[..], b"a", b"a"].into_iter()));
        drop(locks.all());
    }
}
