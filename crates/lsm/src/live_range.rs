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

/// A cyclic interval of keys, from the cursor up to the key where it stood when the row arrived.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct LiveRange {
    cursor: Box<[u8]>,
    arrival: Box<[u8]>,
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

    /// Where the live keys begin.
    pub(crate) fn cursor(&self) -> &[u8] {
        &self.cursor
    }

    /// Where they end: the first key that was passed, in the order of the cursor.
    pub(crate) fn arrival(&self) -> &[u8] {
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
}
