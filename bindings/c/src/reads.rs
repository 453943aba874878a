//! Reads that tables, snapshots and transactions have in common, written once over [`Source`].

use std::ffi::{c_char, c_void};
use std::mem::MaybeUninit;

use store::{Cursor, Error, KeyRange, Snapshot, Table, Transaction};

use crate::cursor::SiltstoneCursor;
use crate::error::required;
use crate::memory::{Output, address, array, bytes, copy, set_handle, siltstone_free};

/// Receives a value, which is valid until the function returns. The function must not use the
/// store, unwind or jump out. `arg` is the argument of the call that the function is passed to.
pub type SiltstoneReadCallback =
    Option<unsafe extern "C" fn(arg: *mut c_void, value: *const c_char, value_len: usize)>;

/// A table, a snapshot or a transaction.
pub(crate) trait Source {
    fn lend(&self, key: &[u8], read: &mut dyn FnMut(&[u8])) -> Result<bool, Error>;
    fn contains(&self, key: &[u8]) -> Result<bool, Error>;
    fn values(&self, keys: &[&[u8]]) -> Result<Vec<Option<Vec<u8>>>, Error>;
    fn scan(&self, range: KeyRange) -> Result<Cursor, Error>;
    fn table(&self) -> &Table;
}

macro_rules! source {
    ($($reader:ty: $table:path;)*) => {$(
        impl Source for $reader {
            fn lend(&self, key: &[u8], read: &mut dyn FnMut(&[u8])) -> Result<bool, Error> {
                Ok(self.get_with(key, read)?.is_some())
            }

            fn contains(&self, key: &[u8]) -> Result<bool, Error> {
                self.contains_key(key)
            }

            fn values(&self, keys: &[&[u8]]) -> Result<Vec<Option<Vec<u8>>>, Error> {
                self.multi_get(keys)
            }

            fn scan(&self, range: KeyRange) -> Result<Cursor, Error> {
                self.cursor_range((range.start, range.end))
            }

            fn table(&self) -> &Table {
                $table(self)
            }
        }
    )*};
}

source!(Table: itself; Snapshot: Snapshot::table; Transaction: Transaction::table;);

fn itself(table: &Table) -> &Table {
    table
}

/// Returns a copy of the value of a key to the caller.
pub(crate) fn get(source: &impl Source, key: &[u8], mut value: Output<'_>) -> Result<(), Error> {
    let mut copied = Ok(());
    source.lend(key, &mut |bytes| copied = value.set(bytes))?;
    copied
}

/// The output of a read that says whether there is a value. It is false until then, so that it has
/// a value after any error: of the other arguments, too.
pub(crate) fn found_output(
    is_found: Option<&mut MaybeUninit<bool>>,
) -> Result<&mut MaybeUninit<bool>, Error> {
    let is_found = required(is_found, "is_found")?;
    is_found.write(false);
    Ok(is_found)
}

/// Passes the value of a key to a callback, which borrows it.
///
/// # Safety
/// `read` may be called with `arg`.
pub(crate) unsafe fn get_with(
    source: &impl Source,
    key: &[u8],
    read: SiltstoneReadCallback,
    arg: *mut c_void,
    is_found: &mut MaybeUninit<bool>,
) -> Result<(), Error> {
    let read = required(read, "read")?;
    // SAFETY: by the contract of this function; the value is valid during the call.
    let mut lend = |value: &[u8]| unsafe { read(arg, address(value), value.len()) };
    is_found.write(source.lend(key, &mut lend)?);
    Ok(())
}

/// Whether a key has a value.
pub(crate) fn contains(
    source: &impl Source,
    key: &[u8],
    is_found: &mut MaybeUninit<bool>,
) -> Result<(), Error> {
    is_found.write(source.contains(key)?);
    Ok(())
}

