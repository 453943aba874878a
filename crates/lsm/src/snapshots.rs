//! The live snapshots, whose versions flushes and compactions must keep.
//!
//! When all keys are cleared, the view loses all earlier files and memtables. The previous view is
//! kept here for the older snapshots until the last of them is released:
//!
//! ```text
//!   sequence      7        9  10=clear  12           snapshots 7 and 9 read the kept view,
//!   snapshot      ●        ●            ●            snapshot 12 the present one
//!                 kept view ┘           └ present view
//! ```

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use siltstone_engine::ReadPoint;

use crate::view::View;

/// The live snapshots by sequence number.
#[derive(Default)]
pub(crate) struct Snapshots {
    live: Mutex<BTreeMap<u64, usize>>,
    /// The previous view by the sequence number of the clear. Locked after `live`.
    before_clear: Mutex<BTreeMap<u64, Arc<View>>>,
    /// The newest of these numbers, so that reading at a newer snapshot takes no lock.
    last_clear: AtomicU64,
    /// The newest visible clear: no later snapshot reads before it.
    visible_clear: AtomicU64,
}

/// Keeps one snapshot alive, as the guard of a [`ReadPoint`].
pub(crate) struct SnapshotGuard {
    sequence: u64,
    owner: Arc<Snapshots>,
}

impl Snapshots {
    /// Takes a snapshot of everything that is visible now.
    ///
    /// The sequence is read under the lock: a compaction that calls
    /// [`boundaries`](Self::boundaries) later sees this snapshot; one that called it earlier keeps
    /// the versions that were newest then, and this snapshot is not older than that.
    pub(crate) fn take(self: &Arc<Self>, visible: &AtomicU64) -> ReadPoint {
        let mut live = self.live.lock();
        self.take_locked(&mut live, visible)
    }

    /// Returns the [`boundaries`](Self::boundaries), and a snapshot at the last one of them.
    pub(crate) fn take_with_boundaries(
        self: &Arc<Self>,
        visible: &AtomicU64,
    ) -> (ReadPoint, Vec<u64>) {
        let mut live = self.live.lock();
        let point = self.take_locked(&mut live, visible);
        let boundaries = live.keys().copied().filter(|&s| s <= point.sequence()).collect();
        (point, boundaries)
    }

    fn take_locked(
        self: &Arc<Self>,
        live: &mut BTreeMap<u64, usize>,
        visible: &AtomicU64,
    ) -> ReadPoint {
        let sequence = visible.load(Ordering::Acquire);
        *live.entry(sequence).or_default() += 1;
        ReadPoint::new(sequence, Arc::new(SnapshotGuard { sequence, owner: self.clone() }))
    }

    /// Whether `point` belongs to this table.
    pub(crate) fn owns(self: &Arc<Self>, point: &ReadPoint) -> bool {
        point
            .guard()
            .downcast_ref::<SnapshotGuard>()
            .is_some_and(|guard| Arc::ptr_eq(&guard.owner, self))
    }

    /// The sequence numbers of the snapshots, ascending; the last is `visible` as of now. They are
    /// the upper ends of the stripes of [`VersionGc`](crate::version_gc::VersionGc).
    pub(crate) fn boundaries(&self, visible: &AtomicU64) -> Vec<u64> {
        let live = self.live.lock();
        let now = visible.load(Ordering::Acquire);
        let mut boundaries: Vec<u64> = live.keys().copied().filter(|&s| s < now).collect();
        boundaries.push(now);
        boundaries
    }

    pub(crate) fn len(&self) -> usize {
        self.live.lock().values().sum()
    }

    /// Keeps `view` for the snapshots that are older than the clear at `sequence`. To be called
    /// before the clear is visible.
    pub(crate) fn keep_before_clear(&self, sequence: u64, view: Arc<View>) {
        self.before_clear.lock().insert(sequence, view);
        self.last_clear.store(sequence, Ordering::Release);
    }

    /// Drops the view that was kept for a clear that failed.
    pub(crate) fn forget_clear(&self, sequence: u64) {
        let kept = self.before_clear.lock().remove(&sequence);
        drop(kept);
    }

    /// Drops the views that no snapshot needs. To be called after the clear at `sequence` is
    /// visible: no later snapshot is older.
    pub(crate) fn forget_unneeded(&self, sequence: u64) {
        self.visible_clear.fetch_max(sequence, Ordering::AcqRel);
        let live = self.live.lock();
        let unneeded = self.take_unneeded(&live);
        // Dropping the last view of a file removes it, so no lock may be guard.
        drop(live);
        drop(unneeded);
    }

    /// Removes and returns the kept views that no live snapshot needs.
    fn take_unneeded(&self, live: &BTreeMap<u64, usize>) -> Vec<Arc<View>> {
        let visible = self.visible_clear.load(Ordering::Acquire);
        if visible == 0 {
            return Vec::new();
        }
        let last = live.keys().next().copied().unwrap_or(u64::MAX).min(visible);
        let mut kept = self.before_clear.lock();
        let needed = kept.split_off(&(last + 1));
        std::mem::replace(&mut *kept, needed).into_values().collect()
    }

    /// The view for a snapshot at `at` if all keys were cleared after it.
    pub(crate) fn view_before_clear(&self, at: u64) -> Option<Arc<View>> {
        if at >= self.last_clear.load(Ordering::Acquire) {
            return None;
        }
        let kept = self.before_clear.lock();
        kept.range(at + 1..).next().map(|(_, view)| view.clone())
    }
}

impl Drop for SnapshotGuard {
    fn drop(&mut self) {
        let mut live = self.owner.live.lock();
        if let Some(count) = live.get_mut(&self.sequence) {
            *count -= 1;
            if *count == 0 {
                live.remove(&self.sequence);
            }
        }
        let unneeded = self.owner.take_unneeded(&live);
        drop(live);
        drop(unneeded);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn snapshot_is_a_boundary_until_it_is_dropped() {
        let snapshots = Arc::new(Snapshots::default());
        let visible = AtomicU64::new(7);
        let first = snapshots.take(&visible);
        let again = snapshots.take(&visible);
        assert_eq!(snapshots.take_with_boundaries(&visible).1, [7]);
        visible.store(9, Ordering::Release);
        assert_eq!(snapshots.boundaries(&visible), [7, 9]);
        let (point, boundaries) = snapshots.take_with_boundaries(&visible);
        assert_eq!((point.sequence(), &boundaries[..]), (9, &[7, 9][..]));
        drop(point);
        drop(first);
        assert_eq!(snapshots.boundaries(&visible), [7, 9]);
        drop(again);
        assert_eq!(snapshots.boundaries(&visible), [9]);
        assert_eq!(snapshots.len(), 0);
    }
}
