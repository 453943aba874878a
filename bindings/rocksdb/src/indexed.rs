//! Write batches with an index: their writes can be read before they are written.

use std::ffi::{c_char, c_int, c_void};
use std::sync::Arc;

use shim::boundary::Pointer;
use store::{BatchOp, Op};

use crate::batch::{Batch, join, visit};
use crate::data::{Pinned, give_value};
use crate::database::Database;
use crate::exports::{exports, give, ignored};
use crate::failure::Failure;
use crate::families::Handle;
use crate::iterator::Iterator;
use crate::layout::{self, entry_key};
use crate::options::Options;
use crate::overlay::{Change, Overlay};
use crate::read_options::ReadOptions;
use crate::scalars::Plain;
use crate::shell::Shell;

/// A batch and what it does to each key.
#[derive(Debug, Clone, Default)]
pub struct Indexed {
    /// The operations in their order.
    pub batch: Batch,
    overlay: Arc<Overlay>,
    save_points: Vec<Arc<Overlay>>,
}

impl Indexed {
    /// The changes, shared.
    pub fn overlay(&self) -> Arc<Overlay> {
        self.overlay.clone()
    }

    /// Adds `key → value`.
    pub fn put(&mut self, family: u32, key: &[u8], value: &[u8]) {
        self.batch.put(family, key, value);
        Arc::make_mut(&mut self.overlay).insert(entry_key(family, key), Change::put(value));
    }

    /// Adds a deletion.
    pub fn delete(&mut self, family: u32, key: &[u8]) {
        self.batch.delete(family, key);
        Arc::make_mut(&mut self.overlay).insert(entry_key(family, key), Change::delete());
    }

    /// Adds a merge.
    pub fn merge(&mut self, family: u32, key: &[u8], operand: &[u8]) {
        self.batch.merge(family, key, operand);
        let overlay = Arc::make_mut(&mut self.overlay);
        overlay.entry(entry_key(family, key)).or_default().merge(operand);
    }

    /// Refuses ranges, as RocksDB does: the batch cannot be written afterwards.
    fn delete_range(&mut self) {
        let text = "deletions of ranges in a batch with an index".to_owned();
        self.batch.failure = Some(Failure::NotImplemented(text));
    }

    /// Replaces everything by the operations of a batch.
    pub fn rebuild(&mut self, batch: &Batch) -> Result<(), Failure> {
        batch.check()?;
        *self = Indexed::default();
        for op in batch.ops.iter_all() {
            match op {
                BatchOp::Point(Op::Put { key, value, .. }) => {
                    if let Some((family, key)) = layout::split(key) {
                        self.put(family, key, value);
                    }
                }
                BatchOp::Point(Op::Delete { key }) => {
                    if let Some((family, key)) = layout::split(key) {
                        self.delete(family, key);
                    }
                }
                BatchOp::Merge { key, operand } => {
                    if let Some((family, key)) = layout::split(key) {
                        self.merge(family, key, operand);
                    }
                }
                BatchOp::DeleteRange { .. } => self.delete_range(),
            }
        }
        self.batch.check()
    }

    /// Sets a point to go back to.
    pub fn set_save_point(&mut self) {
        self.batch.set_save_point();
        self.save_points.push(self.overlay.clone());
    }

    /// Goes back to the last save point, and forgets it.
    pub fn rollback(&mut self) -> Result<(), Failure> {
        self.batch.rollback()?;
        self.overlay = self.save_points.pop().unwrap_or_default();
        Ok(())
    }

    /// The value of a key of the store with the changes over the database.
    pub fn get(
        &self,
        database: &Database,
        options: &ReadOptions,
        key: &[u8],
    ) -> Result<Option<Vec<u8>>, Failure> {
        let Some(change) = self.overlay.get(key) else { return options.get(database, key) };
        options.check()?;
        let stored = match change.needs_stored() {
            true => options.get(database, key)?,
            false => None,
        };
        change.resolve(&database.families, key, stored.as_deref())
    }

    /// The value of a key of the store in the batch alone.
    fn get_alone(&self, options: &Options, key: &[u8]) -> Result<Option<Vec<u8>>, Failure> {
        let families = crate::families::Families::default();
        let Some(change) = self.overlay.get(key) else { return Ok(None) };
        let (family, _) = layout::split(key).unwrap_or_default();
        families.open(family, "", options, None);
        change.resolve(&families, key, None)
    }
}

