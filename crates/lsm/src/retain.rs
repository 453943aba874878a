//! Which versions of a key a flush or a compaction keeps.
//!
//! Readers stand at a few moments (snapshots, and now). Between two neighbouring moments only the
//! newest version of a key can ever be seen:
//!
//! ```text
//!   moments           10            20           now
//!   versions   3   8  |   12  15    |    21  30   |       (sequence numbers of one key)
//!   kept           8  |       15    |        30   |
//! ```
//!
//! A deletion, or an entry that has expired, is needed only while something older may lie below it:
//! the oldest stratum of a key that no deeper level holds drops it altogether.

/// Decides version by version; versions come by key ascending, then sequence descending.
pub(crate) struct Retain {
    /// Ascending; the last is now.
    moments: Vec<u64>,
    key: Vec<u8>,
    /// The stratum of the version of `key` that came last, if any came.
    last: Option<usize>,
}

/// A stratum: the versions between two neighbouring moments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Kept {
    /// Every reader sees this version or a newer one; none stands before it.
    pub(crate) is_oldest_stratum: bool,
}

impl Retain {
    pub(crate) fn new(moments: Vec<u64>) -> Self {
        Retain { moments, key: Vec::new(), last: None }
    }

    /// Whether the version (`key`, `sequence`) can be seen by anyone; `None`: drop it.
    pub(crate) fn keep(&mut self, key: &[u8], sequence: u64) -> Option<Kept> {
        if self.last.is_none() || self.key != key {
            self.key.clear();
            self.key.extend_from_slice(key);
            self.last = None;
        }
        // Almost always there are no snapshots: one moment, no search.
        let stratum = match self.moments[..] {
            [now] => usize::from(sequence > now),
            _ => self.moments.partition_point(|&moment| moment < sequence),
        };
        if self.last == Some(stratum) {
            return None;
        }
        self.last = Some(stratum);
        Some(Kept { is_oldest_stratum: stratum == 0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_version_is_kept_for_each_moment_that_sees_it() {
        let mut retain = Retain::new(vec![10, 20, 40]);
        let kept: Vec<u64> = [30, 21, 15, 12, 8, 3]
            .into_iter()
            .filter(|&sequence| retain.keep(b"k", sequence).is_some())
            .collect();
        assert_eq!(kept, [30, 15, 8]);
        assert_eq!(retain.keep(b"l", 9), Some(Kept { is_oldest_stratum: true }));
        assert_eq!(retain.keep(b"m", 11), Some(Kept { is_oldest_stratum: false }));
    }

    #[test]
    fn every_moment_sees_the_same_before_and_after() {
        let versions = [37, 33, 31, 24, 20, 19, 10, 9, 2, 1];
        for mask in 0u32..256 {
            let mut moments: Vec<u64> =
                (0..8).filter(|bit| mask >> bit & 1 == 1).map(|bit| bit * 5).collect();
            moments.push(40);
            let mut retain = Retain::new(moments.clone());
            let kept: Vec<u64> =
                versions.into_iter().filter(|&s| retain.keep(b"k", s).is_some()).collect();
            for moment in moments {
                let seen = |all: &[u64]| all.iter().copied().find(|&s| s <= moment);
                assert_eq!(seen(&kept), seen(&versions), "moment {moment}");
            }
        }
    }
}
