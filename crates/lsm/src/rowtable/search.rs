//! Finding a key in one row: a search over the metadata array.
//!
//! An element is compared by its fragment; where fragments are equal, by the key in the item.
//! Positions are of live elements, so what died cannot be found.
//!
//! *Halving*, as the paper has it: log₂(window + 1) comparisons, each a cache line of metadata, and a
//! line or two of data where fragments are equal. *Guessing* where keys are known on both sides of
//! the window: between their values on the row's scale the key's own says where to look next, which
//! takes five comparisons in 65 536 keys. After [`GUESSES`] of them the search goes on by halving, so
//! keys that are clustered, or chosen to mislead, cost that many comparisons more and no more than that.
//!
//! Invariant: the position found is the first whose key is not less than the one searched for.
//!
//! Source: TriangleKV paper, section 3.1; interpolation search as told in `scale`.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::ops::Range;

use siltstone_engine::Result;

use super::element::{Element, fragment};
use super::item::Item;
use super::probe::Probe;
use super::table::{RowTable, RowVersion};

/// The most probes of a search that are guessed.
pub(super) const GUESSES: u32 = 8;

/// A key as one row sees it.
pub(super) struct Needle<'a> {
    key: &'a [u8],
    /// How it stands to the bytes that all keys of the row begin with.
    against_prefix: Ordering,
    fragment: u64,
}

/// Where a key is, or would be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    /// The first live version of the row whose key is not less.
    pub(crate) position: usize,
    /// Whether its key is the one searched for.
    pub(crate) is_equal: bool,
}

/// The positions that a key's place is known to be in; the end counts.
#[derive(Debug, Clone)]
pub(super) struct Bracket {
    pub(super) window: Range<usize>,
    /// Fragments of a key before the window and of one behind, as this row would make them.
    pub(super) ends: Option<[u64; 2]>,
}

/// An element that was compared, and what was read for that.
pub(super) struct Seen<'a> {
    order: Ordering,
    element: Option<Element>,
    /// Its item, and the bytes before the value.
    item: Option<ItemRead<'a>>,
}

/// A place, and what was read there on the way.
pub(super) struct Landing<'a> {
    pub(super) place: Place,
    item: Option<ItemRead<'a>>,
    pub(super) element: Option<Element>,
}

type ItemRead<'a> = (Item, Cow<'a, [u8]>);

impl RowTable {
    /// The newest version of `key` at or before the sequence number `at`, by halving the whole row.
    /// Cost: that of the search, and the value's copy.
    ///
    /// # Errors
    /// `Corruption` in what was read.
    pub(crate) fn get(
        &self,
        key: &[u8],
        at: u64,
        probe: &mut impl Probe,
    ) -> Result<Option<RowVersion>> {
        let bracket = Bracket { window: 0..self.len(), ends: None };
        let landing = self.search(&self.needle(key), bracket, probe)?;
        self.version(landing, key, at, probe)
    }

    /// Of the versions of `key`, which was searched for, the newest at or before `at`. They are few:
    /// one for each snapshot that was held, and they are looked at one by one.
    pub(super) fn version(
        &self,
        landing: Landing<'_>,
        key: &[u8],
        at: u64,
        probe: &mut impl Probe,
    ) -> Result<Option<RowVersion>> {
        let Place { mut position, is_equal } = landing.place;
        let mut read = landing.item;
        while is_equal && position < self.len() {
            let (item, head) = match read.take() {
                Some(read) => read,
                None => self.item(self.index(position), probe)?,
            };
            if item.key_in(&head) != key {
                break;
            }
            if item.sequence <= at {
                return Ok(Some(RowVersion {
                    sequence: item.sequence,
                    kind: item.kind,
                    expires_at: item.expires_at,
                    value: self.value(&item, probe)?.into_owned(),
                }));
            }
            position += 1;
        }
        Ok(None)
    }

    /// Where `key` is among the positions of a window, by halving.
    pub(super) fn lower_bound(
        &self,
        key: &[u8],
        window: Range<usize>,
        probe: &mut impl Probe,
    ) -> Result<Place> {
        Ok(self.search(&self.needle(key), Bracket { window, ends: None }, probe)?.place)
    }

