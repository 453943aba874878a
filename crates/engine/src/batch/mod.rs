//! A list of writes that is applied atomically.
//!
//! A batch is stored in its [log form](log_form), so that an engine appends it to a log without
//! encoding each operation again.
//!
//! Operations are applied in order: the last write to a key within a batch wins. The bytes of a
//! batch in memory are valid by construction. In a log they are covered by its checksum, and
//! [`WriteBatch::from_bytes`] checks the structure again when they are read back.
//!
//! Only some engines accept range deletions and merges: [`WriteBatch::iter`] and [`operations`]
//! show puts and deletes, [`WriteBatch::iter_all`] and [`all_operations`] all kinds.

pub mod log_form;

use std::ops::{Bound, RangeBounds};

use crate::error::display_key;
use crate::{Entry, Error, Result, Timestamp, entry};
use log_form::{
    Decoder, KIND_DELETE, KIND_DELETE_RANGE, KIND_MERGE, KIND_PUT, KIND_PUT_EXPIRING,
    unexpected_merge, unexpected_range,
};

use crate::varint::write_varint;
pub use log_form::{BatchOp, Op, all_operations, first_put, operations, write_key};

/// A list of writes that is applied in order, completely or not at all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WriteBatch {
    bytes: Vec<u8>,
    count: u32,
    /// How many of them are range deletions.
    ranges: u32,
    /// How many of them are merges.
    merges: u32,
    /// How many of them are puts that expire.
    expiring: u32,
    user_bytes: u64,
    largest_key: usize,
    largest_value: usize,
}

impl WriteBatch {
    /// An empty batch.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds `key → value`.
    pub fn put(&mut self, key: &[u8], value: &[u8]) -> &mut Self {
        self.bytes.push(KIND_PUT);
        self.push_key(key);
        self.push_value(value);
        self
    }

    /// Adds `key → value` until `expires_at`, in milliseconds since 1970.
    pub fn put_until(&mut self, key: &[u8], value: &[u8], expires_at: Timestamp) -> &mut Self {
        self.bytes.push(KIND_PUT_EXPIRING);
        self.expiring += 1;
        self.push_key(key);
        self.bytes.extend_from_slice(&expires_at.to_le_bytes());
        self.push_value(value);
        self
    }

    /// Adds `key → entry`, with the entry's expiry.
    pub fn put_entry(&mut self, key: &[u8], entry: &Entry) -> &mut Self {
        match entry.expires_at {
            None => self.put(key, &entry.value),
            Some(at) => self.put_until(key, &entry.value, at),
        }
    }

    /// Adds the deletion of `key`. Deleting a missing key is not an error.
    pub fn delete(&mut self, key: &[u8]) -> &mut Self {
        self.bytes.push(KIND_DELETE);
        self.push_key(key);
        self.count += 1;
        self
    }

    /// Adds the merge of `operand` into the value of `key` by the table's
    /// [`MergeOperator`](crate::MergeOperator). Nothing is read. Only engines with
    /// [merges](crate::Capabilities::merge) accept it.
    ///
    /// ```
    /// # use siltstone_engine::WriteBatch;
    /// let mut batch = WriteBatch::new();
    /// batch.merge(b"clicks", &1u64.to_le_bytes());
    /// assert_eq!((batch.len(), batch.merges()), (1, 1));
    /// ```
    pub fn merge(&mut self, key: &[u8], operand: &[u8]) -> &mut Self {
        self.bytes.push(KIND_MERGE);
        self.push_key(key);
        self.push_value(operand);
        self.merges += 1;
        self
    }

    /// Adds the deletion of every key in `range` that exists when the batch is applied. Operations
    /// before it in the batch are deleted, too, later ones stay. Only engines with
    /// [range deletions](crate::Capabilities::range_deletes) accept it.
    ///
    /// ```
    /// # use siltstone_engine::WriteBatch;
    /// let mut batch = WriteBatch::new();
    /// batch.delete_range("user:7:".."user:7;").put(b"user:7:name", b"new");
    /// assert_eq!(batch.len(), 2);
    /// ```
    pub fn delete_range<K: AsRef<[u8]>>(&mut self, range: impl RangeBounds<K>) -> &mut Self {
        let successor = |key: &[u8]| [key, &[0]].concat();
        let start = match range.start_bound().map(AsRef::as_ref) {
            Bound::Unbounded => Vec::new(),
            Bound::Included(key) => key.to_vec(),
            Bound::Excluded(key) => successor(key),
        };
        let end = match range.end_bound().map(AsRef::as_ref) {
            Bound::Unbounded => None,
            Bound::Included(key) => Some(successor(key)),
            Bound::Excluded(key) => Some(key.to_vec()),
        };
        self.push_range(&start, end.as_deref())
    }

