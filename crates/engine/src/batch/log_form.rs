//! The log form of a batch, and the operations in it.
//!
//! ```text
//! operation := kind:u8  key_len:varint  key  [expires_at:u64 LE]  [value_len:varint  value]
//!   kind 0 = delete  (no expiry, no value)
//!   kind 1 = put     (value)
//!   kind 2 = put that expires (expires_at in ms since 1970, value)
//!   the key_len of an empty key has two bytes: 0x80 0x00
//! range deletion := 3:u8  start_len:varint  start  end_code:varint  [end]
//!   the keys from start to before end; end_code is end_len + 1, or 0 for no end
//! merge := 4:u8  key_len:varint  key  operand_len:varint  operand
//! ```
//!
//! So no operation begins with two zeros, and zeros can end a list of operations, as in `silt`.

use crate::Timestamp;
use crate::varint::{read_varint, write_varint};

pub(super) const KIND_DELETE: u8 = 0;
pub(super) const KIND_PUT: u8 = 1;
pub(super) const KIND_PUT_EXPIRING: u8 = 2;
pub(super) const KIND_DELETE_RANGE: u8 = 3;
pub(super) const KIND_MERGE: u8 = 4;

/// One operation of a batch, borrowed from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Op<'a> {
    /// Sets the value of a key.
    Put {
        /// The key.
        key: &'a [u8],
        /// The value.
        value: &'a [u8],
        /// When the entry expires.
        expires_at: Option<Timestamp>,
    },
    /// Deletes a key.
    Delete {
        /// The key.
        key: &'a [u8],
    },
}

impl<'a> Op<'a> {
    /// The key of the operation.
    pub fn key(&self) -> &'a [u8] {
        match *self {
            Op::Put { key, .. } | Op::Delete { key } => key,
        }
    }
}

/// One operation of a batch that may delete ranges and merge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BatchOp<'a> {
    /// An operation on one key.
    Point(Op<'a>),
    /// Deletes the keys of a range.
    DeleteRange {
        /// The first key.
        start: &'a [u8],
        /// The first key after the range; `None`: there is none.
        end: Option<&'a [u8]>,
    },
    /// Merges an operand into the value of a key.
    Merge {
        /// The key.
        key: &'a [u8],
        /// The operand.
        operand: &'a [u8],
    },
}

/// Decodes the operations of a log form of puts and deletes alone, in order.
///
/// # Errors
/// The first malformed operation yields a description of the error, without position, and ends the
/// iteration.
pub fn operations(bytes: &[u8]) -> impl Iterator<Item = Result<Op<'_>, String>> {
    all_operations(bytes).map(|op| match op? {
        BatchOp::Point(op) => Ok(op),
        BatchOp::DeleteRange { .. } => Err(unexpected_range()),
        BatchOp::Merge { .. } => Err(unexpected_merge()),
    })
}

/// Decodes the operations of a log form, in order.
///
/// # Errors
/// As from [`operations`].
#[inline]
pub fn all_operations(bytes: &[u8]) -> impl Iterator<Item = Result<BatchOp<'_>, String>> {
    Decoder { bytes }
}

/// The key and the value of the first operation, if it is a put without an expiry. Faster than
/// [`all_operations`].
#[inline]
pub fn first_put(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (&KIND_PUT, rest) = bytes.split_first()? else { return None };
    let (len, used) = read_varint(rest)?;
    let (key, rest) = rest.get(used..)?.split_at_checked(usize::try_from(len).ok()?)?;
    let (len, used) = read_varint(rest)?;
    let value = rest.get(used..)?.get(..usize::try_from(len).ok()?)?;
    Some((key, value))
}

pub(super) fn unexpected_range() -> String {
    "a range deletion where none may be".to_owned()
}

pub(super) fn unexpected_merge() -> String {
    "a merge where none may be".to_owned()
}

/// Decodes the log form; ends after the first malformed operation.
pub(super) struct Decoder<'a> {
    /// The bytes that are not decoded yet.
    pub(super) bytes: &'a [u8],
}

impl<'a> Decoder<'a> {
    #[inline]
    fn op(&mut self) -> Option<BatchOp<'a>> {
        let kind = self.take(1)?[0];
        let key_len = self.varint()?;
        let key = self.take(key_len)?;
        let expires_at = match kind {
            KIND_DELETE => return Some(BatchOp::Point(Op::Delete { key })),
            KIND_DELETE_RANGE => {
                let end = match self.varint()?.checked_sub(1) {
                    Some(end_len) => Some(self.take(end_len)?),
                    None => None,
                };
                return Some(BatchOp::DeleteRange { start: key, end });
            }
            KIND_PUT | KIND_MERGE => None,
            KIND_PUT_EXPIRING => Some(u64::from_le_bytes(self.take(8)?.try_into().ok()?)),
            _ => return None,
        };
        let value_len = self.varint()?;
        let value = self.take(value_len)?;
        Some(match kind {
            KIND_MERGE => BatchOp::Merge { key, operand: value },
            _ => BatchOp::Point(Op::Put { key, value, expires_at }),
        })
    }

    #[inline]
    fn take(&mut self, n: usize) -> Option<&'a [u8]> {
        let (head, tail) = self.bytes.split_at_checked(n)?;
        self.bytes = tail;
        Some(head)
    }

    #[inline]
    fn varint(&mut self) -> Option<usize> {
        let (value, used) = read_varint(self.bytes)?;
        self.bytes = &self.bytes[used..];
        usize::try_from(value).ok()
    }
}

impl<'a> Iterator for Decoder<'a> {
    type Item = Result<BatchOp<'a>, String>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.bytes.is_empty() {
            return None;
        }
        Some(self.op().ok_or_else(|| {
            self.bytes = &[];
            "malformed operation in a batch".to_owned()
        }))
    }
}

/// Appends the `key_len` and the `key` of an operation.
pub fn write_key(out: &mut Vec<u8>, key: &[u8]) {
    match key {
        [] => out.extend_from_slice(&[0x80, 0]),
        key => write_varint(out, key.len() as u64),
    }
    out.extend_from_slice(key);
}
