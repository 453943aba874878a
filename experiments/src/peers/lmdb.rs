//! LMDB's shared library: a copy-on-write B+ tree in a memory-mapped file.
//!
//! Each write is one transaction, as it is one log record in other stores. Buffered writes are
//! commits without a sync (`MDB_NOSYNC`), synced writes are followed by one. The size of its map is
//! given in advance: eight times the data plus 1 GiB of address space. It only caches in the page
//! cache, and does not compress.
//!
//! Invariant: a transaction is used by one thread at a time; read transactions are reused, as the
//! library recommends.
//!
//! Source: LMDB's `lmdb.h`, version 0.9.

use std::collections::BTreeMap;
use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::os::unix::ffi::OsStrExt;
use std::ptr::null_mut;
use std::sync::Arc;

use parking_lot::Mutex;
use siltstone_engine::{Durability, Engine, Error, Op, Result, WriteBatch};

use super::library::{self, Handle, library};
use super::peer_settings::PeerSettings;
use super::store::{CursorMove, Peer, Store, StoreCursor};

/// `MDB_val`: borrowed bytes.
#[repr(C)]
pub(super) struct Value {
    len: usize,
    at: *const c_void,
}

impl Value {
    fn of(bytes: &[u8]) -> Self {
        Value { len: bytes.len(), at: bytes.as_ptr().cast() }
    }

    fn none() -> Self {
        Value::of(&[])
    }
}

// Constants of `lmdb.h`.
const NOSYNC: c_uint = 0x10000;
const NOTLS: c_uint = 0x0020_0000;
const RDONLY: c_uint = 0x20000;
const NOT_FOUND: c_int = -30798;
const FIRST: c_int = 0;
const LAST: c_int = 6;
const NEXT: c_int = 8;
const PREV: c_int = 12;
const SET_RANGE: c_int = 17;

library! { "mdb_"
    strerror: fn(c_int) -> *const c_char;
    env_create: fn(*mut Handle) -> c_int;
    env_open: fn(Handle, *const c_char, c_uint, c_uint) -> c_int;
    env_close: fn(Handle);
    env_sync: fn(Handle, c_int) -> c_int;
    env_set_mapsize: fn(Handle, usize) -> c_int;
    txn_begin: fn(Handle, Handle, c_uint, *mut Handle) -> c_int;
    txn_commit: fn(Handle) -> c_int;
    txn_abort: fn(Handle);
    txn_reset: fn(Handle);
    txn_renew: fn(Handle) -> c_int;
    dbi_open: fn(Handle, *const c_char, c_uint, *mut c_uint) -> c_int;
    get: fn(Handle, c_uint, *const Value, *mut Value) -> c_int;
    put: fn(Handle, c_uint, *const Value, *const Value, c_uint) -> c_int;
    del: fn(Handle, c_uint, *const Value, *const Value) -> c_int;
    cursor_open: fn(Handle, c_uint, *mut Handle) -> c_int;
    cursor_close: fn(Handle);
    cursor_get: fn(Handle, *mut Value, *mut Value, c_int) -> c_int;
}

impl Library {
    fn open() -> Result<Self> {
        let names = ["liblmdb.so.0", "liblmdb.so"];
        library::find(&names, "LMDB's library (liblmdb0 in Debian)", Library::load)
    }

    fn checked(&self, code: c_int) -> Result<()> {
        if code == 0 {
            return Ok(());
        }
        // SAFETY: the library returns a constant string, terminated by a zero byte.
        let reason = unsafe { CStr::from_ptr((self.strerror)(code)) }.to_string_lossy();
        Err(Error::Invalid(format!("LMDB: {reason}")))
    }

    /// `false` for the code of a missing entry.
    fn found(&self, code: c_int) -> Result<bool> {
        if code == NOT_FOUND { Ok(false) } else { self.checked(code).map(|()| true) }
    }
}

/// Checks that the library is installed.
pub(super) fn check() -> Result<()> {
    Library::open().map(drop)
}

