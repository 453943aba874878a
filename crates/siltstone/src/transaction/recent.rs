//! Which keys were written of late, and by which group of writes.
//!
//! ```text
//!   group         7       8      9     10            a number for each group of writes, in their order
//!   keys         a b      c     a d     e
//!                         ├── begun at 8 ──→         must not have read a, d or e
//!   forgotten ──┤ 7                                  no transaction that is open began before
//! ```
//!
//! A transaction that began when group n was complete saw all groups up to n; whatever it read must not
//! have been written by a later one. That is backward validation (Kung and Robinson, "On Optimistic
//! Methods for Concurrency Control", TODS 6(2), 1981), by keys and by ranges of keys.
//!
//! What no open transaction can ask for is forgotten at once. If what is left is over its budget the
//! oldest groups go all the same, and a transaction that began before them is refused as expired.
//!
//! A group that removes every key is remembered by its number alone: it wrote whatever was read.
//!
//! Invariant: [`Recent::validate`] says yes only if every group after the transaction's beginning is
//! remembered and none of them wrote what it read.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

use siltstone_engine::{Error, KeyRange, Result};

use super::reads::Reads;

/// What a remembered key takes besides its bytes: a node of the map, a place in the order, the
/// reference counts and the allocator's share.
const KEY_OVERHEAD: usize = 112;
/// What a repeated write to a remembered key takes: a place in the order.
const REPEAT_OVERHEAD: usize = 32;

/// The number of a group of writes.
pub(super) type Group = u64;

/// The keys of the groups that an open transaction may ask for.
#[derive(Debug)]
pub(super) struct Recent {
    /// The last group that wrote each key.
    keys: BTreeMap<Arc<[u8]>, Group>,
    /// Every write, by group.
    order: VecDeque<(Group, Arc<[u8]>)>,
    bytes: usize,
    budget_bytes: usize,
    /// Groups up to this one were forgotten though someone might ask for them.
    forgotten: Group,
    /// The last group that removed every key; 0: none has.
    cleared: Group,
    /// Groups up to this one are visible in the engine, or will never be.
    complete: Group,
    /// At which groups the open transactions began, and how many at each.
    open: BTreeMap<Group, usize>,
}

impl Recent {
    pub(super) fn new(budget_bytes: usize) -> Self {
        Recent {
            keys: BTreeMap::new(),
            order: VecDeque::new(),
            bytes: 0,
            budget_bytes,
            forgotten: 0,
            cleared: 0,
            complete: 0,
            open: BTreeMap::new(),
        }
    }

    /// Counts a transaction as open from now on. A snapshot of the engine that is taken *after* this
    /// shows every group up to the one that is returned.
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
                self.forget_the_unwanted();
            }
        }
    }

    /// The group that is being made.
    pub(super) fn next(&self) -> Group {
        self.complete + 1
    }

    /// Notes that the group being made writes `key`.
    pub(super) fn note(&mut self, key: &[u8]) {
        let group = self.next();
        let known = self.keys.get_key_value(key).map(|(key, last)| (key.clone(), *last));
        let key = match known {
            Some((_, last)) if last == group => return,
            Some((key, _)) => {
                self.bytes += REPEAT_OVERHEAD;
                key
            }
            None => {
                self.bytes += KEY_OVERHEAD + key.len();
                Arc::from(key)
            }
        };
        self.keys.insert(key.clone(), group);
        self.order.push_back((group, key));
    }

    /// Notes that the group being made removes every key, whichever there are.
    pub(super) fn note_clear(&mut self) {
        self.cleared = self.next();
    }

    /// The group being made has been written.
    pub(super) fn complete(&mut self) {
        self.complete += 1;
        self.forget_the_unwanted();
        while self.bytes > self.budget_bytes
            && let Some(&(oldest, _)) = self.order.front()
        {
            self.forget(oldest);
            self.forgotten = oldest;
        }
    }

    /// Whether nothing that was read has been written since `begun`.
    ///
    /// # Errors
    /// [`Error::Conflict`] with a key that has; [`Error::Expired`] if that is not known any more.
    pub(super) fn validate(&self, begun: Group, reads: &Reads) -> Result<()> {
        if reads.is_empty() {
            return Ok(());
        }
        if begun < self.forgotten {
            return Err(Error::Expired {
                reader: "transaction",
                reason: format!(
                    "more was written while it was open than the {} bytes of keys that are \
                     remembered (TransactionOptions::remembered_bytes)",
                    self.budget_bytes
                ),
            });
        }
        let is_later = |group: &Group| *group > begun;
        if is_later(&self.cleared) {
            return Err(Error::Conflict { key: reads.any_key() });
        }
        if !self.order.back().is_some_and(|(group, _)| is_later(group)) {
            return Ok(());
        }
        let conflict = |key: &[u8]| Err(Error::Conflict { key: key.to_vec() });
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
        Ok(())
    }

    fn in_range<'a>(
        &'a self,
        range: &KeyRange,
    ) -> impl Iterator<Item = (&'a [u8], &'a Group)> + use<'a> {
        let (start, end) = (as_slice(&range.start), as_slice(&range.end));
        // A map panics at ends in the wrong order.
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

    /// Bytes that the remembered keys take.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Forgets what every open transaction has seen; no one will ask for it.
    fn forget_the_unwanted(&mut self) {
        let oldest = self.open.keys().next().copied().unwrap_or(self.complete);
        self.forget(oldest);
    }

    /// Forgets groups up to this one.
    fn forget(&mut self, last: Group) {
        while self.order.front().is_some_and(|(group, _)| *group <= last)
            && let Some((group, key)) = self.order.pop_front()
        {
            if self.keys.get(&key) == Some(&group) {
                self.keys.remove(&key);
                self.bytes -= KEY_OVERHEAD + key.len();
            } else {
                self.bytes -= REPEAT_OVERHEAD;
            }
        }
        // A burst must not be held for ever.
        if self.order.is_empty() && self.order.capacity() > 1024 {
            self.order = VecDeque::new();
        }
    }
}

