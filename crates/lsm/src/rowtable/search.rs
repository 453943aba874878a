//! Searches for a key in the metadata array of one row.
//!
//! Elements are compared by their fragments; if those are equal, by the keys in the items.
//! Positions count live elements only, so a search never finds dead ones.
//!
//! *Binary search*, as in the paper: log₂(window + 1) comparisons, each of which reads a cache line
//! of metadata, and one or two lines of data if fragments are equal. *Interpolation search* if keys
//! on both sides of the window are known: it takes five comparisons for 65,536 uniform keys. After
//! [`MAX_GUESSES`] interpolations the search continues as a binary one, which limits the extra cost
//! for clustered or adversarial keys to that number of comparisons.
//!
//! Invariant: the result is the position of the first key that is not less than the target.
//!
//! Source: TriangleKV paper, section 3.1; interpolation search as cited in `interpolation`.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::ops::Range;

use siltstone_engine::Result;

use super::element::{Element, fragment};
use super::item::Item;
use super::search_stats::SearchObserver;
use super::table::{RowTable, RowVersion};

/// The maximum number of interpolations per search.
pub(super) const MAX_GUESSES: u32 = 8;

/// The searched key relative to one row.
pub(super) struct Target<'a> {
    key: &'a [u8],
    /// Its order relative to the common prefix of the row's keys.
    prefix_order: Ordering,
    fragment: u64,
}

/// The position of a key, or where it would be inserted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct KeyPosition {
    /// The first live version of the row whose key is not less.
    pub(crate) position: usize,
    /// Whether its key is equal.
    pub(crate) is_exact: bool,
}

/// Bounds on the position of a key; the end is included.
#[derive(Debug, Clone)]
pub(super) struct Bounds {
    pub(super) window: Range<usize>,
    /// Fragments of a key before the window and of one after it, relative to this row's prefix.
    pub(super) ends: Option<[u64; 2]>,
}

/// The result of a comparison with an element, and what was read for it.
pub(super) struct Comparison<'a> {
    order: Ordering,
    element: Option<Element>,
    /// Its item, and the bytes before the value.
    item: Option<ItemRead<'a>>,
}

/// The result of a search, and what was read at its position.
pub(super) struct SearchHit<'a> {
    pub(super) position: KeyPosition,
    item: Option<ItemRead<'a>>,
    pub(super) element: Option<Element>,
}

type ItemRead<'a> = (Item, Cow<'a, [u8]>);

impl RowTable {
    /// The newest version of `key` with a sequence number up to `at`, by binary search over the
    /// whole row. Cost: that of the search, and a copy of the value.
    ///
    /// # Errors
    /// `Corruption` in what was read.
    pub(crate) fn get(
        &self,
        key: &[u8],
        at: u64,
        observer: &mut impl SearchObserver,
    ) -> Result<Option<RowVersion>> {
        let bounds = Bounds { window: 0..self.len(), ends: None };
        let hit = self.search(&self.target(key), bounds, observer)?;
        self.version(hit, key, at, observer)
    }

    /// The newest version of the searched `key` with a sequence number up to `at`. Scans the
    /// versions of the key, which are few: one per snapshot.
    pub(super) fn version(
        &self,
        hit: SearchHit<'_>,
        key: &[u8],
        at: u64,
        observer: &mut impl SearchObserver,
    ) -> Result<Option<RowVersion>> {
        let KeyPosition { mut position, is_exact } = hit.position;
        let mut read = hit.item;
        while is_exact && position < self.len() {
            let (item, head) = match read.take() {
                Some(read) => read,
                None => self.item(self.index(position), observer)?,
            };
            if item.key_in(&head) != key {
                break;
            }
            if item.sequence <= at {
                return Ok(Some(RowVersion {
                    sequence: item.sequence,
                    kind: item.kind,
                    expires_at: item.expires_at,
                    value: self.value(&item, observer)?.into_owned(),
                }));
            }
            position += 1;
        }
        Ok(None)
    }

    /// The position of `key` in a window, by binary search.
    pub(super) fn lower_bound(
        &self,
        key: &[u8],
        window: Range<usize>,
        observer: &mut impl SearchObserver,
    ) -> Result<KeyPosition> {
        Ok(self.search(&self.target(key), Bounds { window, ends: None }, observer)?.position)
    }

