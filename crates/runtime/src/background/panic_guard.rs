//! Poisons a table whose user's thread panics while it changes the table.
//!
//! Such a change may be half done: in the log and not in memory, or the reverse. A panic of a
//! background job poisons the table in the same way.

use super::Background;

/// Poisons the table if it is dropped by a panic. It must be dropped before what locks the table
/// for writing, so that no other writer comes between.
pub struct PanicGuard<'a, S> {
    background: &'a Background<S>,
    /// A destructor may write while its thread panics already.
    was_panicking: bool,
}

impl<S> Background<S> {
    /// A guard for the time of a change.
    #[must_use]
    pub fn poison_on_panic(&self) -> PanicGuard<'_, S> {
        PanicGuard { background: self, was_panicking: std::thread::panicking() }
    }
}

impl<S> Drop for PanicGuard<'_, S> {
    fn drop(&mut self) {
        if std::thread::panicking() && !self.was_panicking {
            self.background.enter_read_only("a writer panicked".to_owned());
            self.background.notify();
        }
    }
}
