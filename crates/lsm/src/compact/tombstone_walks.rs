//! Accounts of the tombstones that cursors have passed: how many, and in which range of keys. They
//! trigger compactions: see [`tombstones`](super::tombstones).

use std::ops::Bound;

use siltstone_engine::KeyRange;

/// A move that passes fewer tombstones is not charged.
pub(crate) const MIN_PASSED: u64 = 64;
/// The charge for a tombstone: what a compaction writes in the time of a step.
const PASSED_COST_BYTES: u64 = 256;

/// The walks over tombstones since the last compaction that they made due.
#[derive(Default)]
pub(crate) struct TombstoneWalks {
    /// The charges, in bytes.
    pub(super) charged: u64,
    /// The first and the last key that were passed.
    pub(super) span: Option<(Vec<u8>, Vec<u8>)>,
    /// The range that is being compacted.
    pub(super) due: Option<KeyRange>,
    /// The job that ends the memtable is queued.
    pub(crate) is_rotation_queued: bool,
}

impl TombstoneWalks {
    /// Adds a walk over `passed` tombstones from the key `first` to `last`, and returns the charges
    /// and the range of all walks.
    pub(super) fn add(&mut self, passed: u64, first: &[u8], last: &[u8]) -> (u64, KeyRange) {
        self.charged += passed * PASSED_COST_BYTES;
        let (from, to) = self.span.get_or_insert_with(|| (first.to_vec(), last.to_vec()));
        if first < from.as_slice() {
            first.clone_into(from);
        }
        if last > to.as_slice() {
            last.clone_into(to);
        }
        let (start, end) = (Bound::Included(from.clone()), Bound::Included(to.clone()));
        (self.charged, KeyRange { start, end })
    }
}
