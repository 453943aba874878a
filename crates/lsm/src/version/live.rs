//! Which keys of a row are still its own: a cyclic interval of keys.
//!
//! A cursor turns round the key space. What lies under it is compacted from all rows at once, so of
//! a row that arrived when the cursor stood at `arrival` the keys from there to where the cursor
//! stands now are gone:
//!
//! ```text
//!   the cursor has not passed the end yet          it has, and began anew
//!   ├────live────┼░░░░gone░░░░┼────live────┤       ├░░gone░░┼────live────┼░░░░gone░░░░┤
//!             arrival       cursor                        cursor      arrival
//! ```
//!
//! That one key is all the state of a row (TriangleKV paper, section 3.1: the triangle). With
//! `arrival` and `cursor` equal the row has just come and is live whole: one that the cursor has
//! come round to again is dropped by the same edit that moves the cursor.

use std::sync::Arc;

/// The keys of a row that no compaction has taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LiveRange {
    cursor: Arc<[u8]>,
    arrival: Arc<[u8]>,
}

impl LiveRange {
    /// The empty key stands for the start of the key space.
    pub(crate) fn new(cursor: Arc<[u8]>, arrival: Arc<[u8]>) -> Self {
        LiveRange { cursor, arrival }
    }

    /// Every key.
    pub(crate) fn whole() -> Self {
        LiveRange::new(Arc::default(), Arc::default())
    }

    pub(crate) fn is_whole(&self) -> bool {
        self.cursor == self.arrival
    }

    pub(crate) fn arrival(&self) -> &Arc<[u8]> {
        &self.arrival
    }

    pub(crate) fn contains(&self, key: &[u8]) -> bool {
        let (is_after, is_before) = (key >= &*self.cursor, key < &*self.arrival);
        match self.cursor.cmp(&self.arrival) {
            std::cmp::Ordering::Less => is_after && is_before,
            std::cmp::Ordering::Equal => true,
            std::cmp::Ordering::Greater => is_after || is_before,
        }
    }

    /// The live pieces in key order, each from its first key to before its end (`None`: no end).
    pub(crate) fn pieces(&self) -> impl Iterator<Item = (&[u8], Option<&[u8]>)> {
        let (cursor, arrival) = (&*self.cursor, &*self.arrival);
        let pieces = match cursor.cmp(arrival) {
            std::cmp::Ordering::Less => [Some((cursor, Some(arrival))), None],
            std::cmp::Ordering::Equal => [Some((&[][..], None)), None],
            std::cmp::Ordering::Greater => [Some((&[][..], Some(arrival))), Some((cursor, None))],
        };
        pieces.into_iter().flatten().filter(|(from, to)| to.is_none_or(|to| *from < to))
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
        LiveRange::new(self.cursor.clone(), end)
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
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(cursor: &[u8], arrival: &[u8]) -> LiveRange {
        LiveRange::new(cursor.into(), arrival.into())
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
                let range = range(bound(at), bound(arrival));
                for (key, &is_left) in keys.iter().zip(&left) {
                    assert_eq!(range.contains(key), is_left, "{range:?} {key:?}");
                    let in_pieces = |(from, to): (&[u8], Option<&[u8]>)| {
                        *from <= key[..] && to.is_none_or(|to| &key[..] < to)
                    };
                    assert_eq!(range.pieces().any(in_pieces), is_left);
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
                let range = range(cursor, arrival);
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
        assert!(LiveRange::whole().ends_by(None));
        assert!(!LiveRange::whole().ends_by(Some(b"m")));
        assert!(LiveRange::whole().is_whole());
    }
}
