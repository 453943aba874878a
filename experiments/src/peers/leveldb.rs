//! LevelDB's shared library.
//!
//! Its level 1 always has 10 MiB, and it has one background thread.
//!
//! Invariant: a handle is used only between its creation and its destruction in `drop`.
//!
//! Source: LevelDB's `c.h`, version 1.23.

use std::collections::BTreeMap;
use std::ffi::{CString, c_char, c_int, c_uchar};
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use siltstone_engine::{Durability, Engine, Error, Result, WriteBatch};

use super::leveldb_c_api::{IteratorCursor, leveldb_c_api_methods};
use super::library::{self, Handle, library};
use super::peer_settings::PeerSettings;
use super::store::{Peer, Store, StoreCursor, wait_until_idle};

library! { "leveldb_"
    free: fn(Handle);
    options_create: fn() -> Handle;
    options_destroy: fn(Handle);
    options_set_create_if_missing: fn(Handle, c_uchar);
    options_set_write_buffer_size: fn(Handle, usize);
    options_set_max_file_size: fn(Handle, usize);
    options_set_block_size: fn(Handle, usize);
    options_set_cache: fn(Handle, Handle);
    options_set_filter_policy: fn(Handle, Handle);
    options_set_compression: fn(Handle, c_int);
    cache_create_lru: fn(usize) -> Handle;
    cache_destroy: fn(Handle);
    filterpolicy_create_bloom: fn(c_int) -> Handle;
    filterpolicy_destroy: fn(Handle);
    writeoptions_create: fn() -> Handle;
    writeoptions_destroy: fn(Handle);
    writeoptions_set_sync: fn(Handle, c_uchar);
    readoptions_create: fn() -> Handle;
    readoptions_destroy: fn(Handle);
    open: fn(Handle, *const c_char, *mut *mut c_char) -> Handle;
    close: fn(Handle);
    write: fn(Handle, Handle, Handle, *mut *mut c_char);
    get: fn(Handle, Handle, *const c_char, usize, *mut usize, *mut *mut c_char) -> *mut c_char;
    writebatch_create: fn() -> Handle;
    writebatch_destroy: fn(Handle);
    writebatch_put: fn(Handle, *const c_char, usize, *const c_char, usize);
    writebatch_delete: fn(Handle, *const c_char, usize);
    create_iterator: fn(Handle, Handle) -> Handle;
    iter_destroy: fn(Handle);
    iter_valid: fn(Handle) -> c_uchar;
    iter_seek_to_first: fn(Handle);
    iter_seek_to_last: fn(Handle);
    iter_seek: fn(Handle, *const c_char, usize);
    iter_next: fn(Handle);
    iter_prev: fn(Handle);
    iter_key: fn(Handle, *mut usize) -> *const c_char;
    iter_value: fn(Handle, *mut usize) -> *const c_char;
    iter_get_error: fn(Handle, *mut *mut c_char);
}

leveldb_c_api_methods!(Library);

impl Library {
    fn open_library() -> Result<Self> {
        let names = ["libleveldb.so.1d", "libleveldb.so.1", "libleveldb.so"];
        library::find(&names, "LevelDB's library (libleveldb1d in Debian)", Library::load)
    }

    fn checked<T>(&self, call: impl FnOnce(*mut *mut c_char) -> T) -> Result<T> {
        library::checked("LevelDB", self.free, call)
    }
}

/// Checks that the library is installed.
pub(super) fn check() -> Result<()> {
    Library::open_library().map(drop)
}

/// Opens a database; returns its settings, too.
pub(super) fn open(settings: &PeerSettings) -> Result<(Arc<dyn Engine>, BTreeMap<String, String>)> {
    let listed = [
        ("write_buffer_size", settings.memtable.to_string()),
        ("max_file_size", settings.table.to_string()),
        ("block_size", settings.block.to_string()),
        ("cache", settings.cache.to_string()),
        ("bloom_bits", settings.filter_bits.to_string()),
        ("compression", "none".to_owned()),
    ];
    let listed = listed.map(|(name, value)| (format!("leveldb.{name}"), value));
    Ok((Arc::new(Peer::new(LevelDb::open(settings)?)), listed.into()))
}

