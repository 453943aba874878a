//! References to values that are not in a table (key-value separation).
//!
//! A value of at least `blob_threshold` bytes is written once, in the write-ahead log. The tables
//! have a reference in its place, and the log stays as long as a table refers to it. Compactions
//! merge the references and leave the values where they are.
//!
//! ```text
//!   table      a ─▶ 7:40    b = small    c ─▶ 9:7200       keys, small values, references
//!   log 7      [b=… a=large …]                             a flush has kept it
//!   blob 9     [c=large …]                                 a compaction moved c out of a log
//!                                                          that was mostly garbage
//!
//!   reference := file:varint  value_bytes:varint  position         value of a Kind::Reference
//! ```
//!
//! The position includes the expiry of the value, if it has one: see `record`. A record of a log or
//! of a blob file has the key, the sequence number and a checksum, and a reader compares all of
//! them. A blob file (`.blob`) has the format of a log, with `retained` records; it is not among
//! the logs that recovery replays.
//!
//! Sources: Lu et al., WiscKey (FAST 2016); RocksDB's BlobDB.

use siltstone_engine::varint::{read_varint, write_varint};
use siltstone_engine::{Error, Result};
use siltstone_table::{EntryRef, Kind};

use crate::record::Position;

/// The maximum overhead of a value in its file beside its key and its own bytes, unless it is far
/// longer than a block of a log. An estimate that is too high never makes a file look like garbage.
const RECORD_OVERHEAD_BYTES: u64 = 40;

/// A reference to the value of one version of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BlobRef {
    /// The number of the log or blob file.
    pub(crate) file: u64,
    /// The length of the value.
    pub(crate) value_bytes: u64,
    /// The position of its record.
    pub(crate) position: Position,
    pub(crate) expires_at: Option<u64>,
}

impl BlobRef {
    /// Appends the reference to `out`.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        write_varint(out, self.file);
        write_varint(out, self.value_bytes);
        self.position.encode(self.expires_at, out);
    }

    /// Decodes the value of an entry of the kind `Reference` in a table.
    ///
    /// # Errors
    /// `Corruption` if it is malformed; `table` is the file's name.
    pub(crate) fn decode(bytes: &[u8], table: &str) -> Result<Self> {
        let parse = || {
            let (file, used) = read_varint(bytes)?;
            let bytes = &bytes[used..];
            let (value_bytes, used) = read_varint(bytes)?;
            let (position, expires_at) = Position::decode(&bytes[used..])?;
            Some(BlobRef { file, value_bytes, position, expires_at })
        };
        parse().ok_or_else(|| Error::corruption(table, 0, "a malformed reference to a value"))
    }

    /// The kind of the version.
    pub(crate) fn kind(&self) -> Kind {
        if self.expires_at.is_some() { Kind::PutExpiring } else { Kind::Put }
    }

    /// The entry with this reference in place of its value.
    pub(crate) fn entry<'a>(&self, entry: EntryRef<'a>, encoded: &'a mut Vec<u8>) -> EntryRef<'a> {
        encoded.clear();
        self.encode(encoded);
        EntryRef { kind: Kind::Reference, expires_at: 0, value: encoded, ..entry }
    }

    /// About the bytes that the value of `key` occupies in its file.
    pub(crate) fn stored_bytes(&self, key: &[u8]) -> u64 {
        self.value_bytes.saturating_add(key.len() as u64 + RECORD_OVERHEAD_BYTES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reference_survives_encoding_and_malformed_ones_are_rejected() {
        for (file, value_bytes, expires_at) in [(1, 0, None), (1 << 56, 1 << 32, Some(u64::MAX))] {
            let position = Position::new(1 << 30, 4096);
            let reference = BlobRef { file, value_bytes, position, expires_at };
            let mut bytes = Vec::new();
            reference.encode(&mut bytes);
            assert_eq!(BlobRef::decode(&bytes, "t").unwrap(), reference);
            bytes.extend_from_slice(&[0, 0]);
            assert!(BlobRef::decode(&bytes, "t").unwrap_err().is_corruption());
            assert!(BlobRef::decode(&bytes[..3], "t").unwrap_err().is_corruption());
        }
    }
}
