//! Write batches.

use std::ffi::{c_char, c_void};

use shim::boundary::{address, bytes, quietly};
use store::{Op, WriteBatch};

/// Writes that are applied together.
#[derive(Debug, Default)]
pub struct leveldb_writebatch_t(pub(crate) WriteBatch);

/// A new, empty batch.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_writebatch_create() -> Box<leveldb_writebatch_t> {
    Box::default()
}

/// Frees a batch.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_writebatch_destroy(batch: Option<Box<leveldb_writebatch_t>>) {
    drop(batch);
}

/// Removes all operations.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_writebatch_clear(batch: &mut leveldb_writebatch_t) {
    batch.0.clear();
}

/// Adds the assignment of a value to a key.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_writebatch_put(
    batch: &mut leveldb_writebatch_t,
    key: *const c_char,
    klen: usize,
    val: *const c_char,
    vlen: usize,
) {
    // SAFETY: the caller passes pointers to as many bytes as the lengths say.
    let (key, value) = unsafe { (bytes(key, klen), bytes(val, vlen)) };
    batch.0.put(key, value);
}

/// Adds the removal of a key.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_writebatch_delete(
    batch: &mut leveldb_writebatch_t,
    key: *const c_char,
    klen: usize,
) {
    // SAFETY: the caller passes a pointer to as many bytes as the length says.
    batch.0.delete(unsafe { bytes(key, klen) });
}

/// Calls `put` or `deleted` for each operation, in order. Keys and values are valid during the
/// call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_writebatch_iterate(
    batch: &leveldb_writebatch_t,
    state: *mut c_void,
    put: Option<
        unsafe extern "C" fn(
            state: *mut c_void,
            k: *const c_char,
            klen: usize,
            v: *const c_char,
            vlen: usize,
        ),
    >,
    deleted: Option<unsafe extern "C" fn(state: *mut c_void, k: *const c_char, klen: usize)>,
) {
    quietly(|| {
        for op in batch.0.iter() {
            let (key, klen) = (address(op.key()), op.key().len());
            // SAFETY: the caller passes functions that take this state; the bytes live for the
            // call.
            unsafe {
                match (op, put, deleted) {
                    (Op::Put { value, .. }, Some(put), _) => {
                        put(state, key, klen, address(value), value.len());
                    }
                    (Op::Delete { .. }, _, Some(deleted)) => deleted(state, key, klen),
                    _ => {}
                }
            }
        }
    });
}

/// Adds all operations of another batch.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_writebatch_append(
    destination: &mut leveldb_writebatch_t,
    source: &leveldb_writebatch_t,
) {
    destination.0.append(&source.0);
}
