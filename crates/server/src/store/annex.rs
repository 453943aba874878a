//! Flags behind a value, where the engine keeps none beside it.
//!
//! memcached's clients keep 32 bits with a value, mostly to say how it was encoded. `mica` has room
//! for them in its items. Every other engine stores values alone, so flags that are not zero are put
//! behind the value:
//!
//! ```text
//! 0          n           n+4          n+12        n+16
//! value ···· | flags u32 | mark u64   | "mcf\x01" |            little-endian
//! ```
//!
//! The mark is XXH3-64, under a seed of its own, of the flags, n (u64) and the last 64 bytes of the
//! value, and of the item's marks if there are any; the last byte is the format's version in its low
//! half and the item's marks ([`super::item`]) in its high half. Clients of every protocol get the n bytes of the
//! value alone, whoever wrote them; only a copy of the raw table (`siltstone export`) shows the
//! annex. A value without flags is stored as it is. A value that by itself ends in an annex, which
//! only somebody brings about who wants to, gets another with flags 0, so all values come back as
//! they were written. An older reader shows the annex as part of the value.
//!
//! A write over RESP sets the flags to 0, as it knows none; EXPIRE and RENAME, which write the value
//! anew, among them.
//!
//! Invariant: `take` after `put` gives back the value and the flags, for all values.

use siltstone_engine::{Op, WriteBatch};
use xxhash_rust::xxh3::Xxh3;

/// Bytes of an annex.
pub(crate) const BYTES: usize = 16;
const NAME: [u8; 3] = *b"mcf";
const VERSION: u8 = 1;
const SEED: u64 = 0x6d63_666c_6167_7301;
/// How much of a value its mark covers: enough that no chance makes one, little enough to be cheap.
const COVERED: usize = 64;

fn mark(value: &[u8], beside: Beside) -> u64 {
    let mut hash = Xxh3::with_seed(SEED);
    hash.update(&beside.flags.to_le_bytes());
    hash.update(&(value.len() as u64).to_le_bytes());
    hash.update(&value[value.len().saturating_sub(COVERED)..]);
    if beside.marks != 0 {
        hash.update(&[beside.marks]);
    }
    hash.digest()
}

/// What an annex has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Beside {
    /// The client's flags.
    pub(crate) flags: u32,
    /// The item's marks, below 16.
    pub(crate) marks: u8,
}

/// The value before the annex and what is in it, if there is one.
#[inline]
fn split(stored: &[u8]) -> Option<(&[u8], Beside)> {
    let (last, rest) = stored.split_last()?;
    let rest = rest.strip_suffix(&NAME).filter(|_| last & 15 == VERSION)?;
    let (rest, found) = rest.split_last_chunk()?;
    let (value, flags) = rest.split_last_chunk()?;
    let beside = Beside { flags: u32::from_le_bytes(*flags), marks: last >> 4 };
    (mark(value, beside) == u64::from_le_bytes(*found)).then_some((value, beside))
}

/// Takes the annex off a stored value, if it has one; what it had.
#[inline]
pub(crate) fn take(stored: &mut Vec<u8>) -> Beside {
    let Some((value, beside)) = split(stored) else { return Beside::default() };
    let len = value.len();
    stored.truncate(len);
    beside
}

/// Whether a value cannot be stored as it is, because it would be read as another with flags.
#[inline]
pub(crate) fn is_mistakable(value: &[u8]) -> bool {
    split(value).is_some()
}

/// What to store for a value; `None`: the value as it is.
pub(crate) fn put(value: &[u8], beside: Beside) -> Option<Vec<u8>> {
    debug_assert!(beside.marks < 16);
    if beside == Beside::default() && !is_mistakable(value) {
        return None;
    }
    let mut stored = Vec::with_capacity(value.len() + BYTES);
    stored.extend_from_slice(value);
    stored.extend_from_slice(&beside.flags.to_le_bytes());
    stored.extend_from_slice(&mark(value, beside).to_le_bytes());
    stored.extend_from_slice(&NAME);
    stored.push(VERSION | beside.marks << 4);
    Some(stored)
}

/// Makes a batch of plain values store them so that they come back as they are.
pub(crate) fn protect(batch: &mut WriteBatch) {
    let is_in_danger = |op: Op<'_>| matches!(op, Op::Put { value, .. } if is_mistakable(value));
    if !batch.iter().any(is_in_danger) {
        return;
    }
    let plain = std::mem::take(batch);
    for op in plain.iter() {
        match op {
            Op::Delete { key } => batch.delete(key),
            Op::Put { key, value, expires_at } => {
                let stored = put(value, Beside::default());
                let value = stored.as_deref().unwrap_or(value);
                match expires_at {
                    None => batch.put(key, value),
                    Some(at) => batch.put_until(key, value, at),
                }
            }
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn does_every_value_come_back_with_its_flags(
            mut value in proptest::collection::vec(any::<u8>(), 0..200),
            all in proptest::collection::vec((prop_oneof![Just(0u32), any::<u32>()], 0u8..4), 1..4),
        ) {
            // What is stored is itself stored as a value, so that values with annexes are among them.
            for (flags, marks) in all {
                let beside = Beside { flags, marks };
                let stored = put(&value, beside);
                let mut back = stored.clone().unwrap_or_else(|| value.clone());
                prop_assert_eq!(take(&mut back), beside);
                prop_assert_eq!(&back, &value);
                value = stored.unwrap_or(value);
            }
        }
    }

    #[test]
    fn is_a_plain_value_stored_as_it_is_and_a_forged_one_protected() {
        assert_eq!(put(b"plain", Beside::default()), None);
        let forged = put(b"plain", Beside { flags: 7, marks: 0 }).unwrap();
        assert_eq!(forged.len(), 5 + BYTES);
        let mut batch = WriteBatch::new();
        batch.put(b"a", b"1").put_until(b"b", &forged, 9).delete(b"c");
        protect(&mut batch);
        let mut seen = Vec::new();
        for op in batch.iter() {
            if let Op::Put { value, .. } = op {
                let mut value = value.to_vec();
                assert_eq!(take(&mut value), Beside::default());
                seen.push(value);
            }
        }
        assert_eq!(seen, [b"1".to_vec(), forged]);
        assert_eq!(batch.len(), 3);
    }

    #[test]
    fn is_the_format_the_one_that_stores_hold() {
        // Pinned: a failure here means that flags in stores can no longer be read.
        let stored = put(b"v", Beside { flags: 1, marks: 0 }).unwrap();
        assert_eq!(stored[..5], *b"v\x01\0\0\0");
        assert_eq!(u64::from_le_bytes(stored[5..13].try_into().unwrap()), PINNED);
        assert_eq!(stored[13..], *b"mcf\x01");
        let stored = put(b"v", Beside { flags: 1, marks: 3 }).unwrap();
        assert_eq!(stored[13..], *b"mcf\x31");
    }

    const PINNED: u64 = 12_090_992_323_908_675_047;
}
