//! The metadata of a collection: the value at the user's key.
//!
//! ```text
//!   0     1          9         17          25        26         34      38
//!   kind  version    count     head        encoding  mark       "slc"   01       little-endian
//!   u8    u64        u64       u64         u8        u64                format version
//! ```
//!
//! The mark is a seeded XXH3-64 of the 26 bytes before it. Plain strings are stored without a frame
//! beside it, so a value is metadata if it has this length, magic and mark. A client's value does
//! not match by accident; one that matches on purpose is escaped by the server (`flags_trailer`),
//! like a forged trailer. `head` is the index of a list's first element, 0 for others. `encoding` is
//! what OBJECT ENCODING needs ([`Encoding`]). Older readers see a short value.
//!
//! Invariant: the count is that of the elements; a collection without elements has no metadata.

use xxhash_rust::xxh3::xxh3_64_with_seed;

const BYTES: usize = 38;
const MARKED_BYTES: usize = 26;
const MAGIC: [u8; 4] = *b"slc\x01";
const SEED: u64 = 0x736c_635f_6d65_7461;

/// Type of a collection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// Fields with values.
    Hash = 1,
    /// Elements by position.
    List = 2,
    /// Distinct members.
    Set = 3,
    /// Distinct members, ordered by score.
    SortedSet = 4,
}

impl Kind {
    /// The name that Redis's TYPE returns.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Hash => "hash",
            Kind::List => "list",
            Kind::Set => "set",
            Kind::SortedSet => "zset",
        }
    }

    fn from_code(code: u8) -> Option<Self> {
        [Kind::Hash, Kind::List, Kind::Set, Kind::SortedSet]
            .into_iter()
            .find(|kind| *kind as u8 == code)
    }
}

/// Which of Redis's representations the collection would have. It only grows, as in Redis, until
/// the collection is removed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Encoding {
    /// A small set of integers.
    #[default]
    Integers = 0,
    /// Few short elements.
    Compact = 1,
    /// Many elements, or a long one.
    Large = 2,
}

/// Metadata of a collection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Metadata {
    /// Type.
    pub kind: Kind,
    /// Number in the keys of the elements.
    pub version: u64,
    /// Number of elements.
    pub count: u64,
    /// Index of a list's first element.
    pub head: u64,
    /// Representation that Redis would have.
    pub encoding: Encoding,
}

impl Metadata {
    /// Encodes the value.
    pub fn encode(&self) -> Vec<u8> {
        let mut value = Vec::with_capacity(BYTES);
        value.push(self.kind as u8);
        for field in [self.version, self.count, self.head] {
            value.extend_from_slice(&field.to_le_bytes());
        }
        value.push(self.encoding as u8);
        value.extend_from_slice(&xxh3_64_with_seed(&value, SEED).to_le_bytes());
        value.extend_from_slice(&MAGIC);
        value
    }

    /// Decodes a value; `None` if it is a plain string.
    #[inline]
    pub fn decode(value: &[u8]) -> Option<Self> {
        if value.len() != BYTES || !value.ends_with(&MAGIC) {
            return None;
        }
        let mark = xxh3_64_with_seed(&value[..MARKED_BYTES], SEED);
        let u64_at = |at: usize| value[at..].first_chunk().map(|b| u64::from_le_bytes(*b));
        if u64_at(MARKED_BYTES)? != mark {
            return None;
        }
        let encoding = match value[25] {
            0 => Encoding::Integers,
            1 => Encoding::Compact,
            _ => Encoding::Large,
        };
        Some(Metadata {
            kind: Kind::from_code(value[0])?,
            version: u64_at(1)?,
            count: u64_at(9)?,
            head: u64_at(17)?,
            encoding,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const METADATA: Metadata =
        Metadata { kind: Kind::List, version: 2, count: 3, head: 4, encoding: Encoding::Compact };

    #[test]
    fn metadata_round_trips_and_changed_bytes_are_a_string() {
        let value = METADATA.encode();
        assert_eq!(Metadata::decode(&value), Some(METADATA));
        for at in 0..value.len() {
            let mut changed = value.clone();
            changed[at] ^= 1;
            assert_eq!(Metadata::decode(&changed), None, "byte {at}");
        }
        assert_eq!(Metadata::decode(&value[1..]), None);
        assert_eq!(Metadata::decode(b""), None);
    }

    #[test]
    fn format_is_pinned() {
        // Pinned: a failure means that existing stores can no longer be read.
        let value = METADATA.encode();
        assert_eq!(value[..26], *b"\x02\x02\0\0\0\0\0\0\0\x03\0\0\0\0\0\0\0\x04\0\0\0\0\0\0\0\x01");
        assert_eq!(u64::from_le_bytes(value[26..34].try_into().unwrap()), PINNED);
        assert_eq!(value[34..], *b"slc\x01");
    }

    const PINNED: u64 = 14_209_808_006_472_075_600;
}
