//! Range deletions: sets of deleted ranges, and lookups in them.
//!
//! A range deletion has a sequence number and hides every older version of the keys in its range,
//! wherever the version is stored. It is not stored with the keys: a memtable has the range
//! deletions of its section of the log, and a [`Version`](crate::version::Version) those of all
//! flushed memtables, which the manifest records (see `version::edit_format`). So a reader compares
//! the version of a key that it finds with the newest range deletion of the key.
//!
//! ```text
//!   deletions   9  ├─────────────┤
//!               5        ├──────────────────┤
//!   fragments      │  9  │  9 5  │    5     │       sorted, disjoint
//! ```
//!
//! A version keeps a range deletion until no file and no memtable has older keys in its range, or
//! a newer one covers it (`compact::range_deletions`).
//!
//! Invariant: fragments are sorted by key and disjoint; the sequence numbers of each descend.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use arc_swap::ArcSwapOption;
use parking_lot::Mutex;

/// One deletion of the keys from `start` to before `end` (`None`: to the last key).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RangeDelete {
    pub(crate) start: Vec<u8>,
    pub(crate) end: Option<Vec<u8>>,
    pub(crate) sequence: u64,
}

impl RangeDelete {
    fn is_empty(&self) -> bool {
        self.end.as_ref().is_some_and(|end| *end <= self.start)
    }

    /// Whether `key` is before its end.
    pub(crate) fn is_before_end(&self, key: &[u8]) -> bool {
        self.end.as_ref().is_none_or(|end| key < end.as_slice())
    }

    /// Whether it contains a key in `smallest..=largest`.
    pub(crate) fn overlaps(&self, smallest: &[u8], largest: &[u8]) -> bool {
        self.start.as_slice() <= largest && self.is_before_end(smallest)
    }

    /// Whether it contains all keys in `smallest..=largest`.
    pub(crate) fn covers(&self, smallest: &[u8], largest: &[u8]) -> bool {
        self.start.as_slice() <= smallest && self.is_before_end(largest)
    }

    /// Whether it contains all keys of `other`.
    pub(crate) fn contains(&self, other: &RangeDelete) -> bool {
        let ends_later = match (&self.end, &other.end) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(end), Some(other)) => end >= other,
        };
        self.start <= other.start && ends_later
    }
}

/// An immutable set of range deletions.
#[derive(Debug, Default)]
pub(crate) struct RangeDeletes {
    /// By sequence number, ascending.
    deletes: Vec<Arc<RangeDelete>>,
    fragments: Vec<Fragment>,
}

/// A range whose keys have the same range deletions.
#[derive(Debug)]
struct Fragment {
    start: Vec<u8>,
    end: Option<Vec<u8>>,
    /// Descending.
    sequences: Vec<u64>,
}

/// The widest known range around a key in which all keys have the same newest range deletion.
pub(crate) struct Span<'a> {
    /// The sequence number of the deletion; 0: there is none.
    pub(crate) sequence: u64,
    pub(crate) start: &'a [u8],
    pub(crate) end: Option<&'a [u8]>,
}

impl RangeDeletes {
    /// A set of `deletes` in any order; of two with the same sequence number one is kept.
    pub(crate) fn new(mut deletes: Vec<Arc<RangeDelete>>) -> Self {
        deletes.retain(|delete| !delete.is_empty());
        deletes.sort_unstable_by_key(|delete| delete.sequence);
        deletes.dedup_by_key(|delete| delete.sequence);
        let fragments = fragments(&deletes);
        RangeDeletes { deletes, fragments }
    }

    /// The range deletions, the oldest first.
    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = &Arc<RangeDelete>> {
        self.deletes.iter()
    }

    pub(crate) fn len(&self) -> usize {
        self.deletes.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.deletes.is_empty()
    }

    /// The newest sequence number; 0 without any.
    pub(crate) fn max_sequence(&self) -> u64 {
        self.deletes.last().map_or(0, |delete| delete.sequence)
    }

    /// The sequence number of the newest deletion of `key` up to `at`; 0: there is none. Cost: two
    /// binary searches.
    pub(crate) fn newest(&self, key: &[u8], at: u64) -> u64 {
        self.span(key, at).sequence
    }

    /// The sequence number of the oldest deletion of `key` after `sequence`; `u64::MAX`: there is
    /// none.
    fn oldest_after(&self, key: &[u8], sequence: u64) -> u64 {
        let after = self.fragments.partition_point(|fragment| fragment.start.as_slice() <= key);
        let fragment = after.checked_sub(1).map(|at| &self.fragments[at]);
        let fragment = fragment.filter(|it| it.end.as_ref().is_none_or(|end| key < end.as_slice()));
        let newer = fragment.and_then(|it| it.sequences.iter().rev().find(|&&s| s > sequence));
        newer.copied().unwrap_or(u64::MAX)
    }

