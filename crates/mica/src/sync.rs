//! The atomics and locks of this crate, real ones or loom's model of them, and how to wait.
//!
//! Invariant: the protocols that loom explores (`version`, `ring`, `turnstile`, `visits`, `held`) take theirs
//! from here only.
//!
//! Source: ours, as the facade of `siltstone-structures`.

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};
#[cfg(loom)]
use loom::sync::{Mutex, MutexGuard};
#[cfg(not(loom))]
use parking_lot::{Mutex, MutexGuard};
#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};

/// Rounds of spinning before a waiter gives its core to whom it waits for.
#[cfg(not(loom))]
const SPINS: u32 = 64;

/// Waits a moment; longer ones by and by. `round` begins at 0.
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

/// Between a `SeqCst` store and a `SeqCst` load that must not change places: loom orders only fences, not
/// accesses, in one total order. Without loom it is nothing.
#[inline]
pub(crate) fn in_order() {
    #[cfg(loom)]
    fence(Ordering::SeqCst);
}

/// A lock of nothing in particular.
#[derive(Debug, Default)]
pub struct Lock(Mutex<()>);

/// Having a [`Lock`], until this is dropped.
pub type Locked<'l> = MutexGuard<'l, ()>;

impl Lock {
    /// Waits for it.
    #[inline]
    pub fn lock(&self) -> Locked<'_> {
        let lock = self.0.lock();
        #[cfg(loom)]
        let lock = lock.expect("no thread panics");
        lock
    }

    /// Takes it if nobody has it.
    #[inline]
    pub fn try_lock(&self) -> Option<Locked<'_>> {
        let lock = self.0.try_lock();
        #[cfg(loom)]
        let lock = lock.ok();
        lock
    }
}
