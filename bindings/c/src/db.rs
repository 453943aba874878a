//! Stores: open, close, tables, checkpoint.

use std::ffi::c_char;
use std::mem::MaybeUninit;

use store::{Db, DbBatch, Error};

use crate::batch::SiltstoneBatch;
use crate::error::{SiltstoneError, guard, release, required};
use crate::memory::{Output, array, handle_output, set_handle, text};
use crate::options::{SiltstoneOptions, db_options, table_options};
use crate::table::{SiltstoneTable, durability, inner};

/// An open store. Any thread may use it, several at the same time.
#[derive(Debug)]
pub struct SiltstoneDb(pub(crate) Db);

/// The version of the library, e.g. "0.1.0". It is never freed.
#[unsafe(no_mangle)]
pub extern "C" fn siltstone_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}

/// Opens the existing store in the directory `path`. `options` may be NULL. *db is set to the
/// store, or to NULL after an error. Close it with siltstone_close(), and free it with
/// siltstone_db_free().
///
/// Errors: REFUSED if the directory is not a store; LOCKED; CORRUPTION of the list of tables; IO.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siltstone_open(
    path: *const c_char,
    options: Option<&SiltstoneOptions>,
    db: Option<&mut MaybeUninit<*mut SiltstoneDb>>,
) -> Option<Box<SiltstoneError>> {
    // SAFETY: the caller passes a NUL-terminated string.
    unsafe { open(path, options, db, |path, options| Db::open(path, options)) }
}

/// Opens the store in the directory `path`, or creates one if the directory is missing or empty.
/// Otherwise as siltstone_open(). With `read_only` nothing is created.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siltstone_open_or_create(
    path: *const c_char,
    options: Option<&SiltstoneOptions>,
    db: Option<&mut MaybeUninit<*mut SiltstoneDb>>,
) -> Option<Box<SiltstoneError>> {
    // SAFETY: the caller passes a NUL-terminated string.
    unsafe { open(path, options, db, |path, options| Db::open_or_create(path, options)) }
}

/// # Safety
/// `path` is a NUL-terminated string, or NULL.
unsafe fn open(
    path: *const c_char,
    options: Option<&SiltstoneOptions>,
    db: Option<&mut MaybeUninit<*mut SiltstoneDb>>,
    open: impl FnOnce(&str, store::DbOptions) -> Result<Db, Error>,
) -> Option<Box<SiltstoneError>> {
    guard(|| {
        let db = handle_output(db, "db")?;
        // SAFETY: by the contract of this function.
        let path = unsafe { text(path, "path") }?;
        set_handle(db, SiltstoneDb(open(path, db_options(options))?));
        Ok(())
    })
}

/// The tables behind an array of handles.
///
/// # Safety
/// `tables` points to `count` handles, unless it is NULL.
pub(crate) unsafe fn tables(
    tables: *const Option<&SiltstoneTable>,
    count: usize,
) -> Result<Vec<&store::Table>, Error> {
    // SAFETY: by the contract of this function.
    let tables = unsafe { array(tables, count, "tables") }?;
    tables.iter().map(|table| Ok(&required(*table, "tables[]")?.0)).collect()
}

/// Finishes background work, makes everything durable and releases the directory. All handles of
/// the store stay valid until they are freed, and calls with them fail with CLOSED. Closing a store
/// again does nothing.
///
/// Errors: IO and READ_ONLY. The store is closed in any case; some writes may not be durable then.
#[unsafe(no_mangle)]
pub extern "C" fn siltstone_close(db: Option<&SiltstoneDb>) -> Option<Box<SiltstoneError>> {
    guard(|| required(db, "db")?.0.close())
}

/// Frees a store. Its other handles stay valid. A store that was not closed is closed when its last
/// handle is freed; nothing that was guaranteed is lost. NULL is allowed.
#[unsafe(no_mangle)]
pub extern "C" fn siltstone_db_free(db: Option<Box<SiltstoneDb>>) {
    release(db);
}

/// Opens the existing table `name`. Free it with siltstone_table_free(). All handles of a table
/// have the same content and transactions.
///
/// Errors: INVALID if there is no such table; CORRUPTION; IO.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siltstone_table_open(
    db: Option<&SiltstoneDb>,
    name: *const c_char,
    table: Option<&mut MaybeUninit<*mut SiltstoneTable>>,
) -> Option<Box<SiltstoneError>> {
    guard(|| {
        let table = handle_output(table, "table")?;
        // SAFETY: the caller passes a NUL-terminated string.
        let name = unsafe { text(name, "name") }?;
        set_handle(table, SiltstoneTable(required(db, "db")?.0.table(name)?));
        Ok(())
    })
}