type Visit = Option<unsafe extern "C" fn(*mut c_void, *const c_char, usize)>;
type VisitPut =
    Option<unsafe extern "C" fn(*mut c_void, *const c_char, usize, *const c_char, usize)>;

/// An iterator over the base's column family with the batch over it. Takes the base.
fn over(batch: &Indexed, base: Box<Iterator>) -> Pointer<Iterator> {
    Pointer::new(base.with_overlay(batch.overlay()))
}

exports! {
    /// A new, empty batch.
    fn rocksdb_writebatch_wi_create(_reserved: usize, _overwrite: u8) -> Pointer<Shell<Indexed>> {
        Shell::create(Ok::<_, ()>(Indexed::default()))
    }

    /// A new, empty batch. The order is bytewise.
    fn rocksdb_writebatch_wi_create_with_params(
        _comparator: *const c_void, _reserved: usize, _overwrite: u8, _max: usize,
        _protection: usize
    ) -> Pointer<Shell<Indexed>> {
        Shell::create(Ok::<_, ()>(Indexed::default()))
    }

    /// Frees a batch.
    fn rocksdb_writebatch_wi_destroy(batch: *mut Shell<Indexed>) {
        unsafe { Shell::destroy(batch) }
    }

    /// Removes all operations.
    fn rocksdb_writebatch_wi_clear(batch: &mut Shell<Indexed>) {
        *batch.get_mut() = Indexed::default()
    }

    /// The number of operations.
    fn rocksdb_writebatch_wi_count(batch: &Shell<Indexed>) -> c_int {
        batch.get().batch.ops.len() as c_int
    }

    /// The bytes of a batch, until its next change.
    fn rocksdb_writebatch_wi_data(
        batch: &mut Shell<Indexed>, size: *mut usize
    ) -> Pointer<c_char> {
        let data = batch.get_mut().batch.data();
        unsafe { give(size, data.len()) };
        Pointer(data.as_ptr().cast_mut().cast())
    }

    /// Adds the assignment of a value to a key.
    fn rocksdb_writebatch_wi_put | rocksdb_writebatch_wi_put_cf(
        batch: &mut Shell<Indexed>, ?family, key: bytes, value: bytes
    ) {
        batch.get_mut().put(family.id, key, value)
    }

    /// Adds the assignment of a value to a key, both in pieces.
    fn rocksdb_writebatch_wi_putv | rocksdb_writebatch_wi_putv_cf(
        batch: &mut Shell<Indexed>, ?family, keys: c_int, key: list, values: c_int, value: list
    ) {
        batch.get_mut().put(family.id, &join(key, keys), &join(value, values))
    }

    /// Adds the merge of an operand into a key.
    fn rocksdb_writebatch_wi_merge | rocksdb_writebatch_wi_merge_cf(
        batch: &mut Shell<Indexed>, ?family, key: bytes, value: bytes
    ) {
        batch.get_mut().merge(family.id, key, value)
    }

    /// Adds the merge of an operand into a key, both in pieces.
    fn rocksdb_writebatch_wi_mergev | rocksdb_writebatch_wi_mergev_cf(
        batch: &mut Shell<Indexed>, ?family, keys: c_int, key: list, values: c_int, value: list
    ) {
        batch.get_mut().merge(family.id, &join(key, keys), &join(value, values))
    }

    /// Adds the removal of a key.
    fn rocksdb_writebatch_wi_delete | rocksdb_writebatch_wi_delete_cf(
        batch: &mut Shell<Indexed>, ?family, key: bytes
    ) {
        batch.get_mut().delete(family.id, key)
    }

    /// Adds the removal of a key.
    fn rocksdb_writebatch_wi_singledelete | rocksdb_writebatch_wi_singledelete_cf(
        batch: &mut Shell<Indexed>, ?family, key: bytes
    ) {
        batch.get_mut().delete(family.id, key)
    }

    /// Adds the removal of a key in pieces.
    fn rocksdb_writebatch_wi_deletev | rocksdb_writebatch_wi_deletev_cf(
        batch: &mut Shell<Indexed>, ?family, keys: c_int, key: list
    ) {
        batch.get_mut().delete(family.id, &join(key, keys))
    }

    /// Makes a batch that cannot be written, as ranges cannot be read before.
    fn rocksdb_writebatch_wi_delete_range | rocksdb_writebatch_wi_delete_range_cf(
        batch: &mut Shell<Indexed>, ?_family, _start: bytes, _end: bytes
    ) {
        batch.get_mut().delete_range()
    }

    /// Makes a batch that cannot be written.
    fn rocksdb_writebatch_wi_delete_rangev | rocksdb_writebatch_wi_delete_rangev_cf(
        batch: &mut Shell<Indexed>, ?_family, _keys: c_int, _start: list, _end: list
    ) {
        batch.get_mut().delete_range()
    }

    /// Sets a point to go back to.
    fn rocksdb_writebatch_wi_set_save_point(batch: &mut Shell<Indexed>) {
        batch.get_mut().set_save_point()
    }

    /// Goes back to the last save point.
    fn rocksdb_writebatch_wi_rollback_to_save_point(batch: &mut Shell<Indexed>; err) {
        batch.get_mut().rollback()
    }

    /// Calls `put` or `deleted` for each operation, in order.
    fn rocksdb_writebatch_wi_iterate(
        batch: &Shell<Indexed>, state: *mut c_void, put: VisitPut, deleted: Visit
    ) {
        unsafe { visit(&batch.get().batch.ops, state, put, deleted) }
    }

    /// A copy of the value of a key in the batch alone. Merges need the operator in the options.
    fn rocksdb_writebatch_wi_get_from_batch | rocksdb_writebatch_wi_get_from_batch_cf(
        batch: &Shell<Indexed>, options: &Options, ?family, key: bytes, len: *mut usize; err
    ) -> Pointer<c_char> {
        let value = batch.get().get_alone(options, &entry_key(family.id, key))?;
        Ok(unsafe { give_value(value, len) })
    }

    /// A copy of the value of a key in the database with the batch over it.
    fn rocksdb_writebatch_wi_get_from_batch_and_db
        | rocksdb_writebatch_wi_get_from_batch_and_db_cf(
        batch: &Shell<Indexed>, db: &Database, options: &ReadOptions, ?family, key: bytes,
        len: *mut usize; err
    ) -> Pointer<c_char> {
        let value = batch.get().get(db, options, &entry_key(family.id, key))?;
        Ok(unsafe { give_value(value, len) })
    }

    /// The same, to be freed by rocksdb_pinnableslice_destroy().
    fn rocksdb_writebatch_wi_get_pinned_from_batch_and_db
        | rocksdb_writebatch_wi_get_pinned_from_batch_and_db_cf(
        batch: &Shell<Indexed>, db: &Database, options: &ReadOptions, ?family, key: bytes; err
    ) -> Pointer<Pinned> {
        let value = batch.get().get(db, options, &entry_key(family.id, key))?;
        Ok(value.map_or(Pointer::null(), |value| Pointer::new(Pinned(value))))
    }

    /// Applies a batch atomically.
    fn rocksdb_write_writebatch_wi(db: &Database, options: &Plain, batch: &Shell<Indexed>; err) {
        db.write_batch(options, &batch.get().batch)
    }

    /// An iterator over the base with the batch over it. Takes the base.
    fn rocksdb_writebatch_wi_create_iterator_with_base(
        batch: &Shell<Indexed>, base: Box<Iterator>
    ) -> Pointer<Iterator> {
        over(batch.get(), base)
    }

    /// The same.
    fn rocksdb_writebatch_wi_create_iterator_with_base_readopts(
        batch: &Shell<Indexed>, base: Box<Iterator>, _options: Option<&ReadOptions>
    ) -> Pointer<Iterator> {
        over(batch.get(), base)
    }

    /// The same; the column family is that of the base.
    fn rocksdb_writebatch_wi_create_iterator_with_base_cf(
        batch: &Shell<Indexed>, base: Box<Iterator>, _family: &Handle
    ) -> Pointer<Iterator> {
        over(batch.get(), base)
    }

    /// The same; the column family is that of the base.
    fn rocksdb_writebatch_wi_create_iterator_with_base_cf_readopts(
        batch: &Shell<Indexed>, base: Box<Iterator>, _family: &Handle,
        _options: Option<&ReadOptions>
    ) -> Pointer<Iterator> {
        over(batch.get(), base)
    }
}

ignored! { rocksdb_writebatch_wi_put_log_data }
