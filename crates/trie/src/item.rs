//! An item of a bucket: an operation, in the encoding of batches and logs.
//!
//! ```text
//!   item := kind:u8  key_len:varint  key  [expires_at:u64 LE]  [value_len:varint  value]
//!     kind 0 = delete    1 = put    2 = put that expires        (see siltstone_engine::batch)
//! ```
//!
//! The item contains the complete key, and every lookup compares it, so a hash collision never
//! leads to a wrong result. With the same encoding from log to bucket, items are copied and not
//! re-encoded.
//!
//! Invariant: `parse` is the inverse of `push`, and returns an item or `None` for any bytes.

use siltstone_engine::batch::write_key;
use siltstone_engine::varint::{read_varint, write_varint};

const DELETE: u8 = 0;
const PUT: u8 = 1;
const PUT_EXPIRING: u8 = 2;

/// An item, borrowed from its buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Item<'a> {
    pub(crate) key: &'a [u8],
    /// `None`: a deletion.
    pub(crate) value: Option<&'a [u8]>,
    pub(crate) expires_at: Option<u64>,
}

impl<'a> Item<'a> {
    pub(crate) fn delete(key: &'a [u8]) -> Self {
        Item { key, value: None, expires_at: None }
    }

    /// Appends the item to `out`.
    pub(crate) fn push(&self, out: &mut Vec<u8>) {
        out.push(match (self.value, self.expires_at) {
            (None, _) => DELETE,
            (Some(_), None) => PUT,
            (Some(_), Some(_)) => PUT_EXPIRING,
        });
        write_key(out, self.key);
        if let Some(value) = self.value {
            if let Some(at) = self.expires_at {
                out.extend_from_slice(&at.to_le_bytes());
            }
            write_varint(out, value.len() as u64);
            out.extend_from_slice(value);
        }
    }

    /// The item at the beginning of `bytes`, and its length.
    pub(crate) fn parse(bytes: &'a [u8]) -> Option<(Self, usize)> {
        let mut rest = bytes;
        let kind = take(&mut rest, 1)?[0];
        let key_len = varint(&mut rest)?;
        let key = take(&mut rest, key_len)?;
        let item = match kind {
            DELETE => Item::delete(key),
            PUT | PUT_EXPIRING => {
                let expires_at = match kind {
                    PUT => None,
                    _ => Some(u64::from_le_bytes(take(&mut rest, 8)?.try_into().ok()?)),
                };
                let len = varint(&mut rest)?;
                Item { key, value: Some(take(&mut rest, len)?), expires_at }
            }
            _ => return None,
        };
        Some((item, bytes.len() - rest.len()))
    }

    /// The maximum number of bytes that `push` adds to key and value.
    pub(crate) const MAX_OVERHEAD: usize = 1 + 3 + 8 + 5;

    /// Whether it may be a common item of a bucket: a put without expiry. The item of the empty key
    /// may not, because in a bucket's header the key length 0 means no common items.
    pub(crate) fn may_be_common(&self) -> bool {
        self.value.is_some() && self.expires_at.is_none() && !self.key.is_empty()
    }

    /// Whether it is deleted or expired at `now`.
    pub(crate) fn is_gone(&self, now: u64) -> bool {
        self.value.is_none() || self.expires_at.is_some_and(|at| at <= now)
    }
}

fn take<'a>(bytes: &mut &'a [u8], n: usize) -> Option<&'a [u8]> {
    let (head, tail) = bytes.split_at_checked(n)?;
    *bytes = tail;
    Some(head)
}

#[inline]
fn varint(bytes: &mut &[u8]) -> Option<usize> {
    let (value, used) = read_varint(bytes)?;
    *bytes = &bytes[used..];
    usize::try_from(value).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use siltstone_engine::{Op, WriteBatch};

    fn of(op: Op<'_>) -> Item<'_> {
        match op {
            Op::Put { key, value, expires_at } => Item { key, value: Some(value), expires_at },
            Op::Delete { key } => Item::delete(key),
        }
    }

    #[test]
    fn items_have_the_encoding_of_batches_and_survive_it() {
        let mut batch = WriteBatch::new();
        batch.put(b"a", b"1").delete(b"b").put_until(b"cc", &[7; 300], 99);
        batch.put(b"", b"2").delete(b"");
        let mut bytes = Vec::new();
        batch.iter().for_each(|op| of(op).push(&mut bytes));
        assert_eq!(bytes, batch.as_bytes());
        let mut rest = &bytes[..];
        for op in batch.iter() {
            let (item, used) = Item::parse(rest).unwrap();
            assert_eq!(item, of(op));
            rest = &rest[used..];
        }
        assert!(Item::parse(rest).is_none());
        for cut in 1..5 {
            assert!(Item::parse(&bytes[..cut]).is_none() || cut == 4);
        }
    }
}
