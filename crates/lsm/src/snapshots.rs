//! Which moments are being read at, so that compaction keeps the versions they see.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use siltstone_engine::ReadPoint;

/// The live snapshots by sequence number.
#[derive(Debug, Default)]
pub(crate) struct Snapshots {
    live: Mutex<BTreeMap<u64, usize>>,
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
