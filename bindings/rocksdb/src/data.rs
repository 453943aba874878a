//! Reads and writes of a database.

use std::ffi::c_char;
use std::ptr::null_mut;

use shim::boundary::{Pointer, Report, address, copy, set_error};
use store::Durability;

use crate::batch::Batch;
use crate::database::Database;
use crate::exports::{List, array, exports, give};
use crate::failure::Failure;
use crate::families::Handle;
use crate::iterator::Slice;
use crate::layout::entry_key;
use crate::read_options::ReadOptions;
use crate::scalars::{HasScalars, Plain};

/// A copy of a value, which the program frees.
#[derive(Debug)]
pub struct Pinned(pub Vec<u8>);

/// When a write returns.
pub fn durability(options: &Plain) -> Durability {
    if options.scalars().is_set("sync") { Durability::Synced } else { Durability::Buffered }
}

impl Database {
    /// Writes a batch. A database with locks holds those of the keys meanwhile.
    pub fn write_batch(&self, options: &Plain, batch: &Batch) -> Result<(), Failure> {
        batch.check()?;
        let _held = match &self.locks {
            Some(locks) => Some(locks.lock_batch(batch)?),
            None => None,
        };
        self.write(&batch.ops, batch.used(), durability(options))
    }

    fn write_one(&self, options: &Plain, add: impl FnOnce(&mut Batch)) -> Result<(), Failure> {
        let mut batch = Batch::default();
        add(&mut batch);
        self.write_batch(options, &batch)
    }
}

/// A copy of the value of a key of the store, with its length.
fn get(db: &Database, options: &ReadOptions, key: &[u8], len: *mut usize) -> Got {
    // SAFETY: the caller passes a place for the length, or NULL.
    unsafe { give(len, 0) };
    let copied = options.get_with(db, key, |value| {
        // SAFETY: as above.
        unsafe { give(len, value.len()) };
        Pointer(copy(value))
    })?;
    Ok(copied.unwrap_or_default())
}

type Got = Result<Pointer<c_char>, Failure>;

/// A copy of a value that was read, with its length.
///
/// # Safety
/// `len` is a place for it, or NULL.
pub unsafe fn give_value(value: Option<Vec<u8>>, len: *mut usize) -> Pointer<c_char> {
    // SAFETY: by the contract of this function.
    unsafe { give(len, value.as_ref().map_or(0, Vec::len)) };
    value.map_or(Pointer::null(), |value| Pointer(copy(&value)))
}

/// Results of reads of several keys.
#[derive(Debug, Clone, Copy)]
pub struct Results {
    values: *mut *mut c_char,
    lengths: *mut usize,
    errors: *mut *mut c_char,
}

impl Results {
    /// # Safety
    /// The arrays have a place for each key.
    pub unsafe fn new(
        values: *mut *mut c_char,
        lengths: *mut usize,
        errors: *mut *mut c_char,
    ) -> Self {
        Results { values, lengths, errors }
    }

    /// Sets one result.
    pub fn set(self, at: usize, result: Result<Option<Vec<u8>>, Failure>) {
        // SAFETY: by the contract of `new`.
        unsafe {
            let error = self.errors.add(at);
            error.write(null_mut());
            let value = match result {
                Ok(value) => value,
                Err(failure) => {
                    set_error(error, &failure.report());
                    None
                }
            };
            self.values.add(at).write(give_value(value, self.lengths.add(at)).0);
        }
    }
}

/// The keys of the store of a read of several: one column family each.
///
/// # Safety
/// The array has a handle per key.
pub(crate) unsafe fn keys_of(
    families: *const *const Handle,
    keys: List,
    count: usize,
) -> Vec<Vec<u8>> {
    // SAFETY: by the contract of this function.
    let families = unsafe { array(families, count) };
    let pairs = families.iter().zip(keys.iter(count));
    // SAFETY: as above.
    pairs.map(|(family, key)| entry_key(unsafe { (**family).id }, key)).collect()
}

