//! The live keys of an L0 run.
//!
//! A cursor cycles over the key space, and the keys that it passes are merged into level 1. A run
//! that was inserted when the cursor was at `inserted_at` has lost the keys between there and the
//! present cursor. The rest, a cyclic interval, is live:
//!
//! ```text
//!             inserted_at      cursor
//!   ""  live ──────┤   passed     ├────── live  end    cursor > inserted_at: has not wrapped
//!
//!                cursor      inserted_at
//!   ""  passed ────┤    live      ├───── passed end    cursor < inserted_at: has wrapped once
//!
//!   ""  live ───────────────────────────── live end    equal: nothing passed yet
//! ```
//!
//! The empty key is the least of all keys, so a cursor there is at the start of the key space.
//!
//! Invariant: a run whose keys were all passed has no range (equal ends mean the full range); the
//! engine drops such a run.
//!
//! Source: TriangleKV paper, section 3.1 (the triangular data structure).

use std::cmp::Ordering;
use std::sync::Arc;

/// A cyclic interval of keys, from the cursor to its position when the run was inserted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LiveRange {
    cursor: Arc<[u8]>,
    inserted_at: Arc<[u8]>,
    /// `cursor` compared with `inserted_at`: every lookup needs it.
    order: Ordering,
}

impl Default for LiveRange {
    fn default() -> Self {
        Self::sharing(&Arc::default(), &Arc::default())
    }
}

/// An interval from a key (included) to another (excluded), or to the end of the key space.
pub(crate) type Interval<'a> = (&'a [u8], Option<&'a [u8]>);

impl LiveRange {
    /// Every key.
    pub(crate) fn all() -> Self {
        LiveRange::default()
    }

    /// The live keys of a run that was inserted with the cursor at `inserted_at`, now that it is at
    /// `cursor`.
    pub(crate) fn new(cursor: &[u8], inserted_at: &[u8]) -> Self {
        Self::sharing(&cursor.into(), &inserted_at.into())
    }

    /// As [`new`](Self::new), of keys that many runs share.
    pub(crate) fn sharing(cursor: &Arc<[u8]>, inserted_at: &Arc<[u8]>) -> Self {
        let order = cursor.cmp(inserted_at);
        LiveRange { cursor: cursor.clone(), inserted_at: inserted_at.clone(), order }
    }

    /// The end of the live keys: the first key that the cursor passed.
    pub(crate) fn inserted_at(&self) -> &Arc<[u8]> {
        &self.inserted_at
    }

    /// Whether `key` is live. Cost: two comparisons, unless all keys are.
    #[inline]
    pub(crate) fn contains(&self, key: &[u8]) -> bool {
        self.is_full() || self.contains_beside_cursor(key, *self.cursor <= *key)
    }

    /// As [`contains`](Self::contains), for a key of which it is known whether it is at the cursor
    /// or behind it: many runs have one cursor. Cost: one comparison.
    #[inline]
    pub(crate) fn contains_beside_cursor(&self, key: &[u8], is_from_cursor_on: bool) -> bool {
        match self.order {
            Ordering::Less => is_from_cursor_on && *key < *self.inserted_at,
            Ordering::Greater => is_from_cursor_on || *key < *self.inserted_at,
            Ordering::Equal => true,
        }
    }

    /// Whether the cursor is at `key`.
    pub(crate) fn has_cursor_at(&self, key: &[u8]) -> bool {
        *self.cursor == *key
    }

