//! Striped key locks for atomic read-modify-write.
//!
//! A key hashes to one of 4,096 locks. A writer holds the lock of its key over its reads and its
//! write. A reader of one row takes no lock. A reader of several rows, as of a collection, shares
//! the lock of its key with other readers, so that all rows are of one moment. Several keys are
//! locked in the order of their stripes, so there are no deadlocks.
//!
//! Whoever holds the lock of a key also shares one of 16 locks of the table, which follows from its
//! thread, so that threads seldom write to the same cache line. To lock all keys one takes these
//! 16.
//!
//! # Shared batches
//! A thread that serves a `mica` table over UDP takes none of these locks for a burst, whose
//! operations are atomic by themselves: it enters the shared mode of a two-mode lock
//! ([`siltstone_mica::two_mode_lock`]). Holders of key locks exclude that mode, otherwise INCR
//! could lose a burst's write between its read and its write. A new holder waits until the active
//! bursts have ended, and a burst that finds a holder locks its keys like everybody else.
//!
//! Invariant: no thread acquires a second guard of the same table while holding one.
//!
//! The hash is seeded per server, so that clients cannot choose keys that share a lock.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use siltstone_mica::two_mode_lock::{KeyedGuard, SharedBatchGuard, TwoModeLock};
use xxhash_rust::xxh3::xxh3_64_with_seed;

const STRIPES: usize = 4096;
const ENTRIES: usize = 16;

/// A lock that the holders of keys share, by thread.
#[derive(Default)]
#[repr(align(128))]
struct Entry(RwLock<()>);

/// The number of threads that have an entry.
static THREADS: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static ENTRY: usize = THREADS.fetch_add(1, Relaxed) % ENTRIES;
}

/// Key locks of one table.
pub(crate) struct KeyLocks {
    stripes: Box<[RwLock<()>]>,
    entries: [Entry; ENTRIES],
    seed: u64,
    bursts: TwoModeLock,
    burst_threads: usize,
}

/// The locks of some keys, each once.
#[derive(Debug, Default)]
pub(crate) struct Stripes(Vec<u16>);

impl Stripes {
    /// The number of locks.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }
}

/// Locks held until dropped.
#[must_use = "the keys are unlocked when this is dropped"]
pub(crate) enum Guard<'a> {
    /// None: the caller already holds the locks it needs.
    AlreadyHeld,
    // Fields drop in order: locks first, then what excludes holders of all keys, and bursts.
    One {
        _guard: RwLockWriteGuard<'a, ()>,
        _holder: Holder<'a>,
    },
    Many {
        _guards: Vec<RwLockWriteGuard<'a, ()>>,
        _holder: Holder<'a>,
    },
    OneShared {
        _guard: RwLockReadGuard<'a, ()>,
        _holder: Holder<'a>,
    },
    ManyShared {
        _guards: Vec<RwLockReadGuard<'a, ()>>,
        _holder: Holder<'a>,
    },
    All {
        _guards: Vec<RwLockWriteGuard<'a, ()>>,
        _holding: KeyedGuard<'a>,
    },
}

/// What a holder of some keys shares with the others.
pub(crate) struct Holder<'a> {
    _entry: RwLockReadGuard<'a, ()>,
    _holding: KeyedGuard<'a>,
}

impl KeyLocks {
    pub(crate) fn new() -> Self {
        let stripes = (0..STRIPES).map(|_| RwLock::new(())).collect();
        let seed = RandomState::new().build_hasher().finish();
        KeyLocks {
            stripes,
            entries: Default::default(),
            seed,
            bursts: TwoModeLock::new(0),
            burst_threads: 0,
        }
    }

    /// Sets the number of threads that serve bursts.
    pub(crate) fn set_burst_threads(&mut self, threads: usize) {
        self.bursts = TwoModeLock::new(threads);
        self.burst_threads = threads;
    }

    /// Whether threads serve bursts.
    pub(crate) fn has_burst_threads(&self) -> bool {
        self.burst_threads > 0
    }

