//! Write batches.
//!
//! A batch has the keys of the store, with their column families, in the store's log form after a
//! header of 12 bytes, as long as RocksDB's, so that its size and `data` are as expected. The bytes
//! are of this library alone: batches of RocksDB's own form are refused.
//!
//! ```text
//! data := "silt" u32:version=1  u32:operations  operations
//! ```

use std::ffi::{c_char, c_int, c_void};

use shim::boundary::{Pointer, address};
use store::{BatchOp, Op, WriteBatch};

use crate::exports::{List, exports, give, ignored};
use crate::failure::Failure;
use crate::families::Handle;
use crate::layout::{self, entry_key};

const HEADER: &[u8; 8] = b"silt\x01\0\0\0";
const HEADER_BYTES: usize = 12;

/// Writes that are applied together.
#[derive(Debug, Clone, Default)]
pub struct Batch {
    /// The operations.
    pub ops: WriteBatch,
    /// The column families of the operations.
    used: Vec<u32>,
    save_points: Vec<(WriteBatch, Vec<u32>)>,
    /// What `data` has lent.
    lent: Vec<u8>,
    /// Why it cannot be written.
    pub failure: Option<Failure>,
}

impl Batch {
    /// The column families of the operations.
    pub fn used(&self) -> &[u32] {
        &self.used
    }

    fn note(&mut self, family: u32) {
        if !self.used.contains(&family) {
            self.used.push(family);
        }
    }

    /// Adds `key → value`.
    pub fn put(&mut self, family: u32, key: &[u8], value: &[u8]) {
        self.note(family);
        self.ops.put(&entry_key(family, key), value);
    }

    /// Adds a merge.
    pub fn merge(&mut self, family: u32, key: &[u8], operand: &[u8]) {
        self.note(family);
        self.ops.merge(&entry_key(family, key), operand);
    }

    /// Adds a deletion.
    pub fn delete(&mut self, family: u32, key: &[u8]) {
        self.note(family);
        self.ops.delete(&entry_key(family, key));
    }

    /// Adds the deletion of a range.
    pub fn delete_range(&mut self, family: u32, start: &[u8], end: &[u8]) {
        self.note(family);
        // RocksDB ignores a range that ends before its start.
        if start <= end {
            self.ops.delete_range(entry_key(family, start)..entry_key(family, end));
        }
    }

    /// Removes all operations.
    pub fn clear(&mut self) {
        *self = Batch::default();
    }

    /// Sets a point to go back to.
    pub fn set_save_point(&mut self) {
        self.save_points.push((self.ops.clone(), self.used.clone()));
    }

    /// Goes back to the last save point, and forgets it.
    pub fn rollback(&mut self) -> Result<(), Failure> {
        (self.ops, self.used) = self.pop_save_point()?;
        Ok(())
    }

    /// Forgets the last save point.
    pub fn pop_save_point(&mut self) -> Result<(WriteBatch, Vec<u32>), Failure> {
        self.save_points.pop().ok_or_else(|| Failure::NotFound("no save point".to_owned()))
    }

    /// The bytes of the batch, lent until its next change.
    pub fn data(&mut self) -> &[u8] {
        self.lent.clear();
        self.lent.extend_from_slice(HEADER);
        self.lent.extend_from_slice(&(self.ops.len() as u32).to_le_bytes());
        self.lent.extend_from_slice(self.ops.as_bytes());
        &self.lent
    }

    /// The batch of the bytes of [`data`](Self::data). Others make a batch that cannot be written.
    pub fn from_data(data: &[u8]) -> Self {
        let mut batch = Batch::default();
        if data.len() < HEADER_BYTES || data[..8] != HEADER[..] {
            // RocksDB's own header of an empty batch.
            if data.iter().any(|byte| *byte != 0) {
                let text = "the bytes of the batch are not of Siltstone's librocksdb";
                batch.failure = Some(Failure::invalid(text));
            }
            return batch;
        }
        let count = layout::number(&data[8..HEADER_BYTES]).unwrap_or(0);
        match WriteBatch::from_bytes_with_merges(&data[HEADER_BYTES..], count) {
            Ok(ops) => batch.replace(ops),
            Err(reason) => batch.failure = Some(Failure::invalid(reason)),
        }
        batch
    }

    /// Replaces the operations.
    pub fn replace(&mut self, ops: WriteBatch) {
        self.used.clear();
        let families = ops.iter_all().filter_map(|op| Some(layout::split(key_of(&op))?.0));
        for family in families {
            if !self.used.contains(&family) {
                self.used.push(family);
            }
        }
        self.ops = ops;
    }

    fn refuse_timestamp(&mut self) {
        let text = "timestamps of the program".to_owned();
        self.failure = Some(Failure::NotImplemented(text));
    }

    /// The error of a batch that cannot be written.
    pub fn check(&self) -> Result<(), Failure> {
        self.failure.clone().map_or(Ok(()), Err)
    }
}

/// The key of an operation, or the first one of its range.
pub(crate) fn key_of<'a>(op: &BatchOp<'a>) -> &'a [u8] {
    match op {
        BatchOp::Point(op) => op.key(),
        BatchOp::DeleteRange { start, .. } => start,
        BatchOp::Merge { key, .. } => key,
    }
}

