//! What a transaction has read: single keys, and stretches of ranges.
//!
//! A range counts as far as it was walked: from its start to the furthest key that was seen going
//! forwards, from its end to the furthest going back. A walk that came to the end has read the whole
//! range, and with it that there is nothing else in it: so phantoms are conflicts.

use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::Arc;

use parking_lot::Mutex;
use siltstone_engine::KeyRange;

/// The read set. Cost: a copy of each key read; a few words a range.
#[derive(Debug, Default)]
pub(super) struct Reads {
    keys: BTreeSet<Vec<u8>>,
    ranges: Vec<Arc<Mutex<RangeRead>>>,
}

impl Reads {
    pub(super) fn add_key(&mut self, key: &[u8]) {
        if !self.keys.contains(key) {
            self.keys.insert(key.to_vec());
        }
    }

    /// A range of which nothing has been read yet; whoever walks it tells how far.
    pub(super) fn add_range(&mut self, range: KeyRange) -> Arc<Mutex<RangeRead>> {
        let read = RangeRead { range, to: None, back_to: None, is_whole: false };
        let read = Arc::new(Mutex::new(read));
        self.ranges.push(read.clone());
        read
    }

    pub(super) fn is_empty(&self) -> bool {
        self.keys.is_empty() && self.ranges.is_empty()
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = &[u8]> {
        self.keys.iter().map(Vec::as_slice)
    }

    /// A key that was read, or where a walk began.
    pub(super) fn any_key(&self) -> Vec<u8> {
        let start = |range: KeyRange| match range.start {
            Bound::Included(key) | Bound::Excluded(key) => key,
            Bound::Unbounded => Vec::new(),
        };
        let first = self.keys.first().cloned();
        first.or_else(|| self.ranges().next().map(start)).unwrap_or_default()
    }

    /// All that was walked.
    pub(super) fn ranges(&self) -> impl Iterator<Item = KeyRange> {
        self.ranges.iter().flat_map(|range| range.lock().read())
    }
}

/// How much of a range was read.
#[derive(Debug)]
pub(super) struct RangeRead {
    range: KeyRange,
    /// Everything up to this key.
    to: Option<Vec<u8>>,
    /// Everything from this key on.
    back_to: Option<Vec<u8>>,
    is_whole: bool,
}

impl RangeRead {
    /// A walk forwards has come to this key.
    pub(super) fn cover_to(&mut self, key: &[u8]) {
        let to = self.to.get_or_insert_default();
        if to.as_slice() < key {
            to.clear();
            to.extend_from_slice(key);
        }
    }

    /// A walk backwards has come to this key.
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

    /// A walk has come to an end, or it is not known how far it came.
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
    fn a_range_counts_as_far_as_it_was_walked() {
        let mut reads = Reads::default();
        let walk = reads.add_range(KeyRange::new("b".."y"));
        let is_read = |key: &str| reads.ranges().any(|range| range.contains(key.as_bytes()));
        assert!(!is_read("c"));
        walk.lock().cover_to(b"d");
        walk.lock().cover_to(b"c");
        assert_eq!(["a", "b", "c", "d", "e"].map(is_read), [false, true, true, true, false]);
        walk.lock().cover_back_to(b"u");
        walk.lock().cover_back_to(b"v");
        assert_eq!(["e", "t", "u", "x", "y"].map(is_read), [false, false, true, true, false]);
        walk.lock().cover_all();
        assert_eq!(["a", "b", "m", "x", "y"].map(is_read), [false, true, true, true, false]);
    }
}
