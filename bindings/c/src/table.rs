//! Tables: reads, writes, statistics.

use std::ffi::{c_char, c_void};
use std::mem::MaybeUninit;

use store::{Durability, Entry, Error, KeyRange, Table, merge_operator};

use crate::batch::SiltstoneBatch;
use crate::cursor::SiltstoneCursor;
use crate::error::{SiltstoneError, guard, invalid, release, required};
use crate::memory::{Output, bytes, handle_output, text};
use crate::options::table_options;
use crate::reads::{self, MultiGet, SiltstoneReadCallback};

/// A table of a store. Any thread may use it, several at the same time.
#[derive(Debug)]
pub struct SiltstoneTable(pub(crate) Table);

/// The table behind a handle.
pub(crate) fn inner(table: Option<&SiltstoneTable>) -> Result<&Table, Error> {
    Ok(&required(table, "table")?.0)
}

/// Synced or buffered.
pub(crate) fn durability(is_synced: bool) -> Durability {
    if is_synced { Durability::Synced } else { Durability::Buffered }
}

/// Frees a handle of a table. The table itself stays as it is. NULL is allowed.
#[unsafe(no_mangle)]
pub extern "C" fn siltstone_table_free(table: Option<Box<SiltstoneTable>>) {
    release(table);
}

/// Sets the value of a key, buffered: it survives a crash of the process, not a power cut. Both are
/// copied. Waits while background work is behind.
///
/// Errors of all writes: TOO_LARGE and a full disk: nothing was written; READ_ONLY; REFUSED by a
/// store that is open read-only; CLOSED. After another IO error the outcome is unknown until the
/// store is reopened.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siltstone_table_put(
    table: Option<&SiltstoneTable>,
    key: *const c_char,
    key_len: usize,
    value: *const c_char,
    value_len: usize,
) -> Option<Box<SiltstoneError>> {
    guard(|| {
        // SAFETY: the caller passes pointers to as many bytes as the lengths say.
        let (key, value) =
            unsafe { (bytes(key, key_len, "key")?, bytes(value, value_len, "value")?) };
        inner(table)?.put(key, value)
    })
}

/// As siltstone_table_put(), for a value that expires at `expires_at`, in milliseconds since 1970.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siltstone_table_put_until(
    table: Option<&SiltstoneTable>,
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
        inner(table)?.put_until(key, value, expires_at)
    })
}

/// Removes a key, buffered. Removing a missing key is not an error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siltstone_table_delete(
    table: Option<&SiltstoneTable>,
    key: *const c_char,
    key_len: usize,
) -> Option<Box<SiltstoneError>> {
    guard(|| {
        // SAFETY: the caller passes a pointer to as many bytes as the length says.
        let key = unsafe { bytes(key, key_len, "key") }?;
        inner(table)?.delete(key)
    })
}

/// Removes every key from `start` to before `end`, buffered, at a cost independent of their number;
/// NULL is no bound. Earlier snapshots still show the keys. lsm only.
///
/// Errors: UNSUPPORTED; INVALID for a range that starts after its end; those of all writes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siltstone_table_delete_range(
    table: Option<&SiltstoneTable>,
    start: *const c_char,
    start_len: usize,
    end: *const c_char,
    end_len: usize,
) -> Option<Box<SiltstoneError>> {
    guard(|| {
        // SAFETY: the caller passes pointers to as many bytes as the lengths say.
        let range = unsafe { reads::range(start, start_len, end, end_len) }?;
        inner(table)?.delete_range((range.start, range.end))
    })
}

/// Sets the merge operator of the table: "siltstone.counter", which adds integers of 8 bytes,
/// little-endian, or "siltstone.append:SEPARATOR", which joins values, with the separator in hex.
/// It is recorded, and set again when the table is opened. The table takes no values that expire
/// then. lsm only.
///
/// Errors: UNSUPPORTED; INVALID for an unknown operator, for another one than the recorded one, and
/// for a table with values that expire.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siltstone_table_set_merge_operator(
    table: Option<&SiltstoneTable>,
    name: *const c_char,
) -> Option<Box<SiltstoneError>> {
    guard(|| {
        // SAFETY: the caller passes a NUL-terminated string.
        let name = unsafe { text(name, "name") }?;
        let operator = merge_operator::built_in(name)
            .ok_or_else(|| invalid(format!("there is no merge operator '{name}'")))?;
        inner(table)?.set_merge_operator(Some(operator))
    })
}

