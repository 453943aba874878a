//! Accounts of tombstones: those that cursors have passed, and those that flushes have written; how
//! many, and in which range of keys. They trigger compactions: see
//! [`tombstones`](super::tombstones).

use std::ops::Bound;

use siltstone_engine::KeyRange;

/// A move that passes fewer tombstones is not charged.
pub(crate) const MIN_PASSED: u64 = 64;
/// The charge for a tombstone that was passed: what a compaction writes in the time of a step.
pub(super) const PASSED_COST_BYTES: u64 = 256;

/// The tombstones since the last compaction that they made due.
#[derive(Default)]
pub(crate) struct TombstoneAccounts {
    pub(super) walks: Account,
    pub(super) flushes: Account,
    /// The range that is being compacted.
    pub(super) due: Option<KeyRange>,
    /// The job that ends the memtable is queued.
    pub(crate) is_rotation_queued: bool,
}

/// Tombstones of one kind.
#[derive(Default)]
pub(super) struct Account {
    pub(super) count: u64,
    /// The first and the last key.
    span: Option<(Vec<u8>, Vec<u8>)>,
}

impl TombstoneAccounts {
    /// Makes the compaction of `range` due, and starts both accounts at zero.
    pub(super) fn make_due(&mut self, range: KeyRange) {
        (self.walks, self.flushes) = (Account::default(), Account::default());
        self.due = Some(range);
    }
}

impl Account {
    /// Adds tombstones between two keys, in either order, and returns the range of all.
    pub(super) fn add(&mut self, count: u64, ends: [&[u8]; 2]) -> KeyRange {
        self.count += count;
        let [first, last] = [ends[0].min(ends[1]), ends[0].max(ends[1])];
        let (from, to) = self.span.get_or_insert_with(|| (first.to_vec(), last.to_vec()));
        if first < from.as_slice() {
            first.clone_into(from);
        }
        if last > to.as_slice() {
            last.clone_into(to);
        }
        let (start, end) = (Bound::Included(from.clone()), Bound::Included(to.clone()));
        KeyRange { start, end }
    }
}
