//! Reads at a point in time.

use std::ffi::{c_char, c_void};
use std::mem::MaybeUninit;

use store::{Error, KeyRange, Snapshot};

use crate::cursor::SiltstoneCursor;
use crate::db::{self, SiltstoneDb};
use crate::error::{SiltstoneError, guard, release, required};
use crate::memory::{Output, bytes, handle_output, handle_outputs, set_handle};
use crate::reads::{self, MultiGet, SiltstoneReadCallback};
use crate::table::{self, SiltstoneTable};

/// A table as of the creation of the snapshot. Any thread may use it, several at the same time. One
/// that is not used for `idle_ms` (see siltstone_options_set_idle_ms()) expires.
#[derive(Debug)]
pub struct SiltstoneSnapshot(Snapshot);

/// The snapshot behind a handle, if its table is open.
fn inner(snapshot: Option<&SiltstoneSnapshot>) -> Result<&Snapshot, Error> {
    let snapshot = &required(snapshot, "snapshot")?.0;
    snapshot.table().check_open()?;
    Ok(snapshot)
}

/// A view of the table at this moment, unaffected by later writes. While it lives, the versions
/// that it shows stay on disk. Free it with siltstone_snapshot_free().
///
/// Errors: UNSUPPORTED on trie, silt and mica; CLOSED.
#[unsafe(no_mangle)]
pub extern "C" fn siltstone_snapshot_create(
    table: Option<&SiltstoneTable>,
    snapshot: Option<&mut MaybeUninit<*mut SiltstoneSnapshot>>,
) -> Option<Box<SiltstoneError>> {
    guard(|| {
        let snapshot = handle_output(snapshot, "snapshot")?;
        set_handle(snapshot, SiltstoneSnapshot(table::inner(table)?.snapshot()?));
        Ok(())
    })
}

/// A view of the table at `time`, in milliseconds since 1970, with the writes of that millisecond.
/// skimpy only: it keeps history for the time that its option `retention` says. Free it with
/// siltstone_snapshot_free().
///
/// Errors: UNSUPPORTED; BELOW_WATERMARK if the history does not reach back so far; INVALID for a
/// time in the future; CLOSED.
#[unsafe(no_mangle)]
pub extern "C" fn siltstone_snapshot_create_at(
    table: Option<&SiltstoneTable>,
    time: u64,
    snapshot: Option<&mut MaybeUninit<*mut SiltstoneSnapshot>>,
) -> Option<Box<SiltstoneError>> {
    guard(|| {
        let snapshot = handle_output(snapshot, "snapshot")?;
        set_handle(snapshot, SiltstoneSnapshot(table::inner(table)?.at(time)?));
        Ok(())
    })
}

/// Views of `count` tables of a store, all as of one moment: snapshots[i] is that of tables[i]. It
/// waits for the writes in progress on these tables. Free each with siltstone_snapshot_free(), in
/// any order. After an error all snapshots are NULL.
///
/// Errors: UNSUPPORTED unless all tables are on lsm; INVALID for a table of another store, or one
/// that is there twice; CLOSED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siltstone_snapshot_create_all(
    db: Option<&SiltstoneDb>,
    count: usize,
    tables: *const Option<&SiltstoneTable>,
    snapshots: *mut MaybeUninit<*mut SiltstoneSnapshot>,
) -> Option<Box<SiltstoneError>> {
    guard(|| {
        // SAFETY: the caller passes arrays of `count` elements.
        let (snapshots, tables) =
            unsafe { (handle_outputs(snapshots, count, "snapshots")?, db::tables(tables, count)?) };
        let all = required(db, "db")?.0.snapshot(&tables)?;
        let parts = tables.iter().map(|table| all.table(table).cloned());
        let parts = parts.collect::<Result<Vec<_>, _>>()?;
        for (snapshot, part) in snapshots.iter_mut().zip(parts) {
            set_handle(snapshot, SiltstoneSnapshot(part));
        }
        Ok(())
    })
}

/// Frees a snapshot. NULL is allowed.
#[unsafe(no_mangle)]
pub extern "C" fn siltstone_snapshot_free(snapshot: Option<Box<SiltstoneSnapshot>>) {
    release(snapshot);
}

