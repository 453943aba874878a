//! A search key, and the 8-byte prefix that a node compares as an integer.
//!
//! ```text
//!   key      u s e r 0 0 0 1 2 3 4 5 6 7 8
//!            └── skip ─┘└─── prefix ───┘        all keys of a node share the skipped bytes
//! ```
//!
//! Unequal prefixes order keys as their bytes do, since zero padding sorts a shorter key first.
//! Equal prefixes decide nothing, because a short key may end in real zeros.
//!
//! Source: Bayer, Unterauer, "Prefix B-trees", TODS 1977; Graefe, Larson, "B-tree indexes and CPU
//! caches", ICDE 2001 (poor man's normalized keys).

use crate::key_head;

/// A key to search for.
#[derive(Clone, Copy)]
pub(super) struct SearchKey<'k> {
    pub(super) key: &'k [u8],
    /// The prefix without skipped bytes.
    first: u64,
}

impl<'k> SearchKey<'k> {
    #[inline]
    pub(super) fn new(key: &'k [u8]) -> Self {
        Self { key, first: prefix(key, 0) }
    }

    /// The prefix after the first `skip` bytes.
    #[inline]
    pub(super) fn prefix(&self, skip: usize) -> u64 {
        if skip == 0 { self.first } else { prefix(self.key, skip) }
    }
}

/// The prefix of a key after its first `skip` bytes.
#[inline]
pub(super) fn prefix(key: &[u8], skip: usize) -> u64 {
    key_head(key.get(skip..).unwrap_or_default())
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::common_prefix_len;

    #[test]
    fn prefixes_order_keys_or_are_equal() {
        let keys: [&[u8]; 7] =
            [b"", b"\0", b"\0\0", b"a", b"abcdefgh", b"abcdefgh\0", b"abcdefghi"];
        for (left, right) in keys.iter().zip(&keys[1..]) {
            for skip in 0..=common_prefix_len(left, right) {
                assert!(prefix(left, skip) <= prefix(right, skip), "{left:?} {right:?} {skip}");
            }
        }
        assert_eq!(SearchKey::new(b"abcdefghi").prefix(1), prefix(b"bcdefghi", 0));
        assert_eq!(prefix(b"abc", 3), 0);
    }
}