    /// The range around `key` with the same newest deletion up to `at`, as far as one fragment or
    /// one gap between fragments goes.
    pub(crate) fn span(&self, key: &[u8], at: u64) -> Span<'_> {
        let after = self.fragments.partition_point(|fragment| fragment.start.as_slice() <= key);
        let next = self.fragments.get(after).map(|next| next.start.as_slice());
        let Some(before) = after.checked_sub(1).map(|at| &self.fragments[at]) else {
            return Span { sequence: 0, start: &[], end: next };
        };
        match before.end.as_deref() {
            Some(end) if key >= end => Span { sequence: 0, start: end, end: next },
            end => {
                let newer = before.sequences.partition_point(|&sequence| sequence > at);
                let sequence = before.sequences.get(newer).copied().unwrap_or(0);
                Span { sequence, start: &before.start, end }
            }
        }
    }
}

/// Cuts the ranges at each other's bounds.
fn fragments(deletes: &[Arc<RangeDelete>]) -> Vec<Fragment> {
    let starts = deletes.iter().map(|delete| (delete.start.as_slice(), true, delete.sequence));
    let ends =
        deletes.iter().filter_map(|delete| Some((delete.end.as_deref()?, false, delete.sequence)));
    let mut bounds: Vec<(&[u8], bool, u64)> = starts.chain(ends).collect();
    bounds.sort_unstable();
    let mut active = BTreeSet::new();
    let mut fragments = Vec::new();
    for (at, &(key, is_start, sequence)) in bounds.iter().enumerate() {
        if is_start {
            active.insert(sequence);
        } else {
            active.remove(&sequence);
        }
        let next = bounds.get(at + 1).map(|bound| bound.0);
        if next != Some(key) && !active.is_empty() {
            fragments.push(Fragment {
                start: key.to_vec(),
                end: next.map(<[u8]>::to_vec),
                sequences: active.iter().rev().copied().collect(),
            });
        }
    }
    fragments
}

/// An owned [`Span`]; at first one that contains no key.
#[derive(Default)]
pub(crate) struct OwnedSpan {
    pub(crate) sequence: u64,
    pub(crate) start: Vec<u8>,
    /// `None`: no end.
    pub(crate) end: Option<Vec<u8>>,
    is_set: bool,
}

impl OwnedSpan {
    /// Whether it contains `key`.
    pub(crate) fn contains(&self, key: &[u8]) -> bool {
        self.is_set
            && self.start.as_slice() <= key
            && self.end.as_ref().is_none_or(|end| key < end.as_slice())
    }

    /// The keys that are in all of `spans`, and their newest deletion in any.
    pub(crate) fn intersection<'s>(spans: impl Iterator<Item = Span<'s>>) -> Self {
        let mut common = OwnedSpan { is_set: true, ..OwnedSpan::default() };
        for Span { sequence, start, end } in spans {
            common.sequence = common.sequence.max(sequence);
            if start > common.start.as_slice() {
                common.start = start.to_vec();
            }
            if let Some(end) = end
                && common.end.as_ref().is_none_or(|common| end < common.as_slice())
            {
                common.end = Some(end.to_vec());
            }
        }
        common
    }
}

/// The effect of range deletions on a version that a flush or a compaction visits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DeletedVersion {
    /// No newer range deletion has its key.
    No,
    /// A range deletion hides it from every reader: it is dropped.
    ForAll,
    /// Range deletions, this one the oldest of them, hide it from later readers; a snapshot still
    /// sees it.
    ForLater(u64),
}

/// Applies durable range deletions to versions in key order.
pub(crate) struct DeleteFilter<'d> {
    deletes: &'d RangeDeletes,
    last: OwnedSpan,
}

impl<'d> DeleteFilter<'d> {
    pub(crate) fn new(deletes: &'d RangeDeletes) -> Self {
        DeleteFilter { deletes, last: OwnedSpan::default() }
    }

    /// Decides about the version (`key`, `sequence`) that is read at `last_read_at` for the last
    /// time: see [`Retention`](crate::version_gc::Retention).
    pub(crate) fn check(&mut self, key: &[u8], sequence: u64, last_read_at: u64) -> DeletedVersion {
        if self.deletes.is_empty() {
            return DeletedVersion::No;
        }
        if !self.last.contains(key) {
            self.last = OwnedSpan::intersection(std::iter::once(self.deletes.span(key, u64::MAX)));
        }
        if self.last.sequence < sequence {
            DeletedVersion::No
        } else if self.deletes.newest(key, last_read_at) > sequence {
            DeletedVersion::ForAll
        } else {
            DeletedVersion::ForLater(self.deletes.oldest_after(key, sequence))
        }
    }
}

/// The range deletions of a memtable: appended by the one writer, and made searchable by the first
/// reader after that.
#[derive(Default)]
pub(crate) struct GrowingRangeDeletes {
    deletes: Mutex<Vec<Arc<RangeDelete>>>,
    len: AtomicUsize,
    searchable: ArcSwapOption<RangeDeletes>,
}