/// The sequence number up to which a snapshot shows writes: a change feed resumes after it. 0 for
/// NULL.
#[unsafe(no_mangle)]
pub extern "C" fn siltstone_snapshot_sequence(snapshot: Option<&SiltstoneSnapshot>) -> u64 {
    snapshot.map_or(0, |snapshot| snapshot.0.sequence())
}

/// As siltstone_table_get(), at a snapshot.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siltstone_snapshot_get(
    snapshot: Option<&SiltstoneSnapshot>,
    key: *const c_char,
    key_len: usize,
    value: Option<&mut MaybeUninit<*mut c_char>>,
    value_len: Option<&mut MaybeUninit<usize>>,
) -> Option<Box<SiltstoneError>> {
    guard(|| {
        let value = Output::bytes(value, value_len, "value")?;
        // SAFETY: the caller passes a pointer to as many bytes as the length says.
        let key = unsafe { bytes(key, key_len, "key") }?;
        reads::get(inner(snapshot)?, key, value)
    })
}

/// As siltstone_table_get_with(), at a snapshot.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siltstone_snapshot_get_with(
    snapshot: Option<&SiltstoneSnapshot>,
    key: *const c_char,
    key_len: usize,
    read: SiltstoneReadCallback,
    arg: *mut c_void,
    is_found: Option<&mut MaybeUninit<bool>>,
) -> Option<Box<SiltstoneError>> {
    guard(|| {
        let is_found = reads::found_output(is_found)?;
        // SAFETY: the caller passes a pointer to as many bytes as the length says.
        let key = unsafe { bytes(key, key_len, "key") }?;
        // SAFETY: the caller passes a function that takes this argument.
        unsafe { reads::get_with(inner(snapshot)?, key, read, arg, is_found) }
    })
}

/// As siltstone_table_contains(), at a snapshot.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siltstone_snapshot_contains(
    snapshot: Option<&SiltstoneSnapshot>,
    key: *const c_char,
    key_len: usize,
    is_found: Option<&mut MaybeUninit<bool>>,
) -> Option<Box<SiltstoneError>> {
    guard(|| {
        let is_found = reads::found_output(is_found)?;
        // SAFETY: the caller passes a pointer to as many bytes as the length says.
        let key = unsafe { bytes(key, key_len, "key") }?;
        reads::contains(inner(snapshot)?, key, is_found)
    })
}

/// As siltstone_table_multi_get(), at a snapshot.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siltstone_snapshot_multi_get(
    snapshot: Option<&SiltstoneSnapshot>,
    count: usize,
    keys: *const *const c_char,
    key_lens: *const usize,
    values: *mut *mut c_char,
    value_lens: *mut usize,
) -> Option<Box<SiltstoneError>> {
    guard(|| {
        // SAFETY: the caller passes arrays of `count` elements.
        let batch = unsafe { MultiGet::new(count, keys, key_lens, values, value_lens) }?;
        batch.read(inner(snapshot)?)
    })
}

/// As siltstone_table_cursor(), at a snapshot.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siltstone_snapshot_cursor(
    snapshot: Option<&SiltstoneSnapshot>,
    start: *const c_char,
    start_len: usize,
    end: *const c_char,
    end_len: usize,
    cursor: Option<&mut MaybeUninit<*mut SiltstoneCursor>>,
) -> Option<Box<SiltstoneError>> {
    guard(|| {
        let cursor = handle_output(cursor, "cursor")?;
        // SAFETY: the caller passes pointers to as many bytes as the lengths say.
        let range = unsafe { reads::range(start, start_len, end, end_len) }?;
        reads::cursor(inner(snapshot)?, range, cursor)
    })
}

/// As siltstone_table_cursor_prefix(), at a snapshot.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siltstone_snapshot_cursor_prefix(
    snapshot: Option<&SiltstoneSnapshot>,
    prefix: *const c_char,
    prefix_len: usize,
    cursor: Option<&mut MaybeUninit<*mut SiltstoneCursor>>,
) -> Option<Box<SiltstoneError>> {
    guard(|| {
        let cursor = handle_output(cursor, "cursor")?;
        // SAFETY: the caller passes a pointer to as many bytes as the length says.
        let prefix = unsafe { bytes(prefix, prefix_len, "prefix") }?;
        reads::cursor(inner(snapshot)?, KeyRange::prefix(prefix), cursor)
    })
}