    /// The position of a key within `bounds`.
    pub(super) fn search(
        &self,
        target: &Target<'_>,
        bounds: Bounds,
        observer: &mut impl SearchObserver,
    ) -> Result<SearchHit<'_>> {
        let Bounds { window: Range { start: mut low, end: mut high }, mut ends } = bounds;
        if target.prefix_order.is_ne() && low < high {
            // All keys have the same prefix, so one comparison is sufficient.
            observer.on_comparison();
            let position = if target.prefix_order.is_lt() { low } else { high };
            return Ok(SearchHit::unread(position));
        }
        let mut found: Option<Comparison<'_>> = None;
        let mut guesses = 0;
        while low < high {
            let middle = match ends {
                Some(ends) if high - low > 1 && guesses < MAX_GUESSES => {
                    guesses += 1;
                    self.guess(target.fragment, ends, low..high)
                }
                _ => low + (high - low) / 2,
            };
            let comparison = self.compare_reading(self.index(middle), target, observer)?;
            if let (Some(ends), Some(element)) = (&mut ends, &comparison.element) {
                ends[usize::from(comparison.order.is_ge())] = element.fragment;
            }
            match comparison.order {
                Ordering::Less => low = middle + 1,
                Ordering::Equal | Ordering::Greater => {
                    high = middle;
                    found = Some(comparison);
                }
            }
        }
        Ok(found.map_or(SearchHit::unread(low), |comparison| SearchHit::at(low, comparison)))
    }

    /// Interpolates the position of a fragment in a window between those at its ends.
    fn guess(&self, fragment: u64, ends: [u64; 2], window: Range<usize>) -> usize {
        let [below, above] = ends.map(|end| self.scale().value(end));
        let share = (self.scale().value(fragment) - below) / (above - below);
        let share = if share.is_finite() { share } else { 0.5 };
        // A share out of range, or a negative one, is clamped to one of the ends.
        let step = (share * window.len() as f64) as usize;
        window.start + step.min(window.len() - 1)
    }

    /// The hit at a position whose key is known not to be less.
    pub(super) fn hit_at(
        &self,
        position: usize,
        target: &Target<'_>,
        observer: &mut impl SearchObserver,
    ) -> Result<SearchHit<'_>> {
        if position >= self.len() {
            return Ok(SearchHit::unread(position));
        }
        Ok(SearchHit::at(position, self.compare_reading(self.index(position), target, observer)?))
    }

    /// Bounds from the live range: the live segment of the key, between the keys that end it. Cost:
    /// two comparisons with those; nothing of the row is read.
    pub(super) fn search_bounds(&self, key: &[u8]) -> Bounds {
        let mut window = 0..0;
        for ((start, end), segment) in self.live().intervals().zip(self.segment_lengths()) {
            window = window.end..window.end + segment;
            if end.is_none_or(|end| key < end) {
                let (first, last) = self.bounds();
                let bounds = [start.max(first), end.map_or(last, |end| end.min(last))];
                let ends = bounds
                    .map(|end| self.target(end))
                    .map(|target| target.prefix_order.is_eq().then_some(target.fragment));
                let ends = ends[0].zip(ends[1]).map(|(below, above)| [below, above]);
                return Bounds { window, ends };
            }
        }
        Bounds { window: window.end..window.end, ends: None }
    }

    /// The target for this row: the part common to all comparisons with its keys.
    pub(super) fn target<'a>(&self, key: &'a [u8]) -> Target<'a> {
        let prefix = self.common_prefix();
        match key.strip_prefix(prefix) {
            Some(rest) => Target { key, prefix_order: Ordering::Equal, fragment: fragment(rest) },
            // No key of the row is between the two, so the order of the key is the same to each.
            None => Target { key, prefix_order: key.cmp(prefix), fragment: 0 },
        }
    }

    /// Compares the key of the element at an index with the target.
    #[inline]
    pub(super) fn compare(
        &self,
        index: usize,
        target: &Target<'_>,
        observer: &mut impl SearchObserver,
    ) -> Result<Ordering> {
        Ok(self.compare_reading(index, target, observer)?.order)
    }

    /// As [`compare`](Self::compare), with what was read for it.
    #[inline]
    fn compare_reading(
        &self,
        index: usize,
        target: &Target<'_>,
        observer: &mut impl SearchObserver,
    ) -> Result<Comparison<'_>> {
        observer.on_comparison();
        if target.prefix_order.is_ne() {
            let order = target.prefix_order.reverse();
            return Ok(Comparison { order, element: None, item: None });
        }
        let element = self.element(index, observer)?;
        let (order, item) = match element.fragment.cmp(&target.fragment) {
            Ordering::Equal => {
                let (item, head) = self.item_at(element.address(), observer)?;
                (item.key_in(&head).cmp(target.key), Some((item, head)))
            }
            order => (order, None),
        };
        Ok(Comparison { order, element: Some(element), item })
    }
}

impl<'a> SearchHit<'a> {
    fn unread(position: usize) -> Self {
        let position = KeyPosition { position, is_exact: false };
        SearchHit { position, item: None, element: None }
    }

    fn at(position: usize, comparison: Comparison<'a>) -> Self {
        let position = KeyPosition { position, is_exact: comparison.order.is_eq() };
        SearchHit { position, item: comparison.item, element: comparison.element }
    }
}
