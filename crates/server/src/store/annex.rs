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
//! value; the last byte is the format's version. Clients of every protocol get the n bytes of the
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
const END: [u8; 4] = *b"mcf\x01";
const SEED: u64 = 0x6d63_666c_6167_7301;
/// How much of a value its mark covers: enough that no chance makes one, little enough to be cheap.
const COVERED: usize = 64;

fn mark(value: &[u8], flags: u32) -> u64 {
    let mut hash = Xxh3::with_seed(SEED);
    hash.update(&flags.to_le_bytes());
    hash.update(&(value.len() as u64).to_le_bytes());
    hash.update(&value[value.len().saturating_sub(COVERED)..]);
    hash.digest()
}

/// The value before the annex and the flags in it, if there is one.
#[inline]
fn split(stored: &[u8]) -> Option<(&[u8], u32)> {
    let rest = stored.strip_suffix(&END)?;
    let (rest, found) = rest.split_last_chunk()?;
    let (value, flags) = rest.split_last_chunk()?;
    let flags = u32::from_le_bytes(*flags);
    (mark(value, flags) == u64::from_le_bytes(*found)).then_some((value, flags))
}

/// Takes the annex off a stored value, if it has one; the flags.
#[inline]
pub(crate) fn take(stored: &mut Vec<u8>) -> u32 {
    let Some((value, flags)) = split(stored) else { return 0 };
    let len = value.len();
    stored.truncate(len);
    flags
}

/// Whether a value cannot be stored as it is, because it would be read as another with flags.
#[inline]
pub(crate) fn is_mistakable(value: &[u8]) -> bool {
    split(value).is_some()
}

/// What to store for a value with flags; `None`: the value as it is.
pub(crate) fn put(value: &[u8], flags: u32) -> Option<Vec<u8>> {
    if flags == 0 && !is_mistakable(value) {
        return None;
    }
    let mut stored = Vec::with_capacity(value.len() + BYTES);
    stored.extend_from_slice(value);
    stored.extend_from_slice(&flags.to_le_bytes());
    stored.extend_from_slice(&mark(value, flags).to_le_bytes());
    stored.extend_from_slice(&END);
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
                let stored = put(value, 0);
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
            all_flags in proptest::collection::vec(prop_oneof![Just(0u32), any::<u32>()], 1..4),
        ) {
            // What is stored is itself stored as a value, so that values with annexes are among them.
            for flags in all_flags {
                let stored = put(&value, flags);
                let mut back = stored.clone().unwrap_or_else(|| value.clone());
                prop_assert_eq!(take(&mut back), flags);
                prop_assert_eq!(&back, &value);
                value = stored.unwrap_or(value);
            }
        }
    }

    #[test]
    fn is_a_plain_value_stored_as_it_is_and_a_forged_one_protected() {
        assert_eq!(put(b"plain", 0), None);
        let forged = put(b"plain", 7).unwrap();
        assert_eq!(forged.len(), 5 + BYTES);
        let mut batch = WriteBatch::new();
        batch.put(b"a", b"1").put_until(b"b", &forged, 9).delete(b"c");
        protect(&mut batch);
        let mut seen = Vec::new();
        for op in batch.iter() {
            if let Op::Put { value, .. } = op {
                let mut value = value.to_vec();
                assert_eq!(take(&mut value), 0);
                seen.push(value);
            }
        }
        assert_eq!(seen, [b"1".to_vec(), forged]);
        assert_eq!(batch.len(), 3);
    }

    #[test]
    fn is_the_format_the_one_that_stores_hold() {
        // Pinned: a failure here means that flags in stores can no longer be read.
        let stored = put(b"v", 1).unwrap();
        assert_eq!(stored[..5], *b"v\x01\0\0\0");
        assert_eq!(u64::from_le_bytes(stored[5..13].try_into().unwrap()), PINNED);
        assert_eq!(stored[13..], *b"mcf\x01");
    }

    const PINNED: u64 = 12_090_992_323_908_675_047;
}
