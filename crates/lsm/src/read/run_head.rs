//! Heads of keys, which decide most comparisons of a merge.
//!
//! A head is eight bytes of a key as an integer. They begin shortly before the place where the keys
//! near the position differ, behind a prefix:
//!
//! ```text
//!   keys      user:00001711…  user:00003910…  user:00003947…
//!   prefix    user:
//!   heads          00001711        00003910        00003947
//! ```
//!
//! Invariant: heads are in the order of keys, also of those that do not begin with the prefix,
//! whose heads are the least or the greatest integer. Keys with different heads differ; keys with
//! equal heads need not be equal.
//!
//! Source: Graefe, Larson, "B-tree indexes and CPU caches", ICDE 2001 (poor man's normalized keys).

use std::cmp::Ordering;

use siltstone_structures::{KeyBuffer, common_prefix_len, key_head};

/// The prefix ends this many bytes before the keys differ, so that the keys that follow have it,
/// too.
const MARGIN_BYTES: usize = 4;

/// The prefix of the keys near a merge's position.
#[derive(Default)]
pub(super) struct HeadPrefix(KeyBuffer);

impl HeadPrefix {
    /// Its length, in bytes.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// The head of a key.
    #[inline]
    pub(super) fn head(&self, key: &[u8]) -> u64 {
        let prefix = self.0.as_slice();
        match key.split_at_checked(prefix.len()) {
            Some((start, rest)) if start == prefix => key_head(rest),
            _ => self.head_without_prefix(key),
        }
    }

    #[inline(never)]
    fn head_without_prefix(&self, key: &[u8]) -> u64 {
        match key.cmp(self.0.as_slice()) {
            Ordering::Less => 0,
            _ => u64::MAX,
        }
    }

    /// Chooses the prefix for keys near two.
    pub(super) fn choose(&mut self, a: &[u8], b: &[u8]) {
        let common = common_prefix_len(a, b);
        self.0.set(&a[..common.saturating_sub(MARGIN_BYTES)]);
    }
}

/// What most comparisons need of a run at its current version.
#[derive(Clone, Copy)]
pub(super) struct RunHead {
    /// The head of the key.
    pub(super) key: u64,
    pub(super) sequence: u64,
}

impl RunHead {
    #[inline]
    pub(super) fn of(key: &[u8], sequence: u64, prefix: &HeadPrefix) -> Self {
        RunHead { key: prefix.head(key), sequence }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_of_any_prefix_are_in_the_order_of_keys() {
        let words = [0u8, 1, b'a', 255];
        let mut keys: Vec<Vec<u8>> = vec![Vec::new()];
        for len in 0..4 {
            let shorter: Vec<_> = keys.iter().filter(|key| key.len() == len).cloned().collect();
            keys.extend(
                shorter.iter().flat_map(|key| words.map(|word| [&key[..], &[word]].concat())),
            );
        }
        keys.extend((0..20u8).map(|i| [b"a\xffaaaaaaaaaa".as_slice(), &[i]].concat()));
        keys.sort();
        for prefix in &keys {
            let mut chosen = HeadPrefix::default();
            chosen.0.set(prefix);
            let heads: Vec<u64> = keys.iter().map(|key| chosen.head(key)).collect();
            assert!(heads.is_sorted(), "heads behind {prefix:?}");
        }
    }

    #[test]
    fn keys_with_a_long_common_prefix_have_different_heads() {
        let keys: Vec<_> = (0..50).map(|i| format!("collection:of:someone:{i:010}")).collect();
        let mut prefix = HeadPrefix::default();
        prefix.choose(keys[0].as_bytes(), keys[6].as_bytes());
        let heads: Vec<u64> = keys.iter().map(|key| prefix.head(key.as_bytes())).collect();
        assert!(heads.is_sorted_by(|a, b| a < b));
    }
}
