//! The partition locks that a burst keeps.
//!
//! Under EREW, a burst keeps the locks of the last few partitions it accessed; under CREW, that of
//! the last one it wrote to. A thread that serves one or a few partitions thus takes each lock once
//! per burst, uncontended. Acquiring a lock costs more than the call, because it waits for earlier
//! stores to drain.
//!
//! Invariant: a burst never waits for a lock while it holds another, so bursts do not deadlock.

use crate::sync::{Lock, OwnedLock};
use crate::version::Access;

/// Maximum number of locks that a burst keeps.
const MAX_LOCKS: usize = 4;

/// The locks of a burst, released on drop.
#[derive(Debug)]
pub struct BurstLocks<'p> {
    locks: [Option<(usize, OwnedLock<'p>)>; MAX_LOCKS],
    /// Maximum number kept. 1 under CREW: reads of a locked partition are not marked for eviction.
    capacity: usize,
    /// The slot of the next lock.
    next: usize,
}

impl<'p> BurstLocks<'p> {
    /// No locks.
    pub fn new(access: Access) -> Self {
        let capacity = if access == Access::Erew { MAX_LOCKS } else { 1 };
        BurstLocks { locks: Default::default(), capacity, next: 0 }
    }

    /// Acquires the lock of partition `number`, unless it is kept already. If that would block,
    /// releases all others first.
    #[inline(always)]
    pub fn acquire(&mut self, number: usize, lock: &'p Lock) {
        if self.locks.iter().flatten().any(|lock| lock.0 == number) {
            return;
        }
        self.locks[self.next] = None;
        let lock = lock.try_lock().unwrap_or_else(|| {
            self.locks = Default::default();
            lock.lock()
        });
        self.locks[self.next] = Some((number, lock));
        self.next = (self.next + 1) % self.capacity;
    }
}
