//! Keys of the rows: user keys, elements, owners, the format marker.
//!
//! A user's key is stored as it is, unless it begins with the reserved prefix, which is escaped:
//!
//! ```text
//!   user key without the prefix    the key itself
//!   user key ff c0 REST            ff c0  00  REST
//!   element                        ff c0  01  version:u64  space:u8  SUFFIX
//!   owner of a version             ff c0  02  version:u64                 value: the user's key
//!   format marker                  ff c0  03                              value: MARKER_VALUE
//!   of a replicated table          ff c0  fe, ff c0  ff                   its time, applied index
//!
//!   space  collection   SUFFIX                      value
//!   'f'    hash         hash:u32  field             the field's value
//!   't'    hash         time:u64                    number:u64 of fields that expire then
//!   'i'    list         index:u64                   the element
//!   'm'    set          hash:u32  member            empty
//!   'm'    sorted set   hash:u32  member            the score, f64 bits
//!   's'    sorted set   score:u64  member           empty
//!   'e'    stream       ms:u64  seq:u64             fields: (length:u32  bytes)*
//!   'g'    stream       group's name                number:u64  last id:u64 u64  read:u64
//!                                                   pending:u64  next consumer:u64
//!   'c'    stream       group:u64  consumer's name  number:u64  seen:u64  active:u64  pending:u64
//!   'p'    stream       group:u64  ms:u64  seq:u64  delivered:u64  deliveries:u64  consumer's name
//!   'q'    stream       group:u64  consumer:u64     empty
//!                       ms:u64  seq:u64
//! ```
//!
//! Integers in keys are big-endian, so that rows sort by them; in values of streams and of field
//! expiries they are little-endian. A field's row expires with the field. `hash` is the upper half
//! of XXH3-64: elements lie in random order, so a random element and the position of a scan cost
//! one seek. `score` is the order-preserving code of `score_code`. `group` and `consumer` in the
//! key of another row are the numbers of their own rows. `read` and `active` are `u64::MAX` if
//! unknown.
//!
//! Invariant: the mapping of user keys preserves their order, and no user key maps to a reserved
//! row. Elements of one collection are adjacent; rows of different versions of a collection never
//! mix.

use std::borrow::Cow;

use siltstone_engine::KeyRange;
use xxhash_rust::xxh3::xxh3_64;

/// First bytes of every reserved row. Not UTF-8, so keys that are text never need the escape.
pub const PREFIX: [u8; 2] = [0xff, 0xc0];
const ESCAPED: u8 = 0;
const ELEMENT: u8 = 1;
const OWNER: u8 = 2;
const MARKER: u8 = 3;

/// Key of the format marker.
pub const MARKER_KEY: [u8; 3] = [PREFIX[0], PREFIX[1], MARKER];
/// Value of the format marker.
pub const MARKER_VALUE: &[u8] = b"siltstone collections 3\n";
/// Value of the format marker before fields of hashes could expire.
pub(crate) const STREAMS_MARKER_VALUE: &[u8] = b"siltstone collections 2\n";
/// Value of the format marker before there were streams.
pub const OLD_MARKER_VALUE: &[u8] = b"siltstone collections 1\n";

/// Bytes of an element's key before its suffix.
pub(crate) const ELEMENT_PREFIX_BYTES: usize = 12;
/// Bytes of the hash before a field or a member.
pub(crate) const HASH_BYTES: usize = 4;
/// Bytes of the score before a member.
pub(crate) const SCORE_BYTES: usize = 8;

/// Space of the elements of a collection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Space {
    Fields = b'f',
    FieldExpiries = b't',
    Indices = b'i',
    Members = b'm',
    Scores = b's',
    Entries = b'e',
    Groups = b'g',
    Consumers = b'c',
    Pending = b'p',
    PendingByConsumer = b'q',
}

/// The key under which a user's key is stored.
#[inline]
pub fn stored_key(key: &[u8]) -> Cow<'_, [u8]> {
    match key.strip_prefix(&PREFIX) {
        None => Cow::Borrowed(key),
        Some(rest) => {
            let mut stored = Vec::with_capacity(key.len() + 1);
            stored.extend_from_slice(&PREFIX);
            stored.push(ESCAPED);
            stored.extend_from_slice(rest);
            Cow::Owned(stored)
        }
    }
}

/// The user's key that is stored under `stored`; `None` for a reserved row.
#[inline]
pub fn user_key(stored: &[u8]) -> Option<Cow<'_, [u8]>> {
    match stored.strip_prefix(&PREFIX) {
        None => Some(Cow::Borrowed(stored)),
        Some([ESCAPED, rest @ ..]) => Some(Cow::Owned([&PREFIX[..], rest].concat())),
        Some(_) => None,
    }
}

/// First key after all reserved rows.
pub(crate) const AFTER_RESERVED: [u8; 2] = [PREFIX[0], PREFIX[1] + 1];
/// Last key before all reserved rows that are not escaped user keys.
pub(crate) const FIRST_RESERVED: [u8; 3] = [PREFIX[0], PREFIX[1], ELEMENT];

/// Key of an element: its suffix is the concatenation of two parts.
pub(crate) fn element_key(version: u64, space: Space, head: &[u8], tail: &[u8]) -> Vec<u8> {
    let mut key = Vec::with_capacity(ELEMENT_PREFIX_BYTES + head.len() + tail.len());
    key.extend_from_slice(&PREFIX);
    key.push(ELEMENT);
    key.extend_from_slice(&version.to_be_bytes());
    key.push(space as u8);
    key.extend_from_slice(head);
    key.extend_from_slice(tail);
    key
}