type VisitPut =
    Option<unsafe extern "C" fn(*mut c_void, *const c_char, usize, *const c_char, usize)>;
type VisitDelete = Option<unsafe extern "C" fn(*mut c_void, *const c_char, usize)>;
type VisitPutOf =
    Option<unsafe extern "C" fn(*mut c_void, u32, *const c_char, usize, *const c_char, usize)>;
type VisitDeleteOf = Option<unsafe extern "C" fn(*mut c_void, u32, *const c_char, usize)>;

/// Calls the functions for each operation, in order, with the column family of each.
///
/// # Safety
/// The functions take this state.
unsafe fn visit_of(
    ops: &WriteBatch,
    state: *mut c_void,
    put: VisitPutOf,
    deleted: VisitDeleteOf,
    merge: VisitPutOf,
) {
    for op in ops.iter_all() {
        let Some((family, key)) = layout::split(key_of(&op)) else { continue };
        let (data, len) = (address(key), key.len());
        // SAFETY: by the contract of this function; the bytes live for the call.
        unsafe {
            match (op, put, deleted, merge) {
                (BatchOp::Point(Op::Put { value, .. }), Some(put), ..) => {
                    put(state, family, data, len, address(value), value.len());
                }
                (BatchOp::Merge { operand, .. }, _, _, Some(merge)) => {
                    merge(state, family, data, len, address(operand), operand.len());
                }
                (BatchOp::Point(Op::Delete { .. }), _, Some(deleted), _) => {
                    deleted(state, family, data, len);
                }
                _ => {}
            }
        }
    }
}

/// Calls the functions for each put and deletion, in order.
///
/// # Safety
/// The functions take this state.
pub unsafe fn visit(ops: &WriteBatch, state: *mut c_void, put: VisitPut, deleted: VisitDelete) {
    for op in ops.iter() {
        let Some((_, key)) = layout::split(op.key()) else { continue };
        let (data, len) = (address(key), key.len());
        // SAFETY: by the contract of this function; the bytes live for the call.
        unsafe {
            match (op, put, deleted) {
                (Op::Put { value, .. }, Some(put), _) => {
                    put(state, data, len, address(value), value.len());
                }
                (Op::Delete { .. }, _, Some(deleted)) => deleted(state, data, len),
                _ => {}
            }
        }
    }
}

/// The number of elements of an array of the caller.
pub fn count(number: c_int) -> usize {
    usize::try_from(number).unwrap_or(0)
}

/// Both lists joined: RocksDB's vectored calls take a key, or a value, in pieces.
pub(crate) fn join(pieces: List, number: c_int) -> Vec<u8> {
    pieces.iter(count(number)).collect::<Vec<_>>().concat()
}