    fn push_range(&mut self, start: &[u8], end: Option<&[u8]>) -> &mut Self {
        self.bytes.push(KIND_DELETE_RANGE);
        write_varint(&mut self.bytes, start.len() as u64);
        self.bytes.extend_from_slice(start);
        write_varint(&mut self.bytes, end.map_or(0, |end| end.len() as u64 + 1));
        self.bytes.extend_from_slice(end.unwrap_or_default());
        // The successor of the longest key is a valid bound.
        for bound in [start, end.unwrap_or_default()] {
            self.user_bytes += bound.len() as u64;
            self.largest_key = self.largest_key.max(bound.len().saturating_sub(1));
        }
        self.count += 1;
        self.ranges += 1;
        self
    }

    /// The number of range deletions.
    pub fn range_deletions(&self) -> usize {
        self.ranges as usize
    }

    /// The number of merges.
    pub fn merges(&self) -> usize {
        self.merges as usize
    }

    /// The number of puts that expire.
    pub fn expiring_puts(&self) -> usize {
        self.expiring as usize
    }

    /// For engines without range deletions.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the batch has any.
    pub fn reject_range_deletions(&self, engine: &'static str) -> Result<()> {
        match self.ranges {
            0 => Ok(()),
            _ => Err(Error::Unsupported { engine, operation: "range deletions" }),
        }
    }

    /// For engines without merges.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the batch has any.
    pub fn reject_merges(&self, engine: &'static str) -> Result<()> {
        match self.merges {
            0 => Ok(()),
            _ => Err(Error::Unsupported { engine, operation: "merges" }),
        }
    }

    /// Adds an operation.
    pub fn push(&mut self, op: Op<'_>) -> &mut Self {
        match op {
            Op::Put { key, value, expires_at: None } => self.put(key, value),
            Op::Put { key, value, expires_at: Some(at) } => self.put_until(key, value, at),
            Op::Delete { key } => self.delete(key),
        }
    }

    /// Adds an operation of any kind.
    pub fn push_any(&mut self, op: BatchOp<'_>) -> &mut Self {
        match op {
            BatchOp::Point(op) => self.push(op),
            BatchOp::DeleteRange { start, end } => self.push_range(start, end),
            BatchOp::Merge { key, operand } => self.merge(key, operand),
        }
    }

    /// Adds all operations of another batch, in their order. Cost: one copy of its bytes.
    pub fn append(&mut self, other: &WriteBatch) -> &mut Self {
        self.bytes.extend_from_slice(&other.bytes);
        self.count += other.count;
        self.ranges += other.ranges;
        self.merges += other.merges;
        self.expiring += other.expiring;
        self.user_bytes += other.user_bytes;
        self.largest_key = self.largest_key.max(other.largest_key);
        self.largest_value = self.largest_value.max(other.largest_value);
        self
    }

    /// The number of operations.
    pub fn len(&self) -> usize {
        self.count as usize
    }

    /// Whether the batch has no operations.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The bytes of keys and values: the divisor of write amplification.
    pub fn user_bytes(&self) -> u64 {
        self.user_bytes
    }

    /// The batch in its log form.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Removes all operations but keeps the allocated memory.
    pub fn clear(&mut self) {
        let mut bytes = std::mem::take(&mut self.bytes);
        bytes.clear();
        *self = WriteBatch { bytes, ..Self::default() };
    }

