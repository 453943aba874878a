//! The commit history: recently written keys, each with the commit group that wrote it last.
//!
//! ```text
//!   group         7       8      9     10            a number per group of writes, in order
//!   keys         a b      c     a d     e
//!                         ├── begun at 8 ──→         conflicts if it read a, d or e
//!   dropped ────┤ 7                                  no open transaction began earlier
//! ```
//!
//! A transaction that began after group n was complete saw all groups up to n, so it conflicts
//! with later groups that wrote a key or into a range that it read. That is backward validation
//! (Kung and Robinson, "On Optimistic Methods for Concurrency Control", TODS 6(2), 1981).
//!
//! Groups that no open transaction needs are dropped at once. If the rest is over the budget, the
//! oldest groups are dropped too. For a transaction that began before them,
//! [`CommitHistory::validate`] knows only a part, and
//! [`check_unchanged`](super::revalidation::check_unchanged) has to read the rest. A group that
//! removes every key is recorded by its number alone: it conflicts with every read. A deleted range
//! is recorded as a range.
//!
//! Invariant: [`CommitHistory::validate`] returns [`Reach::Whole`] only if every group after the
//! transaction's beginning is recorded and none of them wrote what it read.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

use siltstone_engine::{BatchOp, Error, KeyRange, Result, WriteBatch};

use super::live_bounds::LiveBounds;
use super::read_set::ReadSet;

/// Memory per recorded key besides its bytes: a node of the map, an entry of the order, the
/// reference counts and the allocator's overhead.
const KEY_OVERHEAD_BYTES: usize = 112;
/// Memory per repeated write to a recorded key: an entry of the order.
const REPEAT_OVERHEAD_BYTES: usize = 32;

/// The number of a group of writes.
pub(super) type Group = u64;

/// Whether the history has all groups since the beginning of a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub(super) enum Reach {
    /// To its beginning.
    Whole,
    /// Groups after its beginning were dropped.
    Part,
}

/// The keys of the groups that an open transaction may need.
#[derive(Debug)]
pub(super) struct CommitHistory {
    /// Bounds of the live keys, as of the last recorded group.
    pub(super) live: LiveBounds,
    /// The last group that wrote each key.
    keys: BTreeMap<Arc<[u8]>, Group>,
    /// Every write, by group.
    order: VecDeque<(Group, Arc<[u8]>)>,
    /// The deleted ranges, by group.
    ranges: VecDeque<(Group, DeletedRange)>,
    bytes: usize,
    budget_bytes: usize,
    /// Groups up to this one were dropped although an open transaction may need them.
    truncated: Group,
    /// The last group that removed every key, or 0.
    cleared: Group,
    /// Groups up to this one are visible in the engine, or will never be.
    complete: Group,
    /// The number of open transactions by the group at which they began.
    open: BTreeMap<Group, usize>,
}

impl CommitHistory {
    pub(super) fn new(budget_bytes: usize) -> Self {
        CommitHistory {
            live: LiveBounds::default(),
            keys: BTreeMap::new(),
            order: VecDeque::new(),
            ranges: VecDeque::new(),
            bytes: 0,
            budget_bytes,
            truncated: 0,
            cleared: 0,
            complete: 0,
            open: BTreeMap::new(),
        }
    }

    /// Counts a transaction as open. A snapshot of the engine taken *after* this call shows every
    /// group up to the returned one.
    pub(super) fn begin(&mut self) -> Group {
        *self.open.entry(self.complete).or_default() += 1;
        self.complete
    }

    /// Ends what [`begin`](Self::begin) began.
    pub(super) fn end(&mut self, begun: Group) {
        if let Some(count) = self.open.get_mut(&begun) {
            *count -= 1;
            if *count == 0 {
                self.open.remove(&begun);
                self.drop_unneeded();
            }
        }
    }

    /// The group in progress.
    pub(super) fn next(&self) -> Group {
        self.complete + 1
    }

