//! A trailer with memcached flags, appended to values in engines without item metadata.
//!
//! memcached clients store 32 bits of flags with a value, usually its encoding. `mica` stores them
//! in its items. Other engines store plain values, so non-zero flags are appended to the value:
//!
//! ```text
//! 0          n           n+4          n+12        n+16
//! value ···· | flags u32 | mark u64   | "mcf\x01" |            little-endian
//! ```
//!
//! The mark is a seeded XXH3-64 of the flags, n (u64) and the last 64 bytes of the value, and of
//! the item's state bits if any are set. The last byte has the format version in its low half and
//! the state bits ([`super::item`]) in its high half. Clients of every protocol get the n bytes of
//! the value; only a raw export (`siltstone export`) shows the trailer. A value without flags is
//! stored unchanged. A value that itself ends in a valid trailer, which does not happen by
//! accident, gets another one with flags 0, so every value reads back as written. So does a value
//! that looks like the metadata of a collection. Readers older than this format see the trailer as
//! part of the value.
//!
//! A write over RESP, including EXPIRE and RENAME, resets the flags to 0.
//!
//! Invariant: `strip` after `append` returns the value and the flags, for all values.

use std::borrow::Cow;

use siltstone_collections::Metadata;
use siltstone_engine::{Op, WriteBatch};
use xxhash_rust::xxh3::Xxh3;

/// Size of a trailer, in bytes.
pub(crate) const BYTES: usize = 16;
const MAGIC: [u8; 3] = *b"mcf";
const VERSION: u8 = 1;
const SEED: u64 = 0x6d63_666c_6167_7301;
/// Bytes of the value covered by the mark: enough against accidents, few enough to be cheap.
const COVERED_BYTES: usize = 64;

fn mark(value: &[u8], meta: ItemMeta) -> u64 {
    let mut hash = Xxh3::with_seed(SEED);
    hash.update(&meta.flags.to_le_bytes());
    hash.update(&(value.len() as u64).to_le_bytes());
    hash.update(&value[value.len().saturating_sub(COVERED_BYTES)..]);
    if meta.marks != 0 {
        hash.update(&[meta.marks]);
    }
    hash.digest()
}

/// Item metadata in the trailer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct ItemMeta {
    /// The client's flags.
    pub(crate) flags: u32,
    /// The item's state bits, below 16.
    pub(crate) marks: u8,
}

/// Splits a stored value into the value and its metadata, if there is a trailer.
#[inline]
fn split(stored: &[u8]) -> Option<(&[u8], ItemMeta)> {
    let (last, rest) = stored.split_last()?;
    let rest = rest.strip_suffix(&MAGIC).filter(|_| last & 15 == VERSION)?;
    let (rest, found) = rest.split_last_chunk()?;
    let (value, flags) = rest.split_last_chunk()?;
    let meta = ItemMeta { flags: u32::from_le_bytes(*flags), marks: last >> 4 };
    (mark(value, meta) == u64::from_le_bytes(*found)).then_some((value, meta))
}

/// Strips the trailer, if there is one, and returns its metadata.
#[inline]
pub(crate) fn strip(stored: &mut Vec<u8>) -> ItemMeta {
    let Some((value, meta)) = split(stored) else { return ItemMeta::default() };
    let len = value.len();
    stored.truncate(len);
    meta
}

/// The value without its trailer, if there is one.
#[inline]
pub(crate) fn value_in(stored: &[u8]) -> &[u8] {
    split(stored).map_or(stored, |(value, _)| value)
}

/// Whether a plain value must be escaped, because it would be read as a value with a trailer or as
/// the metadata of a collection.
#[inline]
pub(crate) fn needs_escape(value: &[u8]) -> bool {
    split(value).is_some() || Metadata::decode(value).is_some()
}

/// The stored form of a value; `None`: the value unchanged.
pub(crate) fn append(value: &[u8], meta: ItemMeta) -> Option<Vec<u8>> {
    debug_assert!(meta.marks < 16);
    if meta == ItemMeta::default() && !needs_escape(value) {
        return None;
    }
    let mut stored = Vec::with_capacity(value.len() + BYTES);
    stored.extend_from_slice(value);
    stored.extend_from_slice(&meta.flags.to_le_bytes());
    stored.extend_from_slice(&mark(value, meta).to_le_bytes());
    stored.extend_from_slice(&MAGIC);
    stored.push(VERSION | meta.marks << 4);
    Some(stored)
}

