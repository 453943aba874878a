//! Converts byte strings and handles between C and Rust: borrowed arguments, and allocated results.
//!
//! An argument is borrowed for the duration of the call. A byte string that a function returns is
//! allocated with `malloc`, so that one function frees all of them, and a program may call `free`
//! itself. A NUL, which its length does not count, follows it, so that text can be printed.

use std::ffi::{CStr, c_char, c_void};
use std::mem::MaybeUninit;

use store::Error;

use crate::error::{invalid, required};

/// Borrows the caller's bytes at `data`. NULL is allowed for a length of 0.
///
/// # Safety
/// `data` points to `len` bytes that nobody changes during `'a`, unless it is NULL.
pub(crate) unsafe fn bytes<'a>(
    data: *const c_char,
    len: usize,
    name: &str,
) -> Result<&'a [u8], Error> {
    if data.is_null() {
        return if len == 0 { Ok(&[]) } else { required(None, name) };
    }
    if len > isize::MAX as usize {
        return Err(invalid(format!("the length of '{name}', {len}, is no length of an object")));
    }
    // SAFETY: by the contract of this function; the length fits an object.
    Ok(unsafe { std::slice::from_raw_parts(data.cast(), len) })
}

/// Borrows the caller's array at `data`. NULL is allowed for a length of 0.
///
/// # Safety
/// `data` points to `len` values that nobody changes during `'a`, unless it is NULL.
pub(crate) unsafe fn array<'a, T>(
    data: *const T,
    len: usize,
    name: &str,
) -> Result<&'a [T], Error> {
    if data.is_null() {
        return if len == 0 { Ok(&[]) } else { required(None, name) };
    }
    if len > isize::MAX as usize / size_of::<T>().max(1) {
        return Err(invalid(format!("the length of '{name}', {len}, is no length of an array")));
    }
    // SAFETY: by the contract of this function; the length fits an object.
    Ok(unsafe { std::slice::from_raw_parts(data, len) })
}

/// Borrows the caller's text: NUL-terminated UTF-8.
///
/// # Safety
/// `text` points to a NUL-terminated string that nobody changes during `'a`, unless it is NULL.
pub(crate) unsafe fn text<'a>(text: *const c_char, name: &str) -> Result<&'a str, Error> {
    required((!text.is_null()).then_some(()), name)?;
    // SAFETY: by the contract of this function.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_str().map_err(|_| invalid(format!("the argument '{name}' is not UTF-8")))
}

/// The address of bytes that are lent. That of no bytes is the address of a NUL: the one of an empty
/// slice is a small number, which Go takes for a damaged pointer when it moves a stack.
pub(crate) fn address(bytes: &[u8]) -> *const c_char {
    if bytes.is_empty() { c"".as_ptr() } else { bytes.as_ptr().cast() }
}

/// Copies bytes to memory allocated with `malloc`, and adds a NUL.
pub(crate) fn copy(bytes: &[u8]) -> Result<*mut c_char, Error> {
    // SAFETY: malloc has no requirements; the size does not overflow, since a slice has at most
    // isize::MAX bytes.
    let memory = unsafe { libc::malloc(bytes.len() + 1) }.cast::<u8>();
    if memory.is_null() {
        let source = std::io::Error::from_raw_os_error(libc::ENOMEM);
        return Err(Error::io("allocate", format!("{} bytes", bytes.len() + 1), &source));
    }
    // SAFETY: the memory is new, has room for the bytes and the NUL, and overlaps nothing.
    unsafe {
        memory.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
        memory.add(bytes.len()).write(0);
    }
    Ok(memory.cast())
}

/// An output argument for a byte string: NULL and 0 until [`set`](Output::set).
pub(crate) struct Output<'a> {
    data: &'a mut MaybeUninit<*mut c_char>,
    len: Option<&'a mut MaybeUninit<usize>>,
}

impl<'a> Output<'a> {
    /// An output for bytes; both arguments are needed.
    pub(crate) fn bytes(
        data: Option<&'a mut MaybeUninit<*mut c_char>>,
        len: Option<&'a mut MaybeUninit<usize>>,
        name: &str,
    ) -> Result<Self, Error> {
        let len = required(len, &format!("{name}_len"))?;
        len.write(0);
        Ok(Output { len: Some(len), ..Output::text(data, name)? })
    }

