//! The range deletions that a reader of a view sees, and a guard against endless skipping.
//!
//! A view has range deletions in its memtables and in its version. [`ViewDeletes`] combines them
//! for cursors, [`newest`] for point lookups.

use std::sync::Arc;

use crate::range_deletes::{OwnedSpan, RangeDeletes};
use crate::view::View;

/// The range deletions of a view, as of one sequence number.
pub(crate) struct ViewDeletes {
    sets: Vec<Arc<RangeDeletes>>,
    at: u64,
    /// The last span that was looked up.
    last: OwnedSpan,
}

impl ViewDeletes {
    /// `None` if there are none.
    pub(crate) fn of(view: &View, at: u64) -> Option<Self> {
        let sets: Vec<_> = sets(view).collect();
        (!sets.is_empty()).then(|| ViewDeletes { sets, at, last: OwnedSpan::default() })
    }

    /// The range around `key` with the same newest deletion. Cost: two comparisons in the range of
    /// the last call, else two binary searches per memtable.
    pub(crate) fn span(&mut self, key: &[u8]) -> &OwnedSpan {
        if !self.last.contains(key) {
            let spans = self.sets.iter().map(|set| set.span(key, self.at));
            self.last = OwnedSpan::intersection(spans);
        }
        &self.last
    }
}

/// Prevents an endless loop when a cursor skips a deleted range, or the versions of a key, by
/// seeking its runs past it.
///
/// In a run whose keys are out of order, by damage under a valid checksum, such a seek may land
/// before the key again. The guard detects that: the next key must not be before the key skipped
/// from, and each run may be moved from the same key once.
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

    /// Whether `key` may follow the last move.
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

/// The sequence number of the newest range deletion of `key` in a view up to `at`; 0: none.
pub(crate) fn newest(view: &View, key: &[u8], at: u64) -> u64 {
    sets(view).map(|set| set.newest(key, at)).max().unwrap_or(0)
}

/// The sets of range deletions of a view that are not empty.
fn sets(view: &View) -> impl Iterator<Item = Arc<RangeDeletes>> {
    let version = &view.version.range_deletes;
    let of_version = (!version.is_empty()).then(|| version.clone());
    view.memtables().filter_map(|memtable| memtable.range_deletes()).chain(of_version)
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
