//! Databases: open, read, write, snapshots, compaction, repair.

use std::ffi::c_char;
use std::mem::MaybeUninit;
use std::ops::Bound;
use std::path::Path;

use shim::boundary::{Pointer, bytes, copy, guard, quietly, text};
use shim::destroy::destroy;
use store::{Db, Error, Snapshot, Table, WriteBatch, maintenance};

use crate::batch::leveldb_writebatch_t;

use crate::options::{leveldb_options_t, leveldb_readoptions_t, leveldb_writeoptions_t};

/// The table of a database.
const TABLE: &str = "default";

/// An open database.
#[derive(Debug)]
pub struct leveldb_t {
    db: Db,
    pub(crate) table: Table,
}

/// A database as of the creation of the snapshot, or why there is no snapshot.
#[derive(Debug)]
pub struct leveldb_snapshot_t(pub(crate) Result<Snapshot, Error>);

/// Opens the database in the directory `name`. NULL after an error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_open(
    options: &leveldb_options_t,
    name: *const c_char,
    errptr: *mut *mut c_char,
) -> *mut leveldb_t {
    // SAFETY: the caller passes a NUL-terminated string and a place for an error.
    unsafe {
        guard(errptr, || {
            let db = open(options, text(name)?)?;
            Ok::<_, Error>(Pointer::new(db))
        })
    }
    .0
}

fn open(options: &leveldb_options_t, path: &str) -> Result<leveldb_t, Error> {
    let refuse = |reason: &str| Error::Refused { path: path.to_owned(), reason: reason.to_owned() };
    options.check(path)?;
    let exists = Db::exists(path)?;
    if exists && Path::new(path).join("CURRENT").exists() {
        return Err(refuse(
            "it is a database of LevelDB itself, whose files Siltstone does not read: copy the entries with a \
             program that is linked with LevelDB",
        ));
    }
    if exists && options.error_if_exists {
        return Err(refuse("exists (error_if_exists is true)"));
    }
    if !exists && !options.create_if_missing {
        return Err(refuse("does not exist (create_if_missing is false)"));
    }
    let db = Db::open_or_create(path, options.to_db_options())?;
    if !options.create_if_missing && !db.catalogue()?.tables.contains_key(TABLE) {
        return Err(refuse("has no table 'default'"));
    }
    // As in LevelDB, an existing table gets the options of this open.
    let table = db.table_or_create(TABLE, "lsm", &options.to_table_options())?;
    Ok(leveldb_t { db, table })
}

/// Closes and frees a database. Destroy its iterators and release its snapshots before.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_close(db: Option<Box<leveldb_t>>) {
    // LevelDB reports no error here. What was written with `sync` is durable already.
    quietly(|| drop(db.map(|db| db.db.close())));
}

/// Sets the value of a key.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_put(
    db: &leveldb_t,
    options: &leveldb_writeoptions_t,
    key: *const c_char,
    keylen: usize,
    val: *const c_char,
    vallen: usize,
    errptr: *mut *mut c_char,
) {
    // SAFETY: the caller passes pointers to as many bytes as the lengths say, and a place for an
    // error.
    unsafe {
        let (key, value) = (bytes(key, keylen), bytes(val, vallen));
        guard(errptr, || db.table.write(WriteBatch::new().put(key, value), options.durability()));
    }
}

/// Removes a key.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_delete(
    db: &leveldb_t,
    options: &leveldb_writeoptions_t,
    key: *const c_char,
    keylen: usize,
    errptr: *mut *mut c_char,
) {
    // SAFETY: the caller passes a pointer to as many bytes as the length says, and a place for an
    // error.
    unsafe {
        let key = bytes(key, keylen);
        guard(errptr, || db.table.write(WriteBatch::new().delete(key), options.durability()));
    }
}

/// Applies a batch atomically.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_write(
    db: &leveldb_t,
    options: &leveldb_writeoptions_t,
    batch: &leveldb_writebatch_t,
    errptr: *mut *mut c_char,
) {
    // SAFETY: the caller passes a place for an error.
    unsafe { guard(errptr, || db.table.write(&batch.0, options.durability())) }
}

/// A copy of the value of a key, to be freed with leveldb_free(). NULL if there is none, and after
/// an error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_get(
    db: &leveldb_t,
    options: &leveldb_readoptions_t,
    key: *const c_char,
    keylen: usize,
    vallen: &mut MaybeUninit<usize>,
    errptr: *mut *mut c_char,
) -> *mut c_char {
    vallen.write(0);
    let read = |value: &[u8]| {
        vallen.write(value.len());
        copy(value)
    };
    // SAFETY: the caller passes a pointer to as many bytes as the length says, and a place for an
    // error.
    unsafe {
        let key = bytes(key, keylen);
        guard(errptr, || {
            let copied = match &options.snapshot {
                None => db.table.get_with(key, read),
                Some(snapshot) => snapshot.clone()?.get_with(key, read),
            };
            Ok::<_, Error>(copied?.map(Pointer).unwrap_or_default())
        })
    }
    .0
}

/// The database as of now. Release it with leveldb_release_snapshot().
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_create_snapshot(db: &leveldb_t) -> *const leveldb_snapshot_t {
    Box::into_raw(Box::new(leveldb_snapshot_t(db.table.snapshot())))
}

/// Releases a snapshot.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_release_snapshot(
    _db: &leveldb_t,
    snapshot: *const leveldb_snapshot_t,
) {
    if !snapshot.is_null() {
        // SAFETY: the caller passes a snapshot of leveldb_create_snapshot, once.
        quietly(|| drop(unsafe { Box::from_raw(snapshot.cast_mut()) }));
    }
}

/// Compacts the keys from one to another, both included; a null key is the first or the last one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_compact_range(
    db: &leveldb_t,
    start_key: *const c_char,
    start_key_len: usize,
    limit_key: *const c_char,
    limit_key_len: usize,
) {
    let bound = |key: *const c_char, len| match key.is_null() {
        true => Bound::Unbounded,
        // SAFETY: the caller passes `len` bytes.
        false => Bound::Included(unsafe { bytes(key, len) }),
    };
    let range = (bound(start_key, start_key_len), bound(limit_key, limit_key_len));
    // LevelDB reports no error here, either. The next write does.
    quietly(|| drop(db.table.compact_range::<&[u8]>(range)));
}

/// Removes a database with all of its entries. A missing one is not an error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_destroy_db(
    _options: Option<&leveldb_options_t>,
    name: *const c_char,
    errptr: *mut *mut c_char,
) {
    // SAFETY: the caller passes a NUL-terminated string and a place for an error.
    unsafe { guard(errptr, || destroy(text(name)?, TABLE)) }
}

/// Repairs a database that is not open, as far as possible. Damaged files are kept as *.damaged.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_repair_db(
    _options: Option<&leveldb_options_t>,
    name: *const c_char,
    errptr: *mut *mut c_char,
) {
    // SAFETY: the caller passes a NUL-terminated string and a place for an error.
    unsafe { guard(errptr, || maintenance::repair(text(name)?, None).map(|_| ())) }
}
