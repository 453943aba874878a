//! Which keys of a row of level 0 are still its own to answer for.
//!
//! A cursor turns round the key space; what it passes is merged into level 1. A row that arrived
//! when the cursor stood at `arrival` has lost the keys between there and where the cursor stands
//! now, and answers for the rest, a cyclic interval:
//!
//! ```text
//!                arrival        cursor
//!   ""  live ──────┤   passed     ├────── live  end        cursor > arrival: not yet round
//!
//!                cursor        arrival
//!   ""  passed ────┤    live      ├───── passed end        cursor < arrival: past the end once
//!
//!   ""  live ───────────────────────────── live end        equal: nothing passed yet
//! ```
//!
//! Keys have at least one byte, so the empty key stands before all of them: a cursor at the start of
//! the key space.
//!
//! Invariant: a row whose keys were all passed has no range; the engine drops it instead of giving
//! it one (both ends equal means everything).
//!
//! Source: TriangleKV paper, section 3.1 (the triangular data structure); ours is that the arrival
//! alone is a row's state.

use std::sync::Arc;

/// A cyclic interval of keys, from the cursor up to the key where it stood when the row arrived.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct LiveRange {
    cursor: Arc<[u8]>,
    arrival: Arc<[u8]>,
}

/// A plain interval: from a key on, up to but without another, or to the end of the key space.
pub(crate) type Interval<'a> = (&'a [u8], Option<&'a [u8]>);

impl LiveRange {
    /// Every key.
    pub(crate) fn all() -> Self {
        LiveRange::default()
    }

    /// What is live of a row that arrived when the cursor stood at `arrival`, now that it stands at
    /// `cursor`.
    pub(crate) fn new(cursor: &[u8], arrival: &[u8]) -> Self {
        LiveRange { cursor: cursor.into(), arrival: arrival.into() }
    }

    /// The same of keys that many rows share.
    pub(crate) fn sharing(cursor: &Arc<[u8]>, arrival: &Arc<[u8]>) -> Self {
        LiveRange { cursor: cursor.clone(), arrival: arrival.clone() }
    }

    /// Where the live keys end: the first that was passed, in the order of the cursor.
    pub(crate) fn arrival(&self) -> &Arc<[u8]> {
        &self.arrival
    }

    /// Whether the row answers for the key. Cost: two comparisons.
    pub(crate) fn contains(&self, key: &[u8]) -> bool {
        let (cursor, arrival) = (&*self.cursor, &*self.arrival);
        match cursor.cmp(arrival) {
            std::cmp::Ordering::Less => cursor <= key && key < arrival,
            std::cmp::Ordering::Greater => cursor <= key || key < arrival,
            std::cmp::Ordering::Equal => true,
        }
    }