    /// The puts and deletes, in order.
    pub fn iter(&self) -> impl Iterator<Item = Op<'_>> {
        self.iter_all().filter_map(|op| match op {
            BatchOp::Point(op) => Some(op),
            BatchOp::DeleteRange { .. } | BatchOp::Merge { .. } => None,
        })
    }

    /// All operations, in order.
    pub fn iter_all(&self) -> impl Iterator<Item = BatchOp<'_>> {
        // The bytes were encoded here or checked by `from_bytes`, so decoding cannot fail.
        Decoder { bytes: &self.bytes }.map_while(Result::ok)
    }

    /// Splits the batch into pieces of consecutive operations: the log form of each and its number
    /// of operations. A piece has at most `max_bytes` unless it is a single operation.
    pub fn pieces(&self, max_bytes: usize) -> impl Iterator<Item = (&[u8], u32)> {
        let mut rest = &self.bytes[..];
        let mut left = self.count;
        std::iter::from_fn(move || {
            if rest.len() <= max_bytes {
                let piece = (std::mem::take(&mut rest), std::mem::take(&mut left));
                return (piece.1 > 0).then_some(piece);
            }
            let mut decoder = Decoder { bytes: rest };
            let (mut end, mut count) = (0, 0);
            while decoder.next().is_some() {
                let to = rest.len() - decoder.bytes.len();
                if count > 0 && to > max_bytes {
                    break;
                }
                (end, count) = (to, count + 1);
            }
            let (piece, tail) = rest.split_at(end);
            (rest, left) = (tail, left - count);
            Some((piece, count))
        })
    }

    /// Rejects a batch with a key or value over its limit or with an inverted range, before
    /// anything is written.
    ///
    /// # Errors
    /// [`Error::TooLarge`]; [`Error::Invalid`] that names the bounds of the range.
    pub fn check(&self, value_limit: usize) -> Result<()> {
        for (what, size, limit) in [
            ("key", self.largest_key, entry::MAX_KEY_BYTES),
            ("value", self.largest_value, value_limit),
            ("batch", self.bytes.len(), u32::MAX as usize),
        ] {
            if size > limit {
                return Err(Error::TooLarge { what, size: size as u64, limit: limit as u64 });
            }
        }
        if self.ranges == 0 {
            return Ok(());
        }
        self.iter_all().try_for_each(|op| match op {
            BatchOp::DeleteRange { start, end: Some(end) } if start > end => {
                Err(Error::Invalid(format!(
                    "the range to delete is inverted: it starts at {}, after its end, {}; swap \
                     the bounds",
                    display_key(start),
                    display_key(end)
                )))
            }
            _ => Ok(()),
        })
    }

    /// Decodes a batch of `count` operations from its log form.
    ///
    /// # Errors
    /// A description of what is malformed; the caller adds the file and the offset. Memory use is
    /// bounded by the length of `bytes`.
    pub fn from_bytes(bytes: &[u8], count: u32) -> Result<Self, String> {
        let batch = Self::from_bytes_with_ranges(bytes, count)?;
        if batch.ranges > 0 { Err(unexpected_range()) } else { Ok(batch) }
    }

    /// As [`from_bytes`](Self::from_bytes), for logs that may have range deletions.
    ///
    /// # Errors
    /// The same.
    pub fn from_bytes_with_ranges(bytes: &[u8], count: u32) -> Result<Self, String> {
        let batch = Self::from_bytes_with_merges(bytes, count)?;
        if batch.merges > 0 { Err(unexpected_merge()) } else { Ok(batch) }
    }

    /// As [`from_bytes`](Self::from_bytes), for logs that may have operations of all kinds.
    ///
    /// # Errors
    /// The same.
    pub fn from_bytes_with_merges(bytes: &[u8], count: u32) -> Result<Self, String> {
        let mut batch = WriteBatch::new();
        for op in (Decoder { bytes }) {
            batch.push_any(op?);
        }
        if batch.count != count {
            return Err(format!("batch has {} operations, its header says {count}", batch.count));
        }
        Ok(batch)
    }

    fn push_key(&mut self, key: &[u8]) {
        write_key(&mut self.bytes, key);
        self.user_bytes += key.len() as u64;
        self.largest_key = self.largest_key.max(key.len());
    }

    fn push_value(&mut self, value: &[u8]) {
        write_varint(&mut self.bytes, value.len() as u64);
        self.bytes.extend_from_slice(value);
        self.user_bytes += value.len() as u64;
        self.largest_value = self.largest_value.max(value.len());
        self.count += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decoded_batch_has_the_operations_in_order() {
        let mut batch = WriteBatch::new();
        batch.put(b"a", b"1").delete(b"b").put_until(b"c", b"", 77);
        let ops: Vec<_> = batch.iter().collect();
        assert_eq!(
            ops,
            [
                Op::Put { key: b"a", value: b"1", expires_at: None },
                Op::Delete { key: b"b" },
                Op::Put { key: b"c", value: b"", expires_at: Some(77) },
            ]
        );
        assert_eq!(batch.user_bytes(), 4);
        assert_eq!(WriteBatch::from_bytes(batch.as_bytes(), 3).unwrap(), batch);
    }

    #[test]
    fn appending_a_batch_equals_pushing_its_operations() {
        let (mut left, mut right, mut pushed) =
            (WriteBatch::new(), WriteBatch::new(), WriteBatch::new());
        left.put(b"a", b"1");
        right.delete(b"").put_until(b"bcd", b"22", 5);
        left.iter().chain(right.iter()).for_each(|op| {
            pushed.push(op);
        });
        assert_eq!(left.append(&right), &pushed);
    }

    #[test]
    fn pieces_contain_every_operation_once_in_order() {
        let mut batch = WriteBatch::new();
        for i in 0..100u32 {
            batch.put(&i.to_be_bytes(), &vec![7; (i * 13 % 97) as usize]);
        }
        for max_bytes in [1, 50, 100, 1000, 1 << 20] {
            let mut joined = WriteBatch::new();
            for (bytes, count) in batch.pieces(max_bytes) {
                assert!(bytes.len() <= max_bytes || count == 1);
                WriteBatch::from_bytes(bytes, count).unwrap().iter().for_each(|op| {
                    joined.push(op);
                });
            }
            assert_eq!(joined, batch);
        }
        assert_eq!(WriteBatch::new().pieces(10).count(), 0);
    }

    #[test]
    fn malformed_bytes_are_rejected() {
        let mut batch = WriteBatch::new();
        batch.put(b"key", b"value");
        let bytes = batch.as_bytes();
        for cut in 1..bytes.len() {
            assert!(WriteBatch::from_bytes(&bytes[..cut], 1).is_err(), "cut at {cut}");
        }
        assert!(WriteBatch::from_bytes(bytes, 2).is_err());
        assert!(WriteBatch::from_bytes(&[9, 1, b'k'], 1).is_err());
        assert!(WriteBatch::from_bytes(&[1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff], 1).is_err());
    }

    #[test]
    fn range_deletions_are_in_order_among_the_other_operations() {
        let mut batch = WriteBatch::new();
        batch.put(b"a", b"1").delete_range("a".."c").delete(b"d");
        batch.delete_range::<&[u8]>(..).delete_range("x"..="y");
        let range = |start, end| BatchOp::DeleteRange { start, end };
        let all = [
            BatchOp::Point(Op::Put { key: b"a", value: b"1", expires_at: None }),
            range(b"a", Some(b"c")),
            BatchOp::Point(Op::Delete { key: b"d" }),
            range(b"", None),
            range(b"x", Some(b"y\0")),
        ];
        assert_eq!(batch.iter_all().collect::<Vec<_>>(), all);
        assert_eq!((batch.iter().count(), batch.range_deletions(), batch.len()), (2, 3, 5));
        let bytes = batch.as_bytes();
        assert_eq!(WriteBatch::from_bytes_with_ranges(bytes, 5).unwrap(), batch);
        assert!(WriteBatch::from_bytes(bytes, 5).is_err());
        assert_eq!(operations(bytes).filter(Result::is_ok).count(), 2);
        assert_eq!(batch.pieces(1).count(), 5);
        batch.check(10).unwrap();
        assert!(matches!(batch.reject_range_deletions("e"), Err(Error::Unsupported { .. })));
        batch.delete_range("b".."a");
        let error = batch.check(10).unwrap_err().to_string();
        assert!(error.contains("key 'b'") && error.contains("key 'a'"), "{error}");
        batch.clear();
        batch.reject_range_deletions("e").unwrap();
        let longest = vec![b'k'; entry::MAX_KEY_BYTES];
        batch.delete_range(longest.clone()..=longest);
        batch.check(10).unwrap();
    }

    #[test]
    fn keys_and_values_over_their_limits_are_rejected() {
        let mut batch = WriteBatch::new();
        batch.put(b"", b"x").put(&vec![0; MAX], b"");
        assert!(batch.check(10).is_ok());
        batch.clear();
        batch.put(&vec![0; MAX + 1], b"");
        assert!(matches!(batch.check(10), Err(Error::TooLarge { what: "key", .. })));
        batch.clear();
        batch.put(b"k", &[0; 11]);
        assert!(matches!(batch.check(10), Err(Error::TooLarge { what: "value", limit: 10, .. })));
        const MAX: usize = entry::MAX_KEY_BYTES;
    }

    #[test]
    fn operation_on_the_empty_key_does_not_begin_with_two_zeros() {
        let mut batch = WriteBatch::new();
        batch.delete(b"").put(b"", b"").put_until(b"", b"v", 7).delete(b"");
        assert_eq!(&batch.as_bytes()[..3], [KIND_DELETE, 0x80, 0]);
        assert_eq!(WriteBatch::from_bytes(batch.as_bytes(), 4).unwrap(), batch);
        assert!(batch.iter().all(|op| op.key().is_empty()));
    }
}