/// The time in the key of a row of field expiries.
pub(crate) fn time_in(key: &[u8]) -> u64 {
    let time = key.get(ELEMENT_PREFIX_BYTES..).unwrap_or_default();
    time.first_chunk().map_or(0, |time| u64::from_be_bytes(*time))
}

/// All elements of a version.
pub(crate) fn elements_of(version: u64) -> KeyRange {
    let mut prefix = element_key(version, Space::Fields, &[], &[]);
    prefix.pop();
    KeyRange::prefix(&prefix)
}

/// Key of the owner row of a version.
pub(crate) fn owner_key(version: u64) -> [u8; 11] {
    let mut key = [0; 11];
    key[..2].copy_from_slice(&PREFIX);
    key[2] = OWNER;
    key[3..].copy_from_slice(&version.to_be_bytes());
    key
}

/// Version of an element or owner row; `None` for any other row.
pub(crate) fn version_of(stored: &[u8]) -> Option<u64> {
    match stored.strip_prefix(&PREFIX)? {
        [ELEMENT | OWNER, rest @ ..] => Some(u64::from_be_bytes(*rest.first_chunk()?)),
        _ => None,
    }
}

/// All element rows, or all owner rows.
pub(crate) fn versioned_rows() -> [KeyRange; 2] {
    [ELEMENT, OWNER].map(|kind| KeyRange::prefix(&[PREFIX[0], PREFIX[1], kind]))
}

/// Hash of a field or member.
pub(crate) fn hash_of(member: &[u8]) -> u32 {
    (xxh3_64(member) >> 32) as u32
}

/// Code of a score whose unsigned order is that of the scores. -0 has the code of 0.
///
/// The sign bit is set for scores of at least zero, and all bits are inverted for negative ones, so
/// that larger magnitudes come first.
pub(crate) fn score_code(score: f64) -> u64 {
    let bits = (score + 0.0).to_bits();
    if bits >> 63 == 0 { bits | 1 << 63 } else { !bits }
}

/// The score of a code.
pub(crate) fn score_of(code: u64) -> f64 {
    f64::from_bits(if code >> 63 == 1 { code & !(1 << 63) } else { !code })
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEYS: [&[u8]; 12] = [
        b"",
        b"a",
        b"\xfe",
        b"\xff",
        b"\xff\xbf\xff",
        b"\xff\xc0",
        b"\xff\xc0\x00",
        b"\xff\xc0\x01",
        b"\xff\xc0\x03",
        b"\xff\xc0\xff",
        b"\xff\xc1",
        b"\xff\xff\xff",
    ];

    #[test]
    fn user_keys_round_trip_in_order_outside_of_reserved_rows() {
        let stored: Vec<_> = KEYS.iter().map(|key| stored_key(key).into_owned()).collect();
        assert!(stored.is_sorted_by(|a, b| a < b), "{stored:?}");
        for (key, stored) in KEYS.iter().zip(&stored) {
            assert_eq!(user_key(stored).as_deref(), Some(*key));
            assert_eq!(version_of(stored), None);
        }
        for reserved in [&MARKER_KEY[..], &owner_key(7), &element_key(7, Space::Scores, b"", b"x")]
        {
            assert_eq!(user_key(reserved), None);
            assert!(reserved >= &FIRST_RESERVED[..] && reserved < &AFTER_RESERVED[..]);
        }
    }

    #[test]
    fn elements_of_a_version_are_those_with_its_number() {
        let range = elements_of(0x1ff);
        for (version, is_inside) in [(0x1ff, true), (0x1fe, false), (0x200, false)] {
            for space in [Space::Fields, Space::Indices, Space::Members, Space::Scores] {
                let key = element_key(version, space, b"\xff", b"\xff");
                assert_eq!(range.contains(&key), is_inside);
                assert_eq!(version_of(&key), Some(version));
            }
        }
        assert_eq!(version_of(&owner_key(9)), Some(9));
    }

    #[test]
    fn score_codes_have_the_order_of_scores() {
        let scores = [
            f64::NEG_INFINITY,
            -1e300,
            -2.0,
            -1.5,
            -f64::MIN_POSITIVE,
            -5e-324,
            0.0,
            5e-324,
            0.5,
            3.0,
            1e300,
            f64::INFINITY,
        ];
        assert!(scores.map(score_code).is_sorted_by(|a, b| a < b));
        assert_eq!(scores.map(|score| score_of(score_code(score))), scores);
        assert_eq!(score_code(-0.0), score_code(0.0));
    }

    #[test]
    fn format_is_pinned() {
        // Pinned: a failure means that existing stores can no longer be read.
        let hash = hash_of(b"field").to_be_bytes();
        let key = element_key(0x0102, Space::Fields, &hash, b"field");
        assert_eq!(key, b"\xff\xc0\x01\0\0\0\0\0\0\x01\x02f\x20\xbe\x52\xb1field");
        assert_eq!(owner_key(0x0102), *b"\xff\xc0\x02\0\0\0\0\0\0\x01\x02");
        assert_eq!(score_code(1.5), 0xbff8_0000_0000_0000);
    }
}
