//! Write batches.

use std::ffi::c_char;

use store::WriteBatch;

use crate::error::{SiltstoneError, guard, release, required};
use crate::memory::bytes;
use crate::reads;

/// A list of writes that is applied in order, completely or not at all. One thread at a time may
/// use it.
#[derive(Debug, Default)]
pub struct SiltstoneBatch(pub(crate) WriteBatch);

/// A new, empty batch. Free it with siltstone_batch_free().
#[unsafe(no_mangle)]
pub extern "C" fn siltstone_batch_create() -> Box<SiltstoneBatch> {
    Box::default()
}

/// Frees a batch. NULL is allowed.
#[unsafe(no_mangle)]
pub extern "C" fn siltstone_batch_free(batch: Option<Box<SiltstoneBatch>>) {
    release(batch);
}

/// Adds the assignment of a value to a key. Both are copied.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siltstone_batch_put(
    batch: Option<&mut SiltstoneBatch>,
    key: *const c_char,
    key_len: usize,
    value: *const c_char,
    value_len: usize,
) -> Option<Box<SiltstoneError>> {
    guard(|| {
        // SAFETY: the caller passes pointers to as many bytes as the lengths say.
        let (key, value) =
            unsafe { (bytes(key, key_len, "key")?, bytes(value, value_len, "value")?) };
        required(batch, "batch")?.0.put(key, value);
        Ok(())
    })
}

/// Adds the assignment of a value that expires at `expires_at`, in milliseconds since 1970.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siltstone_batch_put_until(
    batch: Option<&mut SiltstoneBatch>,
    key: *const c_char,
    key_len: usize,
    value: *const c_char,
    value_len: usize,
    expires_at: u64,
) -> Option<Box<SiltstoneError>> {
    guard(|| {
        // SAFETY: the caller passes pointers to as many bytes as the lengths say.
        let (key, value) =
            unsafe { (bytes(key, key_len, "key")?, bytes(value, value_len, "value")?) };
        required(batch, "batch")?.0.put_until(key, value, expires_at);
        Ok(())
    })
}

/// Adds the removal of a key. Removing a missing key is not an error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siltstone_batch_delete(
    batch: Option<&mut SiltstoneBatch>,
    key: *const c_char,
    key_len: usize,
) -> Option<Box<SiltstoneError>> {
    guard(|| {
        // SAFETY: the caller passes a pointer to as many bytes as the length says.
        let key = unsafe { bytes(key, key_len, "key") }?;
        required(batch, "batch")?.0.delete(key);
        Ok(())
    })
}

/// Adds the removal of every key from `start` to before `end`; NULL is no bound. lsm only.
///
/// Errors: INVALID for a range that starts after its end.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siltstone_batch_delete_range(
    batch: Option<&mut SiltstoneBatch>,
    start: *const c_char,
    start_len: usize,
    end: *const c_char,
    end_len: usize,
) -> Option<Box<SiltstoneError>> {
    guard(|| {
        // SAFETY: the caller passes pointers to as many bytes as the lengths say.
        let range = unsafe { reads::range(start, start_len, end, end_len) }?;
        range.check()?;
        required(batch, "batch")?.0.delete_range((range.start, range.end));
        Ok(())
    })
}

/// Adds the merge of an operand into a key, with the merge operator of the table. lsm only.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siltstone_batch_merge(
    batch: Option<&mut SiltstoneBatch>,
    key: *const c_char,
    key_len: usize,
    operand: *const c_char,
    operand_len: usize,
) -> Option<Box<SiltstoneError>> {
    guard(|| {
        // SAFETY: the caller passes pointers to as many bytes as the lengths say.
        let (key, operand) =
            unsafe { (bytes(key, key_len, "key")?, bytes(operand, operand_len, "operand")?) };
        required(batch, "batch")?.0.merge(key, operand);
        Ok(())
    })
}

/// Removes all operations and keeps the memory for later ones.
#[unsafe(no_mangle)]
pub extern "C" fn siltstone_batch_clear(
    batch: Option<&mut SiltstoneBatch>,
) -> Option<Box<SiltstoneError>> {
    guard(|| {
        required(batch, "batch")?.0.clear();
        Ok(())
    })
}

/// The number of operations; 0 for NULL.
#[unsafe(no_mangle)]
pub extern "C" fn siltstone_batch_count(batch: Option<&SiltstoneBatch>) -> usize {
    batch.map_or(0, |batch| batch.0.len())
}
