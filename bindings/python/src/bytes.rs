//! Keys, values and times as arguments.

use std::time::Duration;

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes, PyMemoryView};
use siltstone::{Clock, SystemClock, Timestamp};

use crate::errors::invalid;

/// A key or a value: `bytes`, which are borrowed, or a copy of a `bytearray` or `memoryview`, which
/// could change while the store reads it.
pub(crate) enum Bytes<'py> {
    Borrowed(Bound<'py, PyBytes>),
    Copied(Vec<u8>),
}

impl Bytes<'_> {
    pub(crate) fn as_slice(&self) -> &[u8] {
        match self {
            Bytes::Borrowed(bytes) => bytes.as_bytes(),
            Bytes::Copied(bytes) => bytes,
        }
    }
}

impl<'a, 'py> FromPyObject<'a, 'py> for Bytes<'py> {
    type Error = PyErr;

    fn extract(object: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        if let Ok(bytes) = object.cast::<PyBytes>() {
            return Ok(Bytes::Borrowed(bytes.to_owned()));
        }
        if let Ok(array) = object.cast::<PyByteArray>() {
            return Ok(Bytes::Copied(array.to_vec()));
        }
        if object.cast::<PyMemoryView>().is_ok() {
            return object.call_method0("tobytes")?.extract().map(Bytes::Copied);
        }
        Err(PyTypeError::new_err(format!(
            "keys and values are bytes, bytearray or memoryview, not {}; encode text with .encode()",
            object.get_type().name()?
        )))
    }
}

/// The expiry of a value from `ttl` (seconds from now) or `expires_at` (seconds since 1970).
pub(crate) fn expiry(ttl: Option<f64>, expires_at: Option<f64>) -> PyResult<Option<Timestamp>> {
    let milliseconds = |seconds: f64| {
        let duration = Duration::try_from_secs_f64(seconds).map_err(|e| invalid(&e.to_string()))?;
        // Beyond the times of the store: never.
        Ok(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX))
    };
    match (ttl, expires_at) {
        (None, None) => Ok(None),
        (Some(ttl), None) => Ok(Some(SystemClock.now().saturating_add(milliseconds(ttl)?))),
        (None, Some(at)) => milliseconds(at).map(Some),
        (Some(_), Some(_)) => Err(invalid("give ttl or expires_at, not both")),
    }
}
