//! The version, and the function that frees what others return.

use std::ffi::c_void;

/// Calls free(). NULL is allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_free(ptr: *mut c_void) {
    // SAFETY: the caller passes memory of `malloc` that a function of this library returned.
    unsafe { libc::free(ptr) }
}

/// The version of LevelDB whose interface this is: 1.23.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_major_version() -> i32 {
    1
}

/// See leveldb_major_version().
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_minor_version() -> i32 {
    23
}