/// Opens the table `name`, or creates it on the engine `engine` ("lsm", "trie", "silt", "mica" or
/// "skimpy") with `option_count` options of the form "key=value", e.g. "memtable=8MiB". Options
/// of an existing table that differ are applied or refused. Free it with siltstone_table_free().
///
/// Errors: INVALID_OPTIONS with every mistake; INVALID if the table is on another engine; IO.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siltstone_table_open_or_create(
    db: Option<&SiltstoneDb>,
    name: *const c_char,
    engine: *const c_char,
    options: *const *const c_char,
    option_count: usize,
    table: Option<&mut MaybeUninit<*mut SiltstoneTable>>,
) -> Option<Box<SiltstoneError>> {
    guard(|| {
        let table = handle_output(table, "table")?;
        // SAFETY: the caller passes NUL-terminated strings, and an array of `option_count` of them.
        let (name, engine, options) = unsafe {
            (text(name, "name")?, text(engine, "engine")?, table_options(options, option_count)?)
        };
        let opened = required(db, "db")?.0.table_or_create(name, engine, &options)?;
        set_handle(table, SiltstoneTable(opened));
        Ok(())
    })
}

/// Removes the table `name` with all of its files. Calls with its handles fail with CLOSED.
///
/// Errors: INVALID if there is no such table; IO.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siltstone_table_drop(
    db: Option<&SiltstoneDb>,
    name: *const c_char,
) -> Option<Box<SiltstoneError>> {
    guard(|| {
        // SAFETY: the caller passes a NUL-terminated string.
        let name = unsafe { text(name, "name") }?;
        required(db, "db")?.0.drop_table(name)
    })
}

/// Renames a table of which no handle exists.
///
/// Errors: INVALID if there is no such table, or if the new name is taken; REFUSED if the table is
/// in use.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siltstone_table_rename(
    db: Option<&SiltstoneDb>,
    name: *const c_char,
    new_name: *const c_char,
) -> Option<Box<SiltstoneError>> {
    guard(|| {
        // SAFETY: the caller passes NUL-terminated strings.
        let (name, new_name) = unsafe { (text(name, "name")?, text(new_name, "new_name")?) };
        required(db, "db")?.0.rename_table(name, new_name)
    })
}

/// The tables with their engines and options as a JSON object, e.g.
/// {"stock":{"engine":"lsm","options":{"memtable":"8MiB"}}}. Free *json with siltstone_free().
#[unsafe(no_mangle)]
pub extern "C" fn siltstone_tables(
    db: Option<&SiltstoneDb>,
    json: Option<&mut MaybeUninit<*mut c_char>>,
) -> Option<Box<SiltstoneError>> {
    guard(|| {
        let mut json = Output::text(json, "json")?;
        json.set_json(&required(db, "db")?.0.catalogue()?.tables)
    })
}

/// The bytes of the files of each table as a JSON object, e.g. {"stock":4096}. Free *json with
/// siltstone_free().
///
/// Errors: IO; CLOSED.
#[unsafe(no_mangle)]
pub extern "C" fn siltstone_disk_usage(
    db: Option<&SiltstoneDb>,
    json: Option<&mut MaybeUninit<*mut c_char>>,
) -> Option<Box<SiltstoneError>> {
    guard(|| {
        let mut json = Output::text(json, "json")?;
        json.set_json(&required(db, "db")?.0.disk_usage()?)
    })
}

/// Applies batches[i] to tables[i], for all of `count` tables of the store, or none of them. With
/// `synced` all survive a power cut once this returns. The batches stay as they are.
///
/// Errors: INVALID for a table of another store; UNSUPPORTED if there are several tables and one is
/// not on lsm, trie or silt; those of all writes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siltstone_write(
    db: Option<&SiltstoneDb>,
    count: usize,
    tables: *const Option<&SiltstoneTable>,
    batches: *const Option<&SiltstoneBatch>,
    synced: bool,
) -> Option<Box<SiltstoneError>> {
    guard(|| {
        // SAFETY: the caller passes arrays of `count` handles.
        let (tables, batches) =
            unsafe { (array(tables, count, "tables")?, array(batches, count, "batches")?) };
        let mut whole = DbBatch::new();
        for (table, batch) in tables.iter().zip(batches) {
            whole.table(inner(*table)?).append(&required(*batch, "batches[]")?.0);
        }
        required(db, "db")?.0.write(&whole, durability(synced))
    })
}

/// Makes every write that has returned, to any table, durable against a power cut.
#[unsafe(no_mangle)]
pub extern "C" fn siltstone_sync(db: Option<&SiltstoneDb>) -> Option<Box<SiltstoneError>> {
    guard(|| required(db, "db")?.0.sync())
}

/// Copies every table, each as of a moment during the call, into the new directory `path`, while
/// the store is in use. Files are linked where both directories are on one file system. The copy is
/// a store.
///
/// Errors: REFUSED if the directory exists or is inside a store; IO. There is no partial copy then.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siltstone_checkpoint(
    db: Option<&SiltstoneDb>,
    path: *const c_char,
) -> Option<Box<SiltstoneError>> {
    guard(|| {
        // SAFETY: the caller passes a NUL-terminated string.
        let path = unsafe { text(path, "path") }?;
        required(db, "db")?.0.checkpoint(path)
    })
}