/// Reads keys of the store as of one moment.
fn multi_get(db: &Database, options: &ReadOptions, keys: &[Vec<u8>], results: Results) {
    let values = options.check().and_then(|()| {
        Ok(match &options.snapshot {
            None => db.table().multi_get(keys)?,
            Some(snapshot) => snapshot.multi_get(keys)?,
        })
    });
    match values {
        Ok(values) => {
            values.into_iter().enumerate().for_each(|(at, value)| results.set(at, Ok(value)));
        }
        // One key has failed: each for itself.
        Err(_) => {
            keys.iter().enumerate().for_each(|(at, key)| results.set(at, options.get(db, key)))
        }
    }
}

fn refuse_timestamps(count: usize, results: Results) {
    let text = "timestamps of the program".to_owned();
    (0..count).for_each(|at| results.set(at, Err(Failure::NotImplemented(text.clone()))));
}

fn in_default(keys: List, count: usize) -> Vec<Vec<u8>> {
    keys.iter(count).map(|key| entry_key(0, key)).collect()
}

fn pinned_values(
    db: &Database,
    options: &ReadOptions,
    keys: impl Iterator<Item = Vec<u8>>,
    values: *mut *mut Pinned,
    errors: *mut *mut c_char,
) {
    for (at, key) in keys.enumerate() {
        // SAFETY: the caller passes arrays with a place for each key.
        unsafe {
            errors.add(at).write(null_mut());
            let value = match options.get(db, &key) {
                Ok(value) => value.map_or(Pointer::null(), |value| Pointer::new(Pinned(value))),
                Err(failure) => {
                    set_error(errors.add(at), &failure.report());
                    Pointer::null()
                }
            };
            values.add(at).write(value.0);
        }
    }
}

