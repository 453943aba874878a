//! Big-reader lock: a reader-writer lock with per-thread reader slots.
//!
//! ```text
//! shared       marks its slot; if the lock is exclusive, unmarks it and waits
//! exclusive    marks the lock as exclusive; waits until no slot is marked
//! ```
//!
//! Bursts take it shared; a change of the access mode takes it exclusively. Each thread has its own
//! slot on its own cache line, so a shared acquisition costs one uncontended atomic operation. The
//! slots also hold the threads' counters.
//!
//! Invariant: a thread does not acquire the lock while it holds it.
//!
//! Source: Hsieh and Weihl, "Scalable Reader-Writer Locks for Parallel Systems", IPPS 1992.

use crate::sync::Ordering::{Release, SeqCst};
use crate::sync::{AtomicBool, AtomicU32, Lock, OwnedLock, in_order, pause};

/// A slot alone on its cache line; 128 bytes, because lines are fetched in pairs.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Slot<T> {
    readers: AtomicU32,
    counts: T,
}

/// The lock, with a `T` per slot.
#[derive(Debug)]
pub struct BigReaderLock<T> {
    slots: Vec<Slot<T>>,
    is_exclusive: AtomicBool,
    exclusive: Lock,
}

/// Shared ownership; dropping it releases the lock.
#[derive(Debug)]
pub struct SharedGuard<'t, T> {
    slot: &'t Slot<T>,
}

/// Exclusive ownership; dropping it releases the lock.
pub struct ExclusiveGuard<'t, T> {
    lock: &'t BigReaderLock<T>,
    _one: OwnedLock<'t>,
}

impl<T: Default> BigReaderLock<T> {
    /// A lock with this many slots; more threads share them.
    pub fn new(slots: usize) -> Self {
        BigReaderLock {
            slots: (0..slots).map(|_| Slot::default()).collect(),
            is_exclusive: AtomicBool::new(false),
            exclusive: Lock::default(),
        }
    }

    /// Acquires the lock shared, by the slot `number`; waits while it is held exclusively.
    #[inline]
    pub fn shared(&self, number: usize) -> SharedGuard<'_, T> {
        let slot = &self.slots[number % self.slots.len()];
        loop {
            slot.readers.fetch_add(1, SeqCst);
            in_order();
            if !self.is_exclusive.load(SeqCst) {
                return SharedGuard { slot };
            }
            slot.readers.fetch_sub(1, Release);
            drop(self.exclusive.lock());
        }
    }

    /// Acquires the lock exclusively: waits for all shared holders and blocks new ones.
    pub fn exclusive(&self) -> ExclusiveGuard<'_, T> {
        let one = self.exclusive.lock();
        self.is_exclusive.store(true, SeqCst);
        in_order();
        for slot in &self.slots {
            let mut round = 0;
            while slot.readers.load(SeqCst) != 0 {
                pause(&mut round);
            }
        }
        ExclusiveGuard { lock: self, _one: one }
    }

    /// The `T`s of all slots.
    pub fn counts(&self) -> impl Iterator<Item = &T> {
        self.slots.iter().map(|slot| &slot.counts)
    }

    /// Memory of the slots, in bytes.
    pub fn bytes(&self) -> usize {
        self.slots.len() * size_of::<Slot<T>>()
    }
}

impl<T> SharedGuard<'_, T> {
    /// The `T` of this slot, which threads may share.
    #[inline]
    pub fn counts(&self) -> &T {
        &self.slot.counts
    }
}

impl<T> Drop for SharedGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        // Paired with the loads of the next exclusive holder, which sees all writes before this.
        self.slot.readers.fetch_sub(1, Release);
    }
}

impl<T> Drop for ExclusiveGuard<'_, T> {
    fn drop(&mut self) {
        self.lock.is_exclusive.store(false, SeqCst);
    }
}
