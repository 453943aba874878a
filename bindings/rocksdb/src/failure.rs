//! Errors, in the words of RocksDB: bindings recognise the kind by the beginning of the text.

use std::ffi::c_char;

use shim::boundary::{Report, kind, set_error};
use store::Error;

/// Why a call failed.
#[derive(Debug, Clone)]
pub enum Failure {
    /// An error of the store.
    Store(Error),
    /// Another transaction has changed what this one depends on, or has it locked.
    Busy(String),
    /// A lock was not free in time.
    TimedOut(String),
    /// The transaction is too old.
    Expired(String),
    /// What is not there.
    NotFound(String),
    /// What this library does not do.
    NotImplemented(String),
}

impl Failure {
    /// The error of an invalid argument.
    pub fn invalid(text: impl Into<String>) -> Self {
        Failure::Store(Error::Invalid(text.into()))
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Failure::Store(error)
    }
}

impl Report for Failure {
    fn report(&self) -> String {
        match self {
            Failure::Store(error @ Error::Conflict { .. }) => format!("Resource busy: {error}"),
            Failure::Store(error @ Error::Expired { .. }) => format!("Operation expired: {error}"),
            // Programs look for the name of the file before a colon.
            Failure::Store(error @ Error::Locked { path, .. }) => {
                format!("IO error: {path}: {error}")
            }
            Failure::Store(error) => format!("{}: {error}", kind(error)),
            Failure::Busy(text) => format!("Resource busy: {text}"),
            Failure::TimedOut(text) => format!("Operation timed out: {text}"),
            Failure::Expired(text) => format!("Operation expired: {text}"),
            Failure::NotFound(text) => format!("NotFound: {text}"),
            Failure::NotImplemented(text) => format!("Not implemented: {text}"),
        }
    }
}

/// Returns the error that a function is not implemented.
///
/// # Safety
/// `errptr` is a place for an error, or NULL.
pub(crate) unsafe fn reject(function: &str, errptr: *mut *mut c_char) -> usize {
    let text = format!("{function} is not available in Siltstone's librocksdb");
    // SAFETY: by the contract of this function.
    unsafe { set_error(errptr, &Failure::NotImplemented(text).report()) };
    0
}

/// Ends the process: the function has no way to return an error.
#[allow(clippy::print_stderr)]
pub(crate) fn abort(function: &str) -> ! {
    eprintln!("{function} is not available in Siltstone's librocksdb");
    std::process::abort()
}
