//! CLIENT PAUSE: commands of Redis clients wait until the pause ends.
//!
//! A worker checks for a pause before it runs a command. A command that must wait stays in its
//! connection's input, and the connection gets the end of the pause as its deadline. CLIENT UNPAUSE
//! wakes all connections.
//!
//! Cost while there is no pause: one relaxed load per command.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Instant;

use parking_lot::Mutex;

/// Which commands wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum PauseKind {
    /// Those that may write.
    Writes,
    /// All.
    All,
}

/// The current pause.
#[derive(Default)]
pub(crate) struct Pause {
    is_active: AtomicBool,
    current: Mutex<Option<(PauseKind, Instant)>>,
}

impl Pause {
    /// Begins a pause. As in Redis, it only makes one that is in progress longer and stricter.
    pub(crate) fn begin(&self, kind: PauseKind, until: Instant, now: Instant) {
        let mut current = self.current.lock();
        *current = match current.filter(|(_, until)| *until > now) {
            Some((old_kind, old_until)) => Some((kind.max(old_kind), until.max(old_until))),
            None => Some((kind, until)),
        };
        self.is_active.store(true, Relaxed);
    }

    /// Ends the pause.
    pub(crate) fn end(&self) {
        *self.current.lock() = None;
        self.is_active.store(false, Relaxed);
    }

    /// Whether there may be a pause.
    #[inline]
    pub(crate) fn is_active(&self) -> bool {
        self.is_active.load(Relaxed)
    }

    /// Until when a command must wait, if it must.
    #[cold]
    pub(crate) fn until(&self, may_write: bool, now: Instant) -> Option<Instant> {
        let mut current = self.current.lock();
        let (kind, until) = (*current)?;
        if until <= now {
            *current = None;
            self.is_active.store(false, Relaxed);
            return None;
        }
        (kind == PauseKind::All || may_write).then_some(until)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn second_pause_extends_the_first_and_a_passed_one_ends() {
        let (pause, now) = (Pause::default(), Instant::now());
        let after = |seconds| now + Duration::from_secs(seconds);
        assert_eq!(pause.until(true, now), None);
        pause.begin(PauseKind::All, after(10), now);
        pause.begin(PauseKind::Writes, after(5), now);
        assert_eq!(pause.until(false, after(9)), Some(after(10)));
        assert_eq!(pause.until(false, after(10)), None);
        assert!(!pause.is_active());
        pause.begin(PauseKind::Writes, after(20), after(11));
        assert_eq!(pause.until(false, after(12)), None);
        assert_eq!(pause.until(true, after(12)), Some(after(20)));
        pause.begin(PauseKind::Writes, after(40), after(30));
        pause.end();
        assert_eq!(pause.until(true, after(31)), None);
    }
}
