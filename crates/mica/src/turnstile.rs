//! Many inside at once, or one alone: how the access mode changes while the store runs.
//!
//! ```text
//! who goes in       marks its slot; looks whether the door is shut; if so goes out and waits
//! who wants to be   shuts the door; waits until no slot is marked; is alone; opens the door
//!   alone
//! ```
//!
//! Threads have slots of their own, a cache line each, so going in costs one atomic operation on a
//! line that nobody else has. The slots also hold what each thread has counted.
//!
//! Invariant: nobody goes in twice at once, or asks to be alone while inside.
//!
//! Source: ours; it is the reader-biased lock of Hsieh and Weihl, "Scalable Reader-Writer Locks for
//! Parallel Systems", IPPS 1992.

use crate::sync::Ordering::{Release, SeqCst};
use crate::sync::{AtomicBool, AtomicU32, Lock, Locked, in_order, pause};

/// A cache line that is shared with nothing else; two, because they are fetched in pairs.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Slot<T> {
    inside: AtomicU32,
    counts: T,
}

/// The entry of a store, with a `T` for each slot.
#[derive(Debug)]
pub struct Turnstile<T> {
    slots: Vec<Slot<T>>,
    shut: AtomicBool,
    alone: Lock,
}

/// Being inside, with others. Dropping it goes out.
#[derive(Debug)]
pub struct Inside<'t, T> {
    slot: &'t Slot<T>,
}

/// Being inside alone. Dropping it opens the door.
pub struct Alone<'t, T> {
    turnstile: &'t Turnstile<T>,
    _one: Locked<'t>,
}

impl<T: Default> Turnstile<T> {
    /// A turnstile with so many slots; threads that are more share them.
    pub fn new(slots: usize) -> Self {
        Turnstile {
            slots: (0..slots).map(|_| Slot::default()).collect(),
            shut: AtomicBool::new(false),
            alone: Lock::default(),
        }
    }

    /// Goes in by the slot of this number, waiting while somebody is alone inside.
    #[inline]
    pub fn enter(&self, number: usize) -> Inside<'_, T> {
        let slot = &self.slots[number % self.slots.len()];
        loop {
            slot.inside.fetch_add(1, SeqCst);
            in_order();
            if !self.shut.load(SeqCst) {
                return Inside { slot };
            }
            slot.inside.fetch_sub(1, Release);
            drop(self.alone.lock());
        }
    }

    /// Waits until nobody is inside and keeps everybody out.
    pub fn alone(&self) -> Alone<'_, T> {
        let one = self.alone.lock();
        self.shut.store(true, SeqCst);
        in_order();
        for slot in &self.slots {
            let mut round = 0;
            while slot.inside.load(SeqCst) != 0 {
                pause(&mut round);
            }
        }
        Alone { turnstile: self, _one: one }
    }

    /// What the slots hold.
    pub fn counts(&self) -> impl Iterator<Item = &T> {
        self.slots.iter().map(|slot| &slot.counts)
    }

    /// Bytes of all slots.
    pub fn bytes(&self) -> usize {
        self.slots.len() * size_of::<Slot<T>>()
    }
}

impl<T> Inside<'_, T> {
    /// What this thread's slot holds; threads may share one.
    #[inline]
    pub fn counts(&self) -> &T {
        &self.slot.counts
    }
}

impl<T> Drop for Inside<'_, T> {
    #[inline]
    fn drop(&mut self) {
        // The acquire of whoever is alone next sees all that was done inside.
        self.slot.inside.fetch_sub(1, Release);
    }
}

impl<T> Drop for Alone<'_, T> {
    fn drop(&mut self) {
        self.turnstile.shut.store(false, SeqCst);
    }
}