/// What the server stores for a string on engines other than `mica`: the string, unless it looks
/// like something else. For programs that write to a table which is not being served.
pub fn stored_string(value: &[u8]) -> Cow<'_, [u8]> {
    append(value, ItemMeta::default()).map_or(Cow::Borrowed(value), Cow::Owned)
}

/// Escapes the values of a batch where needed.
pub(crate) fn escape(batch: &mut WriteBatch) {
    let is_ambiguous = |op: Op<'_>| matches!(op, Op::Put { value, .. } if needs_escape(value));
    if !batch.iter().any(is_ambiguous) {
        return;
    }
    let plain = std::mem::take(batch);
    for op in plain.iter() {
        match op {
            Op::Delete { key } => batch.delete(key),
            Op::Put { key, value, expires_at } => {
                let stored = append(value, ItemMeta::default());
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
        fn values_round_trip_with_their_flags(
            mut value in proptest::collection::vec(any::<u8>(), 0..200),
            all in proptest::collection::vec((prop_oneof![Just(0u32), any::<u32>()], 0u8..4), 1..4),
        ) {
            // Stored values are stored again as values, so values with trailers are covered.
            for (flags, marks) in all {
                let meta = ItemMeta { flags, marks };
                let stored = append(&value, meta);
                let mut back = stored.clone().unwrap_or_else(|| value.clone());
                prop_assert_eq!(strip(&mut back), meta);
                prop_assert_eq!(&back, &value);
                value = stored.unwrap_or(value);
            }
        }
    }

    #[test]
    fn plain_value_is_unchanged_and_forged_trailer_is_escaped() {
        assert_eq!(append(b"plain", ItemMeta::default()), None);
        let forged = append(b"plain", ItemMeta { flags: 7, marks: 0 }).unwrap();
        assert_eq!(forged.len(), 5 + BYTES);
        let mut batch = WriteBatch::new();
        batch.put(b"a", b"1").put_until(b"b", &forged, 9).delete(b"c");
        escape(&mut batch);
        let mut values = Vec::new();
        for op in batch.iter() {
            if let Op::Put { value, .. } = op {
                let mut value = value.to_vec();
                assert_eq!(strip(&mut value), ItemMeta::default());
                values.push(value);
            }
        }
        assert_eq!(values, [b"1".to_vec(), forged]);
        assert_eq!(batch.len(), 3);
    }

    #[test]
    fn forged_metadata_of_a_collection_is_escaped() {
        use siltstone_collections::{Encoding, FieldExpiry, Kind};
        let stream = Metadata {
            kind: Kind::Stream,
            version: 1,
            count: 1,
            head: 0,
            encoding: Encoding::Large,
            stream: Default::default(),
            field_expiry: None,
        };
        let field_expiry = Some(FieldExpiry::default());
        for metadata in [stream, Metadata { kind: Kind::Hash, field_expiry, ..stream }] {
            let forged = metadata.encode();
            let mut stored = append(&forged, ItemMeta::default()).unwrap();
            assert_eq!(Metadata::decode(&stored), None);
            assert_eq!(strip(&mut stored), ItemMeta::default());
            assert_eq!(stored, forged);
        }
    }

    #[test]
    fn trailer_format_is_pinned() {
        // Pinned: a failure means that flags in existing stores can no longer be read.
        let stored = append(b"v", ItemMeta { flags: 1, marks: 0 }).unwrap();
        assert_eq!(stored[..5], *b"v\x01\0\0\0");
        assert_eq!(u64::from_le_bytes(stored[5..13].try_into().unwrap()), PINNED);
        assert_eq!(stored[13..], *b"mcf\x01");
        let stored = append(b"v", ItemMeta { flags: 1, marks: 3 }).unwrap();
        assert_eq!(stored[13..], *b"mcf\x31");
    }

    const PINNED: u64 = 12_090_992_323_908_675_047;
}
