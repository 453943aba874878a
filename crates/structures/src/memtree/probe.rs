//! A key to search for, and the eight bytes of it that a node compares as a number.
//!
//! ```text
//!   key      u s e r 0 0 0 1 2 3 4 5 6 7 8
//!            └── skip ─┘└──── word ────┘        all keys of a node share what it skips
//! ```
//!
//! Words order keys as their bytes do: where two differ, the keys differ there too, or one of them ends there,
//! which the zeros behind it order rightly. Equal words say nothing: a short key may end in real zeros.
//!
//! Source: Bayer, Unterauer, "Prefix B-trees", TODS 1977; Graefe, Larson, "B-tree indexes and CPU caches", ICDE 2001
//! (poor man's normalized keys).

/// The bytes of a key that are compared as a number; shorter keys are padded with zeros.
const WORD: usize = size_of::<u64>();

/// A key to search for.
#[derive(Clone, Copy)]
pub(super) struct Probe<'k> {
    pub(super) key: &'k [u8],
    /// Of its first bytes.
    first: u64,
}

impl<'k> Probe<'k> {
    #[inline]
    pub(super) fn new(key: &'k [u8]) -> Self {
        Self { key, first: word(key, 0) }
    }

    /// The word behind the first `skip` bytes.
    #[inline]
    pub(super) fn word(&self, skip: usize) -> u64 {
        if skip == 0 { self.first } else { word(self.key, skip) }
    }
}

/// The word of a key behind its first `skip` bytes.
#[inline]
pub(super) fn word(key: &[u8], skip: usize) -> u64 {
    let rest = key.get(skip..).unwrap_or_default();
    if let Some(whole) = rest.first_chunk::<WORD>() {
        return u64::from_be_bytes(*whole);
    }
    let mut padded = [0; WORD];
    padded[..rest.len()].copy_from_slice(rest);
    u64::from_be_bytes(padded)
}

/// How many bytes two keys begin with alike.
pub(super) fn shared(left: &[u8], right: &[u8]) -> usize {
    left.iter().zip(right).take_while(|(left, right)| left == right).count()
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn do_words_order_keys_or_say_nothing() {
        let keys: [&[u8]; 7] =
            [b"", b"\0", b"\0\0", b"a", b"abcdefgh", b"abcdefgh\0", b"abcdefghi"];
        for (left, right) in keys.iter().zip(&keys[1..]) {
            for skip in 0..=shared(left, right) {
                assert!(word(left, skip) <= word(right, skip), "{left:?} {right:?} {skip}");
            }
        }
        assert_eq!(Probe::new(b"abcdefghi").word(1), word(b"bcdefghi", 0));
        assert_eq!(word(b"abc", 3), 0);
        assert_eq!((shared(b"abc", b"abd"), shared(b"ab", b"abc"), shared(b"", b"a")), (2, 2, 0));
    }
}
