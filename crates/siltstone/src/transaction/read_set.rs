//! The read set of a transaction: single keys, and the scanned parts of ranges.
//!
//! A range counts as read as far as it was scanned: from its start to the last key seen forwards,
//! from its end to the last key seen backwards. A scan that reached an end has read the whole
//! range, absent keys included, so a phantom is a conflict.

use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::Arc;

use parking_lot::Mutex;
use siltstone_engine::{KeyRange, Timestamp};

/// The read set. Cost: a copy of each key read; a few words per range.
#[derive(Debug, Default)]
pub(super) struct ReadSet {
    keys: BTreeSet<Vec<u8>>,
    ranges: Vec<Arc<Mutex<RangeRead>>>,
    /// The earliest expiry of an entry that was read by its key.
    expires_at: Option<Timestamp>,
}

impl ReadSet {
    pub(super) fn add_key(&mut self, key: &[u8]) {
        if !self.keys.contains(key) {
            self.keys.insert(key.to_vec());
        }
    }

    /// Adds a range of which nothing has been read yet; its cursor records how far it came.
    pub(super) fn add_range(&mut self, range: KeyRange) -> Arc<Mutex<RangeRead>> {
        let read = RangeRead { range, to: None, back_to: None, is_whole: false, expires_at: None };
        let read = Arc::new(Mutex::new(read));
        self.ranges.push(read.clone());
        read
    }

    /// Records when an entry that was read by its key expires.
    pub(super) fn note_expiry(&mut self, expires_at: Option<Timestamp>) {
        self.expires_at = earlier(self.expires_at, expires_at);
    }

    /// The earliest expiry of all entries that were read.
    pub(super) fn earliest_expiry(&self) -> Option<Timestamp> {
        let of_ranges = self.ranges.iter().map(|range| range.lock().expires_at);
        of_ranges.fold(self.expires_at, earlier)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.keys.is_empty() && self.ranges.is_empty()
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = &[u8]> {
        self.keys.iter().map(Vec::as_slice)
    }

    /// A key that was read, or the start of a scan.
    pub(super) fn any_key(&self) -> Vec<u8> {
        let start = |range: KeyRange| match range.start {
            Bound::Included(key) | Bound::Excluded(key) => key,
            Bound::Unbounded => Vec::new(),
        };
        let first = self.keys.first().cloned();
        first.or_else(|| self.ranges().next().map(start)).unwrap_or_default()
    }

    /// The scanned ranges.
    pub(super) fn ranges(&self) -> impl Iterator<Item = KeyRange> {
        self.ranges.iter().flat_map(|range| range.lock().read())
    }
}

/// The scanned part of a range.
#[derive(Debug)]
pub(super) struct RangeRead {
    range: KeyRange,
    /// Keys up to this one were read.
    to: Option<Vec<u8>>,
    /// Keys from this one on were read.
    back_to: Option<Vec<u8>>,
    is_whole: bool,
    /// The earliest expiry of a stored entry that was returned.
    expires_at: Option<Timestamp>,
}

/// The earlier of two expiries, of which either may be missing.
fn earlier(one: Option<Timestamp>, other: Option<Timestamp>) -> Option<Timestamp> {
    one.into_iter().chain(other).min()
}

impl RangeRead {
    /// Records when a stored entry that was returned expires.
    pub(super) fn note_expiry(&mut self, expires_at: Option<Timestamp>) {
        self.expires_at = earlier(self.expires_at, expires_at);
    }

    /// Records that a forward scan came to this key.
    pub(super) fn cover_to(&mut self, key: &[u8]) {
        let to = self.to.get_or_insert_default();
        if to.as_slice() < key {
            to.clear();
            to.extend_from_slice(key);
        }
    }

    /// Records that a backward scan came to this key.
    pub(super) fn cover_back_to(&mut self, key: &[u8]) {
        match &mut self.back_to {
            Some(back_to) if back_to.as_slice() <= key => {}
            Some(back_to) => {
                back_to.clear();
                back_to.extend_from_slice(key);
            }
            None => self.back_to = Some(key.to_vec()),
        }
    }

    /// Records that a scan came to an end of the range, or to an unknown position.
    pub(super) fn cover_all(&mut self) {
        self.is_whole = true;
    }

    fn read(&self) -> Vec<KeyRange> {
        let RangeRead { range, to, back_to, .. } = self;
        if self.is_whole {
            return vec![range.clone()];
        }
        let forwards = to
            .iter()
            .map(|to| KeyRange { start: range.start.clone(), end: Bound::Included(to.clone()) });
        let backwards = back_to.iter().map(|back_to| KeyRange {
            start: Bound::Included(back_to.clone()),
            end: range.end.clone(),
        });
        forwards.chain(backwards).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn range_counts_as_read_as_far_as_it_was_scanned() {
        let mut reads = ReadSet::default();
        let scan = reads.add_range(KeyRange::new("b".."y"));
        let is_read = |key: &str| reads.ranges().any(|range| range.contains(key.as_bytes()));
        assert!(!is_read("c"));
        scan.lock().cover_to(b"d");
        scan.lock().cover_to(b"c");
        assert_eq!(["a", "b", "c", "d", "e"].map(is_read), [false, true, true, true, false]);
        scan.lock().cover_back_to(b"u");
        scan.lock().cover_back_to(b"v");
        assert_eq!(["e", "t", "u", "x", "y"].map(is_read), [false, false, true, true, false]);
        scan.lock().cover_all();
        assert_eq!(["a", "b", "m", "x", "y"].map(is_read), [false, true, true, true, false]);
    }
}
