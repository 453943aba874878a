//! The heads of sorted keys, to search them as integers.
//!
//! ```text
//!   keys     user:0017…  user:0391…  user:0391…  user:0872…
//!   common   user:0
//!   heads          017…        391…        391…        872…      8 bytes each, adjacent
//! ```
//!
//! A head is the [`key_head`](fn@key_head) of a key after the bytes that all keys have in common. A
//! search reads keys only where heads are equal to the target's.
//!
//! Source: Graefe, Larson, "B-tree indexes and CPU caches", ICDE 2001 (poor man's normalized keys).

use std::cmp::Ordering;
use std::ops::Range;

use crate::key_head;

/// The heads of sorted keys.
#[derive(Debug, Clone, Default)]
pub struct KeyHeads {
    common: Box<[u8]>,
    heads: Box<[u64]>,
}

impl KeyHeads {
    /// The heads of `keys`, which ascend.
    pub fn of<'k>(keys: impl Iterator<Item = &'k [u8]> + Clone) -> Self {
        let common = match (keys.clone().next(), keys.clone().last()) {
            (Some(first), Some(last)) => {
                let common = first.iter().zip(last).take_while(|(a, b)| a == b).count();
                &first[..common]
            }
            _ => &[],
        };
        // Keys that do not ascend may lack the common bytes: any answer is possible then.
        let heads = keys.map(|key| key_head(key.get(common.len()..).unwrap_or_default()));
        KeyHeads { heads: heads.collect(), common: common.into() }
    }

    /// The keys that only a comparison with `key` can decide, by their indices: those before are
    /// less, and those behind are greater. Cost: a binary search over integers.
    #[inline]
    pub fn undecided(&self, key: &[u8]) -> Range<usize> {
        let all = self.heads.len();
        if all == 0 {
            return 0..0;
        }
        if !self.common.is_empty() {
            let prefix = &key[..key.len().min(self.common.len())];
            match prefix.cmp(&self.common) {
                Ordering::Less => return 0..0,
                Ordering::Greater => return all..all,
                Ordering::Equal => {}
            }
        }
        let wanted = key_head(&key[self.common.len()..]);
        let from = self.heads.partition_point(|&head| head < wanted);
        let equal = self.heads[from..].iter().take_while(|&&head| head == wanted).count();
        from..from + equal
    }

    /// The number of keys.
    pub fn len(&self) -> usize {
        self.heads.len()
    }

    /// Whether there is no key.
    pub fn is_empty(&self) -> bool {
        self.heads.is_empty()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn search_agrees_with_comparison_of_whole_keys() {
        let texts: [&[u8]; 12] = [
            b"",
            b"\0",
            b"a",
            b"a\0",
            b"ab",
            b"abcdefgh",
            b"abcdefgh\0",
            b"abcdefghi",
            b"abd",
            b"b",
            b"b\xff",
            b"\xff\xff",
        ];
        for prefix in ["", "p", "user:"] {
            let all: Vec<Vec<u8>> = texts.map(|text| [prefix.as_bytes(), text].concat()).to_vec();
            for (from, to) in
                (0..=all.len()).flat_map(|from| (from..=all.len()).map(move |to| (from, to)))
            {
                let keys = &all[from..to];
                let heads = KeyHeads::of(keys.iter().map(Vec::as_slice));
                assert_eq!(heads.len(), keys.len());
                let others = [&b""[..], b"pa", b"user", b"user;", b"z"].map(<[u8]>::to_vec);
                for key in all.iter().chain(&others) {
                    let undecided = heads.undecided(key);
                    let less = keys.partition_point(|other| other < key);
                    assert!(undecided.start <= less && less <= undecided.end, "{key:?} {keys:?}");
                    assert!(keys[undecided.end..].iter().all(|other| other > key));
                }
            }
        }
    }
}
