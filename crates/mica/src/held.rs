//! The locks of partitions that a burst keeps.
//!
//! Under EREW a burst keeps the locks of the last few partitions that it worked on, under CREW that of the
//! last one that it wrote to; so who serves one partition or a few takes each lock once a burst, and
//! nobody else wants it. To take one costs more than the call: whatever was stored before has to arrive first.
//!
//! Invariant: nobody waits for a lock while holding another, so no two bursts wait for one another.
//!
//! Source: ours.

use crate::sync::{Lock, Locked};
use crate::version::Access;

/// Locks that a burst keeps.
const KEPT: usize = 4;

/// The locks of a burst, let go when it is dropped.
#[derive(Debug)]
pub struct Held<'p> {
    locks: [Option<(usize, Locked<'p>)>; KEPT],
    /// How many may be kept. Under CREW one: a read of a partition is not noted while it is locked.
    most: usize,
    /// Where the next goes.
    next: usize,
}

impl<'p> Held<'p> {
    /// None yet.
    pub fn of(access: Access) -> Self {
        let most = if access == Access::Erew { KEPT } else { 1 };
        Held { locks: Default::default(), most, next: 0 }
    }

    /// Takes the lock of the partition with this number, if it is not held. If it is not to be had at once, all
    /// others are let go first.
    #[inline(always)]
    pub fn take(&mut self, number: usize, lock: &'p Lock) {
        if self.locks.iter().flatten().any(|held| held.0 == number) {
            return;
        }
        self.locks[self.next] = None;
        let lock = lock.try_lock().unwrap_or_else(|| {
            self.locks = Default::default();
            lock.lock()
        });
        self.locks[self.next] = Some((number, lock));
        self.next = (self.next + 1) % self.most;
    }
}