    /// The live keys as up to two disjoint intervals, in key order.
    pub(crate) fn intervals(&self) -> impl Iterator<Item = Interval<'_>> + Clone {
        let (cursor, inserted_at) = (&*self.cursor, &*self.inserted_at);
        let (low, high): (Option<Interval<'_>>, _) = match self.order {
            Ordering::Less => (Some((cursor, Some(inserted_at))), None),
            Ordering::Greater => {
                let low = (!inserted_at.is_empty()).then_some((&[][..], Some(inserted_at)));
                (low, Some((cursor, None)))
            }
            Ordering::Equal => (Some((&[], None)), None),
        };
        low.into_iter().chain(high)
    }

    /// Whether the cursor has passed no key since the run was inserted.
    pub(crate) fn is_full(&self) -> bool {
        self.order.is_eq()
    }

    /// A lower bound of the first live key after a dead `key`; `None` if there is no such key.
    pub(crate) fn after(&self, key: &[u8]) -> Option<&[u8]> {
        (key < &*self.cursor).then_some(&*self.cursor)
    }

    /// An upper bound (excluded) of the last live key before a dead `key`; `None`: no such key.
    pub(crate) fn before(&self, key: &[u8]) -> Option<&[u8]> {
        (key >= &*self.inserted_at && !self.inserted_at.is_empty()).then_some(&*self.inserted_at)
    }

    /// The part from the cursor to before `to` (`None`: to the last key).
    pub(crate) fn up_to(&self, to: Option<&[u8]>) -> Self {
        let ends_first =
            self.cursor < self.inserted_at && to.is_none_or(|to| *self.inserted_at <= *to);
        let end = if ends_first { self.inserted_at.clone() } else { to.unwrap_or_default().into() };
        Self::sharing(&self.cursor, &end)
    }

    /// Whether no live key is remaining once the cursor is at `to` (`None`: past the last key, at
    /// the start). The cursor moves by one cycle at most.
    pub(crate) fn is_exhausted_at(&self, to: Option<&[u8]>) -> bool {
        let (cursor, inserted_at) = (&*self.cursor, &*self.inserted_at);
        match to {
            // All keys from the cursor to the end are compacted; those before `inserted_at` remain.
            None => inserted_at > cursor || inserted_at.is_empty(),
            Some(to) => cursor < inserted_at && inserted_at <= to,
        }
    }

    /// Whether `outer` contains every key of this range.
    pub(crate) fn is_within(&self, outer: &LiveRange) -> bool {
        let fits = |(start, end): Interval<'_>| {
            outer.intervals().any(|(from, to)| {
                let ends_before = match (end, to) {
                    (_, None) => true,
                    (None, Some(_)) => false,
                    (Some(end), Some(to)) => end <= to,
                };
                from <= start && ends_before
            })
        };
        self.intervals().all(fits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEYS: [&[u8]; 7] = [b"", b"\0", b"a", b"b", b"b\0", b"m", b"\xff\xff"];

    /// The definition, evaluated per key.
    fn is_live(cursor: &[u8], inserted_at: &[u8], key: &[u8]) -> bool {
        if cursor == inserted_at {
            return true;
        }
        if cursor < inserted_at {
            return cursor <= key && key < inserted_at;
        }
        key >= cursor || key < inserted_at
    }

    fn pairs() -> impl Iterator<Item = (&'static [u8], &'static [u8])> {
        KEYS.into_iter().flat_map(|a| KEYS.into_iter().map(move |b| (a, b)))
    }

    #[test]
    fn range_contains_the_keys_of_the_definition() {
        for (cursor, inserted_at) in pairs() {
            let range = LiveRange::new(cursor, inserted_at);
            for key in &KEYS {
                let expected = is_live(cursor, inserted_at, key);
                assert_eq!(range.contains(key), expected, "{key:?} in {range:?}");
                let within = |(from, to): Interval<'_>| from <= *key && to.is_none_or(|t| *key < t);
                assert_eq!(range.intervals().any(within), expected, "{key:?} in {range:?}");
            }
        }
    }

    #[test]
    fn intervals_are_disjoint_and_ordered() {
        for (cursor, inserted_at) in pairs() {
            let range = LiveRange::new(cursor, inserted_at);
            let intervals: Vec<_> = range.intervals().collect();
            assert!((1..=2).contains(&intervals.len()), "{range:?}");
            if let [(_, end), (start, None)] = intervals[..] {
                assert!(end.is_some_and(|end| end < start), "{range:?}");
            }
        }
    }

    #[test]
    fn range_shrinks_as_the_cursor_advances() {
        let inserted_at = b"b";
        let ring: [&[u8]; 6] = [b"b", b"m", b"\xff", b"", b"\0", b"a"];
        let ranges = ring.map(|cursor| LiveRange::new(cursor, inserted_at));
        for (i, later) in ranges.iter().enumerate() {
            for earlier in &ranges[..i] {
                assert!(later.is_within(earlier), "{later:?} in {earlier:?}");
                // The start and the end of the key space are the same cursor position.
                let same = KEYS.iter().all(|k| earlier.contains(k) == later.contains(k));
                assert!(same || !earlier.is_within(later), "{earlier:?} in {later:?}");
            }
            assert!(later.is_within(&LiveRange::all()));
        }
    }

    /// Runs that were inserted one after the other are nested: the triangle.
    #[test]
    fn older_run_is_live_within_a_newer_one() {
        for (cursor, insertions) in
            [(&b"k"[..], [&b"m"[..], b"z", b"", b"c", b"k"]), (b"", [b"a", b"b", b"m", b"z", b""])]
        {
            for pair in insertions.windows(2) {
                let [older, newer] = [pair[0], pair[1]].map(|a| LiveRange::new(cursor, a));
                assert!(older.is_within(&newer), "{older:?} in {newer:?}");
            }
        }
    }

    #[test]
    fn run_loses_exactly_the_keys_that_the_cursor_passes() {
        let keys: Vec<Vec<u8>> = (0..16u8).map(|key| vec![key; usize::from(key > 0)]).collect();
        let bound = |i: usize| &keys[i][..];
        for inserted_at in 0..16 {
            // The live keys of a run that was inserted at `inserted_at`, during one cycle.
            let mut remaining: Vec<bool> = vec![true; 16];
            for step in 0..16 {
                let at = (inserted_at + step) % 16;
                let range = LiveRange::new(bound(at), bound(inserted_at));
                for (key, &is_live_key) in keys.iter().zip(&remaining) {
                    assert_eq!(range.contains(key), is_live_key, "{range:?} {key:?}");
                    let within = |(from, to): (&[u8], Option<&[u8]>)| {
                        *from <= key[..] && to.is_none_or(|to| &key[..] < to)
                    };
                    assert_eq!(range.intervals().any(within), is_live_key);
                    if !is_live_key {
                        let after = keys
                            .iter()
                            .zip(&remaining)
                            .find(|(k, remaining)| **remaining && k > &key);
                        let bound =
                            range.after(key).and_then(|from| keys.iter().find(|k| &k[..] >= from));
                        assert_eq!(bound, after.map(|(k, _)| k), "{range:?} after {key:?}");
                        let before = keys
                            .iter()
                            .zip(&remaining)
                            .rfind(|(k, remaining)| **remaining && k < &key);
                        let bound =
                            range.before(key).and_then(|to| keys.iter().rfind(|k| &k[..] < to));
                        assert_eq!(bound, before.map(|(k, _)| k), "{range:?} before {key:?}");
                    }
                }
                remaining[at] = false;
                let to = (at + 1 < 16).then(|| bound(at + 1));
                let ends = remaining.iter().all(|is_live_key| !is_live_key);
                assert_eq!(range.is_exhausted_at(to), ends, "{range:?} to {to:?}");
            }
        }
    }

    #[test]
    fn slice_reaches_from_the_cursor_to_its_end() {
        let keys: Vec<Vec<u8>> = (0..9u8).map(|key| vec![key; usize::from(key > 0)]).collect();
        let bounds: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
        for cursor in &bounds {
            for inserted_at in &bounds {
                let range = LiveRange::new(cursor, inserted_at);
                for to in keys.iter().map(|key| Some(&key[..])).chain([None]) {
                    if to.is_some_and(|to| to <= *cursor) {
                        continue;
                    }
                    let slice = range.up_to(to);
                    for key in &keys {
                        let is_in = &key[..] >= *cursor && to.is_none_or(|to| &key[..] < to);
                        assert_eq!(
                            slice.contains(key),
                            is_in && range.contains(key),
                            "{range:?} {to:?}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn full_cycle_exhausts_a_run_inserted_at_the_start() {
        assert!(LiveRange::all().is_exhausted_at(None));
        assert!(!LiveRange::all().is_exhausted_at(Some(b"m")));
        assert!(LiveRange::all().is_full());
    }
}
