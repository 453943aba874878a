//! Bytes, errors and panics between C and Rust.
//!
//! An error is a string allocated with `malloc`, returned through the caller's `errptr`. It begins
//! with LevelDB's name for its kind, because programs compare that.

use std::ffi::{CStr, c_char, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};

use store::Error;

/// Bytes of the caller. NULL is the empty string.
///
/// # Safety
/// `data` points to `len` bytes that nobody changes during `'a`, or is NULL.
pub(crate) unsafe fn bytes<'a>(data: *const c_char, len: usize) -> &'a [u8] {
    if data.is_null() || len > isize::MAX as usize {
        return &[];
    }
    // SAFETY: by the contract of this function; the length fits an object.
    unsafe { std::slice::from_raw_parts(data.cast(), len) }
}

/// Text of the caller.
///
/// # Safety
/// `text` points to a NUL-terminated string that nobody changes during `'a`, or is NULL.
pub(crate) unsafe fn text<'a>(text: *const c_char) -> Result<&'a str, Error> {
    if text.is_null() {
        return Err(Error::Invalid("a name is NULL".to_owned()));
    }
    // SAFETY: by the contract of this function.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_str().map_err(|_| Error::Invalid("a name is not UTF-8".to_owned()))
}

/// A copy of bytes in memory of `malloc`, with a NUL behind it; NULL without memory.
pub(crate) fn copy(bytes: &[u8]) -> *mut c_char {
    // SAFETY: malloc has no requirements, and the size does not overflow.
    let memory = unsafe { libc::malloc(bytes.len() + 1) }.cast::<u8>();
    if !memory.is_null() {
        // SAFETY: the memory is new, has room for the bytes and the NUL, and overlaps nothing.
        unsafe {
            memory.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
            memory.add(bytes.len()).write(0);
        }
    }
    memory.cast()
}

/// Runs the body of a function; after an error or a panic the result is `R`'s default, and the
/// caller gets the error.
///
/// # Safety
/// `errptr` points to NULL or to a string of `malloc`, or is NULL.
pub(crate) unsafe fn guard<R: Default>(
    errptr: *mut *mut c_char,
    body: impl FnOnce() -> Result<R, Error>,
) -> R {
    let message = match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(result)) => return result,
        Ok(Err(error)) => message(&error),
        Err(_) => "IO error: internal error of Siltstone; close the database".to_owned(),
    };
    if !errptr.is_null() {
        // SAFETY: by the contract of this function; the old string is freed once and replaced.
        unsafe {
            libc::free((*errptr).cast());
            *errptr = copy(message.replace('\0', "\\0").as_bytes());
        }
    }
    R::default()
}

/// Runs the body of a function that reports no errors; a panic ends here.
pub(crate) fn quietly<R: Default>(body: impl FnOnce() -> R) -> R {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or_default()
}

/// The text of an error after LevelDB's name of its kind.
pub(crate) fn message(error: &Error) -> String {
    let kind = match error {
        Error::Corruption { .. } => "Corruption",
        Error::Unsupported { .. } => "Not implemented",
        Error::Invalid(_)
        | Error::InvalidOptions(_)
        | Error::Refused { .. }
        | Error::TooLarge { .. } => "Invalid argument",
        _ => "IO error",
    };
    format!("{kind}: {error}")
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_replaces_the_one_before_and_success_keeps_it() {
        let mut err = std::ptr::null_mut();
        let closed = || Err::<u8, _>(Error::Closed);
        // SAFETY: `err` is NULL or a string that `guard` made.
        unsafe {
            assert_eq!(guard(&mut err, closed), 0);
            assert_eq!(guard(&mut err, || Err::<u8, _>(Error::Invalid("x".to_owned()))), 0);
            assert_eq!(guard(&mut err, || Ok(7)), 7);
            assert_eq!(CStr::from_ptr(err).to_str(), Ok("Invalid argument: x"));
            assert_eq!(guard(&mut err, || -> Result<u8, Error> { panic!("boom") }), 0);
            assert!(CStr::from_ptr(err).to_str().unwrap().starts_with("IO error: internal"));
            leveldb_free(err.cast());
            assert_eq!(guard(std::ptr::null_mut(), closed), 0);
        }
    }
}
