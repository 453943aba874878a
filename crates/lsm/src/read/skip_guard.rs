//! Prevents an endless loop when a cursor skips a deleted range, or the versions of a key, by
//! seeking its runs past it.
//!
//! In a run whose keys are out of order, by damage under a valid checksum, such a seek may land
//! before the key again. The guard detects that: the next key must not be before the key skipped
//! from, and each run may be moved from the same key once.

/// The last key from which a cursor has moved its runs, and how often.
#[derive(Default)]
pub(crate) struct SkipGuard {
    /// The key from which runs were moved last.
    last: Vec<u8>,
    /// The number of moves from that key; 0: there was no move.
    count: usize,
}

impl SkipGuard {
    /// Forgets the last move. Called when the direction changes or the cursor is positioned.
    pub(crate) fn reset(&mut self) {
        self.count = 0;
    }

    /// Whether there was a move, so that [`is_ordered`](Self::is_ordered) may return `false`.
    #[inline]
    pub(crate) fn is_active(&self) -> bool {
        self.count > 0
    }

    /// Whether `key` may follow the last move.
    #[inline]
    pub(crate) fn is_ordered(&self, key: &[u8], is_forward: bool) -> bool {
        let last = self.last.as_slice();
        self.count == 0 || if is_forward { last <= key } else { key <= last }
    }

    /// Records a move from `key`. Returns `false` if there were more moves from it than `runs`:
    /// some run was moved twice.
    pub(crate) fn note(&mut self, key: &[u8], runs: usize) -> bool {
        if self.count == 0 || self.last != key {
            self.count = 0;
            self.last.clear();
            self.last.extend_from_slice(key);
        }
        self.count += 1;
        self.count <= runs
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn walk_that_is_moved_back_is_detected() {
        let mut guard = SkipGuard::default();
        assert!(guard.is_ordered(b"a", true) && guard.is_ordered(b"a", false));
        assert!(guard.note(b"k", 2) && guard.note(b"k", 2) && !guard.note(b"k", 2));
        assert!(guard.is_ordered(b"l", true) && !guard.is_ordered(b"j", true));
        assert!(guard.is_ordered(b"j", false) && !guard.is_ordered(b"l", false));
        assert!(guard.note(b"j", 2) && guard.is_ordered(b"j", false));
        guard.reset();
        assert!(guard.is_ordered(b"z", false) && guard.note(b"z", 1));
    }
}