/// The open database and what reads and writes with it.
struct LevelDb {
    library: Library,
    options: Handle,
    cache: Handle,
    filter: Handle,
    database: Handle,
    read: Handle,
    buffered: Handle,
    synced: Handle,
}

// SAFETY: LevelDB's database and its constant options may be used by any number of threads at once.
unsafe impl Send for LevelDb {}
// SAFETY: the same.
unsafe impl Sync for LevelDb {}

impl LevelDb {
    fn open(settings: &PeerSettings) -> Result<Self> {
        let library = Library::open_library()?;
        let l = &library;
        let path = CString::new(settings.directory.as_os_str().as_bytes())
            .map_err(|_| Error::Invalid("a path with a zero byte".to_owned()))?;
        // SAFETY: each object is made before it is used, and stays until the database is closed.
        unsafe {
            let options = (l.options_create)();
            (l.options_set_create_if_missing)(options, 1);
            (l.options_set_write_buffer_size)(options, settings.memtable as usize);
            (l.options_set_max_file_size)(options, settings.table as usize);
            (l.options_set_block_size)(options, settings.block);
            (l.options_set_compression)(options, 0);
            let cache = (l.cache_create_lru)(settings.cache as usize);
            (l.options_set_cache)(options, cache);
            let filter = (l.filterpolicy_create_bloom)(settings.filter_bits as c_int);
            (l.options_set_filter_policy)(options, filter);
            let opened = l.checked(|error| (l.open)(options, path.as_ptr(), error));
            let database = opened.inspect_err(|_| {
                (l.options_destroy)(options);
                (l.cache_destroy)(cache);
                (l.filterpolicy_destroy)(filter);
            })?;
            let synced = (l.writeoptions_create)();
            (l.writeoptions_set_sync)(synced, 1);
            let (read, buffered) = ((l.readoptions_create)(), (l.writeoptions_create)());
            Ok(LevelDb { options, cache, filter, database, read, buffered, synced, library })
        }
    }
}

impl Drop for LevelDb {
    fn drop(&mut self) {
        let l = &self.library;
        // SAFETY: the last user is gone, and the database goes before what it was opened with.
        unsafe {
            (l.close)(self.database);
            (l.options_destroy)(self.options);
            (l.cache_destroy)(self.cache);
            (l.filterpolicy_destroy)(self.filter);
            (l.readoptions_destroy)(self.read);
            (l.writeoptions_destroy)(self.buffered);
            (l.writeoptions_destroy)(self.synced);
        }
    }
}

impl Store for LevelDb {
    const NAME: &'static str = "leveldb";
    const MAPS_FILES: bool = true;

    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let l = &self.library;
        let mut len = 0;
        // SAFETY: the handles live; the value is copied before it is freed.
        unsafe {
            let (k, len_of_key) = (key.as_ptr().cast(), key.len());
            let at = l.checked(|error| {
                (l.get)(self.database, self.read, k, len_of_key, &mut len, error)
            })?;
            if at.is_null() {
                return Ok(None);
            }
            let value = std::slice::from_raw_parts(at.cast::<u8>(), len).to_vec();
            (l.free)(at.cast());
            Ok(Some(value))
        }
    }

    fn write(&self, batch: &WriteBatch, durability: Durability) -> Result<()> {
        let l = &self.library;
        let options = match durability {
            Durability::Buffered => self.buffered,
            Durability::Synced => self.synced,
        };
        l.batches().with(batch, |writes| {
            // SAFETY: the handles live.
            l.checked(|error| unsafe { (l.write)(self.database, options, writes, error) })
        })
    }

    /// A synced batch of nothing: the log before it is synced with it.
    fn sync(&self) -> Result<()> {
        self.write(&WriteBatch::new(), Durability::Synced)
    }

    fn cursor(self: &Arc<Self>) -> Result<Box<dyn StoreCursor>> {
        // SAFETY: both handles live as long as the database, to which the cursor owns a reference.
        let iterator = unsafe { (self.library.create_iterator)(self.database, self.read) };
        let calls = self.library.iterators();
        Ok(Box::new(IteratorCursor::new("LevelDB", calls, iterator, self)))
    }

    fn wait_until_idle(&self) -> Result<()> {
        wait_until_idle();
        Ok(())
    }
}
