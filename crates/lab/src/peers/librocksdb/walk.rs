//! RocksDB's iterators as walks.
//!
//! Invariant: an iterator is destroyed before its database is closed, because it holds it.
//!
//! Source: RocksDB's `c.h`.

use std::ffi::c_char;
use std::sync::Arc;

use siltstone_engine::Result;

use super::store::RocksDb;
use crate::peers::library::Handle;
use crate::peers::store::{Step, Walk};

pub(super) struct RocksWalk {
    iterator: Handle,
    database: Arc<RocksDb>,
}

// SAFETY: an iterator may be used by any thread, one at a time; `&mut self` sees to that, and reading
// what is under it changes nothing.
unsafe impl Send for RocksWalk {}

impl RocksWalk {
    pub(super) fn new(database: &Arc<RocksDb>) -> Self {
        RocksWalk { iterator: database.iterator(), database: database.clone() }
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

impl Walk for RocksWalk {
    fn go(&mut self, step: Step<'_>) -> Result<bool> {
        let (l, iterator) = (&self.database.library, self.iterator);
        // SAFETY: the iterator lives as long as the walk, the library copies keys before it returns,
        // and steps to either side are only asked for where it stands on an entry.
        unsafe {
            match step {
                Step::First => (l.iter_seek_to_first)(iterator),
                Step::Last => (l.iter_seek_to_last)(iterator),
                Step::Seek(key) => (l.iter_seek)(iterator, key.as_ptr().cast(), key.len()),
                Step::SeekBack(key) => {
                    (l.iter_seek_for_prev)(iterator, key.as_ptr().cast(), key.len());
                }
                Step::Next => (l.iter_next)(iterator),
                Step::Prev => (l.iter_prev)(iterator),
            }
            l.checked(|error| (l.iter_get_error)(iterator, error))?;
            Ok((l.iter_valid)(iterator) != 0)
        }
    }

    fn key(&self) -> &[u8] {
        self.bytes(self.database.library.iter_key)
    }

    fn value(&self) -> &[u8] {
        self.bytes(self.database.library.iter_value)
    }
}

impl Drop for RocksWalk {
    fn drop(&mut self) {
        // SAFETY: nothing of it is lent out any more, and the database is still open.
        unsafe { (self.database.library.iter_destroy)(self.iterator) }
    }
}
