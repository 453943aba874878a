//! A stop flag for threads that is set however a test ends.
//!
//! Threads in a scope that work until a flag is set would never stop if the test panicked first,
//! since the scope waits for them.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

/// Set until a [`StopGuard`] of it is dropped.
#[derive(Debug, Default)]
pub struct RunFlag(AtomicBool);

/// Clears its flag when dropped, also by a panic.
#[derive(Debug)]
pub struct StopGuard<'r>(&'r RunFlag);

impl RunFlag {
    /// Whether threads should continue.
    pub fn is_set(&self) -> bool {
        !self.0.load(SeqCst)
    }

    /// A guard that clears the flag when it is dropped.
    pub fn clear_on_drop(&self) -> StopGuard<'_> {
        StopGuard(self)
    }
}

impl Drop for StopGuard<'_> {
    fn drop(&mut self) {
        self.0.0.store(true, SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn panic_clears_the_flag() {
        let running = RunFlag::default();
        let failed = std::panic::catch_unwind(|| {
            let _guard = running.clear_on_drop();
            assert!(!running.is_set(), "fails");
        });
        assert!(failed.is_err() && !running.is_set());
    }
}