    /// Records what the group in progress writes.
    pub(super) fn record_batch(&mut self, batch: &WriteBatch) {
        for op in batch.iter_all() {
            match op {
                BatchOp::Point(op) => self.record(op.key()),
                BatchOp::Merge { key, .. } => self.record(key),
                BatchOp::DeleteRange { start, end } => {
                    let range =
                        DeletedRange { start: start.to_vec(), end: end.map(<[u8]>::to_vec) };
                    self.bytes += range.bytes();
                    self.ranges.push_back((self.next(), range));
                }
            }
        }
    }

    /// Records that the group in progress writes `key`.
    fn record(&mut self, key: &[u8]) {
        let group = self.next();
        let known = self.keys.get_key_value(key).map(|(key, last)| (key.clone(), *last));
        let key = match known {
            Some((_, last)) if last == group => return,
            Some((key, _)) => {
                self.bytes += REPEAT_OVERHEAD_BYTES;
                key
            }
            None => {
                self.bytes += KEY_OVERHEAD_BYTES + key.len();
                Arc::from(key)
            }
        };
        self.keys.insert(key.clone(), group);
        self.order.push_back((group, key));
    }

    /// Records that the group in progress removes every key.
    pub(super) fn record_clear(&mut self) {
        self.cleared = self.next();
    }

    /// Completes the group in progress.
    pub(super) fn complete(&mut self) {
        self.complete += 1;
        self.drop_unneeded();
        while self.bytes > self.budget_bytes {
            let fronts = [self.order.front().map(|(group, _)| *group), self.oldest_range()];
            let Some(oldest) = fronts.into_iter().flatten().min() else { break };
            self.drop_up_to(oldest);
            self.truncated = oldest;
        }
    }

    /// Whether every group after `begun` is recorded.
    pub(super) fn reach(&self, begun: Group) -> Reach {
        if begun < self.truncated { Reach::Part } else { Reach::Whole }
    }

    /// Checks that no recorded group after `begun` wrote anything in `reads`. Returns whether all
    /// groups after it are recorded.
    ///
    /// # Errors
    /// [`Error::Conflict`] with a key that was written.
    pub(super) fn validate(&self, begun: Group, reads: &ReadSet) -> Result<Reach> {
        if reads.is_empty() {
            return Ok(Reach::Whole);
        }
        let is_later = |group: &Group| *group > begun;
        if is_later(&self.cleared) {
            return Err(Error::Conflict { key: reads.any_key() });
        }
        let conflict = |key: &[u8]| Err(Error::Conflict { key: key.to_vec() });
        for (_, deleted) in self.ranges.iter().rev().take_while(|(group, _)| is_later(group)) {
            if let Some(key) = reads.keys().find(|key| deleted.contains(key)) {
                return conflict(key);
            }
            if let Some(range) = reads.ranges().find(|range| deleted.overlaps(range)) {
                return conflict(match &range.start {
                    Bound::Included(key) | Bound::Excluded(key) => key.max(&deleted.start),
                    Bound::Unbounded => &deleted.start,
                });
            }
        }
        if !self.order.back().is_some_and(|(group, _)| is_later(group)) {
            return Ok(self.reach(begun));
        }
        for key in reads.keys() {
            if self.keys.get(key).is_some_and(is_later) {
                return conflict(key);
            }
        }
        for range in reads.ranges() {
            for (key, group) in self.in_range(&range) {
                if is_later(group) {
                    return conflict(key);
                }
            }
        }
        Ok(self.reach(begun))
    }