fn as_slice(bound: &Bound<Vec<u8>>) -> Bound<&[u8]> {
    bound.as_ref().map(Vec::as_slice)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reads(keys: &[&str], ranges: &[KeyRange]) -> Reads {
        let mut reads = Reads::default();
        keys.iter().for_each(|key| reads.add_key(key.as_bytes()));
        for range in ranges {
            reads.add_range(range.clone()).lock().cover_all();
        }
        reads
    }

    fn write(recent: &mut Recent, keys: &[&str]) {
        keys.iter().for_each(|key| recent.note(key.as_bytes()));
        recent.complete();
    }

    fn conflict(result: Result<()>) -> Option<String> {
        match result {
            Ok(()) => None,
            Err(Error::Conflict { key }) => Some(String::from_utf8(key).unwrap_or_default()),
            Err(other) => Some(other.to_string()),
        }
    }

    #[test]
    fn what_was_written_since_the_beginning_conflicts_and_nothing_else() {
        let mut recent = Recent::new(1 << 20);
        let first = recent.begin();
        write(&mut recent, &["a", "c"]);
        let second = recent.begin();
        write(&mut recent, &["a", "e"]);
        let check = |begun, keys: &[&str]| conflict(recent.validate(begun, &reads(keys, &[])));
        assert_eq!(check(first, &["b", "c"]), Some("c".to_owned()));
        assert_eq!(check(second, &["b", "c"]), None);
        assert_eq!(check(second, &["e"]), Some("e".to_owned()));
        let check = |begun, range| conflict(recent.validate(begun, &reads(&[], &[range])));
        assert_eq!(check(second, KeyRange::new("b".."e")), None);
        assert_eq!(check(first, KeyRange::new("b".."e")), Some("c".to_owned()));
        assert_eq!(check(second, KeyRange::new("b"..="e")), Some("e".to_owned()));
        assert_eq!(check(second, KeyRange::all()), Some("a".to_owned()));
        assert_eq!(check(first, KeyRange::new("e".."b")), None, "a range with its ends inverted");
        assert_eq!(check(first, KeyRange::new("a".."a")), None);
    }

    #[test]
    fn what_nobody_can_ask_for_is_forgotten() {
        let mut recent = Recent::new(1 << 20);
        let first = recent.begin();
        write(&mut recent, &["a"]);
        let second = recent.begin();
        write(&mut recent, &["a", "b"]);
        recent.end(first);
        assert_eq!(recent.order.len(), 2);
        assert_eq!(conflict(recent.validate(second, &reads(&["b"], &[]))), Some("b".to_owned()));
        recent.end(second);
        assert_eq!((recent.order.len(), recent.keys.len(), recent.bytes()), (0, 0, 0));
    }

    #[test]
    fn over_its_budget_the_oldest_goes_and_who_needs_it_is_refused() {
        let mut recent = Recent::new(10 * (KEY_OVERHEAD + 4));
        let old = recent.begin();
        write(&mut recent, &["old."]);
        for i in 0..100 {
            write(&mut recent, &[&format!("{i:04}")]);
            assert!(recent.bytes() <= recent.budget_bytes);
        }
        let young = recent.begin();
        write(&mut recent, &["late"]);
        let unread = reads(&["else"], &[]);
        assert!(matches!(recent.validate(old, &unread), Err(Error::Expired { .. })));
        // Who read nothing conflicts with nothing, whenever it began.
        assert_eq!(conflict(recent.validate(old, &Reads::default())), None);
        assert_eq!(conflict(recent.validate(young, &unread)), None);
        assert_eq!(
            conflict(recent.validate(young, &reads(&["late"], &[]))),
            Some("late".to_owned())
        );
        // A group that is over the budget alone.
        let keys: Vec<_> = (0..50).map(|i| format!("{i:04}")).collect();
        write(&mut recent, &keys.iter().map(String::as_str).collect::<Vec<_>>());
        assert!(matches!(recent.validate(young, &unread), Err(Error::Expired { .. })));
    }
}
