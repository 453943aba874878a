//! Bytes, errors and panics between C and Rust.
//!
//! An error is a string allocated with `malloc`, returned through the caller's `errptr`. It begins
//! with LevelDB's name for its kind, because programs compare that.

use std::ffi::{CStr, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};

use store::Error;

/// Bytes of the caller. NULL is the empty string.
///
/// # Safety
/// `data` points to `len` bytes that nobody changes during `'a`, or is NULL.
pub unsafe fn bytes<'a>(data: *const c_char, len: usize) -> &'a [u8] {
    if data.is_null() || len > isize::MAX as usize {
        return &[];
    }
    // SAFETY: by the contract of this function; the length fits an object.
    unsafe { std::slice::from_raw_parts(data.cast(), len) }
}

/// The address of bytes that are lent. That of no bytes is the address of a NUL: the one of an empty
/// slice is a small number, which Go takes for a damaged pointer when it moves a stack.
pub fn address(bytes: &[u8]) -> *const c_char {
    if bytes.is_empty() { c"".as_ptr() } else { bytes.as_ptr().cast() }
}

/// Text of the caller.
///
/// # Safety
/// `text` points to a NUL-terminated string that nobody changes during `'a`, or is NULL.
pub unsafe fn text<'a>(text: *const c_char) -> Result<&'a str, Error> {
    if text.is_null() {
        return Err(Error::Invalid("a name is NULL".to_owned()));
    }
    // SAFETY: by the contract of this function.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_str().map_err(|_| Error::Invalid("a name is not UTF-8".to_owned()))
}

/// A copy of bytes in memory of `malloc`, with a NUL behind it; NULL without memory.
pub fn copy(bytes: &[u8]) -> *mut c_char {
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
pub unsafe fn guard<R: Default, E: Report>(
    errptr: *mut *mut c_char,
    body: impl FnOnce() -> Result<R, E>,
) -> R {
    let message = match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(result)) => return result,
        Ok(Err(error)) => error.report(),
        Err(_) => "IO error: internal error of Siltstone; close the database".to_owned(),
    };
    // SAFETY: by the contract of this function.
    unsafe { set_error(errptr, &message) };
    R::default()
}

/// Returns an error to the caller.
///
/// # Safety
/// `errptr` points to NULL or to a string of `malloc`, or is NULL.
pub unsafe fn set_error(errptr: *mut *mut c_char, message: &str) {
    if !errptr.is_null() {
        // SAFETY: by the contract of this function; the old string is freed once and replaced.
        unsafe {
            libc::free((*errptr).cast());
            *errptr = copy(message.replace('\0', "\\0").as_bytes());
        }
    }
}

/// Runs the body of a function that reports no errors; a panic ends here.
pub fn quietly<R: Default>(body: impl FnOnce() -> R) -> R {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or_default()
}

/// Errors that can be reported to a program.
pub trait Report {
    /// The text of the error after LevelDB's name of its kind.
    fn report(&self) -> String;
}

impl Report for Error {
    fn report(&self) -> String {
        format!("{}: {self}", kind(self))
    }
}

/// LevelDB's name of the kind of an error.
pub fn kind(error: &Error) -> &'static str {
    match error {
        Error::Corruption { .. } => "Corruption",
        Error::Unsupported { .. } => "Not implemented",
        Error::Invalid(_)
        | Error::InvalidOptions(_)
        | Error::Refused { .. }
        | Error::TooLarge { .. } => "Invalid argument",
        _ => "IO error",
    }
}

/// A pointer to an object that the program owns; NULL after an error.
#[repr(transparent)]
#[derive(Debug)]
pub struct Pointer<T>(pub *mut T);

impl<T> Pointer<T> {
    /// A new object.
    pub fn new(object: T) -> Self {
        Pointer(Box::into_raw(Box::new(object)))
    }

    /// NULL.
    pub fn null() -> Self {
        Pointer(std::ptr::null_mut())
    }
}

impl<T> Default for Pointer<T> {
    fn default() -> Self {
        Pointer::null()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn error_replaces_the_one_before_and_success_keeps_it() {
        let mut err = std::ptr::null_mut();
        let closed = || Err::<u8, _>(Error::Closed);
        // SAFETY: `err` is NULL or a string that `guard` made.
        unsafe {
            assert_eq!(guard(&mut err, closed), 0);
            assert_eq!(guard(&mut err, || Err::<u8, _>(Error::Invalid("x".to_owned()))), 0);
            assert_eq!(guard(&mut err, || Ok::<_, Error>(7)), 7);
            assert_eq!(CStr::from_ptr(err).to_str(), Ok("Invalid argument: x"));
            assert_eq!(guard(&mut err, || -> Result<u8, Error> { panic!("boom") }), 0);
            assert!(CStr::from_ptr(err).to_str().unwrap().starts_with("IO error: internal"));
            libc::free(err.cast());
            assert_eq!(guard(std::ptr::null_mut(), closed), 0);
        }
    }
}
