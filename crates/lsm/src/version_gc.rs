//! Version garbage collection: which versions of a key a flush or a compaction keeps.
//!
//! The snapshots, and the newest sequence number, divide the sequence numbers into stripes. In each
//! stripe only the newest version of a key is visible to a snapshot:
//!
//! ```text
//!   snapshots         10            20           now
//!   versions   3   8  |   12  15    |    21  30   |       (sequence numbers of one key)
//!   retained       8  |       15    |        30   |
//! ```
//!
//! Below an operand of a merge the next older version of the stripe is visible, too, through it.
//!
//! A tombstone or an expired entry in the oldest stripe is dropped unless a deeper level may
//! contain an older version of its key.

/// Filters versions in order: key ascending, then sequence descending.
pub(crate) struct VersionGc {
    /// Ascending; the last one is the newest sequence number.
    snapshots: Vec<u64>,
    key: Vec<u8>,
    /// The stripe of the previous version of `key`, if there was one.
    last: Option<usize>,
    /// The previous kept version of `key` is an operand of a merge.
    is_merging: bool,
}

/// The result for a version that is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Retention {
    /// No snapshot is older than this version.
    pub(crate) is_oldest_stripe: bool,
    /// It is the first version of its key.
    pub(crate) is_newest: bool,
    /// Only readers at the newest boundary, i.e. now, see it.
    pub(crate) is_newest_stripe: bool,
    /// The newest moment at which it may be read, as far as the snapshots reach: the end of its
    /// stripe.
    pub(crate) last_read_at: u64,
}

impl VersionGc {
    pub(crate) fn new(snapshots: Vec<u64>) -> Self {
        VersionGc { snapshots, key: Vec::new(), last: None, is_merging: false }
    }

    /// Returns how to keep the version (`key`, `sequence`); `None`: no snapshot sees it, drop it.
    /// `is_merge`: it is an operand of a merge.
    pub(crate) fn keep(&mut self, key: &[u8], sequence: u64, is_merge: bool) -> Option<Retention> {
        if self.last.is_none() || self.key != key {
            self.key.clear();
            self.key.extend_from_slice(key);
            self.last = None;
        }
        // Usually there are no snapshots, so no search is needed.
        let stripe = match self.snapshots[..] {
            [now] => usize::from(sequence > now),
            _ => self.snapshots.partition_point(|&snapshot| snapshot < sequence),
        };
        if self.last == Some(stripe) && !self.is_merging {
            return None;
        }
        self.is_merging = is_merge;
        let is_newest = self.last.replace(stripe).is_none();
        let is_newest_stripe = stripe + 1 >= self.snapshots.len();
        let last_read_at = self.snapshots.get(stripe).copied().unwrap_or(u64::MAX);
        let is_oldest_stripe = stripe == 0;
        Some(Retention { is_oldest_stripe, is_newest, is_newest_stripe, last_read_at })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_version_is_retained_per_stripe() {
        let mut gc = VersionGc::new(vec![10, 20, 40]);
        let kept: Vec<u64> = [30, 21, 15, 12, 8, 3]
            .into_iter()
            .filter(|&sequence| gc.keep(b"k", sequence, false).is_some())
            .collect();
        assert_eq!(kept, [30, 15, 8]);
        let retention = |is_oldest_stripe, is_newest, is_newest_stripe, last_read_at| {
            Some(Retention { is_oldest_stripe, is_newest, is_newest_stripe, last_read_at })
        };
        assert_eq!(gc.keep(b"l", 9, false), retention(true, true, false, 10));
        assert_eq!(gc.keep(b"m", 21, false), retention(false, true, true, 40));
        assert_eq!(gc.keep(b"m", 20, false), retention(false, false, false, 20));
        assert_eq!(gc.keep(b"m", 10, false), retention(true, false, false, 10));
        assert_eq!(VersionGc::new(vec![40]).keep(b"m", 10, false), retention(true, true, true, 40));
    }

    #[test]
    fn operands_are_retained_down_to_the_value_below_them() {
        let mut gc = VersionGc::new(vec![10, 20, 40]);
        let versions = [(30, true), (21, true), (15, true), (12, false), (11, false), (8, true)];
        let kept: Vec<u64> = versions
            .into_iter()
            .filter(|&(sequence, is_merge)| gc.keep(b"k", sequence, is_merge).is_some())
            .map(|(sequence, _)| sequence)
            .collect();
        assert_eq!(kept, [30, 21, 15, 12, 8]);
        assert!(gc.keep(b"l", 8, false).is_some() && gc.keep(b"l", 7, false).is_none());
    }

    #[test]
    fn every_snapshot_reads_the_same_version_after_collection() {
        let versions = [37, 33, 31, 24, 20, 19, 10, 9, 2, 1];
        for mask in 0u32..256 {
            let mut snapshots: Vec<u64> =
                (0..8).filter(|bit| mask >> bit & 1 == 1).map(|bit| bit * 5).collect();
            snapshots.push(40);
            let mut gc = VersionGc::new(snapshots.clone());
            let kept: Vec<u64> =
                versions.into_iter().filter(|&s| gc.keep(b"k", s, false).is_some()).collect();
            for snapshot in snapshots {
                let seen = |all: &[u64]| all.iter().copied().find(|&s| s <= snapshot);
                assert_eq!(seen(&kept), seen(&versions), "snapshot {snapshot}");
            }
        }
    }
}
