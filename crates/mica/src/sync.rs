//! The atomics of this crate, from the standard library or from loom's model, and how to wait.
//!
//! Invariant: the protocols that loom explores (`version`, `ring`, `turnstile`) take their atomics
//! from here only.
//!
//! Source: ours, as the facade of `siltstone-structures`.

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};
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
