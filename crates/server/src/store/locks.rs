//! Striped locks by key, so that read-modify-write is atomic.
//!
//! A key hashes to one of 1,024 locks. Whoever writes a key holds its lock over its reads and its
//! write; whoever only reads takes none. Several keys are locked in the order of their stripes, so
//! two holders never wait for one another.
//!
//! # Visitors
//! A thread that serves a `mica` table over UDP takes none of these locks for its bursts, which are
//! atomic by themselves: it *visits* ([`siltstone_mica::visits`]). Who holds a lock must not be visited, or
//! an INCR could lose what a burst wrote between its read and its write. So who begins to hold waits until
//! the visits under way have ended, and a visitor that finds a holder takes the locks of its keys like
//! everybody else.
//!
//! Invariant: no one asks for a second guard of the same table while holding one.
//!
//! The hash is seeded anew by each server, so that a client cannot choose keys that all share a
//! lock.

use std::hash::{BuildHasher, Hasher, RandomState};

use parking_lot::{Mutex, MutexGuard};
use siltstone_mica::visits::{Holding, Visit, Visits};
use xxhash_rust::xxh3::xxh3_64_with_seed;

const STRIPES: usize = 1024;

/// The locks of one table.
pub(crate) struct KeyLocks {
    stripes: Box<[Mutex<()>]>,
    seed: u64,
    visits: Visits,
}

/// Locks that are held until this is dropped.
#[must_use = "the keys are unlocked when this is dropped"]
pub(crate) enum Guard<'a> {
    /// None: the caller holds what it needs already.
    Held,
    // What is dropped first stands first: locks, then the count.
    One {
        _guard: MutexGuard<'a, ()>,
        _holding: Holding<'a>,
    },
    Many {
        _guards: Vec<MutexGuard<'a, ()>>,
        _holding: Holding<'a>,
    },
}

impl KeyLocks {
    pub(crate) fn new() -> Self {
        let stripes = (0..STRIPES).map(|_| Mutex::new(())).collect();
        let seed = RandomState::new().build_hasher().finish();
        KeyLocks { stripes, seed, visits: Visits::new(0) }
    }

    /// Lets so many threads visit.
    pub(crate) fn expect_visitors(&mut self, threads: usize) {
        self.visits = Visits::new(threads);
    }

    /// Begins a visit of the thread with this number, unless somebody holds a lock.
    #[inline]
    pub(crate) fn visit(&self, thread: usize) -> Option<Visit<'_>> {
        self.visits.visit(thread)
    }

    /// Locks one key.
    #[inline]
    pub(crate) fn one(&self, key: &[u8]) -> Guard<'_> {
        let holding = self.visits.hold();
        Guard::One { _guard: self.stripes[self.stripe(key)].lock(), _holding: holding }
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
        let holding = self.visits.hold();
        let mut guards = Vec::with_capacity(count.min(STRIPES));
        for (word, mut bits) in wanted.into_iter().enumerate() {
            while bits != 0 {
                guards.push(self.stripes[word * 64 + bits.trailing_zeros() as usize].lock());
                bits &= bits - 1;
            }
        }
        Guard::Many { _guards: guards, _holding: holding }
    }

    /// Locks the whole table against writers.
    pub(crate) fn all(&self) -> Guard<'_> {
        let holding = self.visits.hold();
        Guard::Many { _guards: self.stripes.iter().map(Mutex::lock).collect(), _holding: holding }
    }

    #[inline]
    fn stripe(&self, key: &[u8]) -> usize {
        xxh3_64_with_seed(key, self.seed) as usize % STRIPES
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

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
    fn nobody_visits_while_a_lock_is_held() {
        let mut locks = KeyLocks::new();
        locks.expect_visitors(2);
        let (locks, count) = (&locks, &AtomicUsize::new(0));
        // Holders read, pause and write; visitors add at once. Nothing may be lost.
        std::thread::scope(|scope| {
            for thread in 0..2 {
                scope.spawn(move || {
                    for _ in 0..20_000 {
                        let add = || count.fetch_add(1, SeqCst);
                        match locks.visit(thread) {
                            Some(_visit) => drop(add()),
                            None => {
                                let _guard = locks.one(b"a");
                                add();
                            }
                        }
                    }
                });
                scope.spawn(|| {
                    for _ in 0..2_000 {
                        let _guard = locks.one(b"a");
                        let seen = count.load(SeqCst);
                        std::hint::spin_loop();
                        count.store(seen + 1, SeqCst);
                        drop(_guard);
                        std::thread::yield_now();
                    }
                });
            }
        });
        assert_eq!(count.load(SeqCst), 44_000);
        assert!(locks.visit(0).is_some());
    }

    #[test]
    fn a_key_named_twice_is_locked_once() {
        let locks = KeyLocks::new();
        drop(locks.many([&b"a"[..], b"a", b"a"].into_iter()));
        drop(locks.all());
    }
}