impl GrowingRangeDeletes {
    pub(crate) fn push(&self, delete: RangeDelete) {
        if !delete.is_empty() {
            let mut deletes = self.deletes.lock();
            deletes.push(Arc::new(delete));
            self.len.store(deletes.len(), Ordering::Release);
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.len.load(Ordering::Acquire)
    }

    /// The set so far; `None` if it is empty. Cost: one load then; after an insertion the set is
    /// sorted again.
    pub(crate) fn get(&self) -> Option<Arc<RangeDeletes>> {
        if self.len() == 0 {
            return None;
        }
        if let Some(built) = self.searchable.load_full()
            && built.len() >= self.len()
        {
            return Some(built);
        }
        let deletes = self.deletes.lock();
        let built = Arc::new(RangeDeletes::new(deletes.clone()));
        // Stored under the lock, so that an older set does not replace a newer one.
        self.searchable.store(Some(built.clone()));
        Some(built)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn delete(start: &str, end: Option<&str>, sequence: u64) -> Arc<RangeDelete> {
        let end = end.map(|end| end.as_bytes().to_vec());
        Arc::new(RangeDelete { start: start.as_bytes().to_vec(), end, sequence })
    }

    #[test]
    fn newest_deletion_of_a_key_is_found_as_of_every_moment() {
        let mut random = 7u64;
        let mut draw = |below: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (random >> 33) % below
        };
        for _ in 0..200 {
            let key = |number: u64| vec![b'a' + number as u8];
            let deletes: Vec<_> = (1..=draw(9))
                .map(|sequence| {
                    let (start, end) = (draw(10), draw(12));
                    let end = (end < 11).then(|| key(end));
                    Arc::new(RangeDelete { start: key(start), end, sequence: sequence * 10 })
                })
                .collect();
            let set = RangeDeletes::new(deletes.clone());
            for probe in (0..12).map(key) {
                for at in [0, 9, 10, 35, 60, 1000] {
                    let hits = deletes.iter().filter(|delete| delete.covers(&probe, &probe));
                    let newest = hits.map(|delete| delete.sequence).filter(|&s| s <= at).max();
                    let span = set.span(&probe, at);
                    assert_eq!(span.sequence, newest.unwrap_or(0), "{deletes:?} {probe:?} {at}");
                    assert!(
                        span.start <= &probe[..] && span.end.is_none_or(|end| &probe[..] < end)
                    );
                }
            }
        }
    }

    #[test]
    fn empty_ranges_and_repeated_deletions_count_once() {
        let set = RangeDeletes::new(vec![
            delete("b", Some("d"), 7),
            delete("x", Some("x"), 8),
            delete("b", Some("d"), 7),
        ]);
        assert_eq!((set.len(), set.max_sequence()), (1, 7));
        assert_eq!([b"a", b"b", b"c", b"d"].map(|key| set.newest(key, 9)), [0, 7, 7, 0]);
        assert!(RangeDeletes::new(Vec::new()).is_empty());
    }

    #[test]
    fn version_that_a_snapshot_sees_outlives_a_later_range_deletion() {
        let set = RangeDeletes::new(vec![
            delete("b", Some("d"), 7),
            delete("c", Some("d"), 2),
            delete("c", Some("d"), 20),
        ]);
        let mut filter = DeleteFilter::new(&set);
        assert_eq!(filter.check(b"a", 3, 9), DeletedVersion::No);
        assert_eq!(filter.check(b"b", 3, 9), DeletedVersion::ForAll);
        assert_eq!(filter.check(b"b", 8, 9), DeletedVersion::No);
        assert_eq!(filter.check(b"c", 21, 30), DeletedVersion::No);
        assert_eq!(filter.check(b"c", 3, 6), DeletedVersion::ForLater(7));
        assert_eq!(filter.check(b"c", 8, 9), DeletedVersion::ForLater(20));
        assert_eq!(filter.check(b"d", 3, 9), DeletedVersion::No);
    }

    #[test]
    fn set_of_a_memtable_shows_what_was_appended() {
        let growing = GrowingRangeDeletes::default();
        assert!(growing.get().is_none());
        growing.push(RangeDelete { start: b"a".to_vec(), end: None, sequence: 3 });
        assert_eq!(growing.get().unwrap().newest(b"k", 9), 3);
        growing.push(RangeDelete { start: b"c".to_vec(), end: None, sequence: 5 });
        growing.push(RangeDelete { start: b"c".to_vec(), end: Some(b"c".to_vec()), sequence: 6 });
        let set = growing.get().unwrap();
        assert_eq!((set.newest(b"k", 9), set.newest(b"b", 9), set.newest(b"k", 4)), (5, 3, 3));
        assert_eq!(growing.len(), 2);
    }

    #[test]
    fn relations_of_ranges_are_those_of_their_keys() {
        let range = delete("c", Some("f"), 1);
        assert!(range.overlaps(b"a", b"c") && range.overlaps(b"e", b"z"));
        assert!(!range.overlaps(b"a", b"b") && !range.overlaps(b"f", b"g"));
        assert!(range.covers(b"c", b"e") && !range.covers(b"c", b"f") && !range.covers(b"b", b"e"));
        assert!(range.contains(&range) && range.contains(&delete("d", Some("e"), 2)));
        assert!(!range.contains(&delete("d", None, 2)) && delete("", None, 2).contains(&range));
    }
}
