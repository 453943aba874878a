//! RocksDB's iterators behind our cursors.
//!
//! Invariant: an iterator is destroyed before its database is closed, because it holds it.
//!
//! Source: RocksDB's `c.h`.

use std::ffi::c_char;
use std::sync::Arc;

use siltstone_engine::{Cursor, KeyRange, Result, Timestamp};

use super::engine::Database;
use super::ffi::Handle;

pub(super) struct RocksCursor {
    iterator: Handle,
    range: KeyRange,
    valid: bool,
    database: Arc<Database>,
}

// SAFETY: an iterator may be used by any thread, one at a time; `&mut self` sees to that, and reading
// what is under it changes nothing.
unsafe impl Send for RocksCursor {}

impl RocksCursor {
    pub(super) fn new(database: &Arc<Database>, range: KeyRange) -> Self {
        let iterator = database.iterator();
        RocksCursor { iterator, range, valid: false, database: database.clone() }
    }

    /// Does one move; afterwards the cursor is valid if it stands in the range.
    fn moved(&mut self, step: impl FnOnce(&super::ffi::Library, Handle)) -> Result<bool> {
        let library = &self.database.library;
        step(library, self.iterator);
        // SAFETY: the iterator lives as long as the cursor.
        library.checked(|error| unsafe { (library.iter_get_error)(self.iterator, error) })?;
        // SAFETY: the same.
        self.valid = unsafe { (library.iter_valid)(self.iterator) } != 0;
        self.valid = self.valid && self.range.contains(self.key());
        Ok(self.valid)
    }

    fn seek_to(&mut self, key: &[u8]) -> Result<bool> {
        // SAFETY: the library copies the key before it returns.
        self.moved(|library, iterator| unsafe {
            (library.iter_seek)(iterator, key.as_ptr().cast(), key.len());
        })
    }

    fn bytes(&self, of: unsafe extern "C" fn(Handle, *mut usize) -> *const c_char) -> &[u8] {
        let mut len = 0;
        // SAFETY: the iterator is valid, so key and value stay until it moves, which takes `&mut`.
        unsafe {
            let at = of(self.iterator, &mut len);
            std::slice::from_raw_parts(at.cast(), len)
        }
    }
}

impl Cursor for RocksCursor {
    fn first(&mut self) -> Result<bool> {
        use std::ops::Bound;
        match self.range.start.clone() {
            Bound::Included(start) => self.seek_to(&start),
            Bound::Excluded(mut start) => {
                start.push(0);
                self.seek_to(&start)
            }
            // SAFETY: the iterator lives.
            Bound::Unbounded => self.moved(|library, iterator| unsafe {
                (library.iter_seek_to_first)(iterator);
            }),
        }
    }

    fn last(&mut self) -> Result<bool> {
        // SAFETY: the iterator lives.
        self.moved(|library, iterator| unsafe { (library.iter_seek_to_last)(iterator) })
    }

    fn seek(&mut self, key: &[u8]) -> Result<bool> {
        self.seek_to(key)
    }

    fn seek_back(&mut self, key: &[u8]) -> Result<bool> {
        // SAFETY: the library copies the key before it returns.
        self.moved(|library, iterator| unsafe {
            (library.iter_seek_for_prev)(iterator, key.as_ptr().cast(), key.len());
        })
    }

    fn next(&mut self) -> Result<bool> {
        // SAFETY: the iterator is valid, as the contract of `next` asks.
        self.moved(|library, iterator| unsafe { (library.iter_next)(iterator) })
    }

    fn prev(&mut self) -> Result<bool> {
        // SAFETY: the same.
        self.moved(|library, iterator| unsafe { (library.iter_prev)(iterator) })
    }

    fn valid(&self) -> bool {
        self.valid
    }

    fn key(&self) -> &[u8] {
        assert!(self.valid, "the cursor stands nowhere");
        self.bytes(self.database.library.iter_key)
    }

    fn value(&self) -> &[u8] {
        assert!(self.valid, "the cursor stands nowhere");
        self.bytes(self.database.library.iter_value)
    }

    fn expires_at(&self) -> Option<Timestamp> {
        None
    }
}

impl Drop for RocksCursor {
    fn drop(&mut self) {
        // SAFETY: nothing of it is lent out any more, and the database is still open.
        unsafe { (self.database.library.iter_destroy)(self.iterator) }
    }
}