exports! {
    /// Sets the value of a key.
    fn rocksdb_put | rocksdb_put_cf(
        db: &Database, options: &Plain, ?family, key: bytes, value: bytes; err
    ) {
        db.write_one(options, |batch| batch.put(family.id, key, value))
    }

    /// Removes a key.
    fn rocksdb_delete | rocksdb_delete_cf(
        db: &Database, options: &Plain, ?family, key: bytes; err
    ) {
        db.write_one(options, |batch| batch.delete(family.id, key))
    }

    /// Removes a key.
    fn rocksdb_singledelete | rocksdb_singledelete_cf(
        db: &Database, options: &Plain, ?family, key: bytes; err
    ) {
        db.write_one(options, |batch| batch.delete(family.id, key))
    }

    /// Merges an operand into the value of a key.
    fn rocksdb_merge | rocksdb_merge_cf(
        db: &Database, options: &Plain, ?family, key: bytes, value: bytes; err
    ) {
        db.write_one(options, |batch| batch.merge(family.id, key, value))
    }

    /// Removes the keys from one to before another.
    fn rocksdb_delete_range_cf(
        db: &Database, options: &Plain, family: &Handle, start: bytes, end: bytes; err
    ) {
        db.write_one(options, |batch| batch.delete_range(family.id, start, end))
    }

    /// Applies a batch atomically.
    fn rocksdb_write(db: &Database, options: &Plain, batch: &Batch; err) {
        db.write_batch(options, batch)
    }

    /// As rocksdb_put().
    fn rocksdb_transactiondb_put | rocksdb_transactiondb_put_cf(
        db: &Database, options: &Plain, ?family, key: bytes, value: bytes; err
    ) {
        db.write_one(options, |batch| batch.put(family.id, key, value))
    }

    /// As rocksdb_delete().
    fn rocksdb_transactiondb_delete | rocksdb_transactiondb_delete_cf(
        db: &Database, options: &Plain, ?family, key: bytes; err
    ) {
        db.write_one(options, |batch| batch.delete(family.id, key))
    }

    /// As rocksdb_merge().
    fn rocksdb_transactiondb_merge | rocksdb_transactiondb_merge_cf(
        db: &Database, options: &Plain, ?family, key: bytes, value: bytes; err
    ) {
        db.write_one(options, |batch| batch.merge(family.id, key, value))
    }

    /// As rocksdb_write().
    fn rocksdb_transactiondb_write(db: &Database, options: &Plain, batch: &Batch; err) {
        db.write_batch(options, batch)
    }

    /// As rocksdb_write().
    fn rocksdb_optimistictransactiondb_write(db: &Database, options: &Plain, batch: &Batch; err) {
        db.write_batch(options, batch)
    }

    /// A copy of the value of a key, to be freed. NULL if there is none, and after an error.
    fn rocksdb_get | rocksdb_get_cf(
        db: &Database, options: &ReadOptions, ?family, key: bytes, len: *mut usize; err
    ) -> Pointer<c_char> {
        get(db, options, &entry_key(family.id, key), len)
    }

    /// As rocksdb_get().
    fn rocksdb_transactiondb_get | rocksdb_transactiondb_get_cf(
        db: &Database, options: &ReadOptions, ?family, key: bytes, len: *mut usize; err
    ) -> Pointer<c_char> {
        get(db, options, &entry_key(family.id, key), len)
    }

    /// A copy of the value of a key. NULL if there is none, and after an error.
    fn rocksdb_get_pinned | rocksdb_get_pinned_cf(
        db: &Database, options: &ReadOptions, ?family, key: bytes; err
    ) -> Pointer<Pinned> {
        let value = options.get(db, &entry_key(family.id, key))?;
        Ok(value.map_or(Pointer::null(), |value| Pointer::new(Pinned(value))))
    }

    /// As rocksdb_get_pinned().
    fn rocksdb_get_pinned_v2 | rocksdb_get_pinned_cf_v2(
        db: &Database, options: &ReadOptions, ?family, key: bytes; err
    ) -> Pointer<Pinned> {
        let value = options.get(db, &entry_key(family.id, key))?;
        Ok(value.map_or(Pointer::null(), |value| Pointer::new(Pinned(value))))
    }

    /// As rocksdb_get_pinned().
    fn rocksdb_transactiondb_get_pinned | rocksdb_transactiondb_get_pinned_cf(
        db: &Database, options: &ReadOptions, ?family, key: bytes; err
    ) -> Pointer<Pinned> {
        let value = options.get(db, &entry_key(family.id, key))?;
        Ok(value.map_or(Pointer::null(), |value| Pointer::new(Pinned(value))))
    }

    /// The value, until it is freed.
    fn rocksdb_pinnableslice_value(pinned: Option<&Pinned>, len: *mut usize) -> Pointer<c_char> {
        unsafe { give(len, pinned.map_or(0, |pinned| pinned.0.len())) };
        pinned.map_or(Pointer::null(), |pinned| Pointer(address(&pinned.0).cast_mut()))
    }

    /// Frees a value.
    fn rocksdb_pinnableslice_destroy(pinned: Option<Box<Pinned>>) {
        drop(pinned)
    }

    /// As rocksdb_pinnableslice_value().
    fn rocksdb_pinnable_handle_get_value(
        pinned: Option<&Pinned>, len: *mut usize
    ) -> Pointer<c_char> {
        unsafe { give(len, pinned.map_or(0, |pinned| pinned.0.len())) };
        pinned.map_or(Pointer::null(), |pinned| Pointer(address(&pinned.0).cast_mut()))
    }

    /// Frees a value.
    fn rocksdb_pinnable_handle_destroy(pinned: Option<Box<Pinned>>) {
        drop(pinned)
    }

    /// Copies the value of a key to a buffer, if it fits. Returns whether it was copied.
    fn rocksdb_get_into_buffer | rocksdb_get_into_buffer_cf(
        db: &Database, options: &ReadOptions, ?family, key: bytes, buffer: *mut c_char,
        size: usize, len: *mut usize, found: *mut u8; err
    ) -> u8 {
        let value = options.get(db, &entry_key(family.id, key))?;
        unsafe {
            give(found, value.is_some().into());
            give(len, value.as_ref().map_or(0, Vec::len));
        }
        let Some(value) = value.filter(|value| value.len() <= size) else { return Ok(0) };
        unsafe { buffer.cast::<u8>().copy_from_nonoverlapping(value.as_ptr(), value.len()) };
        Ok(1)
    }

    /// Copies of the values of several keys, or their errors.
    fn rocksdb_multi_get(
        db: &Database, options: &ReadOptions, count: usize, keys: list, values: *mut *mut c_char,
        lens: *mut usize, errors: *mut *mut c_char
    ) {
        let results = unsafe { Results::new(values, lens, errors) };
        multi_get(db, options, &in_default(keys, count), results)
    }

    /// The same with a column family per key.
    fn rocksdb_multi_get_cf(
        db: &Database, options: &ReadOptions, families: *const *const Handle, count: usize,
        keys: list, values: *mut *mut c_char, lens: *mut usize, errors: *mut *mut c_char
    ) {
        let keys = unsafe { keys_of(families, keys, count) };
        multi_get(db, options, &keys, unsafe { Results::new(values, lens, errors) })
    }

    /// As rocksdb_multi_get().
    fn rocksdb_transactiondb_multi_get(
        db: &Database, options: &ReadOptions, count: usize, keys: list, values: *mut *mut c_char,
        lens: *mut usize, errors: *mut *mut c_char
    ) {
        let results = unsafe { Results::new(values, lens, errors) };
        multi_get(db, options, &in_default(keys, count), results)
    }

    /// As rocksdb_multi_get_cf().
    fn rocksdb_transactiondb_multi_get_cf(
        db: &Database, options: &ReadOptions, families: *const *const Handle, count: usize,
        keys: list, values: *mut *mut c_char, lens: *mut usize, errors: *mut *mut c_char
    ) {
        let keys = unsafe { keys_of(families, keys, count) };
        multi_get(db, options, &keys, unsafe { Results::new(values, lens, errors) })
    }

    /// Returns errors: there are no timestamps of the program.
    fn rocksdb_multi_get_with_ts(
        _db: &Database, _options: &ReadOptions, count: usize, _keys: list,
        values: *mut *mut c_char, lens: *mut usize, _timestamps: *mut *mut c_char,
        _timestamp_lens: *mut usize, errors: *mut *mut c_char
    ) {
        refuse_timestamps(count, unsafe { Results::new(values, lens, errors) })
    }

    /// Returns errors: there are no timestamps of the program.
    fn rocksdb_multi_get_cf_with_ts(
        _db: &Database, _options: &ReadOptions, _families: *const *const Handle, count: usize,
        _keys: list, values: *mut *mut c_char, lens: *mut usize, _timestamps: *mut *mut c_char,
        _timestamp_lens: *mut usize, errors: *mut *mut c_char
    ) {
        refuse_timestamps(count, unsafe { Results::new(values, lens, errors) })
    }

    /// Copies of the values of several keys of a column family, or their errors.
    fn rocksdb_batched_multi_get_cf(
        db: &Database, options: &ReadOptions, family: &Handle, count: usize, keys: list,
        values: *mut *mut Pinned, errors: *mut *mut c_char, _is_sorted: bool
    ) {
        let keys = keys.iter(count).map(|key| entry_key(family.id, key));
        pinned_values(db, options, keys, values, errors)
    }

    /// The same with keys as slices.
    fn rocksdb_batched_multi_get_cf_slice(
        db: &Database, options: &ReadOptions, family: &Handle, count: usize, keys: *const Slice,
        values: *mut *mut Pinned, errors: *mut *mut c_char, _is_sorted: bool
    ) {
        let keys = unsafe { array(keys, count) };
        let keys = keys.iter().map(|key| entry_key(family.id, unsafe { key.bytes() }));
        pinned_values(db, options, keys, values, errors)
    }

    /// Whether a key has a value, and a copy of it if `value` is not NULL. This is exact.
    fn rocksdb_key_may_exist | rocksdb_key_may_exist_cf(
        db: &Database, options: &ReadOptions, ?family, key: bytes, value: *mut *mut c_char,
        len: *mut usize, _timestamp: *const c_char, _timestamp_len: usize, found: *mut u8
    ) -> u8 {
        let read = options.get(db, &entry_key(family.id, key));
        let is_there = !matches!(read, Ok(None));
        // As in RocksDB, a missing key has a known value, which is empty.
        let known = read.ok().filter(|_| !value.is_null()).map(Option::unwrap_or_default);
        unsafe {
            give(found, known.is_some().into());
            if known.is_some() {
                value.write(give_value(known, len).0);
            }
        }
        is_there.into()
    }
}
