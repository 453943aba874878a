//! A reader beside the process that writes a store.

use std::ffi::c_char;
use std::mem::MaybeUninit;

use store::{Db, DbReader};

use crate::error::{SiltstoneError, guard, release, required};
use crate::memory::{handle_output, set_handle, text};
use crate::options::{SiltstoneOptions, db_options};
use crate::table::SiltstoneTable;

/// A store that another process may write at the same time, as of the last catch-up. Any thread may
/// use it, several at the same time.
#[derive(Debug)]
pub struct SiltstoneReader(DbReader);

/// Opens the store in the directory `path` for reading, also while another process has it open for
/// writing. Nothing is locked or written there. `options` may be NULL; the maximum number of open
/// files is ignored: a reader keeps all files that it shows open, also those that the writer has
/// removed. Free it with siltstone_reader_free().
///
/// A reader shows a prefix of the writes of each table, in whole batches, also those that are not
/// durable yet: after a power cut the store may have less than a reader has shown.
///
/// Errors: those of siltstone_open() but LOCKED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siltstone_reader_open(
    path: *const c_char,
    options: Option<&SiltstoneOptions>,
    reader: Option<&mut MaybeUninit<*mut SiltstoneReader>>,
) -> Option<Box<SiltstoneError>> {
    guard(|| {
        let reader = handle_output(reader, "reader")?;
        // SAFETY: the caller passes a NUL-terminated string.
        let path = unsafe { text(path, "path") }?;
        set_handle(reader, SiltstoneReader(Db::open_reader(path, db_options(options))?));
        Ok(())
    })
}

/// Frees a reader. Handles of tables that it has opened stay valid. NULL is allowed.
#[unsafe(no_mangle)]
pub extern "C" fn siltstone_reader_free(reader: Option<Box<SiltstoneReader>>) {
    release(reader);
}

/// Reads what the writer has written since, in all tables, and sets *has_changed to whether there
/// is anything. Handles of tables stay as they are: open the tables again. Cost: reads the logs, up
/// to the size of the memtables, and opens every file.
///
/// Errors: those of siltstone_reader_open(); the reader stays as it is.
#[unsafe(no_mangle)]
pub extern "C" fn siltstone_reader_catch_up(
    reader: Option<&SiltstoneReader>,
    has_changed: Option<&mut MaybeUninit<bool>>,
) -> Option<Box<SiltstoneError>> {
    guard(|| {
        let has_changed = required(has_changed, "has_changed")?;
        has_changed.write(false);
        has_changed.write(required(reader, "reader")?.0.catch_up()?);
        Ok(())
    })
}

/// Opens the table `name` as of the last catch-up. It does not change; writes to it fail with
/// REFUSED. It keeps its files open, so free it with siltstone_table_free() after a catch-up.
///
/// Errors: INVALID if there is no such table; UNSUPPORTED on mica and skimpy, with persistent
/// memory (`pmem.size`) and with `fast_dir`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siltstone_reader_table(
    reader: Option<&SiltstoneReader>,
    name: *const c_char,
    table: Option<&mut MaybeUninit<*mut SiltstoneTable>>,
) -> Option<Box<SiltstoneError>> {
    guard(|| {
        let table = handle_output(table, "table")?;
        // SAFETY: the caller passes a NUL-terminated string.
        let name = unsafe { text(name, "name") }?;
        set_handle(table, SiltstoneTable(required(reader, "reader")?.0.table(name)?));
        Ok(())
    })
}
