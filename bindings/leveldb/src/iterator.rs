//! Iterators.

use std::ffi::c_char;
use std::mem::MaybeUninit;

use shim::boundary::{address, bytes, guard, quietly};
use store::{Cursor, EntryRef, Error};

use crate::db::leveldb_t;
use crate::options::leveldb_readoptions_t;

/// An iterator over a database as of its creation.
#[derive(Debug)]
pub struct leveldb_iterator_t {
    cursor: Option<Cursor>,
    /// Of the last move, or of the creation.
    error: Option<Error>,
}

impl leveldb_iterator_t {
    /// An iterator, or one that only has an error.
    pub(crate) fn new(cursor: Result<Cursor, Error>) -> Self {
        match cursor {
            Ok(cursor) => leveldb_iterator_t { cursor: Some(cursor), error: None },
            Err(error) => leveldb_iterator_t { cursor: None, error: Some(error) },
        }
    }

    fn entry(&self) -> Option<EntryRef<'_>> {
        self.cursor.as_ref()?.entry()
    }

    fn go(&mut self, step: impl FnOnce(&mut Cursor) -> Result<Option<EntryRef<'_>>, Error>) {
        let Some(cursor) = &mut self.cursor else { return };
        let outcome = quietly(|| Some(step(cursor).map(|_| ())));
        let internal = || Err(Error::Invalid("internal error of an iterator".to_owned()));
        self.error = outcome.unwrap_or_else(internal).err();
    }
}

/// An iterator over the database as of now, or at the snapshot of the options. It is on no entry.
/// An error is reported by leveldb_iter_get_error(). Destroy it before the database is closed.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_create_iterator(
    db: &leveldb_t,
    options: &leveldb_readoptions_t,
) -> Box<leveldb_iterator_t> {
    let cursor = match &options.snapshot {
        None => db.table.cursor(),
        Some(snapshot) => snapshot.clone().and_then(|snapshot| snapshot.cursor()),
    };
    Box::new(leveldb_iterator_t::new(cursor))
}

/// Frees an iterator.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_iter_destroy(iterator: Option<Box<leveldb_iterator_t>>) {
    drop(iterator);
}

/// Whether the iterator is on an entry.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_iter_valid(iterator: &leveldb_iterator_t) -> u8 {
    iterator.entry().is_some().into()
}

/// Moves to the first entry.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_iter_seek_to_first(iterator: &mut leveldb_iterator_t) {
    iterator.go(Cursor::first);
}

/// Moves to the last entry.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_iter_seek_to_last(iterator: &mut leveldb_iterator_t) {
    iterator.go(Cursor::last);
}

/// Moves to the first entry whose key is not less than `k`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_iter_seek(
    iterator: &mut leveldb_iterator_t,
    k: *const c_char,
    klen: usize,
) {
    // SAFETY: the caller passes a pointer to as many bytes as the length says.
    let key = unsafe { bytes(k, klen) };
    iterator.go(|cursor| cursor.seek(key));
}

/// Moves to the next entry. Does nothing if the iterator is on no entry.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_iter_next(iterator: &mut leveldb_iterator_t) {
    if iterator.entry().is_some() {
        iterator.go(Cursor::next);
    }
}

/// Moves to the previous entry. Does nothing if the iterator is on no entry.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_iter_prev(iterator: &mut leveldb_iterator_t) {
    if iterator.entry().is_some() {
        iterator.go(Cursor::prev);
    }
}

/// The key under the iterator, until the next move. NULL if it is on no entry.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_iter_key(
    iterator: &leveldb_iterator_t,
    klen: &mut MaybeUninit<usize>,
) -> *const c_char {
    lend(iterator.entry().map(|entry| entry.key), klen)
}

/// The value under the iterator, until the next move. NULL if it is on no entry.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_iter_value(
    iterator: &leveldb_iterator_t,
    vlen: &mut MaybeUninit<usize>,
) -> *const c_char {
    lend(iterator.entry().map(|entry| entry.value), vlen)
}

fn lend(bytes: Option<&[u8]>, len: &mut MaybeUninit<usize>) -> *const c_char {
    len.write(bytes.map_or(0, <[u8]>::len));
    bytes.map_or(std::ptr::null(), address)
}

/// The error of the last move.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_iter_get_error(
    iterator: &leveldb_iterator_t,
    errptr: *mut *mut c_char,
) {
    // SAFETY: the caller passes a place for an error.
    unsafe { guard(errptr, || iterator.error.clone().map_or(Ok(()), Err)) }
}