/// Opens a database; returns its settings, too.
pub(super) fn open(settings: &PeerSettings) -> Result<(Arc<dyn Engine>, BTreeMap<String, String>)> {
    let map_bytes = settings.data.saturating_mul(8).saturating_add(1 << 30) as usize;
    let listed = [
        ("mapsize", map_bytes.to_string()),
        ("flags", "MDB_NOSYNC, MDB_NOTLS".to_owned()),
        ("commits", "one per write".to_owned()),
    ];
    let listed = listed.map(|(name, value)| (format!("lmdb.{name}"), value));
    Ok((Arc::new(Peer::new(Lmdb::open(settings, map_bytes)?)), listed.into()))
}

struct Lmdb {
    library: Library,
    environment: Handle,
    database: c_uint,
    /// Unused read transactions.
    idle: Mutex<Vec<IdleTransaction>>,
}

struct IdleTransaction(Handle);

// SAFETY: with `MDB_NOTLS` a read transaction is not bound to a thread; one at a time uses it.
unsafe impl Send for IdleTransaction {}
// SAFETY: an environment may be used by any number of threads; transactions are behind the lock.
unsafe impl Send for Lmdb {}
// SAFETY: the same.
unsafe impl Sync for Lmdb {}

impl Lmdb {
    fn open(settings: &PeerSettings, map_bytes: usize) -> Result<Self> {
        let library = Library::open()?;
        let l = &library;
        let path = CString::new(settings.directory.as_os_str().as_bytes())
            .map_err(|_| Error::Invalid("a path with a zero byte".to_owned()))?;
        let mut environment = null_mut();
        let mut database = 0;
        // SAFETY: the environment is created before it is used, and closed if it cannot be opened.
        unsafe {
            l.checked((l.env_create)(&mut environment))?;
            let opened = l
                .checked((l.env_set_mapsize)(environment, map_bytes))
                .and_then(|()| {
                    let flags = NOSYNC | NOTLS;
                    l.checked((l.env_open)(environment, path.as_ptr(), flags, 0o644))
                })
                .and_then(|()| {
                    let mut transaction = null_mut();
                    l.checked((l.txn_begin)(environment, null_mut(), 0, &mut transaction))?;
                    let name = std::ptr::null();
                    l.checked((l.dbi_open)(transaction, name, 0, &mut database))?;
                    l.checked((l.txn_commit)(transaction))
                });
            opened.inspect_err(|_| (l.env_close)(environment))?;
        }
        Ok(Lmdb { library, environment, database, idle: Mutex::default() })
    }

    /// A read transaction of the current state.
    fn begin_read(&self) -> Result<Handle> {
        let l = &self.library;
        let idle = self.idle.lock().pop();
        // SAFETY: the environment lives, and nothing else uses the transaction.
        unsafe {
            if let Some(IdleTransaction(transaction)) = idle {
                l.checked((l.txn_renew)(transaction))?;
                return Ok(transaction);
            }
            let mut transaction = null_mut();
            l.checked((l.txn_begin)(self.environment, null_mut(), RDONLY, &mut transaction))?;
            Ok(transaction)
        }
    }

    fn end_read(&self, transaction: Handle) {
        // SAFETY: nothing else uses it, and nothing is borrowed from it any more.
        unsafe { (self.library.txn_reset)(transaction) };
        self.idle.lock().push(IdleTransaction(transaction));
    }
}

impl Drop for Lmdb {
    fn drop(&mut self) {
        let l = &self.library;
        // SAFETY: all transactions are idle, because cursors own references to the database; they
        // end before it.
        unsafe {
            for IdleTransaction(transaction) in self.idle.lock().drain(..) {
                (l.txn_abort)(transaction);
            }
            (l.env_close)(self.environment);
        }
    }
}