    /// An output for text, whose length the caller does not need.
    pub(crate) fn text(
        data: Option<&'a mut MaybeUninit<*mut c_char>>,
        name: &str,
    ) -> Result<Self, Error> {
        let data = required(data, name)?;
        data.write(std::ptr::null_mut());
        Ok(Output { data, len: None })
    }

    /// Returns a copy of the bytes to the caller.
    pub(crate) fn set(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.data.write(copy(bytes)?);
        if let Some(len) = &mut self.len {
            len.write(bytes.len());
        }
        Ok(())
    }

    /// Returns a value to the caller as JSON.
    pub(crate) fn set_json(&mut self, value: &impl serde::Serialize) -> Result<(), Error> {
        let json = serde_json::to_vec(value).map_err(|error| invalid(error.to_string()))?;
        self.set(&json)
    }
}

/// Returns a new handle to the caller.
pub(crate) fn set_handle<T>(output: &mut MaybeUninit<*mut T>, handle: T) {
    output.write(Box::into_raw(Box::new(handle)));
}

/// Checks an output argument for a handle, and sets it to NULL until [`set_handle`].
pub(crate) fn handle_output<'a, T>(
    output: Option<&'a mut MaybeUninit<*mut T>>,
    name: &str,
) -> Result<&'a mut MaybeUninit<*mut T>, Error> {
    let output = required(output, name)?;
    output.write(std::ptr::null_mut());
    Ok(output)
}

/// Checks an output array for handles, and sets them to NULL until [`set_handle`].
///
/// # Safety
/// `data` points to `len` pointers that nobody else uses during `'a`, unless it is NULL.
pub(crate) unsafe fn handle_outputs<'a, T>(
    data: *mut MaybeUninit<*mut T>,
    len: usize,
    name: &str,
) -> Result<&'a mut [MaybeUninit<*mut T>], Error> {
    // SAFETY: by the contract of this function, whose length this checks.
    let len = unsafe { array(data.cast_const(), len, name) }?.len();
    if len == 0 {
        return Ok(&mut []);
    }
    // SAFETY: by the contract of this function; the pointer is not NULL.
    let outputs = unsafe { std::slice::from_raw_parts_mut(data, len) };
    for output in &mut *outputs {
        output.write(std::ptr::null_mut());
    }
    Ok(outputs)
}

/// Frees memory that a function of this library has returned through a `char **`. NULL is allowed.
/// The same as free() of the C library that this library is linked with.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siltstone_free(memory: *mut c_void) {
    // SAFETY: the caller passes memory that `copy` has allocated, once, or NULL.
    unsafe { libc::free(memory) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_end_with_a_nul_that_is_not_counted() {
        let (mut data, mut len) = (MaybeUninit::uninit(), MaybeUninit::uninit());
        Output::bytes(Some(&mut data), Some(&mut len), "value").unwrap().set(b"a\0b").unwrap();
        // SAFETY: `set` has written both, and the memory has three bytes and a NUL.
        let (data, read) = unsafe {
            let data = data.assume_init();
            (data, std::slice::from_raw_parts(data.cast::<u8>(), len.assume_init() + 1))
        };
        assert_eq!(read, b"a\0b\0");
        // SAFETY: allocated by `copy`, freed once.
        unsafe { siltstone_free(data.cast()) };
    }

    #[test]
    fn address_of_no_bytes_can_be_read() {
        // SAFETY: both are addresses of at least one byte.
        let (none, some) = unsafe { (*address(b""), *address(b"a")) };
        assert_eq!((none, some), (0, b'a' as c_char));
    }

    #[test]
    fn null_is_the_empty_string_but_no_longer_one() {
        // SAFETY: NULL is allowed.
        let (empty, missing) =
            unsafe { (bytes(std::ptr::null(), 0, "key"), bytes(std::ptr::null(), 1, "key")) };
        assert_eq!(empty.unwrap(), b"");
        assert_eq!(missing.unwrap_err().to_string(), "the argument 'key' is NULL");
        let byte = 0;
        // SAFETY: the length is rejected before the memory is read.
        let too_long = unsafe { bytes(&byte, usize::MAX, "key") };
        assert!(too_long.is_err());
    }
}
