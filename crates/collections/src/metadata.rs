//! The metadata of a collection: the value at the user's key.
//!
//! ```text
//!   0     1          9         17          25        26         34      38
//!   kind  version    count     head        encoding  mark       "slc"   01       little-endian
//!   u8    u64        u64       u64         u8        u64                format version
//!
//!   stream: between encoding and mark
//!   26          42           58         66             74         82      86
//!   last id     deleted id   added      next group     mark       "slc"   01
//!   u64 u64     u64 u64      u64        u64            u64                format version
//!
//!   hash of which a field has or had an expiry: between encoding and mark
//!   26        34         42       50           58               66         74      78
//!   fields    earliest   latest   counted to   key's expiry     mark       "slc"   01
//!   u64       u64        u64      u64          u64, ff…: none   u64                format version
//! ```
//!
//! The mark is a seeded XXH3-64 of the bytes before it. Plain strings are stored without a frame
//! beside it, so a value is metadata if it has such a length, magic and mark. A client's value does
//! not match by accident; one that matches on purpose is escaped by the server (`flags_trailer`),
//! like a forged trailer. `head` is the index of a list's first element, 0 for others. `encoding`
//! is what OBJECT ENCODING needs ([`Encoding`]). Older readers see a short value.
//!
//! Invariant: the count is that of the elements; a collection without elements has no metadata,
//! unless it is a stream. Of a hash the count may include fields that have expired, see
//! [`crate::field_expiry`].

use siltstone_engine::Timestamp;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::stream_id::StreamId;

/// Bytes before the mark, without those of a stream.
const COMMON_BYTES: usize = 26;
const STREAM_BYTES: usize = 48;
const FIELD_EXPIRY_BYTES: usize = 40;
/// In place of the key's expiry: there is none.
const NO_EXPIRY: Timestamp = Timestamp::MAX;
/// Bytes of mark and magic.
const FRAME_BYTES: usize = 12;
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
    /// Entries in the order of their ids, with consumer groups.
    Stream = 5,
}

impl Kind {
    /// The name that Redis's TYPE returns.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Hash => "hash",
            Kind::List => "list",
            Kind::Set => "set",
            Kind::SortedSet => "zset",
            Kind::Stream => "stream",
        }
    }

    /// Whether a collection of this type exists without elements.
    pub fn may_be_empty(self) -> bool {
        self == Kind::Stream
    }

    fn from_code(code: u8) -> Option<Self> {
        [Kind::Hash, Kind::List, Kind::Set, Kind::SortedSet, Kind::Stream]
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

/// The additional metadata of a stream.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StreamState {
    /// The highest id that was ever added.
    pub last: StreamId,
    /// The highest id that was ever deleted by name.
    pub deleted: StreamId,
    /// Number of entries that were ever added.
    pub added: u64,
    /// Number of the next group.
    pub next_group: u64,
}

/// The additional metadata of a hash of which a field has or had an expiry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FieldExpiry {
    /// Number of fields with an expiry, of those that are counted.
    pub fields: u64,
    /// No row of expiries is before it; the maximum if there are none.
    pub earliest: Timestamp,
    /// The last expiry, if a field has one.
    pub latest: Timestamp,
    /// Fields whose expiry is not after it are not counted any more.
    pub counted_to: Timestamp,
    /// The expiry of the key. That of its row may be earlier ([`Metadata::row_expiry`]).
    pub key_expires_at: Option<Timestamp>,
}

impl Default for FieldExpiry {
    /// No field expires.
    fn default() -> Self {
        let earliest = Timestamp::MAX;
        FieldExpiry { fields: 0, earliest, latest: 0, counted_to: 0, key_expires_at: None }
    }
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
    /// Of a stream; the default for others.
    pub stream: StreamState,
    /// Of a hash of which a field has or had an expiry.
    pub field_expiry: Option<FieldExpiry>,
}

impl Metadata {
    /// When the row at the user's key expires: with the key, or with its last field.
    pub fn row_expiry(&self, key_expires_at: Option<Timestamp>) -> Option<Timestamp> {
        match self.field_expiry {
            Some(FieldExpiry { fields, latest, .. }) if fields == self.count => {
                Some(key_expires_at.map_or(latest, |at| at.min(latest)))
            }
            _ => key_expires_at,
        }
    }

    /// Encodes the value.
    pub fn encode(&self) -> Vec<u8> {
        let mut value = Vec::with_capacity(COMMON_BYTES + STREAM_BYTES + FRAME_BYTES);
        value.push(self.kind as u8);
        for field in [self.version, self.count, self.head] {
            value.extend_from_slice(&field.to_le_bytes());
        }
        value.push(self.encoding as u8);
        if self.kind == Kind::Stream {
            let StreamState { last, deleted, added, next_group } = self.stream;
            for field in [last.ms, last.seq, deleted.ms, deleted.seq, added, next_group] {
                value.extend_from_slice(&field.to_le_bytes());
            }
        }
        if let Some(expiry) = &self.field_expiry {
            let FieldExpiry { fields, earliest, latest, counted_to, key_expires_at } = *expiry;
            let key_expires_at = key_expires_at.unwrap_or(NO_EXPIRY);
            for field in [fields, earliest, latest, counted_to, key_expires_at] {
                value.extend_from_slice(&field.to_le_bytes());
            }
        }
        value.extend_from_slice(&xxh3_64_with_seed(&value, SEED).to_le_bytes());
        value.extend_from_slice(&MAGIC);
        value
    }

