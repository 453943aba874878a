//! The common parts of the C APIs of LevelDB and RocksDB: batches and iterators.
//!
//! Invariant: an iterator is destroyed before its database is closed, because its cursor owns a
//! reference to the database.
//!
//! Source: the `c.h` of the two libraries.

use std::ffi::{c_char, c_uchar};
use std::sync::Arc;

use siltstone_engine::{Op, Result, WriteBatch};

use super::library::{self, Handle};
use super::store::{CursorMove, StoreCursor};

/// The functions for batches.
pub(super) struct Batches {
    pub(super) create: unsafe extern "C" fn() -> Handle,
    pub(super) destroy: unsafe extern "C" fn(Handle),
    pub(super) put: unsafe extern "C" fn(Handle, *const c_char, usize, *const c_char, usize),
    pub(super) delete: unsafe extern "C" fn(Handle, *const c_char, usize),
}

impl Batches {
    /// Converts a batch to the library's, calls `write` with it, and destroys it.
    pub(super) fn with<T>(&self, batch: &WriteBatch, write: impl FnOnce(Handle) -> T) -> T {
        // SAFETY: the library's batch copies keys and values, and is destroyed after it was
        // written.
        unsafe {
            let writes = (self.create)();
            for op in batch.iter() {
                match op {
                    Op::Put { key, value, .. } => {
                        let (k, v) = (key.as_ptr().cast(), value.as_ptr().cast());
                        (self.put)(writes, k, key.len(), v, value.len());
                    }
                    Op::Delete { key } => (self.delete)(writes, key.as_ptr().cast(), key.len()),
                }
            }
            let done = write(writes);
            (self.destroy)(writes);
            done
        }
    }
}

/// The functions for iterators and their errors.
pub(super) struct Iterators {
    pub(super) destroy: unsafe extern "C" fn(Handle),
    pub(super) valid: unsafe extern "C" fn(Handle) -> c_uchar,
    pub(super) seek_to_first: unsafe extern "C" fn(Handle),
    pub(super) seek_to_last: unsafe extern "C" fn(Handle),
    pub(super) seek: unsafe extern "C" fn(Handle, *const c_char, usize),
    pub(super) next: unsafe extern "C" fn(Handle),
    pub(super) prev: unsafe extern "C" fn(Handle),
    pub(super) key: unsafe extern "C" fn(Handle, *mut usize) -> *const c_char,
    pub(super) value: unsafe extern "C" fn(Handle, *mut usize) -> *const c_char,
    pub(super) get_error: unsafe extern "C" fn(Handle, *mut *mut c_char),
    pub(super) free: unsafe extern "C" fn(Handle),
}

/// An iterator of an open store as a cursor.
pub(super) struct IteratorCursor<S> {
    name: &'static str,
    calls: Iterators,
    iterator: Handle,
    _store: Arc<S>,
}

// SAFETY: an iterator may be used by any thread, one at a time, which `&mut self` guarantees;
// reading its entry changes nothing.
unsafe impl<S: Send + Sync> Send for IteratorCursor<S> {}

impl<S> IteratorCursor<S> {
    /// Owns an iterator that `store` created; `name` is for error messages.
    pub(super) fn new(
        name: &'static str,
        calls: Iterators,
        iterator: Handle,
        store: &Arc<S>,
    ) -> Self {
        IteratorCursor { name, calls, iterator, _store: store.clone() }
    }

    fn bytes(&self, of: unsafe extern "C" fn(Handle, *mut usize) -> *const c_char) -> &[u8] {
        let mut len = 0;
        // SAFETY: the iterator is at an entry, so key and value are valid until it moves, which
        // takes `&mut`.
        unsafe {
            let at = of(self.iterator, &mut len);
            std::slice::from_raw_parts(at.cast(), len)
        }
    }
}

impl<S: Send + Sync> StoreCursor for IteratorCursor<S> {
    fn move_to(&mut self, step: CursorMove<'_>) -> Result<bool> {
        if let CursorMove::SeekBack(key) = step {
            if !self.move_to(CursorMove::Seek(key))? {
                return self.move_to(CursorMove::Last);
            }
            return if self.key() == key { Ok(true) } else { self.move_to(CursorMove::Prev) };
        }
        let (calls, iterator) = (&self.calls, self.iterator);
        // SAFETY: the iterator lives as long as the cursor, the library copies keys before it
        // returns, and `Next` and `Prev` are only used at an entry.
        unsafe {
            match step {
                CursorMove::First => (calls.seek_to_first)(iterator),
                CursorMove::Last => (calls.seek_to_last)(iterator),
                CursorMove::Seek(key) | CursorMove::SeekBack(key) => {
                    (calls.seek)(iterator, key.as_ptr().cast(), key.len());
                }
                CursorMove::Next => (calls.next)(iterator),
                CursorMove::Prev => (calls.prev)(iterator),
            }
            library::checked(self.name, calls.free, |error| (calls.get_error)(iterator, error))?;
            Ok((calls.valid)(iterator) != 0)
        }
    }

    fn key(&self) -> &[u8] {
        self.bytes(self.calls.key)
    }

    fn value(&self) -> &[u8] {
        self.bytes(self.calls.value)
    }
}

impl<S> Drop for IteratorCursor<S> {
    fn drop(&mut self) {
        // SAFETY: nothing is borrowed from it any more, and the store is still open.
        unsafe { (self.calls.destroy)(self.iterator) }
    }
}

/// Methods of a `Library` that return its functions declared here.
macro_rules! leveldb_c_api_methods {
    ($library:ty) => {
        impl $library {
            pub(super) fn batches(&self) -> $crate::peers::leveldb_c_api::Batches {
                $crate::peers::leveldb_c_api::Batches {
                    create: self.writebatch_create,
                    destroy: self.writebatch_destroy,
                    put: self.writebatch_put,
                    delete: self.writebatch_delete,
                }
            }

            pub(super) fn iterators(&self) -> $crate::peers::leveldb_c_api::Iterators {
                $crate::peers::leveldb_c_api::Iterators {
                    destroy: self.iter_destroy,
                    valid: self.iter_valid,
                    seek_to_first: self.iter_seek_to_first,
                    seek_to_last: self.iter_seek_to_last,
                    seek: self.iter_seek,
                    next: self.iter_next,
                    prev: self.iter_prev,
                    key: self.iter_key,
                    value: self.iter_value,
                    get_error: self.iter_get_error,
                    free: self.free,
                }
            }
        }
    };
}
pub(super) use leveldb_c_api_methods;