/// Merges an operand into a key, buffered, without reading its value. lsm only.
///
/// Errors: UNSUPPORTED; INVALID without a merge operator, or if it refuses the operand; those of
/// all writes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siltstone_table_merge(
    table: Option<&SiltstoneTable>,
    key: *const c_char,
    key_len: usize,
    operand: *const c_char,
    operand_len: usize,
) -> Option<Box<SiltstoneError>> {
    guard(|| {
        // SAFETY: the caller passes pointers to as many bytes as the lengths say.
        let (key, operand) =
            unsafe { (bytes(key, key_len, "key")?, bytes(operand, operand_len, "operand")?) };
        inner(table)?.merge(key, operand)
    })
}

/// Sets the value of a key to `new_value`, or removes the key if that is NULL, if its value is
/// `expected`, or if it has none and `expected` is NULL; atomically and buffered. The new value
/// does not expire. *is_swapped is set to whether the value was the expected one. The empty value
/// is a pointer that is not NULL with the length 0.
///
/// Errors: those of reads and writes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siltstone_table_compare_and_swap(
    table: Option<&SiltstoneTable>,
    key: *const c_char,
    key_len: usize,
    expected: *const c_char,
    expected_len: usize,
    new_value: *const c_char,
    new_value_len: usize,
    is_swapped: Option<&mut MaybeUninit<bool>>,
) -> Option<Box<SiltstoneError>> {
    guard(|| {
        let is_swapped = required(is_swapped, "is_swapped")?;
        is_swapped.write(false);
        // SAFETY: the caller passes pointers to as many bytes as the lengths say.
        let (key, expected_bytes, new_bytes) = unsafe {
            (
                bytes(key, key_len, "key")?,
                bytes(expected, expected_len, "expected")?,
                bytes(new_value, new_value_len, "new_value")?,
            )
        };
        let expected = (!expected.is_null()).then_some(expected_bytes);
        let new_value = (!new_value.is_null()).then_some(new_bytes);
        let compared = inner(table)?.compare_and_swap(key, expected, new_value)?;
        is_swapped.write(compared.is_ok());
        Ok(())
    })
}

/// Removes the entry with the smallest key, buffered, and copies its key and value; *key is NULL if
/// the table is empty. Concurrent calls return different entries. Free both with siltstone_free().
/// Cost: a seek, and a transaction. lsm only.
///
/// Errors: UNSUPPORTED; those of reads and writes.
#[unsafe(no_mangle)]
pub extern "C" fn siltstone_table_pop_first(
    table: Option<&SiltstoneTable>,
    key: Option<&mut MaybeUninit<*mut c_char>>,
    key_len: Option<&mut MaybeUninit<usize>>,
    value: Option<&mut MaybeUninit<*mut c_char>>,
    value_len: Option<&mut MaybeUninit<usize>>,
) -> Option<Box<SiltstoneError>> {
    pop(table, Table::pop_first, (key, key_len), (value, value_len))
}

/// As siltstone_table_pop_first(), for the greatest key.
#[unsafe(no_mangle)]
pub extern "C" fn siltstone_table_pop_last(
    table: Option<&SiltstoneTable>,
    key: Option<&mut MaybeUninit<*mut c_char>>,
    key_len: Option<&mut MaybeUninit<usize>>,
    value: Option<&mut MaybeUninit<*mut c_char>>,
    value_len: Option<&mut MaybeUninit<usize>>,
) -> Option<Box<SiltstoneError>> {
    pop(table, Table::pop_last, (key, key_len), (value, value_len))
}

type BytesOutput<'a> =
    (Option<&'a mut MaybeUninit<*mut c_char>>, Option<&'a mut MaybeUninit<usize>>);

fn pop(
    table: Option<&SiltstoneTable>,
    pop: impl FnOnce(&Table) -> Result<Option<(Vec<u8>, Entry)>, Error>,
    (key, key_len): BytesOutput<'_>,
    (value, value_len): BytesOutput<'_>,
) -> Option<Box<SiltstoneError>> {
    guard(|| {
        let mut key = Output::bytes(key, key_len, "key")?;
        let mut value = Output::bytes(value, value_len, "value")?;
        let Some((popped, entry)) = pop(inner(table)?)? else { return Ok(()) };
        key.set(&popped)?;
        value.set(&entry.value)
    })
}

/// Applies a batch atomically. With `synced` it survives a power cut once this returns. The batch
/// stays as it is, and can be changed and applied again.
#[unsafe(no_mangle)]
pub extern "C" fn siltstone_table_write(
    table: Option<&SiltstoneTable>,
    batch: Option<&SiltstoneBatch>,
    synced: bool,
) -> Option<Box<SiltstoneError>> {
    guard(|| inner(table)?.write(&required(batch, "batch")?.0, durability(synced)))
}

