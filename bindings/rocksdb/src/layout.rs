//! How a database lies in a store: one table, `rocksdb`, on `lsm`.
//!
//! ```text
//! key of an entry       := family:varint  key of the program
//!   family              = number of the column family + 1: not 0; the default one has the number 0
//! key of the catalogue  := 0x00  name
//!   "version"           → 1, or 2 once a transaction was prepared: u32 LE
//!   "identity"          → text that identifies the database
//!   "next"              → the number of the next column family: u32 LE
//!   "family:" name      → its number: u32 LE
//!   "prepared:" name    → the writes of a prepared transaction, as the `data` of a batch
//! ```
//!
//! All column families are in one table, so they have one log: a batch over several is one record,
//! a synced write makes every earlier write to any of them durable, and a power cut leaves a prefix
//! of all writes, as in RocksDB. A varint is never a prefix of another one, so the keys of a
//! family are a range, in their own order.
//!
//! Version 2 has prepared transactions, which libraries of version 1 would not see: they refuse it.
//! A database of another version is refused.

use store::{Error, KeyRange};

/// The table.
pub const TABLE: &str = "rocksdb";
/// The version of the layout of a new database.
pub const VERSION: u32 = 1;
/// The version of the layout with prepared transactions.
pub const VERSION_WITH_PREPARED: u32 = 2;
/// The key of the version.
pub const VERSION_KEY: &[u8] = b"\0version";
/// The key of the identity.
pub const IDENTITY_KEY: &[u8] = b"\0identity";
/// The key of the number of the next column family.
pub const NEXT_KEY: &[u8] = b"\0next";
/// The writes that make a new table a database. The numbers of writes that a program sees begin
/// after them.
pub const FIRST_WRITES: u64 = 2;
/// What the keys of column families begin with.
const FAMILY_PREFIX: &[u8] = b"\0family:";

/// What the keys of prepared transactions begin with.
const PREPARED_PREFIX: &[u8] = b"\0prepared:";

/// The bytes before the keys of a column family.
pub fn prefix(family: u32) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(5);
    push_prefix(&mut bytes, family);
    bytes
}

fn push_prefix(bytes: &mut Vec<u8>, family: u32) {
    let mut rest = u64::from(family) + 1;
    while rest >= 0x80 {
        bytes.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    bytes.push(rest as u8);
}

/// The key of an entry.
pub fn entry_key(family: u32, key: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(5 + key.len());
    push_prefix(&mut bytes, family);
    bytes.extend_from_slice(key);
    bytes
}

/// The column family and the program's part of the key of an entry; `None` for a key of the
/// catalogue.
pub fn split(key: &[u8]) -> Option<(u32, &[u8])> {
    let mut number = 0u64;
    for (at, &byte) in key.iter().enumerate().take(5) {
        number |= u64::from(byte & 0x7f) << (7 * at);
        if byte & 0x80 == 0 {
            return Some((u32::try_from(number.checked_sub(1)?).ok()?, &key[at + 1..]));
        }
    }
    None
}

/// The range of all keys of a column family.
pub fn range(family: u32) -> KeyRange {
    KeyRange::prefix(&prefix(family))
}

/// The key of a column family in the catalogue.
pub fn family_key(name: &[u8]) -> Vec<u8> {
    [FAMILY_PREFIX, name].concat()
}

/// The range of all column families in the catalogue.
pub fn families() -> KeyRange {
    KeyRange::prefix(FAMILY_PREFIX)
}

/// The name of a column family by its key in the catalogue.
pub fn family_name(key: &[u8]) -> Result<String, Error> {
    let name = key.strip_prefix(FAMILY_PREFIX).unwrap_or_default();
    String::from_utf8(name.to_vec())
        .map_err(|_| Error::corruption(TABLE, 0, "the name of a column family is not UTF-8"))
}

/// The key of a prepared transaction in the catalogue.
pub fn prepared_key(name: &[u8]) -> Vec<u8> {
    [PREPARED_PREFIX, name].concat()
}

/// The range of all prepared transactions in the catalogue.
pub fn prepared() -> KeyRange {
    KeyRange::prefix(PREPARED_PREFIX)
}

/// The name of a prepared transaction by its key in the catalogue.
pub fn prepared_name(key: &[u8]) -> &[u8] {
    key.strip_prefix(PREPARED_PREFIX).unwrap_or_default()
}

/// A number of the catalogue.
pub fn number(value: &[u8]) -> Result<u32, Error> {
    let fixed = value.try_into();
    fixed
        .map(u32::from_le_bytes)
        .map_err(|_| Error::corruption(TABLE, 0, "a number in the catalogue has not 4 bytes"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn keys_of_families_are_split_again_and_apart() {
        for family in [0, 1, 126, 127, 128, 16_383, 1 << 21, u32::MAX] {
            for key in [&b""[..], b"k", b"\0", b"\xff\xff"] {
                assert_eq!(split(&entry_key(family, key)), Some((family, key)));
                assert!(range(family).contains(&entry_key(family, key)));
                assert!(!range(family.wrapping_add(1)).contains(&entry_key(family, key)));
            }
        }
        assert_eq!(prefix(0), b"\x01");
        for catalogue in
            [VERSION_KEY, IDENTITY_KEY, NEXT_KEY, b"", b"\x80", b"\x80\x80\x80\x80\x80"]
        {
            assert_eq!(split(catalogue), None);
        }
    }

    #[test]
    fn names_of_families_are_found_in_their_keys() {
        let key = family_key(b"blocks");
        assert!(families().contains(&key) && !families().contains(VERSION_KEY));
        assert_eq!(family_name(&key).unwrap(), "blocks");
        assert_eq!(number(&7u32.to_le_bytes()).unwrap(), 7);
        assert!(number(b"123").is_err());
    }
}
