//! Requests, prepared before the clock starts.
//!
//! ```text
//! texts   │ key │ value │ key │ value │ …      concatenated, in the order of the requests
//! gets    │ lookup?     │ lookup?     │ …
//! ```
//!
//! The key of an item is its number in eight digits, with leading zeros; its value repeats these
//! digits, so a response can be matched to its key.
//!
//! Source: Lim, thesis (2015), section 5.4.1: the three data sets.

use std::ops::Range;

/// Digits per key.
const DIGITS: usize = 8;
/// Maximal bytes of the prepared texts: there are fewer requests with large items.
const MAX_BYTES: usize = 128 << 20;

/// Bytes per key and per value, multiples of eight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sizes {
    /// Bytes per key.
    pub key: usize,
    /// Bytes per value.
    pub value: usize,
}

impl Sizes {
    /// The thesis's tiny items.
    pub const TINY: Sizes = Sizes { key: 8, value: 8 };
    /// The thesis's small items.
    pub const SMALL: Sizes = Sizes { key: 16, value: 64 };
    /// The thesis's large items.
    pub const LARGE: Sizes = Sizes { key: 128, value: 1024 };

    /// Bytes per item.
    pub fn item(self) -> usize {
        self.key + self.value
    }
}

/// Prepared requests: a key with its value, and whether it is looked up or stored.
#[derive(Debug)]
pub struct Draws {
    sizes: Sizes,
    texts: Vec<u8>,
    gets: Vec<bool>,
}

impl Draws {
    /// The requests for items, by number, with whether each is a lookup.
    pub fn of(sizes: Sizes, items: impl Iterator<Item = (u64, bool)>) -> Self {
        let mut draws = Draws { sizes, texts: Vec::new(), gets: Vec::new() };
        for (item, is_get) in items.take(MAX_BYTES / sizes.item()) {
            let digits = digits(item);
            draws.texts.resize(draws.texts.len() + sizes.key - DIGITS, b'0');
            for _ in 0..1 + sizes.value / DIGITS {
                draws.texts.extend_from_slice(&digits);
            }
            draws.gets.push(is_get);
        }
        draws
    }

    /// Number of requests.
    pub fn len(&self) -> usize {
        self.gets.len()
    }

    /// Whether there are no requests.
    pub fn is_empty(&self) -> bool {
        self.gets.is_empty()
    }

    /// The key of a request, its value, and whether it is a lookup.
    #[inline]
    pub fn at(&self, at: usize) -> (&[u8], &[u8], bool) {
        let item = &self.texts[at * self.sizes.item()..][..self.sizes.item()];
        let (key, value) = item.split_at(self.sizes.key);
        (key, value, self.gets[at])
    }
}

/// Splits a range into chunks of `len`; the last may be shorter.
pub(super) fn chunks(range: Range<usize>, len: usize) -> impl Iterator<Item = Range<usize>> {
    let end = range.end;
    range.step_by(len).map(move |start| start..end.min(start + len))
}

fn digits(item: u64) -> [u8; DIGITS] {
    let mut digits = [b'0'; DIGITS];
    let mut rest = item;
    for digit in digits.iter_mut().rev() {
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    digits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_are_identified_by_their_digits() {
        for sizes in [Sizes::TINY, Sizes::SMALL, Sizes::LARGE] {
            let draws = Draws::of(sizes, [(12_345_678, true), (7, false)].into_iter());
            assert_eq!((draws.len(), draws.is_empty()), (2, false));
            for (at, digits, is_get) in [(0, b"12345678", true), (1, b"00000007", false)] {
                let (key, value, looks_up) = draws.at(at);
                assert_eq!((key.len(), value.len(), looks_up), (sizes.key, sizes.value, is_get));
                assert!(key.ends_with(digits) && key[..sizes.key - 8].iter().all(|&it| it == b'0'));
                assert!(value.chunks(8).all(|part| part == digits));
            }
        }
        let endless = (0u64..).map(|item| (item, true));
        assert_eq!(Draws::of(Sizes::LARGE, endless).len(), (128 << 20) / 1152);
    }

    #[test]
    fn chunks_cover_the_range() {
        assert_eq!(chunks(3..10, 3).collect::<Vec<_>>(), [3..6, 6..9, 9..10]);
        assert_eq!(chunks(3..3, 3).count(), 0);
    }
}
