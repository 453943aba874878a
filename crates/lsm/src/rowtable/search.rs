//! Finding a key in one row: binary search over the metadata array.
//!
//! The element in the middle is compared by its fragment; where fragments are equal, by the key in
//! the item. Positions are of live elements, so what died cannot be found.
//!
//! Cost: log₂(window + 1) comparisons, each a cache line of metadata, and a line or two of data where
//! fragments are equal.
//!
//! Invariant: the position found is the first whose key is not less than the one searched for.
//!
//! Source: TriangleKV paper, section 3.1.

use std::cmp::Ordering;
use std::ops::Range;

use siltstone_engine::Result;

use super::element::fragment;
use super::probe::Probe;
use super::table::{RowTable, RowVersion};

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

impl RowTable {
    /// The newest version of `key` at or before the sequence number `at`, by a search of the whole
    /// row. Cost: that of the search, and the value's copy.
    ///
    /// # Errors
    /// `Corruption` in what was read.
    pub(crate) fn get(
        &self,
        key: &[u8],
        at: u64,
        probe: &mut impl Probe,
    ) -> Result<Option<RowVersion>> {
        let place = self.lower_bound(key, 0..self.len(), probe)?;
        self.version(place, key, at, probe)
    }

    /// Of the versions of `key`, which is at `place`, the newest at or before `at`. They are few:
    /// one for each snapshot that was held, and they are looked at one by one.
    pub(super) fn version(
        &self,
        place: Place,
        key: &[u8],
        at: u64,
        probe: &mut impl Probe,
    ) -> Result<Option<RowVersion>> {
        let mut position = place.position;
        while place.is_equal && position < self.len() {
            let (item, head) = self.item(self.index(position), probe)?;
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

    /// Where `key` is among the positions of a window, whose end counts: it must be known to be in
    /// there.
    pub(super) fn lower_bound(
        &self,
        key: &[u8],
        window: Range<usize>,
        probe: &mut impl Probe,
    ) -> Result<Place> {
        let (mut low, mut high) = (window.start, window.end);
        let mut is_equal = false;
        if low < high {
            let needle = self.needle(key);
            while low < high {
                let middle = low + (high - low) / 2;
                let order = self.compare(self.index(middle), &needle, probe)?;
                match order {
                    Ordering::Less => low = middle + 1,
                    Ordering::Equal | Ordering::Greater => {
                        high = middle;
                        is_equal = order.is_eq();
                    }
                }
            }
        }
        Ok(Place { position: low, is_equal })
    }

    /// Whether the key at a position is this one.
    pub(super) fn is_at(
        &self,
        position: usize,
        key: &[u8],
        probe: &mut impl Probe,
    ) -> Result<bool> {
        if position >= self.len() {
            return Ok(false);
        }
        let needle = self.needle(key);
        Ok(self.compare(self.index(position), &needle, probe)?.is_eq())
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
        probe.compared();
        if needle.against_prefix.is_ne() {
            return Ok(needle.against_prefix.reverse());
        }
        let element = self.element(index, probe)?;
        match element.fragment.cmp(&needle.fragment) {
            Ordering::Equal => {
                let (item, head) = self.item_at(element.address(), probe)?;
                Ok(item.key_in(&head).cmp(needle.key))
            }
            order => Ok(order),
        }
    }
}