/// As siltstone_table_write() without `synced`, unless the write would have to wait: for background
/// work, for another writer or beside open transactions. `*is_written` is false then, and nothing
/// was written: call siltstone_table_write() on a thread that may wait. For threads that must not,
/// such as event loops. lsm, trie and silt; on the other engines nothing is ever written.
///
/// Errors: as siltstone_table_write().
#[unsafe(no_mangle)]
pub extern "C" fn siltstone_table_try_write(
    table: Option<&SiltstoneTable>,
    batch: Option<&SiltstoneBatch>,
    is_written: Option<&mut MaybeUninit<bool>>,
) -> Option<Box<SiltstoneError>> {
    guard(|| {
        let is_written = required(is_written, "is_written")?;
        is_written.write(false);
        is_written.write(inner(table)?.try_write(&required(batch, "batch")?.0)?);
        Ok(())
    })
}

/// Removes every key, durably. Earlier snapshots still show the keys.
#[unsafe(no_mangle)]
pub extern "C" fn siltstone_table_clear(
    table: Option<&SiltstoneTable>,
) -> Option<Box<SiltstoneError>> {
    guard(|| inner(table)?.clear())
}

/// Makes every write that has returned durable against a power cut.
///
/// Errors: IO: it is unknown which of these writes are durable, and the table is read-only from
/// then on; READ_ONLY; CLOSED.
#[unsafe(no_mangle)]
pub extern "C" fn siltstone_table_sync(
    table: Option<&SiltstoneTable>,
) -> Option<Box<SiltstoneError>> {
    guard(|| inner(table)?.sync())
}

/// Writes buffered data to the engine's files, durably.
#[unsafe(no_mangle)]
pub extern "C" fn siltstone_table_flush(
    table: Option<&SiltstoneTable>,
) -> Option<Box<SiltstoneError>> {
    guard(|| inner(table)?.flush())
}

/// Runs background work (flushes, compactions) until none is due.
#[unsafe(no_mangle)]
pub extern "C" fn siltstone_table_maintain(
    table: Option<&SiltstoneTable>,
) -> Option<Box<SiltstoneError>> {
    guard(|| inner(table)?.maintain())
}

/// Compacts the keys from `start` to before `end` down to their deepest level, beside other work;
/// NULL is no bound. lsm only.
///
/// Errors: UNSUPPORTED; INVALID for a range that starts after its end; IO; CLOSED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siltstone_table_compact_range(
    table: Option<&SiltstoneTable>,
    start: *const c_char,
    start_len: usize,
    end: *const c_char,
    end_len: usize,
) -> Option<Box<SiltstoneError>> {
    guard(|| {
        // SAFETY: the caller passes pointers to as many bytes as the lengths say.
        let range = unsafe { reads::range(start, start_len, end, end_len) }?;
        inner(table)?.compact_range((range.start, range.end))
    })
}

/// Changes options of the table, given as to siltstone_table_open_or_create(), durably. *json,
/// which may be NULL, gets the names of those that take effect at the next open, as a JSON array.
/// Free
/// *json with siltstone_free().
///
/// Errors: INVALID_OPTIONS with every mistake, among them options that never change; REFUSED; IO.
/// Nothing has changed then.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siltstone_table_set_options(
    table: Option<&SiltstoneTable>,
    options: *const *const c_char,
    option_count: usize,
    json: Option<&mut MaybeUninit<*mut c_char>>,
) -> Option<Box<SiltstoneError>> {
    guard(|| {
        let mut json = json.map(|json| Output::text(Some(json), "json")).transpose()?;
        // SAFETY: the caller passes an array of `option_count` NUL-terminated strings.
        let options = unsafe { table_options(options, option_count) }?;
        let changes: Vec<_> = options.iter().map(|(name, value)| (&name[..], &value[..])).collect();
        let later = inner(table)?.set_options(&changes)?;
        json.as_mut().map_or(Ok(()), |json| json.set_json(&later))
    })
}

/// Counters and sizes as a JSON object: bytes of memory by structure in "memory", with
/// "block_cache" and "memtable", files per level in "levels", cache hits and jobs in "counters",
/// bytes by purpose in "io", waiting times of writers in "stall". Free *json with siltstone_free().
#[unsafe(no_mangle)]
pub extern "C" fn siltstone_table_stats(
    table: Option<&SiltstoneTable>,
    json: Option<&mut MaybeUninit<*mut c_char>>,
) -> Option<Box<SiltstoneError>> {
    guard(|| Output::text(json, "json")?.set_json(&inner(table)?.stats()))
}