    fn in_range<'a>(
        &'a self,
        range: &KeyRange,
    ) -> impl Iterator<Item = (&'a [u8], &'a Group)> + use<'a> {
        let (start, end) = (as_slice(&range.start), as_slice(&range.end));
        // The map panics on inverted bounds.
        let is_inverted = match (start, end) {
            (Bound::Included(start), Bound::Included(end)) => start > end,
            (
                Bound::Included(start) | Bound::Excluded(start),
                Bound::Included(end) | Bound::Excluded(end),
            ) => start >= end,
            _ => false,
        };
        let found = (!is_inverted).then(|| self.keys.range::<[u8], _>((start, end)));
        found.into_iter().flatten().map(|(key, group)| (key.as_ref(), group))
    }

    /// Memory of the recorded keys.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Drops groups that every open transaction has seen.
    fn drop_unneeded(&mut self) {
        let oldest = self.open.keys().next().copied().unwrap_or(self.complete);
        self.drop_up_to(oldest);
    }

    fn oldest_range(&self) -> Option<Group> {
        self.ranges.front().map(|(group, _)| *group)
    }

    /// Drops groups up to `last`.
    fn drop_up_to(&mut self, last: Group) {
        while self.oldest_range().is_some_and(|group| group <= last)
            && let Some((_, range)) = self.ranges.pop_front()
        {
            self.bytes -= range.bytes();
        }
        while self.order.front().is_some_and(|(group, _)| *group <= last)
            && let Some((group, key)) = self.order.pop_front()
        {
            if self.keys.get(&key) == Some(&group) {
                self.keys.remove(&key);
                self.bytes -= KEY_OVERHEAD_BYTES + key.len();
            } else {
                self.bytes -= REPEAT_OVERHEAD_BYTES;
            }
        }
        // The capacity of a burst is released.
        if self.order.is_empty() && self.order.capacity() > 1024 {
            self.order = VecDeque::new();
        }
    }
}

/// The keys of a deleted range: from `start` to before `end`.
#[derive(Debug)]
struct DeletedRange {
    start: Vec<u8>,
    end: Option<Vec<u8>>,
}

impl DeletedRange {
    fn bytes(&self) -> usize {
        KEY_OVERHEAD_BYTES + self.start.len() + self.end.as_ref().map_or(0, Vec::len)
    }

    fn contains(&self, key: &[u8]) -> bool {
        self.start.as_slice() <= key && self.end.as_ref().is_none_or(|end| key < end.as_slice())
    }

    /// Whether a key can be in both ranges.
    fn overlaps(&self, read: &KeyRange) -> bool {
        let begins_before_end = match &read.start {
            Bound::Unbounded => true,
            Bound::Included(key) | Bound::Excluded(key) => {
                self.end.as_ref().is_none_or(|end| key < end)
            }
        };
        begins_before_end && read.is_before_end(&self.start)
    }
}