impl Store for Lmdb {
    const NAME: &'static str = "lmdb";
    const MAPS_FILES: bool = true;

    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let l = &self.library;
        let transaction = self.begin_read()?;
        let mut value = Value::none();
        // SAFETY: the key outlives the call; the value is valid until the transaction ends.
        let found = unsafe {
            let code = (l.get)(transaction, self.database, &Value::of(key), &mut value);
            l.found(code).map(|exists| {
                exists
                    .then(|| std::slice::from_raw_parts(value.at.cast::<u8>(), value.len).to_vec())
            })
        };
        self.end_read(transaction);
        found
    }

    fn write(&self, batch: &WriteBatch, durability: Durability) -> Result<()> {
        let l = &self.library;
        // SAFETY: only this thread uses the transaction, which ends here; keys and values are
        // copied.
        unsafe {
            let mut transaction = null_mut();
            l.checked((l.txn_begin)(self.environment, null_mut(), 0, &mut transaction))?;
            for op in batch.iter() {
                let done = match op {
                    Op::Put { key, value, .. } => {
                        let (key, value) = (Value::of(key), Value::of(value));
                        l.checked((l.put)(transaction, self.database, &key, &value, 0))
                    }
                    Op::Delete { key } => {
                        let (key, any) = (Value::of(key), std::ptr::null());
                        l.found((l.del)(transaction, self.database, &key, any)).map(drop)
                    }
                };
                done.inspect_err(|_| (l.txn_abort)(transaction))?;
            }
            l.checked((l.txn_commit)(transaction))?;
        }
        match durability {
            Durability::Buffered => Ok(()),
            Durability::Synced => self.sync(),
        }
    }

    fn sync(&self) -> Result<()> {
        // SAFETY: the environment lives.
        self.library.checked(unsafe { (self.library.env_sync)(self.environment, 1) })
    }

    fn cursor(self: &Arc<Self>) -> Result<Box<dyn StoreCursor>> {
        let l = &self.library;
        let transaction = self.begin_read()?;
        let mut cursor = null_mut();
        // SAFETY: the transaction lives as long as the cursor.
        let code = unsafe { (l.cursor_open)(transaction, self.database, &mut cursor) };
        l.checked(code).inspect_err(|_| self.end_read(transaction))?;
        let (key, value) = (Value::none(), Value::none());
        Ok(Box::new(LmdbCursor { cursor, transaction, key, value, database: self.clone() }))
    }
}

struct LmdbCursor {
    cursor: Handle,
    transaction: Handle,
    /// The current entry; it is valid until the transaction ends.
    key: Value,
    value: Value,
    database: Arc<Lmdb>,
}

// SAFETY: with `MDB_NOTLS` the transaction is not bound to a thread, and `&mut self` moves the
// cursor.
unsafe impl Send for LmdbCursor {}

impl LmdbCursor {
    fn cursor_get(&mut self, operation: c_int) -> Result<bool> {
        let l = &self.database.library;
        // SAFETY: the library's cursor lives as long as `self`; a seek key outlives the call.
        let code =
            unsafe { (l.cursor_get)(self.cursor, &mut self.key, &mut self.value, operation) };
        l.found(code)
    }
}

impl StoreCursor for LmdbCursor {
    fn move_to(&mut self, step: CursorMove<'_>) -> Result<bool> {
        match step {
            CursorMove::First => self.cursor_get(FIRST),
            CursorMove::Last => self.cursor_get(LAST),
            CursorMove::Next => self.cursor_get(NEXT),
            CursorMove::Prev => self.cursor_get(PREV),
            CursorMove::Seek(key) => {
                self.key = Value::of(key);
                self.cursor_get(SET_RANGE)
            }
            CursorMove::SeekBack(key) => {
                if !self.move_to(CursorMove::Seek(key))? {
                    return self.cursor_get(LAST);
                }
                if self.key() == key { Ok(true) } else { self.cursor_get(PREV) }
            }
        }
    }

    fn key(&self) -> &[u8] {
        // SAFETY: the cursor is at an entry, which is valid until its transaction ends.
        unsafe { std::slice::from_raw_parts(self.key.at.cast(), self.key.len) }
    }

    fn value(&self) -> &[u8] {
        // SAFETY: the same.
        unsafe { std::slice::from_raw_parts(self.value.at.cast(), self.value.len) }
    }
}

impl Drop for LmdbCursor {
    fn drop(&mut self) {
        // SAFETY: nothing is borrowed from it any more; a cursor is closed before its transaction.
        unsafe { (self.database.library.cursor_close)(self.cursor) };
        self.database.end_read(self.transaction);
    }
}