/// Counts the keys by a scan. The cost grows with their number.
#[unsafe(no_mangle)]
pub extern "C" fn siltstone_table_count(
    table: Option<&SiltstoneTable>,
    count: Option<&mut MaybeUninit<u64>>,
) -> Option<Box<SiltstoneError>> {
    guard(|| {
        let count = required(count, "count")?;
        count.write(0);
        count.write(inner(table)?.len()?);
        Ok(())
    })
}

/// Estimates the number of keys without reading any. Entries that were overwritten or deleted count
/// until compaction has removed them; exact on mica.
///
/// Errors: UNSUPPORTED on skimpy.
#[unsafe(no_mangle)]
pub extern "C" fn siltstone_table_approximate_len(
    table: Option<&SiltstoneTable>,
    count: Option<&mut MaybeUninit<u64>>,
) -> Option<Box<SiltstoneError>> {
    guard(|| {
        let count = required(count, "count")?;
        count.write(0);
        let table = inner(table)?;
        table.check_open()?;
        let estimate = table.approximate_len();
        count.write(estimate.ok_or_else(|| table.engine().unsupported("an estimated length"))?);
        Ok(())
    })
}

/// Copies the value of a key. *value gets the bytes, followed by a NUL that *value_len does not
/// count; free them with siltstone_free(). *value is NULL if the key has no value.
///
/// Errors of all reads: TOO_LARGE for a key that is too long; CORRUPTION; IO; CLOSED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siltstone_table_get(
    table: Option<&SiltstoneTable>,
    key: *const c_char,
    key_len: usize,
    value: Option<&mut MaybeUninit<*mut c_char>>,
    value_len: Option<&mut MaybeUninit<usize>>,
) -> Option<Box<SiltstoneError>> {
    guard(|| {
        let value = Output::bytes(value, value_len, "value")?;
        // SAFETY: the caller passes a pointer to as many bytes as the length says.
        let key = unsafe { bytes(key, key_len, "key") }?;
        reads::get(inner(table)?, key, value)
    })
}

/// Passes the value of a key to `read`, without a copy where the engine has it in memory, and
/// returns in *is_found whether there is one. `read` is called at most once, before this returns.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siltstone_table_get_with(
    table: Option<&SiltstoneTable>,
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
        unsafe { reads::get_with(inner(table)?, key, read, arg, is_found) }
    })
}

/// Whether a key has a value.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siltstone_table_contains(
    table: Option<&SiltstoneTable>,
    key: *const c_char,
    key_len: usize,
    is_found: Option<&mut MaybeUninit<bool>>,
) -> Option<Box<SiltstoneError>> {
    guard(|| {
        let is_found = reads::found_output(is_found)?;
        // SAFETY: the caller passes a pointer to as many bytes as the length says.
        let key = unsafe { bytes(key, key_len, "key") }?;
        reads::contains(inner(table)?, key, is_found)
    })
}

/// Copies the values of `count` keys. values[i] and value_lens[i] are as from siltstone_table_get()
/// for keys[i]; free each value with siltstone_free(). On lsm all values are of one moment. After
/// an error all values are NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siltstone_table_multi_get(
    table: Option<&SiltstoneTable>,
    count: usize,
    keys: *const *const c_char,
    key_lens: *const usize,
    values: *mut *mut c_char,
    value_lens: *mut usize,
) -> Option<Box<SiltstoneError>> {
    guard(|| {
        // SAFETY: the caller passes arrays of `count` elements.
        let batch = unsafe { MultiGet::new(count, keys, key_lens, values, value_lens) }?;
        batch.read(inner(table)?)
    })
}

/// A cursor over the keys from `start` to before `end`; NULL is no bound. Unordered engines have no
/// bounds. Free it with siltstone_cursor_free().
///
/// Errors: INVALID for a range that starts after its end; UNSUPPORTED; CORRUPTION; IO; CLOSED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siltstone_table_cursor(
    table: Option<&SiltstoneTable>,
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
        reads::cursor(inner(table)?, range, cursor)
    })
}

/// A cursor over the keys that start with `prefix`. Ordered engines only. Free it with
/// siltstone_cursor_free().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siltstone_table_cursor_prefix(
    table: Option<&SiltstoneTable>,
    prefix: *const c_char,
    prefix_len: usize,
    cursor: Option<&mut MaybeUninit<*mut SiltstoneCursor>>,
) -> Option<Box<SiltstoneError>> {
    guard(|| {
        let cursor = handle_output(cursor, "cursor")?;
        // SAFETY: the caller passes a pointer to as many bytes as the length says.
        let prefix = unsafe { bytes(prefix, prefix_len, "prefix") }?;
        reads::cursor(inner(table)?, KeyRange::prefix(prefix), cursor)
    })
}