    /// Where a key is in a bracket that it is known to be in.
    pub(super) fn search(
        &self,
        needle: &Needle<'_>,
        bracket: Bracket,
        probe: &mut impl Probe,
    ) -> Result<Landing<'_>> {
        let Bracket { window: Range { start: mut low, end: mut high }, mut ends } = bracket;
        if needle.against_prefix.is_ne() && low < high {
            // One comparison tells of all keys, because they begin alike.
            probe.compared();
            let position = if needle.against_prefix.is_lt() { low } else { high };
            return Ok(Landing::unread(position));
        }
        let mut found: Option<Seen<'_>> = None;
        let mut guesses = 0;
        while low < high {
            let middle = match ends {
                Some(ends) if high - low > 1 && guesses < GUESSES => {
                    guesses += 1;
                    self.guess(needle.fragment, ends, low..high)
                }
                _ => low + (high - low) / 2,
            };
            let seen = self.look(self.index(middle), needle, probe)?;
            if let (Some(ends), Some(element)) = (&mut ends, &seen.element) {
                ends[usize::from(seen.order.is_ge())] = element.fragment;
            }
            match seen.order {
                Ordering::Less => low = middle + 1,
                Ordering::Equal | Ordering::Greater => {
                    high = middle;
                    found = Some(seen);
                }
            }
        }
        Ok(found.map_or(Landing::unread(low), |seen| Landing::at(low, seen)))
    }

    /// Where in a window a fragment should be, by where it stands between those at the ends.
    fn guess(&self, fragment: u64, ends: [u64; 2], window: Range<usize>) -> usize {
        let [below, above] = ends.map(|end| self.scale().value(end));
        let share = (self.scale().value(fragment) - below) / (above - below);
        let share = if share.is_finite() { share } else { 0.5 };
        // A share out of bounds, or a negative one, becomes one of the ends.
        let step = (share * window.len() as f64) as usize;
        window.start + step.min(window.len() - 1)
    }

    /// What stands at a position, whose key is known not to be less.
    pub(super) fn look_at(
        &self,
        position: usize,
        needle: &Needle<'_>,
        probe: &mut impl Probe,
    ) -> Result<Landing<'_>> {
        if position >= self.len() {
            return Ok(Landing::unread(position));
        }
        Ok(Landing::at(position, self.look(self.index(position), needle, probe)?))
    }

    /// All of the row where a key may be: the live segment that it falls in, between the keys that
    /// bound it. Cost: two comparisons with those, and none of the row is read.
    pub(super) fn bracket(&self, key: &[u8]) -> Bracket {
        let mut window = 0..0;
        for ((start, end), segment) in self.live().intervals().zip(self.segment_lengths()) {
            window = window.end..window.end + segment;
            if end.is_none_or(|end| key < end) {
                let (first, last) = self.bounds();
                let bounds = [start.max(first), end.map_or(last, |end| end.min(last))];
                let ends = bounds
                    .map(|bound| self.needle(bound))
                    .map(|needle| needle.against_prefix.is_eq().then_some(needle.fragment));
                let ends = ends[0].zip(ends[1]).map(|(below, above)| [below, above]);
                return Bracket { window, ends };
            }
        }
        Bracket { window: window.end..window.end, ends: None }
    }

    /// A key as this row sees it: the part of all comparisons with its keys that they share.
    pub(super) fn needle<'a>(&self, key: &'a [u8]) -> Needle<'a> {
        let prefix = self.common_prefix();
        match key.strip_prefix(prefix) {
            Some(rest) => Needle { key, against_prefix: Ordering::Equal, fragment: fragment(rest) },
            // No key of the row is between the two, so the order of whole keys is that to each.
            None => Needle { key, against_prefix: key.cmp(prefix), fragment: 0 },
        }
    }

    /// How the key of the element at an index stands to the needle.
    #[inline]
    pub(super) fn compare(
        &self,
        index: usize,
        needle: &Needle<'_>,
        probe: &mut impl Probe,
    ) -> Result<Ordering> {
        Ok(self.look(index, needle, probe)?.order)
    }

    /// The same, with what was read for it.
    #[inline]
    fn look(&self, index: usize, needle: &Needle<'_>, probe: &mut impl Probe) -> Result<Seen<'_>> {
        probe.compared();
        if needle.against_prefix.is_ne() {
            let order = needle.against_prefix.reverse();
            return Ok(Seen { order, element: None, item: None });
        }
        let element = self.element(index, probe)?;
        let (order, item) = match element.fragment.cmp(&needle.fragment) {
            Ordering::Equal => {
                let (item, head) = self.item_at(element.address(), probe)?;
                (item.key_in(&head).cmp(needle.key), Some((item, head)))
            }
            order => (order, None),
        };
        Ok(Seen { order, element: Some(element), item })
    }
}

impl<'a> Landing<'a> {
    fn unread(position: usize) -> Self {
        let place = Place { position, is_equal: false };
        Landing { place, item: None, element: None }
    }

    fn at(position: usize, seen: Seen<'a>) -> Self {
        let place = Place { position, is_equal: seen.order.is_eq() };
        Landing { place, item: seen.item, element: seen.element }
    }
}
