//! Properties of an SSTable: counts, bounds, ages.
//!
//! ```text
//! properties := { name_len:u8  name  value_len:varint  value }*
//! ```
//!
//! Numbers are varints. The same encoding is used for the meta block and in an engine's manifest. A
//! reader skips unknown names and treats missing values as zero.
//!
//! Invariant: decoding is the inverse of encoding, and arbitrary bytes give a result.

use siltstone_engine::varint::{read_varint, write_varint};

use crate::number::FileNumber;

/// Counts and bounds of one SSTable.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TableMeta {
    /// The file's number.
    pub number: FileNumber,
    /// Bytes of the file.
    pub bytes: u64,
    /// Entries of all kinds and versions.
    pub entries: u64,
    /// Entries that are deletes.
    pub deletes: u64,
    /// Entries that expire.
    pub expiring: u64,
    /// Data blocks.
    pub blocks: u64,
    /// Total size of keys and values, in bytes.
    pub user_bytes: u64,
    /// The smallest user key; also empty if there are no entries.
    pub smallest: Vec<u8>,
    /// The largest user key.
    pub largest: Vec<u8>,
    /// The smallest sequence number.
    pub min_sequence: u64,
    /// The largest sequence number.
    pub max_sequence: u64,
    /// The earliest expiry time, in ms since 1970.
    pub oldest_expiry: Option<u64>,
}

impl TableMeta {
    /// Encodes the properties.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let numbers = [
            ("number", self.number.0),
            ("bytes", self.bytes),
            ("entries", self.entries),
            ("deletes", self.deletes),
            ("expiring", self.expiring),
            ("blocks", self.blocks),
            ("user_bytes", self.user_bytes),
            ("min_sequence", self.min_sequence),
            ("max_sequence", self.max_sequence),
        ];
        let expiry = self.oldest_expiry.map(|at| ("oldest_expiry", at));
        for (name, number) in numbers.into_iter().chain(expiry) {
            let mut value = Vec::with_capacity(10);
            write_varint(&mut value, number);
            push(&mut out, name, &value);
        }
        push(&mut out, "smallest", &self.smallest);
        push(&mut out, "largest", &self.largest);
        out
    }

    /// Decodes properties.
    ///
    /// # Errors
    /// A message if they are malformed.
    pub fn decode(mut bytes: &[u8]) -> Result<TableMeta, &'static str> {
        let mut meta = TableMeta::default();
        while let Some((&name_len, rest)) = bytes.split_first() {
            let (name, value, rest) =
                split(rest, usize::from(name_len)).ok_or("the properties are truncated")?;
            bytes = rest;
            let number = || match read_varint(value) {
                Some((number, used)) if used == value.len() => Ok(number),
                _ => Err("a property is not a number"),
            };
            match name {
                b"number" => meta.number = FileNumber(number()?),
                b"bytes" => meta.bytes = number()?,
                b"entries" => meta.entries = number()?,
                b"deletes" => meta.deletes = number()?,
                b"expiring" => meta.expiring = number()?,
                b"blocks" => meta.blocks = number()?,
                b"user_bytes" => meta.user_bytes = number()?,
                b"min_sequence" => meta.min_sequence = number()?,
                b"max_sequence" => meta.max_sequence = number()?,
                b"oldest_expiry" => meta.oldest_expiry = Some(number()?),
                b"smallest" => meta.smallest = value.to_vec(),
                b"largest" => meta.largest = value.to_vec(),
                _ => {}
            }
        }
        Ok(meta)
    }
}

fn push(out: &mut Vec<u8>, name: &str, value: &[u8]) {
    out.push(name.len() as u8);
    out.extend_from_slice(name.as_bytes());
    write_varint(out, value.len() as u64);
    out.extend_from_slice(value);
}

fn split(bytes: &[u8], name_len: usize) -> Option<(&[u8], &[u8], &[u8])> {
    let (name, rest) = bytes.split_at_checked(name_len)?;
    let (value_len, used) = read_varint(rest)?;
    let (value, rest) = rest[used..].split_at_checked(usize::try_from(value_len).ok()?)?;
    Some((name, value, rest))
}
