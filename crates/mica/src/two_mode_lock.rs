//! Two-mode lock (group mutual exclusion): bursts, or keyed read-modify-writes, never both.
//!
//! ```text
//! burst     marks its slot; if the count of keyed holders is 0, runs, then unmarks the slot;
//!           otherwise unmarks it and runs in keyed mode
//! keyed     increments the count; waits until no slot is marked; …; decrements the count
//! ```
//!
//! A burst is atomic by itself, so bursts need no lock among themselves. A read-modify-write of a
//! key must exclude bursts, which could write the key between its read and its write; keyed holders
//! exclude each other with per-key locks of their own.
//!
//! The marks and the count are in one total order, so one of two competing threads sees the other.
//! Each burst thread has a slot on its own cache line, so a burst costs one uncontended atomic
//! operation.
//!
//! Invariant: a burst never waits for a keyed holder; a slot belongs to one thread; no thread
//! enters keyed mode during its own burst.

use crate::sync::Ordering::{Release, SeqCst};
use crate::sync::{AtomicBool, AtomicU32, in_order, pause};

/// The lock.
#[derive(Debug)]
pub struct TwoModeLock {
    /// A slot per burst thread.
    slots: Box<[Slot]>,
    holders: AtomicU32,
}

/// Whether a thread runs a burst; alone on its cache line.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Slot(AtomicBool);

/// Burst mode, until this is dropped.
#[derive(Debug)]
pub struct SharedBatchGuard<'v>(&'v Slot);

/// Keyed mode, until this is dropped.
#[derive(Debug)]
pub struct KeyedGuard<'v>(Option<&'v AtomicU32>);

impl TwoModeLock {
    /// An unlocked lock with slots for this many threads.
    pub fn new(threads: usize) -> Self {
        let slots = (0..threads).map(|_| Slot::default()).collect();
        TwoModeLock { slots, holders: AtomicU32::new(0) }
    }

    /// Enters burst mode with the slot `thread`; `None` if the lock is in keyed mode.
    #[inline]
    pub fn shared_batch(&self, thread: usize) -> Option<SharedBatchGuard<'_>> {
        let guard = SharedBatchGuard(&self.slots[thread]);
        guard.0.0.store(true, SeqCst);
        in_order();
        (self.holders.load(SeqCst) == 0).then_some(guard)
    }

    /// Enters keyed mode, after waiting for running bursts.
    #[inline]
    pub fn keyed(&self) -> KeyedGuard<'_> {
        if self.slots.is_empty() {
            return KeyedGuard(None);
        }
        self.holders.fetch_add(1, SeqCst);
        in_order();
        for slot in &self.slots {
            // At most one burst per slot.
            let mut round = 0;
            while slot.0.load(SeqCst) {
                pause(&mut round);
            }
        }
        KeyedGuard(Some(&self.holders))
    }
}

impl Drop for SharedBatchGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        self.0.0.store(false, Release);
    }
}

impl Drop for KeyedGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        if let Some(holders) = self.0 {
            holders.fetch_sub(1, Release);
        }
    }
}