/// The caller's memory for results, which are `value` until they are read.
///
/// # Safety
/// `data` points to memory for `count` values, which nobody else uses during `'a`, unless it is
/// NULL.
unsafe fn results<'a, T: Copy>(
    data: *mut T,
    count: usize,
    name: &str,
    value: T,
) -> Result<&'a mut [MaybeUninit<T>], Error> {
    // SAFETY: by the contract of this function; memory without values is no value of `T`.
    unsafe { array(data.cast::<MaybeUninit<T>>(), count, name)? };
    let results = match count {
        0 => &mut [][..],
        // SAFETY: as above, and the length was checked.
        _ => unsafe { std::slice::from_raw_parts_mut(data.cast(), count) },
    };
    results.fill(MaybeUninit::new(value));
    Ok(results)
}

/// The arrays of a batched read.
pub(crate) struct MultiGet<'a> {
    keys: Vec<&'a [u8]>,
    values: &'a mut [MaybeUninit<*mut c_char>],
    value_lens: &'a mut [MaybeUninit<usize>],
}

impl MultiGet<'_> {
    /// # Safety
    /// `keys` and `key_lens` point to `count` keys, `values` and `value_lens` to as much memory for
    /// results, which nobody else uses. NULL is allowed.
    pub(crate) unsafe fn new(
        count: usize,
        keys: *const *const c_char,
        key_lens: *const usize,
        values: *mut *mut c_char,
        value_lens: *mut usize,
    ) -> Result<Self, Error> {
        // SAFETY: by the contract of this function.
        unsafe {
            // Set before the keys are looked at.
            let values = results(values, count, "values", std::ptr::null_mut());
            let value_lens = results(value_lens, count, "value_lens", 0);
            let (key_data, key_lens) =
                (array(keys, count, "keys")?, array(key_lens, count, "key_lens")?);
            let (values, value_lens) = (values?, value_lens?);
            let keys = key_data.iter().zip(key_lens);
            let keys = keys.map(|(&key, &len)| bytes(key, len, "keys[]")).collect::<Result<_, _>>();
            Ok(MultiGet { keys: keys?, values, value_lens })
        }
    }

    /// Returns a copy of each value to the caller, or none after an error.
    pub(crate) fn read(self, source: &impl Source) -> Result<(), Error> {
        let found = source.values(&self.keys)?;
        let mut copies = Vec::with_capacity(found.len());
        for value in &found {
            match value.as_deref().map(copy).transpose() {
                Ok(data) => copies.push(data.unwrap_or(std::ptr::null_mut())),
                Err(error) => {
                    // SAFETY: each was allocated by `copy`, or is NULL, and nobody else has it.
                    copies.into_iter().for_each(|data| unsafe { siltstone_free(data.cast()) });
                    return Err(error);
                }
            }
        }
        let results = self.values.iter_mut().zip(self.value_lens.iter_mut());
        for ((data, len), (copied, value)) in results.zip(copies.into_iter().zip(&found)) {
            data.write(copied);
            len.write(value.as_ref().map_or(0, Vec::len));
        }
        Ok(())
    }
}

/// The bounds of a range: from `start` to before `end`, unbounded where the pointer is NULL.
///
/// # Safety
/// As of [`bytes`].
pub(crate) unsafe fn range(
    start: *const c_char,
    start_len: usize,
    end: *const c_char,
    end_len: usize,
) -> Result<KeyRange, Error> {
    use std::ops::Bound::{Excluded, Included, Unbounded};
    // SAFETY: by the contract of this function.
    let (from, to) = unsafe { (bytes(start, start_len, "start")?, bytes(end, end_len, "end")?) };
    Ok(KeyRange {
        start: if start.is_null() { Unbounded } else { Included(from.to_vec()) },
        end: if end.is_null() { Unbounded } else { Excluded(to.to_vec()) },
    })
}

/// Returns a cursor to the caller.
pub(crate) fn cursor(
    source: &impl Source,
    range: KeyRange,
    cursor: &mut MaybeUninit<*mut SiltstoneCursor>,
) -> Result<(), Error> {
    set_handle(cursor, SiltstoneCursor::new(source.scan(range)?, source.table().clone()));
    Ok(())
}
