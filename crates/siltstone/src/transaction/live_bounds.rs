//! Bounds of the live keys. They let repeated removals of the first or last entry skip the
//! tombstones of earlier removals, which the engine keeps until compaction.
//!
//! ```text
//!   keys      ✗ ✗ ✗ d e f g ✗ ✗
//!                   ├───────┤           start = d, end = after g
//! ```
//!
//! A removal moves a bound to the removed key; a put outside of the bounds moves it back to the
//! key. Deletions and expiries move nothing.
//!
//! Invariant: no key outside of the bounds is live in the order of commits. It holds because both
//! happen in that order: a removal has validated that nothing before its key is live, a recorded
//! put comes under the lock of the commit history, and one that is not recorded runs while no
//! transaction is open.

use std::ops::Bound;

use siltstone_engine::{BatchOp, KeyRange, Op, WriteBatch};

/// An end of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    First,
    Last,
}

/// No live key is below `start`, none is at or above `end`.
#[derive(Debug, Default)]
pub(super) struct LiveBounds {
    start: Vec<u8>,
    end: Option<Vec<u8>>,
}

impl LiveBounds {
    /// The range that holds every live key.
    pub(super) fn range(&self) -> KeyRange {
        KeyRange {
            start: Bound::Included(self.start.clone()),
            end: self.end.clone().map_or(Bound::Unbounded, Bound::Excluded),
        }
    }

    /// Notes that the entry at an end was removed.
    pub(super) fn note_removal(&mut self, end: End, key: &[u8]) {
        match end {
            End::First => self.start = successor(key),
            End::Last => self.end = Some(key.to_vec()),
        }
    }

    /// Notes the puts and merges of a batch.
    pub(super) fn note_writes(&mut self, batch: &WriteBatch) {
        for op in batch.iter_all() {
            let (BatchOp::Point(Op::Put { key, .. }) | BatchOp::Merge { key, .. }) = op else {
                continue;
            };
            if key < self.start.as_slice() {
                self.start = key.to_vec();
            }
            if self.end.as_ref().is_some_and(|end| key >= end.as_slice()) {
                self.end = Some(successor(key));
            }
        }
    }

    /// Forgets both bounds: the outcome of a removal is unknown.
    pub(super) fn reset(&mut self) {
        *self = LiveBounds::default();
    }
}

/// The least key after `key`.
fn successor(key: &[u8]) -> Vec<u8> {
    [key, &[0]].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_hold_every_live_key_after_removals_and_puts() {
        let mut bounds = LiveBounds::default();
        let mut keys: std::collections::BTreeSet<Vec<u8>> = std::collections::BTreeSet::new();
        let mut random = 1u64;
        for _ in 0..5000 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let key = vec![(random >> 60) as u8, (random >> 56) as u8 & 15];
            let removed = match random >> 40 & 7 {
                0..3 => keys.pop_first().map(|key| (End::First, key)),
                3..5 => keys.pop_last().map(|key| (End::Last, key)),
                _ => {
                    let mut batch = WriteBatch::new();
                    batch.put(&key, b"").delete(b"\0");
                    bounds.note_writes(&batch);
                    keys.insert(key);
                    None
                }
            };
            if let Some((end, key)) = removed {
                bounds.note_removal(end, &key);
                assert!(!bounds.range().contains(&key));
            }
            bounds.range().check().unwrap();
            assert!(keys.iter().all(|key| bounds.range().contains(key)), "{bounds:?}");
        }
    }
}
