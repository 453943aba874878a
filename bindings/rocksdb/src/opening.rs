//! Opening and closing databases, and their column families.

use std::ffi::{c_char, c_int, c_void};
use std::path::Path;
use std::ptr::null;
use std::sync::Arc;

use shim::boundary::{Pointer, Report, copy, set_error, text};
use shim::destroy::destroy;

use crate::batch::count;
use crate::database::{Database, Wanted, list_families, milliseconds, repair};
use crate::exports::{array, exports, give};
use crate::failure::Failure;
use crate::families::{DEFAULT, DEFAULT_NAME, Handle};
use crate::layout::TABLE;
use crate::locks::Locks;
use crate::options::Options;
use crate::scalars::{HasScalars, Plain};
use crate::secondary::Store;
use crate::transaction::Transaction;
use crate::transaction::prepared::{recover, take_prepared};

/// Column families of the caller, to be opened, and the places for their handles.
#[derive(Debug, Clone, Copy)]
struct Request {
    count: c_int,
    names: *const *const c_char,
    options: *const *const Options,
    handles: *mut *mut Handle,
    ttls: *const c_int,
}

impl Request {
    /// Opens the database and gives the handles to the caller.
    ///
    /// # Safety
    /// The arrays have `count` elements.
    unsafe fn open(
        self,
        options: &Options,
        path: &str,
        is_read_only: bool,
    ) -> Result<Database, Failure> {
        // SAFETY: by the contract of this function.
        unsafe { self.open_by(|wanted| Database::open(options, path, wanted, is_read_only)) }
    }

    /// Opens the database by a function and gives the handles to the caller.
    ///
    /// # Safety
    /// The arrays have `count` elements.
    unsafe fn open_by(
        self,
        open: impl FnOnce(&[Wanted]) -> Result<(Database, Vec<Handle>), Failure>,
    ) -> Result<Database, Failure> {
        // SAFETY: by the contract of this function.
        let wanted = unsafe { Wanted::list(self.count, self.names, self.options, self.ttls) }?;
        let (database, handles) = open(&wanted)?;
        for (at, handle) in handles.into_iter().enumerate() {
            // SAFETY: by the contract of this function.
            unsafe { self.handles.add(at).write(Pointer::new(handle).0) };
        }
        Ok(database)
    }
}

fn open(options: &Options, path: &str, is_read_only: bool) -> Result<Database, Failure> {
    let wanted = Wanted::default_family(options);
    Ok(Database::open(options, path, &wanted, is_read_only)?.0)
}

impl Database {
    fn with_locks(mut self, options: &Plain) -> Result<Self, Failure> {
        let scalars = options.scalars();
        let write = scalars.get("default_lock_timeout").unwrap_or(1000);
        let transaction = scalars.get("transaction_lock_timeout").unwrap_or(1000);
        let locks = Arc::new(Locks::new(write, transaction));
        recover(&self, &locks)?;
        self.locks = Some(locks);
        Ok(self)
    }
}

/// Closes a database. RocksDB reports no error here, either. What was written with `sync` is
/// durable already.
fn close(database: Option<Box<Database>>) {
    let Some(database) = database else { return };
    database.finish_statistics();
    drop(database.db().close());
}

/// An array of strings of `malloc`, and its length.
fn strings(names: &[String]) -> *mut *mut c_char {
    // SAFETY: malloc has no requirements; each element is written before it is used.
    unsafe {
        let size = names.len().max(1) * size_of::<*mut c_char>();
        let list = libc::malloc(size).cast::<*mut c_char>();
        if !list.is_null() {
            for (at, name) in names.iter().enumerate() {
                list.add(at).write(copy(name.as_bytes()));
            }
        }
        list
    }
}

