//! A range of keys, with bounds of any kind.

use std::ops::Bound;

use crate::error::display_key;
use crate::{Error, Result};

/// A range of keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyRange {
    /// The lower end.
    pub start: Bound<Vec<u8>>,
    /// The upper end.
    pub end: Bound<Vec<u8>>,
}

impl KeyRange {
    /// Every key.
    pub fn all() -> Self {
        KeyRange { start: Bound::Unbounded, end: Bound::Unbounded }
    }

    /// The keys that start with `prefix`.
    pub fn prefix(prefix: &[u8]) -> Self {
        // The first key after all that start with the prefix: drop trailing 0xff, add one.
        let mut end = prefix.to_vec();
        while end.pop_if(|byte| *byte == 0xff).is_some() {}
        let end = match end.last_mut() {
            None => Bound::Unbounded,
            Some(byte) => {
                *byte += 1;
                Bound::Excluded(end)
            }
        };
        KeyRange { start: Bound::Included(prefix.to_vec()), end }
    }

    /// Any range of byte strings.
    pub fn new<K: AsRef<[u8]>>(range: impl std::ops::RangeBounds<K>) -> Self {
        let own = |bound: Bound<&K>| bound.map(|key| key.as_ref().to_vec());
        KeyRange { start: own(range.start_bound()), end: own(range.end_bound()) }
    }

    /// Checks that the range does not start after its end. A range from a key to the same key is
    /// valid, and empty unless both bounds are inclusive.
    ///
    /// # Errors
    /// [`Error::Invalid`] that names both bounds.
    pub fn check(&self) -> Result<()> {
        use Bound::{Excluded, Included};
        let (Included(start) | Excluded(start), Included(end) | Excluded(end)) =
            (&self.start, &self.end)
        else {
            return Ok(());
        };
        if start <= end {
            return Ok(());
        }
        Err(Error::Invalid(format!(
            "the range is inverted: it starts at {}, after its end, {}; swap the bounds, and iterate \
             with rev() for descending order",
            display_key(start),
            display_key(end)
        )))
    }

    /// Whether `key` is above the lower end.
    pub fn is_after_start(&self, key: &[u8]) -> bool {
        match &self.start {
            Bound::Unbounded => true,
            Bound::Included(start) => key >= start.as_slice(),
            Bound::Excluded(start) => key > start.as_slice(),
        }
    }

    /// Whether `key` is below the upper end.
    pub fn is_before_end(&self, key: &[u8]) -> bool {
        match &self.end {
            Bound::Unbounded => true,
            Bound::Included(end) => key <= end.as_slice(),
            Bound::Excluded(end) => key < end.as_slice(),
        }
    }

    /// Whether `key` is in the range.
    pub fn contains(&self, key: &[u8]) -> bool {
        self.is_after_start(key) && self.is_before_end(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefix_range_contains_exactly_the_keys_with_the_prefix() {
        for prefix in [&b"a"[..], b"a\xff", b"\xff\xff", b""] {
            let range = KeyRange::prefix(prefix);
            for key in [
                &b""[..],
                b"a",
                b"a\xff",
                b"a\xff\xff",
                b"b",
                b"\xff",
                b"\xff\xff",
                b"\xff\xff\xff",
            ] {
                assert_eq!(range.contains(key), key.starts_with(prefix), "{prefix:?} {key:?}");
            }
        }
    }

    #[test]
    fn inverted_range_is_invalid_with_both_bounds_named() {
        use Bound::{Excluded, Included, Unbounded};
        let range = |start: Bound<&str>, end: Bound<&str>| {
            let own = |bound: Bound<&str>| bound.map(|key| key.as_bytes().to_vec());
            KeyRange { start: own(start), end: own(end) }
        };
        for (start, end) in [(Included("b"), Excluded("a")), (Excluded("b"), Included("a"))] {
            let error = range(start, end).check().unwrap_err().to_string();
            assert!(error.contains("key 'b'") && error.contains("key 'a'"), "{error}");
        }
        for (start, end) in [
            (Included("a"), Included("a")),
            (Excluded("a"), Excluded("a")),
            (Included("b"), Unbounded),
            (Unbounded, Excluded("a")),
        ] {
            range(start, end).check().unwrap();
        }
    }
}
