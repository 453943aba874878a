//! Error objects, their codes, and the boundary that no panic crosses.

use std::ffi::{CString, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};

use store::Error;

/// Kinds of errors. Later versions may add numbers.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SiltstoneCode {
    /// Stored bytes are damaged. The message names the file and the offset.
    Corruption = 1,
    /// An I/O request failed.
    Io = 2,
    /// A key, value or batch is over its limit. Nothing has changed.
    TooLarge = 3,
    /// The engine of the table does not have this operation.
    Unsupported = 4,
    /// The time is before the watermark of the table's history.
    BelowWatermark = 5,
    /// Invalid options; the message lists every mistake. Nothing was opened.
    InvalidOptions = 6,
    /// The directory is not a store, has a newer format, or is open read-only.
    Refused = 7,
    /// The store is open already, in this process or in another one.
    Locked = 8,
    /// An earlier error made the table read-only. Reopen the store.
    ReadOnly = 9,
    /// Another writer changed what the transaction has read. Run it again.
    Conflict = 10,
    /// The snapshot or transaction was idle for too long. Begin a new one.
    Expired = 11,
    /// The store is closed.
    Closed = 12,
    /// An invalid argument. The message names it.
    Invalid = 13,
    /// A defect of the library. Please report it with the message; close the store.
    Internal = 14,
    /// A change feed cannot resume there: the log does not have the next change any more. The
    /// message has the oldest position that is left.
    ChangesUnavailable = 15,
}

/// An error. A function returns one, or NULL for success. Free it with siltstone_error_free().
#[derive(Debug)]
pub struct SiltstoneError {
    code: SiltstoneCode,
    message: CString,
    is_retryable: bool,
    is_disk_full: bool,
}

/// A message for C, with NUL escaped.
pub(crate) fn c_string(message: &str) -> CString {
    CString::new(message.replace('\0', "\\0")).unwrap_or_default()
}

impl SiltstoneError {
    fn new(code: SiltstoneCode, message: &str) -> Self {
        SiltstoneError {
            code,
            message: c_string(message),
            is_retryable: false,
            is_disk_full: false,
        }
    }
}

impl From<Error> for SiltstoneError {
    fn from(error: Error) -> Self {
        let code = match error {
            Error::Corruption { .. } => SiltstoneCode::Corruption,
            Error::Io { .. } => SiltstoneCode::Io,
            Error::TooLarge { .. } => SiltstoneCode::TooLarge,
            Error::Unsupported { .. } => SiltstoneCode::Unsupported,
            Error::BelowWatermark { .. } => SiltstoneCode::BelowWatermark,
            Error::InvalidOptions(_) => SiltstoneCode::InvalidOptions,
            Error::Refused { .. } => SiltstoneCode::Refused,
            Error::Locked { .. } => SiltstoneCode::Locked,
            Error::ReadOnly { .. } => SiltstoneCode::ReadOnly,
            Error::Conflict { .. } => SiltstoneCode::Conflict,
            Error::Expired { .. } => SiltstoneCode::Expired,
            Error::Closed => SiltstoneCode::Closed,
            Error::Invalid(_) => SiltstoneCode::Invalid,
            Error::ChangesUnavailable { .. } => SiltstoneCode::ChangesUnavailable,
            _ => SiltstoneCode::Internal,
        };
        SiltstoneError {
            is_retryable: error.is_retryable(),
            is_disk_full: error.is_disk_full(),
            ..SiltstoneError::new(code, &error.to_string())
        }
    }
}

/// Runs the body of a function; an error or a panic becomes an error object.
///
/// A panic leaves no broken invariant behind that a later call relies on: locks of the store are
/// released by unwinding, and handles are changed only after the store's calls have returned.
pub(crate) fn guard(body: impl FnOnce() -> Result<(), Error>) -> Option<Box<SiltstoneError>> {
    let error = match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => return None,
        Ok(Err(error)) => error.into(),
        Err(panic) => {
            let text = panic.downcast_ref::<&str>().map(ToString::to_string);
            let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
            let text = text.unwrap_or_else(|| "panic without a message".to_owned());
            SiltstoneError::new(SiltstoneCode::Internal, &format!("internal error: {text}"))
        }
    };
    Some(Box::new(error))
}

/// Drops a handle; a panic of its destructor ends here.
pub(crate) fn release<T>(handle: Option<Box<T>>) {
    drop(catch_unwind(AssertUnwindSafe(|| drop(handle))));
}

/// The error of an invalid argument.
pub(crate) fn invalid(text: String) -> Error {
    Error::Invalid(text)
}

/// A handle or output that must not be NULL.
pub(crate) fn required<T>(argument: Option<T>, name: &str) -> Result<T, Error> {
    argument.ok_or_else(|| invalid(format!("the argument '{name}' is NULL")))
}

/// The kind of an error; 0 for NULL.
#[unsafe(no_mangle)]
pub extern "C" fn siltstone_error_code(error: Option<&SiltstoneError>) -> i32 {
    error.map_or(0, |error| error.code as i32)
}

/// The text of an error in UTF-8: what happened, where, and what to do. It is valid until the error
/// is freed. An empty string for NULL.
#[unsafe(no_mangle)]
pub extern "C" fn siltstone_error_message(error: Option<&SiltstoneError>) -> *const c_char {
    error.map_or(c"".as_ptr(), |error| error.message.as_ptr())
}

/// Whether a transaction that failed with this error may succeed if it is run again from its
/// beginning.
#[unsafe(no_mangle)]
pub extern "C" fn siltstone_error_is_retryable(error: Option<&SiltstoneError>) -> bool {
    error.is_some_and(|error| error.is_retryable)
}

/// Whether a write failed for lack of space. Nothing was written, and writes succeed again when
/// there is space.
#[unsafe(no_mangle)]
pub extern "C" fn siltstone_error_is_disk_full(error: Option<&SiltstoneError>) -> bool {
    error.is_some_and(|error| error.is_disk_full)
}

/// Frees an error. NULL is allowed.
#[unsafe(no_mangle)]
pub extern "C" fn siltstone_error_free(error: Option<Box<SiltstoneError>>) {
    release(error);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn describe(outcome: &Option<Box<SiltstoneError>>) -> (SiltstoneCode, &str) {
        let error = outcome.as_deref().unwrap();
        (error.code, error.message.to_str().unwrap())
    }

    #[test]
    fn panic_becomes_an_internal_error() {
        let outcome = guard(|| panic!("number {}", 7));
        assert_eq!(describe(&outcome), (SiltstoneCode::Internal, "internal error: number 7"));
        assert!(guard(|| Ok(())).is_none());
    }

    #[test]
    fn error_keeps_its_kind_and_text() {
        let conflict = guard(|| Err(Error::Conflict { key: b"k".to_vec() }));
        let (code, message) = describe(&conflict);
        assert_eq!(code, SiltstoneCode::Conflict);
        assert!(message.contains("key 'k'"), "{message}");
        assert!(siltstone_error_is_retryable(conflict.as_deref()));
        let with_nul = guard(|| Err(invalid("a\0b".to_owned())));
        assert_eq!(describe(&with_nul), (SiltstoneCode::Invalid, "a\\0b"));
    }
}
