//! The C functions of RocksDB that are used.
//!
//! Source: RocksDB's `c.h`, version 7.8.

use std::ffi::{c_char, c_double, c_int, c_uchar};

use siltstone_engine::Result;

use crate::peers::leveldb_c_api::leveldb_c_api_methods;
use crate::peers::library::{self, Handle, library};

/// File names, the preferred first.
const NAMES: [&str; 4] =
    ["librocksdb.so.11.8", "librocksdb.so.11", "librocksdb.so.7.8", "librocksdb.so.7"];

library! { "rocksdb_"
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
    options_set_use_direct_reads: fn(Handle, c_uchar);
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
    iter_next: fn(Handle);
    iter_prev: fn(Handle);
    iter_key: fn(Handle, *mut usize) -> *const c_char;
    iter_value: fn(Handle, *mut usize) -> *const c_char;
    iter_get_error: fn(Handle, *mut *mut c_char);
}

leveldb_c_api_methods!(Library);

impl Library {
    /// Loads the library.
    ///
    /// # Errors
    /// [`Error::Refused`](siltstone_engine::Error::Refused) if it is not installed.
    pub(super) fn open() -> Result<Self> {
        let package =
            "RocksDB's library (librocksdb7.8 in Debian), or run its program with --peer rocksdb";
        library::find(&NAMES, package, Library::load)
    }

    /// Calls a function that reports an error in its last argument.
    pub(super) fn checked<T>(&self, call: impl FnOnce(*mut *mut c_char) -> T) -> Result<T> {
        library::checked("RocksDB", self.free, call)
    }
}