exports! {
    /// Opens a database. NULL after an error.
    fn rocksdb_open(options: &Options, path: text; err) -> Pointer<Database> {
        Ok(Pointer::new(open(options, path?, false)?))
    }

    /// Opens a database whose entries expire this many seconds after they were written, if the
    /// number is positive. An expired entry is missing at once.
    fn rocksdb_open_with_ttl(options: &Options, path: text, ttl: c_int; err) -> Pointer<Database> {
        let wanted: Vec<Wanted> =
            Wanted::default_family(options).into_iter().map(|family| family.with_ttl(ttl)).collect();
        Ok(Pointer::new(Database::open(options, path?, &wanted, false)?.0))
    }

    /// Opens a database that no process has open for writing.
    fn rocksdb_open_for_read_only(
        options: &Options, path: text, _error_if_wal_file_exists: u8; err
    ) -> Pointer<Database> {
        Ok(Pointer::new(open(options, path?, true)?))
    }

    /// Opens a database with all of its column families.
    fn rocksdb_open_column_families(
        options: &Options, path: text, count: c_int, names: *const *const c_char,
        family_options: *const *const Options, handles: *mut *mut Handle; err
    ) -> Pointer<Database> {
        let request = Request { count, names, options: family_options, handles, ttls: null() };
        Ok(Pointer::new(unsafe { request.open(options, path?, false) }?))
    }

    /// The same with times to live in seconds.
    fn rocksdb_open_column_families_with_ttl(
        options: &Options, path: text, count: c_int, names: *const *const c_char,
        family_options: *const *const Options, handles: *mut *mut Handle, ttls: *const c_int; err
    ) -> Pointer<Database> {
        let request = Request { count, names, options: family_options, handles, ttls };
        Ok(Pointer::new(unsafe { request.open(options, path?, false) }?))
    }

    /// Opens a database that no process has open for writing, with some of its column families.
    fn rocksdb_open_for_read_only_column_families(
        options: &Options, path: text, count: c_int, names: *const *const c_char,
        family_options: *const *const Options, handles: *mut *mut Handle,
        _error_if_wal_file_exists: u8; err
    ) -> Pointer<Database> {
        let request = Request { count, names, options: family_options, handles, ttls: null() };
        Ok(Pointer::new(unsafe { request.open(options, path?, true) }?))
    }

    /// Opens a database for transactions with locks.
    fn rocksdb_transactiondb_open(
        options: &Options, transactions: &Plain, path: text; err
    ) -> Pointer<Database> {
        Ok(Pointer::new(open(options, path?, false)?.with_locks(transactions)?))
    }

    /// The same with all column families.
    fn rocksdb_transactiondb_open_column_families(
        options: &Options, transactions: &Plain, path: text, count: c_int,
        names: *const *const c_char, family_options: *const *const Options,
        handles: *mut *mut Handle; err
    ) -> Pointer<Database> {
        let request = Request { count, names, options: family_options, handles, ttls: null() };
        let opened = unsafe { request.open(options, path?, false) }?;
        Ok(Pointer::new(opened.with_locks(transactions)?))
    }

    /// Opens a database for optimistic transactions.
    fn rocksdb_optimistictransactiondb_open(
        options: &Options, path: text; err
    ) -> Pointer<Database> {
        Ok(Pointer::new(open(options, path?, false)?))
    }

    /// The same; the options are remembered by the caller alone.
    fn rocksdb_optimistictransactiondb_open_with_otxn_db_options(
        options: &Options, _transactions: &Plain, path: text; err
    ) -> Pointer<Database> {
        Ok(Pointer::new(open(options, path?, false)?))
    }

    /// The same with all column families.
    fn rocksdb_optimistictransactiondb_open_column_families(
        options: &Options, path: text, count: c_int, names: *const *const c_char,
        family_options: *const *const Options, handles: *mut *mut Handle; err
    ) -> Pointer<Database> {
        let request = Request { count, names, options: family_options, handles, ttls: null() };
        Ok(Pointer::new(unsafe { request.open(options, path?, false) }?))
    }

    /// The same.
    fn rocksdb_optimistictransactiondb_open_column_families_with_otxn_db_options(
        options: &Options, _transactions: &Plain, path: text, count: c_int,
        names: *const *const c_char, family_options: *const *const Options,
        handles: *mut *mut Handle; err
    ) -> Pointer<Database> {
        let request = Request { count, names, options: family_options, handles, ttls: null() };
        Ok(Pointer::new(unsafe { request.open(options, path?, false) }?))
    }

/// Opens a database for reading beside the process that writes it. Nothing is written into the
    /// directory of the secondary.
    fn rocksdb_open_as_secondary(
        options: &Options, path: text, _secondary_path: text; err
    ) -> Pointer<Database> {
        let wanted = Wanted::default_family(options);
        Ok(Pointer::new(Database::open_secondary(options, path?, &wanted)?.0))
    }

    /// The same with some of its column families.
    fn rocksdb_open_as_secondary_column_families(
        options: &Options, path: text, _secondary_path: text, count: c_int,
        names: *const *const c_char, family_options: *const *const Options,
        handles: *mut *mut Handle; err
    ) -> Pointer<Database> {
        let request = Request { count, names, options: family_options, handles, ttls: null() };
        let open = |wanted: &[Wanted]| Database::open_secondary(options, path?, wanted);
        Ok(Pointer::new(unsafe { request.open_by(open) }?))
    }

    /// Shows what the primary has written since.
    fn rocksdb_try_catch_up_with_primary(db: &Database; err) {
        match &db.store {
            Store::Secondary(secondary) => secondary.catch_up(),
            Store::Own(..) => {
                let text = "the database is not a secondary".to_owned();
                Err(Failure::NotImplemented(text))
            }
        }
    }

    /// Closes and frees a database. Destroy its iterators and release its snapshots before.
    fn rocksdb_close(db: Option<Box<Database>>) {
        close(db)
    }

    /// As rocksdb_close().
    fn rocksdb_transactiondb_close(db: Option<Box<Database>>) {
        close(db)
    }

    /// Closes and frees a database, unless rocksdb_optimistictransactiondb_get_base_db() has
    /// another handle of it.
    fn rocksdb_optimistictransactiondb_close(db: Option<Box<Database>>) {
        close(db)
    }

    /// Another handle of the database, without its locks.
    fn rocksdb_transactiondb_get_base_db(db: &Database) -> Pointer<Database> {
        Pointer::new(Database { locks: None, ..db.clone() })
    }

    /// Frees the other handle. The database stays open.
    fn rocksdb_transactiondb_close_base_db(db: Option<Box<Database>>) {
        drop(db)
    }

    /// Another handle of the database.
    fn rocksdb_optimistictransactiondb_get_base_db(db: &Database) -> Pointer<Database> {
        Pointer::new(db.clone())
    }

    /// Frees the other handle. The database stays open.
    fn rocksdb_optimistictransactiondb_close_base_db(db: Option<Box<Database>>) {
        drop(db)
    }

    /// Removes a database with all of its entries. A directory without one is not an error.
    fn rocksdb_destroy_db(_options: Option<&Options>, path: text; err) {
        let path = path?;
        let has = |file: &str| Path::new(path).join(file).exists();
        if !has("CATALOG") && !has("CURRENT") && !has(&format!("table-{TABLE}")) {
            return Ok(());
        }
        Ok(destroy(path, TABLE)?)
    }

    /// Repairs a database that is not open, as far as possible. Damaged files are kept as
    /// `*.damaged`.
    fn rocksdb_repair_db(_options: Option<&Options>, path: text; err) {
        repair(path?)
    }

    /// The names of the column families of a database that no other process has open for writing.
    fn rocksdb_list_column_families(
        _options: Option<&Options>, path: text, len: *mut usize; err
    ) -> Pointer<*mut c_char> {
        unsafe { give(len, 0) };
        let names = list_families(path?)?;
        unsafe { give(len, names.len()) };
        Ok(Pointer(strings(&names)))
    }

    /// Frees names.
    fn rocksdb_list_column_families_destroy(list: *mut *mut c_char, len: usize) {
        unsafe {
            array(list, len).iter().for_each(|name| libc::free(name.cast()));
            libc::free(list.cast::<c_void>())
        }
    }

    /// Creates a column family.
    fn rocksdb_create_column_family(
        db: &Database, options: &Options, name: text; err
    ) -> Pointer<Handle> {
        Ok(Pointer::new(db.create_family(name?, options)?))
    }

    /// As rocksdb_create_column_family().
    fn rocksdb_transactiondb_create_column_family(
        db: &Database, options: &Options, name: text; err
    ) -> Pointer<Handle> {
        Ok(Pointer::new(db.create_family(name?, options)?))
    }

    /// Creates a column family whose entries expire.
    fn rocksdb_create_column_family_with_ttl(
        db: &Database, options: &Options, name: text, ttl: c_int; err
    ) -> Pointer<Handle> {
        let handle = db.create_family(name?, options)?;
        db.families.set_ttl(handle.id, milliseconds(ttl));
        Ok(Pointer::new(handle))
    }

    /// Creates column families. After an error the list has those before it.
    fn rocksdb_create_column_families(
        db: &Database, options: &Options, number: c_int, names: *const *const c_char,
        len: *mut usize, errptr: *mut *mut c_char
    ) -> Pointer<*mut Handle> {
        let names = unsafe { array(names, count(number)) };
        unsafe { give(len, 0) };
        let size = names.len().max(1) * size_of::<*mut Handle>();
        let list = unsafe { libc::malloc(size) }.cast::<*mut Handle>();
        if list.is_null() {
            return Pointer(list);
        }
        for (at, name) in names.iter().enumerate() {
            let name = unsafe { text(*name) }.map_err(Failure::from);
            match name.and_then(|name| db.create_family(name, options)) {
                Ok(handle) => unsafe {
                    list.add(at).write(Pointer::new(handle).0);
                    give(len, at + 1);
                },
                Err(failure) => {
                    unsafe { set_error(errptr, &failure.report()) };
                    break;
                }
            }
        }
        Pointer(list)
    }

    /// Frees the list, not the handles.
    fn rocksdb_create_column_families_destroy(list: *mut *mut Handle) {
        unsafe { libc::free(list.cast()) }
    }

    /// Drops a column family with its entries. The handle is still to be freed.
    fn rocksdb_drop_column_family(db: &Database, handle: &Handle; err) {
        db.families.drop_family(&db.table(), handle)
    }

    /// The default column family.
    fn rocksdb_get_default_column_family_handle(_db: &Database) -> Pointer<Handle> {
        Pointer::new(Handle { id: DEFAULT.id, name: DEFAULT_NAME.to_owned() })
    }

    /// The identity of the database, to be freed.
    fn rocksdb_get_db_identity(db: &Database, len: *mut usize) -> Pointer<c_char> {
        unsafe { give(len, db.identity.len()) };
        Pointer(copy(db.identity.as_bytes()))
    }

    /// The prepared transactions that no handle has, each to be decided and destroyed, in a list to
    /// be freed; NULL if there are none. After the database was opened these are all of them.
    fn rocksdb_transactiondb_get_prepared_transactions(
        db: &Database, count: *mut usize
    ) -> Pointer<*mut Transaction> {
        let transactions = take_prepared(db);
        unsafe { give(count, transactions.len()) };
        if transactions.is_empty() {
            return Pointer::null();
        }
        let size = transactions.len() * size_of::<*mut Transaction>();
        let list = unsafe { libc::malloc(size) }.cast::<*mut Transaction>();
        if list.is_null() {
            // They are undecided again.
            unsafe { give(count, 0) };
            return Pointer(list);
        }
        for (at, transaction) in transactions.into_iter().enumerate() {
            unsafe { list.add(at).write(Pointer::new(transaction).0) };
        }
        Pointer(list)
    }
}