exports! {
    /// A new, empty batch.
    fn rocksdb_writebatch_create() -> Pointer<Batch> {
        Pointer::new(Batch::default())
    }

    /// A new, empty batch.
    fn rocksdb_writebatch_create_with_params(
        _reserved: usize, _max: usize, _protection: usize, _timestamp: usize
    ) -> Pointer<Batch> {
        Pointer::new(Batch::default())
    }

    /// A batch of the bytes of rocksdb_writebatch_data().
    fn rocksdb_writebatch_create_from(data: bytes) -> Pointer<Batch> {
        Pointer::new(Batch::from_data(data))
    }

    /// Frees a batch.
    fn rocksdb_writebatch_destroy(batch: Option<Box<Batch>>) {
        drop(batch)
    }

    /// Removes all operations.
    fn rocksdb_writebatch_clear(batch: &mut Batch) {
        batch.clear()
    }

    /// The number of operations.
    fn rocksdb_writebatch_count(batch: &Batch) -> c_int {
        batch.ops.len() as c_int
    }

    /// The bytes of a batch, until its next change.
    fn rocksdb_writebatch_data(batch: &mut Batch, size: *mut usize) -> Pointer<c_char> {
        let data = batch.data();
        unsafe { give(size, data.len()) };
        Pointer(data.as_ptr().cast_mut().cast())
    }

    /// Adds the assignment of a value to a key.
    fn rocksdb_writebatch_put | rocksdb_writebatch_put_cf(
        batch: &mut Batch, ?family, key: bytes, value: bytes
    ) {
        batch.put(family.id, key, value)
    }

    /// Adds the assignment of a value to a key, both in pieces.
    fn rocksdb_writebatch_putv | rocksdb_writebatch_putv_cf(
        batch: &mut Batch, ?family, keys: c_int, key: list, values: c_int, value: list
    ) {
        batch.put(family.id, &join(key, keys), &join(value, values))
    }

    /// Adds the merge of an operand into a key.
    fn rocksdb_writebatch_merge | rocksdb_writebatch_merge_cf(
        batch: &mut Batch, ?family, key: bytes, value: bytes
    ) {
        batch.merge(family.id, key, value)
    }

    /// Adds the merge of an operand into a key, both in pieces.
    fn rocksdb_writebatch_mergev | rocksdb_writebatch_mergev_cf(
        batch: &mut Batch, ?family, keys: c_int, key: list, values: c_int, value: list
    ) {
        batch.merge(family.id, &join(key, keys), &join(value, values))
    }

    /// Adds the removal of a key.
    fn rocksdb_writebatch_delete | rocksdb_writebatch_delete_cf(
        batch: &mut Batch, ?family, key: bytes
    ) {
        batch.delete(family.id, key)
    }

    /// Adds the removal of a key.
    fn rocksdb_writebatch_singledelete | rocksdb_writebatch_singledelete_cf(
        batch: &mut Batch, ?family, key: bytes
    ) {
        batch.delete(family.id, key)
    }

    /// Adds the removal of a key in pieces.
    fn rocksdb_writebatch_deletev | rocksdb_writebatch_deletev_cf(
        batch: &mut Batch, ?family, keys: c_int, key: list
    ) {
        batch.delete(family.id, &join(key, keys))
    }

    /// Adds the removal of the keys from one to before another.
    fn rocksdb_writebatch_delete_range | rocksdb_writebatch_delete_range_cf(
        batch: &mut Batch, ?family, start: bytes, end: bytes
    ) {
        batch.delete_range(family.id, start, end)
    }

    /// Adds the removal of a range, whose ends are in pieces.
    fn rocksdb_writebatch_delete_rangev | rocksdb_writebatch_delete_rangev_cf(
        batch: &mut Batch, ?family, keys: c_int, start: list, end: list
    ) {
        batch.delete_range(family.id, &join(start, keys), &join(end, keys))
    }

    /// Makes a batch that cannot be written: there are no timestamps of the program.
    fn rocksdb_writebatch_put_cf_with_ts(
        batch: &mut Batch, _family: &Handle, _key: bytes, _timestamp: bytes, _value: bytes
    ) {
        batch.refuse_timestamp()
    }

    /// Makes a batch that cannot be written.
    fn rocksdb_writebatch_delete_cf_with_ts(
        batch: &mut Batch, _family: &Handle, _key: bytes, _timestamp: bytes
    ) {
        batch.refuse_timestamp()
    }

    /// Makes a batch that cannot be written.
    fn rocksdb_writebatch_singledelete_cf_with_ts(
        batch: &mut Batch, _family: &Handle, _key: bytes, _timestamp: bytes
    ) {
        batch.refuse_timestamp()
    }

    /// Sets a point to go back to.
    fn rocksdb_writebatch_set_save_point(batch: &mut Batch) {
        batch.set_save_point()
    }

    /// Goes back to the last save point.
    fn rocksdb_writebatch_rollback_to_save_point(batch: &mut Batch; err) {
        batch.rollback()
    }

    /// Forgets the last save point.
    fn rocksdb_writebatch_pop_save_point(batch: &mut Batch; err) {
        batch.pop_save_point().map(drop)
    }

    /// Checks nothing: a batch in memory has no checksum.
    fn rocksdb_writebatch_verify_checksum(batch: &Batch; err) {
        batch.check()
    }

    /// Calls `put` or `deleted` for each operation, in order.
    fn rocksdb_writebatch_iterate(
        batch: &Batch, state: *mut c_void, put: VisitPut, deleted: VisitDelete
    ) {
        unsafe { visit(&batch.ops, state, put, deleted) }
    }

    /// The same; there are no log data.
    fn rocksdb_writebatch_iterate_ld(
        batch: &Batch, state: *mut c_void, put: VisitPut, deleted: VisitDelete,
        _log_data: VisitDelete
    ) {
        unsafe { visit(&batch.ops, state, put, deleted) }
    }

    /// Calls a function for each operation, in order, with its column family.
    fn rocksdb_writebatch_iterate_cf(
        batch: &Batch, state: *mut c_void, put: VisitPutOf, deleted: VisitDeleteOf,
        merge: VisitPutOf
    ) {
        unsafe { visit_of(&batch.ops, state, put, deleted, merge) }
    }

    /// The same; there are no log data.
    fn rocksdb_writebatch_iterate_cf_ld(
        batch: &Batch, state: *mut c_void, put: VisitPutOf, deleted: VisitDeleteOf,
        merge: VisitPutOf, _log_data: VisitDelete
    ) {
        unsafe { visit_of(&batch.ops, state, put, deleted, merge) }
    }
}

ignored! { rocksdb_writebatch_put_log_data }

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batch_comes_back_from_its_data_and_others_are_refused() {
        let mut batch = Batch::default();
        assert_eq!(batch.data().len(), HEADER_BYTES);
        batch.put(0, b"k", b"v");
        batch.merge(300, b"m", b"1");
        batch.delete_range(7, b"a", b"b");
        let copy = Batch::from_data(batch.data());
        assert_eq!((copy.ops, copy.used), (batch.ops, batch.used));
        assert!(Batch::from_data(b"\0\0\0\0\0\0\0\0\x01\0\0\0\x01").check().is_err());
        assert!(Batch::from_data(&[0; 12]).check().is_ok());
    }
}
