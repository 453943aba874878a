//! Which moments are being read at, so that compaction keeps the versions they see.
//!
//! When all keys are removed, the files and memtables of before leave the view. For snapshots that
//! are older the view of before is kept here until the last of them is gone:
//!
//! ```text
//!   sequence      7        9  10=clear  12                    snapshots at 7 and 9 read the kept view,
//!   snapshot      ●        ●            ●                     that at 12 the present one
//!                 kept view ┘           └ present view
//! ```

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use siltstone_engine::ReadPoint;

use crate::read::View;

/// The live snapshots by sequence number.
#[derive(Default)]
pub(crate) struct Snapshots {
    live: Mutex<BTreeMap<u64, usize>>,
    /// By the sequence number of a removal of all keys, what was there before. Locked after `live`.
    before_clear: Mutex<BTreeMap<u64, Arc<View>>>,
    /// The newest of these numbers, so that reading at a newer snapshot takes no lock.
    last_clear: AtomicU64,
    /// Removals up to this one are visible: no snapshot that is still to be taken is older.
    visible_clear: AtomicU64,
}

/// Keeps one snapshot alive; this is the hold of a [`ReadPoint`].
pub(crate) struct Held {
    sequence: u64,
    owner: Arc<Snapshots>,
}

impl Snapshots {
    /// Takes a snapshot of all that is visible now.
    ///
    /// The sequence is read under the lock: a compaction that asks [`boundaries`](Self::boundaries)
    /// later sees this snapshot; one that asked earlier keeps everything that was newest at its
    /// time, and this snapshot is not older than that.
    pub(crate) fn take(self: &Arc<Self>, visible: &AtomicU64) -> ReadPoint {
        let mut live = self.live.lock();
        let sequence = visible.load(Ordering::Acquire);
        *live.entry(sequence).or_default() += 1;
        ReadPoint::new(sequence, Arc::new(Held { sequence, owner: self.clone() }))
    }

    /// Whether `point` is one of ours.
    pub(crate) fn owns(self: &Arc<Self>, point: &ReadPoint) -> bool {
        point.hold().downcast_ref::<Held>().is_some_and(|held| Arc::ptr_eq(&held.owner, self))
    }

    /// The sequence numbers at which someone reads, ascending; the last is `visible` as of now.
    /// Of several versions of a key between two neighbours only the newest can ever be seen.
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

    /// Keeps `view` for the snapshots that are older than `sequence`, which removes all keys. To be
    /// called before the removal can be seen.
    pub(crate) fn keep_before_clear(&self, sequence: u64, view: Arc<View>) {
        self.before_clear.lock().insert(sequence, view);
        self.last_clear.store(sequence, Ordering::Release);
    }

    /// Forgets the view of before, because that removal did not happen.
    pub(crate) fn forget_clear(&self, sequence: u64) {
        let kept = self.before_clear.lock().remove(&sequence);
        drop(kept);
    }

    /// Forgets the views that no snapshot needs. To be called after the removal at `sequence` is
    /// visible: no snapshot that is taken from then on is older.
    pub(crate) fn forget_unneeded(&self, sequence: u64) {
        self.visible_clear.fetch_max(sequence, Ordering::AcqRel);
        let live = self.live.lock();
        let unneeded = self.take_unneeded(&live);
        // The last views of files remove them, which no lock is held over.
        drop(live);
        drop(unneeded);
    }

    /// The views of before that no live snapshot needs; they are kept no longer.
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

    /// What a snapshot at `at` reads if all keys were removed after it.
    pub(crate) fn view_before_clear(&self, at: u64) -> Option<Arc<View>> {
        if at >= self.last_clear.load(Ordering::Acquire) {
            return None;
        }
        let kept = self.before_clear.lock();
        kept.range(at + 1..).next().map(|(_, view)| view.clone())
    }
}

impl Drop for Held {
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
    fn a_snapshot_is_a_boundary_while_it_is_held() {
        let snapshots = Arc::new(Snapshots::default());
        let visible = AtomicU64::new(7);
        let first = snapshots.take(&visible);
        let again = snapshots.take(&visible);
        visible.store(9, Ordering::Release);
        assert_eq!(snapshots.boundaries(&visible), [7, 9]);
        drop(first);
        assert_eq!(snapshots.boundaries(&visible), [7, 9]);
        drop(again);
        assert_eq!(snapshots.boundaries(&visible), [9]);
        assert_eq!(snapshots.len(), 0);
    }
}
