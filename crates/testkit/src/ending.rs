//! An end that threads hear of however a test goes.
//!
//! Threads of a scope that work until a flag is set would work for ever if the test failed before: the scope
//! waits for them.
//!
//! Source: ours.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

/// Not over until an [`Ending`] of it is dropped.
#[derive(Debug, Default)]
pub struct Running(AtomicBool);

/// Ends it when dropped, by a panic as well.
#[derive(Debug)]
pub struct Ending<'r>(&'r Running);

impl Running {
    /// Whether work goes on.
    pub fn goes_on(&self) -> bool {
        !self.0.load(SeqCst)
    }

    /// To be kept as long as it does.
    pub fn until_dropped(&self) -> Ending<'_> {
        Ending(self)
    }
}

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.0.store(true, SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn does_a_panic_end_it() {
        let running = Running::default();
        let failed = std::panic::catch_unwind(|| {
            let _ending = running.until_dropped();
            assert!(!running.goes_on(), "fails");
        });
        assert!(failed.is_err() && !running.goes_on());
    }
}