fn as_slice(bound: &Bound<Vec<u8>>) -> Bound<&[u8]> {
    bound.as_ref().map(Vec::as_slice)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reads(keys: &[&str], ranges: &[KeyRange]) -> ReadSet {
        let mut reads = ReadSet::default();
        keys.iter().for_each(|key| reads.add_key(key.as_bytes()));
        for range in ranges {
            reads.add_range(range.clone()).lock().cover_all();
        }
        reads
    }

    fn write(history: &mut CommitHistory, keys: &[&str]) {
        keys.iter().for_each(|key| history.record(key.as_bytes()));
        history.complete();
    }

    fn conflict(result: Result<Reach>) -> Option<String> {
        match result {
            Ok(Reach::Whole) => None,
            Ok(Reach::Part) => Some("?".to_owned()),
            Err(Error::Conflict { key }) => Some(String::from_utf8(key).unwrap_or_default()),
            Err(other) => Some(other.to_string()),
        }
    }

    #[test]
    fn only_writes_since_the_beginning_conflict() {
        let mut history = CommitHistory::new(1 << 20);
        let first = history.begin();
        write(&mut history, &["a", "c"]);
        let second = history.begin();
        write(&mut history, &["a", "e"]);
        let check = |begun, keys: &[&str]| conflict(history.validate(begun, &reads(keys, &[])));
        assert_eq!(check(first, &["b", "c"]), Some("c".to_owned()));
        assert_eq!(check(second, &["b", "c"]), None);
        assert_eq!(check(second, &["e"]), Some("e".to_owned()));
        let check = |begun, range| conflict(history.validate(begun, &reads(&[], &[range])));
        assert_eq!(check(second, KeyRange::new("b".."e")), None);
        assert_eq!(check(first, KeyRange::new("b".."e")), Some("c".to_owned()));
        assert_eq!(check(second, KeyRange::new("b"..="e")), Some("e".to_owned()));
        assert_eq!(check(second, KeyRange::all()), Some("a".to_owned()));
        assert_eq!(check(first, KeyRange::new("e".."b")), None, "a range with its ends inverted");
        assert_eq!(check(first, KeyRange::new("a".."a")), None);
    }

    #[test]
    fn deleted_range_conflicts_with_reads_in_it() {
        let mut history = CommitHistory::new(1 << 20);
        let begun = history.begin();
        history.record_batch(WriteBatch::new().delete_range("d".."g"));
        history.complete();
        let check = |keys: &[&str], ranges: &[KeyRange]| {
            conflict(history.validate(begun, &reads(keys, ranges)))
        };
        assert_eq!(check(&["a", "c", "g"], &[]), None);
        assert_eq!(check(&["a", "d"], &[]), Some("d".to_owned()));
        for (range, key) in [
            (KeyRange::new("a".."d"), None),
            (KeyRange::new("g"..), None),
            (KeyRange::new("a"..="d"), Some("d")),
            (KeyRange::new("f".."z"), Some("f")),
            (KeyRange::all(), Some("d")),
        ] {
            assert_eq!(
                check(&[], std::slice::from_ref(&range)),
                key.map(str::to_owned),
                "{range:?}"
            );
        }
        assert!(history.bytes() > 0);
        history.end(begun);
        assert_eq!((history.bytes(), history.ranges.len()), (0, 0));
        // Over the budget it is dropped, and its absence is known.
        let mut history = CommitHistory::new(10);
        let begun = history.begin();
        history.record_batch(WriteBatch::new().delete_range("d".."g"));
        history.complete();
        assert_eq!(history.validate(begun, &reads(&["a"], &[])).unwrap(), Reach::Part);
    }

    #[test]
    fn unneeded_groups_are_dropped() {
        let mut history = CommitHistory::new(1 << 20);
        let first = history.begin();
        write(&mut history, &["a"]);
        let second = history.begin();
        write(&mut history, &["a", "b"]);
        history.end(first);
        assert_eq!(history.order.len(), 2);
        assert_eq!(conflict(history.validate(second, &reads(&["b"], &[]))), Some("b".to_owned()));
        history.end(second);
        assert_eq!((history.order.len(), history.keys.len(), history.bytes()), (0, 0, 0));
    }

    #[test]
    fn history_over_its_budget_is_truncated_and_knows_a_part_for_older_transactions() {
        let mut history = CommitHistory::new(10 * (KEY_OVERHEAD_BYTES + 4));
        let old = history.begin();
        write(&mut history, &["old."]);
        for i in 0..100 {
            write(&mut history, &[&format!("{i:04}")]);
            assert!(history.bytes() <= history.budget_bytes);
        }
        let young = history.begin();
        write(&mut history, &["late"]);
        let unread = reads(&["else"], &[]);
        assert_eq!(history.validate(old, &unread).unwrap(), Reach::Part);
        assert_eq!(
            conflict(history.validate(old, &reads(&["late"], &[]))),
            Some("late".to_owned())
        );
        // A transaction without reads conflicts with nothing.
        assert_eq!(conflict(history.validate(old, &ReadSet::default())), None);
        assert_eq!(conflict(history.validate(young, &unread)), None);
        assert_eq!(
            conflict(history.validate(young, &reads(&["late"], &[]))),
            Some("late".to_owned())
        );
        // A group over the budget by itself.
        let keys: Vec<_> = (0..50).map(|i| format!("{i:04}")).collect();
        write(&mut history, &keys.iter().map(String::as_str).collect::<Vec<_>>());
        assert_eq!(history.validate(young, &unread).unwrap(), Reach::Part);
    }
}
