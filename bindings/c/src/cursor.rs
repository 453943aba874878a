//! Ordered iteration.

use std::ffi::c_char;
use std::mem::MaybeUninit;

use store::{Cursor, EntryRef, Error, Table};

use crate::error::{SiltstoneError, guard, invalid, release, required};
use crate::memory::{Output, address, bytes};

/// A position among the entries of a table, as of the creation of the cursor. One thread at a time
/// may use it.
///
/// A new cursor is not on an entry: siltstone_cursor_next() moves to the first one, and
/// siltstone_cursor_prev() to the last one. A cursor that has left its range stays there until it
/// is positioned by first, last, seek or seek_back. On unordered engines only first and next work.
/// An open cursor keeps files that compaction has replaced.
#[derive(Debug)]
pub struct SiltstoneCursor {
    cursor: Cursor,
    table: Table,
    /// A call has failed because the table is closed: the cursor is on no entry.
    is_closed: bool,
}

impl SiltstoneCursor {
    pub(crate) fn new(cursor: Cursor, table: Table) -> Self {
        SiltstoneCursor { cursor, table, is_closed: false }
    }

    /// The cursor, if its table is open. It could still read what is in memory otherwise.
    fn open(&mut self) -> Result<&mut Cursor, Error> {
        self.table.check_open().inspect_err(|_| self.is_closed = true)?;
        Ok(&mut self.cursor)
    }

    fn entry(&self) -> Option<EntryRef<'_>> {
        self.cursor.entry().filter(|_| !self.is_closed)
    }
}

/// Frees a cursor. NULL is allowed.
#[unsafe(no_mangle)]
pub extern "C" fn siltstone_cursor_free(cursor: Option<Box<SiltstoneCursor>>) {
    release(cursor);
}

/// From the next move on, values may be empty where reading them would cost more. For scans of
/// keys.
#[unsafe(no_mangle)]
pub extern "C" fn siltstone_cursor_skip_values(
    cursor: Option<&mut SiltstoneCursor>,
) -> Option<Box<SiltstoneError>> {
    guard(|| {
        required(cursor, "cursor")?.open()?.skip_values();
        Ok(())
    })
}

/// Moves to the first entry.
///
/// Errors of all moves: UNSUPPORTED for a move that needs an order on an unordered engine; EXPIRED
/// of a snapshot or transaction; CORRUPTION; IO; CLOSED. The cursor is not on an entry then, and
/// can be positioned again.
#[unsafe(no_mangle)]
pub extern "C" fn siltstone_cursor_first(
    cursor: Option<&mut SiltstoneCursor>,
) -> Option<Box<SiltstoneError>> {
    go(cursor, Cursor::first)
}

/// Moves to the last entry.
#[unsafe(no_mangle)]
pub extern "C" fn siltstone_cursor_last(
    cursor: Option<&mut SiltstoneCursor>,
) -> Option<Box<SiltstoneError>> {
    go(cursor, Cursor::last)
}

/// Moves to the next entry; from a new cursor, to the first.
#[unsafe(no_mangle)]
pub extern "C" fn siltstone_cursor_next(
    cursor: Option<&mut SiltstoneCursor>,
) -> Option<Box<SiltstoneError>> {
    go(cursor, Cursor::next)
}

/// Moves to the previous entry; from a new cursor, to the last.
#[unsafe(no_mangle)]
pub extern "C" fn siltstone_cursor_prev(
    cursor: Option<&mut SiltstoneCursor>,
) -> Option<Box<SiltstoneError>> {
    go(cursor, Cursor::prev)
}

/// Moves to the first entry whose key is not less than `key`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siltstone_cursor_seek(
    cursor: Option<&mut SiltstoneCursor>,
    key: *const c_char,
    key_len: usize,
) -> Option<Box<SiltstoneError>> {
    // SAFETY: the caller passes a pointer to as many bytes as the length says.
    let key = unsafe { bytes(key, key_len, "key") };
    go(cursor, |cursor| cursor.seek(key?))
}

/// Moves to the last entry whose key is not greater than `key`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siltstone_cursor_seek_back(
    cursor: Option<&mut SiltstoneCursor>,
    key: *const c_char,
    key_len: usize,
) -> Option<Box<SiltstoneError>> {
    // SAFETY: the caller passes a pointer to as many bytes as the length says.
    let key = unsafe { bytes(key, key_len, "key") };
    go(cursor, |cursor| cursor.seek_back(key?))
}