    /// Enters the shared mode for the thread with this index, unless a key lock is held.
    #[inline]
    pub(crate) fn shared_batch(&self, thread: usize) -> Option<SharedBatchGuard<'_>> {
        self.bursts.shared_batch(thread)
    }

    /// Locks one key.
    #[inline]
    pub(crate) fn one(&self, key: &[u8]) -> Guard<'_> {
        let holder = self.enter();
        Guard::One { _guard: self.stripes[self.stripe(key)].write(), _holder: holder }
    }

    /// Locks one key against writers.
    #[inline]
    pub(crate) fn one_shared(&self, key: &[u8]) -> Guard<'_> {
        let holder = self.enter();
        Guard::OneShared { _guard: self.stripes[self.stripe(key)].read(), _holder: holder }
    }

    /// Locks several keys, in any order and with duplicates.
    pub(crate) fn many<'k>(&self, keys: impl Iterator<Item = &'k [u8]>) -> Guard<'_> {
        self.each(&mut self.stripes_of(keys))
    }

    /// Locks several keys, in any order and with duplicates, against writers.
    pub(crate) fn many_shared<'k>(&self, keys: impl Iterator<Item = &'k [u8]>) -> Guard<'_> {
        self.each_shared(&mut self.stripes_of(keys))
    }

    fn stripes_of<'k>(&self, keys: impl Iterator<Item = &'k [u8]>) -> Stripes {
        let mut stripes: Vec<_> = keys.map(|key| self.stripe(key) as u16).collect();
        stripes.sort_unstable();
        stripes.dedup();
        Stripes(stripes)
    }

    /// Adds the lock of a key to some others. Cost: a search of all of them.
    #[inline]
    pub(crate) fn add(&self, stripes: &mut Stripes, key: &[u8]) {
        let stripe = self.stripe(key) as u16;
        if !stripes.0.contains(&stripe) {
            stripes.0.push(stripe);
        }
    }

    /// Takes some locks.
    pub(crate) fn each(&self, stripes: &mut Stripes) -> Guard<'_> {
        let holder = self.enter();
        Guard::Many { _guards: self.in_order(stripes, RwLock::write), _holder: holder }
    }

    /// Takes some locks against writers.
    pub(crate) fn each_shared(&self, stripes: &mut Stripes) -> Guard<'_> {
        let holder = self.enter();
        Guard::ManyShared { _guards: self.in_order(stripes, RwLock::read), _holder: holder }
    }

    fn in_order<'a, G>(&'a self, stripes: &mut Stripes, lock: fn(&'a RwLock<()>) -> G) -> Vec<G> {
        stripes.0.sort_unstable();
        stripes.0.iter().map(|&stripe| lock(&self.stripes[usize::from(stripe)])).collect()
    }

    /// Locks all keys of the table.
    pub(crate) fn all(&self) -> Guard<'_> {
        let holding = self.bursts.keyed();
        let guards = self.entries.iter().map(|entry| entry.0.write()).collect();
        Guard::All { _guards: guards, _holding: holding }
    }

    /// Excludes holders of all keys.
    #[inline]
    fn enter(&self) -> Holder<'_> {
        let holding = self.bursts.keyed();
        Holder { _entry: self.entries[ENTRY.with(|entry| *entry)].0.read(), _holding: holding }
    }

    #[inline]
    fn stripe(&self, key: &[u8]) -> usize {
        xxh3_64_with_seed(key, self.seed) as usize % STRIPES
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use parking_lot::Mutex;
    use std::sync::atomic::Ordering::SeqCst;

    #[test]
    fn overlapping_lock_sets_do_not_deadlock() {
        let locks = KeyLocks::new();
        let keys: Vec<[u8; 1]> = (0..8).map(|i| [i]).collect();
        let total = Mutex::new(0);
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let (locks, keys, total) = (&locks, &keys, &total);
                scope.spawn(move || {
                    for round in 0..500 {
                        let from = (thread + round) % keys.len();
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
    fn shared_batches_exclude_key_locks() {
        let mut locks = KeyLocks::new();
        locks.set_burst_threads(2);
        let (locks, count) = (&locks, &AtomicUsize::new(0));
        // Lock holders read, pause and write; bursts add at once. No increment may be lost.
        std::thread::scope(|scope| {
            for thread in 0..2 {
                scope.spawn(move || {
                    for _ in 0..20_000 {
                        let add = || count.fetch_add(1, SeqCst);
                        match locks.shared_batch(thread) {
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
        assert!(locks.shared_batch(0).is_some());
    }

    #[test]
    fn readers_share_a_key_and_exclude_its_writers() {
        let locks = KeyLocks::new();
        let readers = [locks.one_shared(b"a"), locks.many_shared([&b"b"[..], b"a"].into_iter())];
        let is_free = || locks.stripes[locks.stripe(b"a")].try_write().is_some();
        assert!(!is_free());
        drop(readers);
        assert!(is_free());
        let _writer = locks.one(b"a");
        assert!(locks.stripes[locks.stripe(b"a")].try_read().is_none());
    }

    #[test]
    fn all_keys_exclude_each_key_and_each_other_from_any_thread() {
        let (locks, held) = (&KeyLocks::new(), &AtomicUsize::new(0));
        let (alone, shared) = (1 << 32, 1);
        std::thread::scope(|scope| {
            for thread in 0..2 * ENTRIES {
                scope.spawn(move || {
                    let key = [thread as u8];
                    for round in 0..300 {
                        let (weight, _guard) = match (thread + round) % 5 {
                            0 => (alone, locks.all()),
                            1 => (shared, locks.one(&key)),
                            2 => (shared, locks.one_shared(b"read by all")),
                            3 => (shared, locks.many([&key[..]].into_iter())),
                            _ => (shared, locks.many_shared([&b"read by all"[..]].into_iter())),
                        };
                        let before = held.fetch_add(weight, SeqCst);
                        let is_free = if weight == alone { before == 0 } else { before < alone };
                        std::thread::yield_now();
                        held.fetch_sub(weight, SeqCst);
                        assert!(is_free, "{weight} {before}");
                    }
                });
            }
        });
    }

    #[test]
    fn duplicate_key_is_locked_once() {
        let locks = KeyLocks::new();
        drop(locks.many([&b"a"[..], b"a", b"a"].into_iter()));
        drop(locks.all());
    }
}
