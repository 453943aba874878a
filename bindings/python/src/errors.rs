//! Exceptions by kind.

use pyo3::exceptions::PyException;
use pyo3::prelude::*;
use pyo3::{PyTypeInfo, create_exception};

/// Defines the exceptions, and which error is which.
macro_rules! exceptions {
    ($($name:ident $pattern:pat => $doc:literal)*) => {
        create_exception!(siltstone, Error, PyException, "An error of the store.");
        $(create_exception!(siltstone, $name, Error, $doc);)*

        fn exception(error: &siltstone::Error, message: String) -> PyErr {
            use siltstone::Error::*;
            match error {
                $($pattern => PyErr::new::<$name, _>(message),)*
                _ => PyErr::new::<Error, _>(message),
            }
        }
    };
}

exceptions! {
    CorruptionError Corruption { .. } => "Stored bytes are damaged. Attributes: filename, offset."
    IoError Io { .. } => "An I/O request failed. Attributes: filename, errno, disk_full."
    TooLargeError TooLarge { .. } => "A key, value or batch is over its limit. Nothing has changed."
    UnsupportedError Unsupported { .. } => "The engine of the table does not have this operation."
    BelowWatermarkError BelowWatermark { .. } => "The time is before the history of the table."
    OptionsError InvalidOptions(_) => "Invalid options; the message lists every mistake."
    RefusedError Refused { .. } => "The directory is no store, or the store is open read-only."
    LockedError Locked { .. } => "The store is open already. Attribute: holder, a process or None."
    ReadOnlyError ReadOnly { .. } => "An earlier error made the table read-only. Reopen the store."
    ConflictError Conflict { .. } => "What the transaction has read was changed. Attribute: key."
    ExpiredError Expired { .. } => "The snapshot or transaction was idle for too long."
    ClosedError Closed => "The store is closed."
    InvalidError Invalid(_) => "An invalid argument."
    ChangesUnavailableError ChangesUnavailable { .. } => "The log does not reach back so far."
}

/// The exception of an error of the store.
pub(crate) fn raise(error: siltstone::Error) -> PyErr {
    let exception = exception(&error, error.to_string());
    Python::attach(|py| {
        let value = exception.value(py);
        // An attribute that cannot be set, for lack of memory, is missing.
        let set = |name: &str, attribute: Bound<'_, PyAny>| drop(value.setattr(name, attribute));
        let object = |text: &str| pyo3::types::PyString::new(py, text).into_any();
        set("retryable", pyo3::types::PyBool::new(py, error.is_retryable()).to_owned().into_any());
        match &error {
            siltstone::Error::Corruption { file, offset, .. } => {
                set("filename", object(file));
                drop(value.setattr("offset", *offset));
            }
            siltstone::Error::Io { file, code, .. } => {
                set("filename", object(file));
                drop(value.setattr("errno", *code));
                drop(value.setattr("disk_full", error.is_disk_full()));
            }
            siltstone::Error::Locked { holder, .. } => drop(value.setattr("holder", *holder)),
            siltstone::Error::Conflict { key } => {
                set("key", pyo3::types::PyBytes::new(py, key).into_any());
            }
            _ => {}
        }
    });
    exception
}

/// An exception for an invalid argument that the store never sees.
pub(crate) fn invalid(message: &str) -> PyErr {
    raise(siltstone::Error::Invalid(message.to_owned()))
}

/// Whether the exception is one after which a transaction is run again.
pub(crate) fn is_retryable(py: Python<'_>, error: &PyErr) -> bool {
    error.get_type(py).is_subclass(&ConflictError::type_object(py)).unwrap_or(false)
        || error.get_type(py).is_subclass(&ExpiredError::type_object(py)).unwrap_or(false)
}