fn go(
    cursor: Option<&mut SiltstoneCursor>,
    step: impl FnOnce(&mut Cursor) -> Result<Option<EntryRef<'_>>, Error>,
) -> Option<Box<SiltstoneError>> {
    guard(|| step(required(cursor, "cursor")?.open()?).map(|_| ()))
}

/// Moves up to `max_entries` times, forwards or backwards, and copies the entry after each move,
/// for languages in which a call is expensive. It stops early at the end of the range, and once the
/// copies have `max_bytes` bytes or more. `*count` is set to the number of entries. `*entries` gets
/// them one after the other, and is freed with siltstone_free():
///
/// key_len (4 bytes), value_len (4 bytes), both little-endian, key, value
///
/// Errors: as of the moves; INVALID if `max_entries` or `max_bytes` is 0. The entries that were
/// copied before an error are lost.
#[unsafe(no_mangle)]
pub extern "C" fn siltstone_cursor_read(
    cursor: Option<&mut SiltstoneCursor>,
    is_backward: bool,
    max_entries: usize,
    max_bytes: usize,
    entries: Option<&mut MaybeUninit<*mut c_char>>,
    entries_len: Option<&mut MaybeUninit<usize>>,
    count: Option<&mut MaybeUninit<usize>>,
) -> Option<Box<SiltstoneError>> {
    guard(|| {
        let mut output = Output::bytes(entries, entries_len, "entries")?;
        let count = required(count, "count")?;
        count.write(0);
        let cursor = required(cursor, "cursor")?.open()?;
        if max_entries == 0 || max_bytes == 0 {
            return Err(invalid("'max_entries' and 'max_bytes' must be at least 1".to_owned()));
        }
        let (mut copies, mut copied) = (Vec::new(), 0);
        while copied < max_entries && copies.len() < max_bytes {
            let moved = if is_backward { cursor.prev() } else { cursor.next() };
            let Some(entry) = moved? else { break };
            for part in [entry.key, entry.value] {
                // At most 512 MiB.
                copies.extend_from_slice(&(part.len() as u32).to_le_bytes());
            }
            copies.extend_from_slice(entry.key);
            copies.extend_from_slice(entry.value);
            copied += 1;
        }
        output.set(&copies)?;
        count.write(copied);
        Ok(())
    })
}

/// Whether the cursor is on an entry. False for NULL.
#[unsafe(no_mangle)]
pub extern "C" fn siltstone_cursor_valid(cursor: Option<&SiltstoneCursor>) -> bool {
    cursor.is_some_and(|cursor| cursor.entry().is_some())
}

/// The key under the cursor, valid until the next move. NULL if the cursor is not on an entry.
#[unsafe(no_mangle)]
pub extern "C" fn siltstone_cursor_key(
    cursor: Option<&SiltstoneCursor>,
    key_len: Option<&mut MaybeUninit<usize>>,
) -> *const c_char {
    lend(cursor, key_len, |entry| entry.key)
}

/// The value under the cursor, valid until the next move. NULL if the cursor is not on an entry. An
/// empty value is not NULL.
#[unsafe(no_mangle)]
pub extern "C" fn siltstone_cursor_value(
    cursor: Option<&SiltstoneCursor>,
    value_len: Option<&mut MaybeUninit<usize>>,
) -> *const c_char {
    lend(cursor, value_len, |entry| entry.value)
}

/// When the entry under the cursor expires, in milliseconds since 1970. 0: never, or the cursor is
/// not on an entry.
#[unsafe(no_mangle)]
pub extern "C" fn siltstone_cursor_expires_at(cursor: Option<&SiltstoneCursor>) -> u64 {
    cursor.and_then(|cursor| cursor.entry()?.expires_at).unwrap_or(0)
}

fn lend<'c>(
    cursor: Option<&'c SiltstoneCursor>,
    len: Option<&mut MaybeUninit<usize>>,
    part: impl FnOnce(EntryRef<'c>) -> &'c [u8],
) -> *const c_char {
    let bytes = cursor.and_then(|cursor| cursor.entry()).map(part);
    if let Some(len) = len {
        len.write(bytes.map_or(0, <[u8]>::len));
    }
    bytes.map_or(std::ptr::null(), address)
}
