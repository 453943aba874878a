//! The range deletions that a reader of a view sees.
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
