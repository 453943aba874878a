//! Atomics and locks, real or loom's, and a spin-wait.
//!
//! Invariant: the protocols that loom explores (`version`, `ring`, `brlock`, `two_mode_lock`,
//! `burst_locks`) use only these.

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};
#[cfg(loom)]
use loom::sync::{Mutex, MutexGuard};
#[cfg(not(loom))]
use parking_lot::{Mutex, MutexGuard};
#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};

/// Spins before a waiting thread yields its core.
#[cfg(not(loom))]
const SPINS: u32 = 64;

/// Waits briefly, longer in later rounds. `round` starts at 0.
#[inline]
pub(crate) fn pause(round: &mut u32) {
    #[cfg(loom)]
    loom::thread::yield_now();
    #[cfg(not(loom))]
    if *round < SPINS {
        std::hint::spin_loop();
    } else {
        std::thread::yield_now();
    }
    *round = round.saturating_add(1);
}

/// Separates a `SeqCst` store from a `SeqCst` load that must not be reordered: loom puts only
/// fences, not accesses, into one total order. Without loom this is a no-op.
#[inline]
pub(crate) fn in_order() {
    #[cfg(loom)]
    fence(Ordering::SeqCst);
}

/// A mutex without data.
#[derive(Debug, Default)]
pub struct Lock(Mutex<()>);

/// Ownership of a [`Lock`] until this is dropped.
pub type OwnedLock<'l> = MutexGuard<'l, ()>;

impl Lock {
    /// Acquires the lock.
    #[inline]
    pub fn lock(&self) -> OwnedLock<'_> {
        let lock = self.0.lock();
        #[cfg(loom)]
        let lock = lock.expect("no thread panics");
        lock
    }

    /// Acquires the lock unless another thread holds it.
    #[inline]
    pub fn try_lock(&self) -> Option<OwnedLock<'_>> {
        let lock = self.0.try_lock();
        #[cfg(loom)]
        let lock = lock.ok();
        lock
    }
}