    /// The same keys as at most two plain intervals that don't meet, in key order.
    pub(crate) fn intervals(&self) -> impl Iterator<Item = Interval<'_>> + Clone {
        let (cursor, arrival) = (&*self.cursor, &*self.arrival);
        let (low, high): (Option<Interval<'_>>, _) = match cursor.cmp(arrival) {
            std::cmp::Ordering::Less => (Some((cursor, Some(arrival))), None),
            std::cmp::Ordering::Greater => {
                let low = (!arrival.is_empty()).then_some((&[][..], Some(arrival)));
                (low, Some((cursor, None)))
            }
            std::cmp::Ordering::Equal => (Some((&[], None)), None),
        };
        low.into_iter().chain(high)
    }

    /// Whether the cursor has passed nothing of the row.
    pub(crate) fn is_whole(&self) -> bool {
        self.cursor == self.arrival
    }

    /// The first live key at or after a dead `key` can be no less than this; `None`: there is none.
    pub(crate) fn after(&self, key: &[u8]) -> Option<&[u8]> {
        (key < &*self.cursor).then_some(&*self.cursor)
    }

    /// The last live key before a dead `key` is less than this; `None`: there is none.
    pub(crate) fn before(&self, key: &[u8]) -> Option<&[u8]> {
        (key >= &*self.arrival && !self.arrival.is_empty()).then_some(&*self.arrival)
    }

    /// The part from the cursor to before `to` (`None`: to the last key).
    pub(crate) fn up_to(&self, to: Option<&[u8]>) -> Self {
        let ends_first = self.cursor < self.arrival && to.is_none_or(|to| *self.arrival <= *to);
        let end = if ends_first { self.arrival.clone() } else { to.unwrap_or_default().into() };
        LiveRange { cursor: self.cursor.clone(), arrival: end }
    }

    /// Whether nothing is left once the cursor has moved on to `to` (`None`: past the last key, to
    /// the start). The cursor does not move further than once round.
    pub(crate) fn ends_by(&self, to: Option<&[u8]>) -> bool {
        let (cursor, arrival) = (&*self.cursor, &*self.arrival);
        match to {
            // All from the cursor to the end is taken; what is before the arrival stays.
            None => arrival > cursor || arrival.is_empty(),
            Some(to) => cursor < arrival && arrival <= to,
        }
    }

    /// Whether every key of this range is in `outer` too.
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

    /// The ring as the definition says it, key by key.
    fn is_live(cursor: &[u8], arrival: &[u8], key: &[u8]) -> bool {
        if cursor == arrival {
            return true;
        }
        if cursor < arrival {
            return cursor <= key && key < arrival;
        }
        key >= cursor || key < arrival
    }

    fn pairs() -> impl Iterator<Item = (&'static [u8], &'static [u8])> {
        KEYS.into_iter().flat_map(|a| KEYS.into_iter().map(move |b| (a, b)))
    }

    #[test]
    fn is_every_key_in_the_range_that_the_ring_says() {
        for (cursor, arrival) in pairs() {
            let range = LiveRange::new(cursor, arrival);
            for key in &KEYS[1..] {
                let expected = is_live(cursor, arrival, key);
                assert_eq!(range.contains(key), expected, "{key:?} in {range:?}");
                let within = |(from, to): Interval<'_>| from <= *key && to.is_none_or(|t| *key < t);
                assert_eq!(range.intervals().any(within), expected, "{key:?} in {range:?}");
            }
        }
    }

    #[test]
    fn are_intervals_apart_and_in_order() {
        for (cursor, arrival) in pairs() {
            let range = LiveRange::new(cursor, arrival);
            let intervals: Vec<_> = range.intervals().collect();
            assert!((1..=2).contains(&intervals.len()), "{range:?}");
            if let [(_, end), (start, None)] = intervals[..] {
                assert!(end.is_some_and(|end| end < start), "{range:?}");
            }
        }
    }

    #[test]
    fn does_a_range_shrink_as_the_cursor_goes_round() {
        let arrival = b"b";
        let ring: [&[u8]; 6] = [b"b", b"m", b"\xff", b"", b"\0", b"a"];
        let ranges = ring.map(|cursor| LiveRange::new(cursor, arrival));
        for (i, later) in ranges.iter().enumerate() {
            for earlier in &ranges[..i] {
                assert!(later.is_within(earlier), "{later:?} in {earlier:?}");
                // The start of the key space is the end of it: those two cursors are one.
                let same = KEYS[1..].iter().all(|k| earlier.contains(k) == later.contains(k));
                assert!(same || !earlier.is_within(later), "{earlier:?} in {later:?}");
            }
            assert!(later.is_within(&LiveRange::all()));
        }
    }

    /// Rows stacked up under one cursor are nested: the triangle.
    #[test]
    fn is_an_older_row_live_within_a_newer_one() {
        for (cursor, arrivals) in
            [(&b"k"[..], [&b"m"[..], b"z", b"", b"c", b"k"]), (b"", [b"a", b"b", b"m", b"z", b""])]
        {
            for pair in arrivals.windows(2) {
                let [older, newer] = [pair[0], pair[1]].map(|a| LiveRange::new(cursor, a));
                assert!(older.is_within(&newer), "{older:?} in {newer:?}");
            }
        }
    }

    #[test]
    fn a_row_loses_what_the_cursor_passes_and_nothing_else() {
        let keys: Vec<[u8; 1]> = (0..16u8).map(|key| [key]).collect();
        let bound = |i: usize| if i == 0 { &[][..] } else { &keys[i][..] };
        for arrival in 0..16 {
            // What is left of a row that arrives at `arrival`, while the cursor goes round.
            let mut left: Vec<bool> = vec![true; 16];
            for step in 0..16 {
                let at = (arrival + step) % 16;
                let range = LiveRange::new(bound(at), bound(arrival));
                for (key, &is_left) in keys.iter().zip(&left) {
                    assert_eq!(range.contains(key), is_left, "{range:?} {key:?}");
                    let in_pieces = |(from, to): (&[u8], Option<&[u8]>)| {
                        *from <= key[..] && to.is_none_or(|to| &key[..] < to)
                    };
                    assert_eq!(range.intervals().any(in_pieces), is_left);
                    if !is_left {
                        let after = keys.iter().zip(&left).find(|(k, left)| **left && k > &key);
                        let told =
                            range.after(key).and_then(|from| keys.iter().find(|k| &k[..] >= from));
                        assert_eq!(told, after.map(|(k, _)| k), "{range:?} after {key:?}");
                        let before = keys.iter().zip(&left).rfind(|(k, left)| **left && k < &key);
                        let told =
                            range.before(key).and_then(|to| keys.iter().rfind(|k| &k[..] < to));
                        assert_eq!(told, before.map(|(k, _)| k), "{range:?} before {key:?}");
                    }
                }
                left[at] = false;
                let to = (at + 1 < 16).then(|| bound(at + 1));
                let ends = left.iter().all(|is_left| !is_left);
                assert_eq!(range.ends_by(to), ends, "{range:?} to {to:?}");
            }
        }
    }

    #[test]
    fn a_side_reaches_from_the_cursor_to_its_end() {
        let keys: Vec<[u8; 1]> = (1..9u8).map(|key| [key]).collect();
        let bounds: Vec<&[u8]> =
            std::iter::once(&[][..]).chain(keys.iter().map(|k| &k[..])).collect();
        for cursor in &bounds {
            for arrival in &bounds {
                let range = LiveRange::new(cursor, arrival);
                for to in keys.iter().map(|key| Some(&key[..])).chain([None]) {
                    if to.is_some_and(|to| to <= *cursor) {
                        continue;
                    }
                    let side = range.up_to(to);
                    for key in &keys {
                        let is_in = &key[..] >= *cursor && to.is_none_or(|to| &key[..] < to);
                        assert_eq!(
                            side.contains(key),
                            is_in && range.contains(key),
                            "{range:?} {to:?}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn a_whole_turn_ends_a_row_that_arrived_at_the_start() {
        assert!(LiveRange::all().ends_by(None));
        assert!(!LiveRange::all().ends_by(Some(b"m")));
        assert!(LiveRange::all().is_whole());
    }
}
