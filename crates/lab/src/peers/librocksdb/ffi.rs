//! The C functions of RocksDB that are used, and finding them.
//!
//! Invariant: a [`Library`] holds the shared object, so its functions stay where they are as long as
//! it lives.
//!
//! Source: RocksDB's `c.h`, version 7.8, whose types these are.

use std::ffi::{CStr, c_char, c_double, c_int, c_uchar, c_void};

use siltstone_engine::{Error, Result};

/// Names under which distributions ship it, the preferred first.
const NAMES: [&str; 3] = ["librocksdb.so.7.8", "librocksdb.so.7", "librocksdb.so"];

/// A pointer to an object of the library's.
pub(super) type Handle = *mut c_void;

macro_rules! functions {
    ($($name:ident: fn($($argument:ty),*) $(-> $result:ty)?;)*) => {
        /// The functions, by their names without `rocksdb_`.
        pub(super) struct Library {
            $(pub(super) $name: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*
            _object: libloading::Library,
        }

        impl Library {
            fn load(object: libloading::Library) -> std::result::Result<Self, libloading::Error> {
                // SAFETY: the symbols have these types in `c.h`, and the pointers are kept beside the
                // object that they point into.
                unsafe {
                    Ok(Library {
                        $($name: *object.get(concat!("rocksdb_", stringify!($name), "\0").as_bytes())?,)*
                        _object: object,
                    })
                }
            }
        }
    };
}

functions! {
    free: fn(Handle);
    options_create: fn() -> Handle;
    options_destroy: fn(Handle);
    options_set_create_if_missing: fn(Handle, c_uchar);
    options_set_write_buffer_size: fn(Handle, usize);
    options_set_max_write_buffer_number: fn(Handle, c_int);
    options_set_target_file_size_base: fn(Handle, u64);
    options_set_max_bytes_for_level_base: fn(Handle, u64);
    options_set_level0_file_num_compaction_trigger: fn(Handle, c_int);
    options_set_compression: fn(Handle, c_int);
    options_set_max_background_jobs: fn(Handle, c_int);
    options_set_block_based_table_factory: fn(Handle, Handle);
    options_enable_statistics: fn(Handle);
    options_statistics_get_string: fn(Handle) -> *mut c_char;
    block_based_options_create: fn() -> Handle;
    block_based_options_destroy: fn(Handle);
    block_based_options_set_block_size: fn(Handle, usize);
    block_based_options_set_filter_policy: fn(Handle, Handle);
    block_based_options_set_block_cache: fn(Handle, Handle);
    filterpolicy_create_bloom_full: fn(c_double) -> Handle;
    cache_create_lru: fn(usize) -> Handle;
    cache_destroy: fn(Handle);
    writeoptions_create: fn() -> Handle;
    writeoptions_destroy: fn(Handle);
    writeoptions_set_sync: fn(Handle, c_uchar);
    readoptions_create: fn() -> Handle;
    readoptions_destroy: fn(Handle);
    flushoptions_create: fn() -> Handle;
    flushoptions_destroy: fn(Handle);
    open: fn(Handle, *const c_char, *mut *mut c_char) -> Handle;
    close: fn(Handle);
    write: fn(Handle, Handle, Handle, *mut *mut c_char);
    flush: fn(Handle, Handle, *mut *mut c_char);
    flush_wal: fn(Handle, c_uchar, *mut *mut c_char);
    get_pinned: fn(Handle, Handle, *const c_char, usize, *mut *mut c_char) -> Handle;
    pinnableslice_value: fn(Handle, *mut usize) -> *const c_char;
    pinnableslice_destroy: fn(Handle);
    property_int: fn(Handle, *const c_char, *mut u64) -> c_int;
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
    iter_seek_for_prev: fn(Handle, *const c_char, usize);
    iter_next: fn(Handle);
    iter_prev: fn(Handle);
    iter_key: fn(Handle, *mut usize) -> *const c_char;
    iter_value: fn(Handle, *mut usize) -> *const c_char;
    iter_get_error: fn(Handle, *mut *mut c_char);
}

impl Library {
    /// Finds the library.
    ///
    /// # Errors
    /// [`Error::Refused`] if there is none.
    pub(super) fn open() -> Result<Self> {
        let mut reason = String::new();
        for name in NAMES {
            // SAFETY: the initialisers of RocksDB's library do nothing that our process minds.
            let found = unsafe { libloading::Library::new(name) }.and_then(Library::load);
            match found {
                Ok(library) => return Ok(library),
                Err(error) => reason = error.to_string(),
            }
        }
        Err(Error::Refused {
            path: NAMES[0].to_owned(),
            reason: format!(
                "{reason}: install RocksDB's library (librocksdb7.8 in Debian), or run its program \
                 with --peer rocksdb"
            ),
        })
    }

    /// Calls a function that reports an error by its last argument.
    pub(super) fn checked<T>(&self, call: impl FnOnce(*mut *mut c_char) -> T) -> Result<T> {
        let mut error = std::ptr::null_mut();
        let answer = call(&mut error);
        if error.is_null() {
            return Ok(answer);
        }
        // SAFETY: a message that the library allocated, ended by a zero byte.
        let reason = unsafe { CStr::from_ptr(error) }.to_string_lossy().into_owned();
        // SAFETY: it is ours to free, and not used afterwards.
        unsafe { (self.free)(error.cast()) };
        Err(Error::Invalid(format!("RocksDB: {reason}")))
    }
}
