//! What the C interfaces of LevelDB and of RocksDB, which descends from it, have in common: batches and
//! iterators.
//!
//! Invariant: an iterator is destroyed before its database is closed, because its walk holds that.
//!
//! Source: the two libraries' `c.h`.

use std::ffi::{c_char, c_uchar};
use std::sync::Arc;

use siltstone_engine::{Op, Result, WriteBatch};

use super::library::{self, Handle};
use super::store::{Step, Walk};

/// The functions for batches.
pub(super) struct Batches {
    pub(super) create: unsafe extern "C" fn() -> Handle,
    pub(super) destroy: unsafe extern "C" fn(Handle),
    pub(super) put: unsafe extern "C" fn(Handle, *const c_char, usize, *const c_char, usize),
    pub(super) delete: unsafe extern "C" fn(Handle, *const c_char, usize),
}

impl Batches {
    /// Makes the library's batch of ours, has it written, and destroys it.
    pub(super) fn with<T>(&self, batch: &WriteBatch, write: impl FnOnce(Handle) -> T) -> T {
        // SAFETY: the library's batch copies keys and values, and is destroyed after it was written.
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

/// The functions for iterators, and for the errors that they report.
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

/// An iterator of an open store as a walk.
pub(super) struct IteratorWalk<S> {
    name: &'static str,
    calls: Iterators,
    iterator: Handle,
    _store: Arc<S>,
}

// SAFETY: an iterator may be used by any thread, one at a time; `&mut self` sees to that, and reading
// what is under it changes nothing.
unsafe impl<S: Send + Sync> Send for IteratorWalk<S> {}

impl<S> IteratorWalk<S> {
    /// Takes an iterator that `store` has made; `name` is for messages.
    pub(super) fn new(
        name: &'static str,
        calls: Iterators,
        iterator: Handle,
        store: &Arc<S>,
    ) -> Self {
        IteratorWalk { name, calls, iterator, _store: store.clone() }
    }

    fn bytes(&self, of: unsafe extern "C" fn(Handle, *mut usize) -> *const c_char) -> &[u8] {
        let mut len = 0;
        // SAFETY: the iterator stands on an entry, so key and value stay until it moves, which takes
        // `&mut`.
        unsafe {
            let at = of(self.iterator, &mut len);
            std::slice::from_raw_parts(at.cast(), len)
        }
    }
}

impl<S: Send + Sync> Walk for IteratorWalk<S> {
    fn go(&mut self, step: Step<'_>) -> Result<bool> {
        if let Step::SeekBack(key) = step {
            if !self.go(Step::Seek(key))? {
                return self.go(Step::Last);
            }
            return if self.key() == key { Ok(true) } else { self.go(Step::Prev) };
        }
        let (calls, iterator) = (&self.calls, self.iterator);
        // SAFETY: the iterator lives as long as the walk, the library copies keys before it returns,
        // and steps to either side are only asked for where it stands on an entry.
        unsafe {
            match step {
                Step::First => (calls.seek_to_first)(iterator),
                Step::Last => (calls.seek_to_last)(iterator),
                Step::Seek(key) | Step::SeekBack(key) => {
                    (calls.seek)(iterator, key.as_ptr().cast(), key.len());
                }
                Step::Next => (calls.next)(iterator),
                Step::Prev => (calls.prev)(iterator),
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

impl<S> Drop for IteratorWalk<S> {
    fn drop(&mut self) {
        // SAFETY: nothing of it is lent out any more, and the store is still open.
        unsafe { (self.calls.destroy)(self.iterator) }
    }
}

/// The methods of a `Library` that answer those of its functions that are declared here.
macro_rules! descends_from_leveldb {
    ($library:ty) => {
        impl $library {
            pub(super) fn batches(&self) -> $crate::peers::descent::Batches {
                $crate::peers::descent::Batches {
                    create: self.writebatch_create,
                    destroy: self.writebatch_destroy,
                    put: self.writebatch_put,
                    delete: self.writebatch_delete,
                }
            }

            pub(super) fn iterators(&self) -> $crate::peers::descent::Iterators {
                $crate::peers::descent::Iterators {
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
pub(super) use descends_from_leveldb;