    /// Decodes a value; `None` if it is a plain string.
    #[inline]
    pub fn decode(value: &[u8]) -> Option<Self> {
        let marked = value.len().checked_sub(FRAME_BYTES)?;
        let has_stream = marked == COMMON_BYTES + STREAM_BYTES;
        let has_field_expiry = marked == COMMON_BYTES + FIELD_EXPIRY_BYTES;
        if marked != COMMON_BYTES && !has_stream && !has_field_expiry || !value.ends_with(&MAGIC) {
            return None;
        }
        let mark = xxh3_64_with_seed(&value[..marked], SEED);
        let u64_at = |at: usize| value[at..].first_chunk().map(|b| u64::from_le_bytes(*b));
        let kind = Kind::from_code(value[0])?;
        if u64_at(marked)? != mark
            || has_stream != (kind == Kind::Stream)
            || has_field_expiry && kind != Kind::Hash
        {
            return None;
        }
        let encoding = match value[25] {
            0 => Encoding::Integers,
            1 => Encoding::Compact,
            _ => Encoding::Large,
        };
        let id_at = |at: usize| Some(StreamId { ms: u64_at(at)?, seq: u64_at(at + 8)? });
        let stream = match has_stream {
            false => StreamState::default(),
            true => StreamState {
                last: id_at(26)?,
                deleted: id_at(42)?,
                added: u64_at(58)?,
                next_group: u64_at(66)?,
            },
        };
        let field_expiry = match has_field_expiry {
            false => None,
            true => Some(FieldExpiry {
                fields: u64_at(26)?,
                earliest: u64_at(34)?,
                latest: u64_at(42)?,
                counted_to: u64_at(50)?,
                key_expires_at: u64_at(58).filter(|at| *at != NO_EXPIRY),
            }),
        };
        Some(Metadata {
            kind,
            version: u64_at(1)?,
            count: u64_at(9)?,
            head: u64_at(17)?,
            encoding,
            stream,
            field_expiry,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: Metadata = Metadata {
        kind: Kind::List,
        version: 2,
        count: 3,
        head: 4,
        encoding: Encoding::Compact,
        stream: StreamState {
            last: StreamId::MIN,
            deleted: StreamId::MIN,
            added: 0,
            next_group: 0,
        },
        field_expiry: None,
    };
    const HASH: Metadata = Metadata {
        kind: Kind::Hash,
        field_expiry: Some(FieldExpiry {
            fields: 5,
            earliest: 6,
            latest: 7,
            counted_to: 8,
            key_expires_at: Some(9),
        }),
        ..LIST
    };
    const STREAM: Metadata = Metadata {
        kind: Kind::Stream,
        stream: StreamState {
            last: StreamId { ms: 5, seq: 6 },
            deleted: StreamId { ms: 7, seq: 8 },
            added: 9,
            next_group: 10,
        },
        ..LIST
    };

    #[test]
    fn metadata_round_trips_and_changed_bytes_are_a_string() {
        let without = FieldExpiry { key_expires_at: None, ..FieldExpiry::default() };
        let endless = Metadata { field_expiry: Some(without), ..HASH };
        for metadata in [LIST, STREAM, HASH, endless] {
            let value = metadata.encode();
            assert_eq!(Metadata::decode(&value), Some(metadata));
            for at in 0..value.len() {
                let mut changed = value.clone();
                changed[at] ^= 1;
                assert_eq!(Metadata::decode(&changed), None, "byte {at}");
            }
            assert_eq!(Metadata::decode(&value[1..]), None);
        }
        assert_eq!(Metadata::decode(b""), None);
    }

    #[test]
    fn format_is_pinned() {
        // Pinned: a failure means that existing stores can no longer be read.
        let value = LIST.encode();
        assert_eq!(value[..26], *b"\x02\x02\0\0\0\0\0\0\0\x03\0\0\0\0\0\0\0\x04\0\0\0\0\0\0\0\x01");
        assert_eq!(
            u64::from_le_bytes(value[26..34].try_into().unwrap()),
            14_209_808_006_472_075_600
        );
        assert_eq!(value[34..], *b"slc\x01");
        let value = STREAM.encode();
        assert_eq!(value[..26], [b"\x05", &LIST.encode()[1..26]].concat());
        let fields: Vec<u64> = value[26..74]
            .chunks(8)
            .map(|field| u64::from_le_bytes(field.try_into().unwrap()))
            .collect();
        assert_eq!(fields, [5, 6, 7, 8, 9, 10]);
        assert_eq!(u64::from_le_bytes(value[74..82].try_into().unwrap()), STREAM_MARK);
        assert_eq!(value[82..], *b"slc\x01");
        let value = HASH.encode();
        assert_eq!(value[..26], [b"\x01", &LIST.encode()[1..26]].concat());
        let fields: Vec<u64> = value[26..66]
            .chunks(8)
            .map(|field| u64::from_le_bytes(field.try_into().unwrap()))
            .collect();
        assert_eq!(fields, [5, 6, 7, 8, 9]);
        assert_eq!(u64::from_le_bytes(value[66..74].try_into().unwrap()), HASH_MARK);
        assert_eq!(value[74..], *b"slc\x01");
    }

    #[test]
    fn row_expires_with_the_key_or_with_the_last_of_all_fields() {
        assert_eq!(HASH.row_expiry(Some(9)), Some(9), "a hash with a field that does not expire");
        let all = Metadata { count: 5, ..HASH };
        assert_eq!(all.row_expiry(None), Some(7));
        assert_eq!(all.row_expiry(Some(9)), Some(7));
        assert_eq!(all.row_expiry(Some(3)), Some(3));
        assert_eq!(LIST.row_expiry(None), None);
    }

    const HASH_MARK: u64 = 11_797_780_367_258_574_562;

    const STREAM_MARK: u64 = 16_621_278_336_530_993_546;
}
