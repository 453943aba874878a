//! Bulk loading: sorted files, which a table ingests.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use pyo3::prelude::*;
use siltstone::{Error, SortedFileWriter};

use crate::bytes::{Bytes, expiry};
use crate::context::context_manager;
use crate::errors::raise;

/// A file of sorted entries that is being written. A context manager that finishes it, or removes it
/// after an exception.
#[pyclass(module = "siltstone", frozen)]
pub(crate) struct SortedFile(Mutex<Option<SortedFileWriter>>);

impl SortedFile {
    fn take(&self) -> Option<SortedFileWriter> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn with(
        &self,
        write: impl FnOnce(&mut SortedFileWriter) -> Result<(), Error>,
    ) -> Result<(), Error> {
        match &mut *self.0.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(writer) => write(writer),
            None => Err(ended()),
        }
    }
}

fn ended() -> Error {
    Error::Invalid("the sorted file is finished or closed".to_owned())
}

#[pymethods]
impl SortedFile {
    /// Creates the file, which must not exist.
    #[new]
    #[pyo3(signature = (path, options = None))]
    fn new(
        py: Python<'_>,
        path: PathBuf,
        options: Option<BTreeMap<String, String>>,
    ) -> PyResult<Self> {
        let options = options.unwrap_or_default();
        let writer = py.detach(|| SortedFileWriter::create(&path, &options)).map_err(raise)?;
        Ok(SortedFile(Mutex::new(Some(writer))))
    }

    /// Adds a key with its value. Each key must be above the one before.
    #[pyo3(signature = (key, value, *, ttl = None, expires_at = None))]
    fn put(
        &self,
        py: Python<'_>,
        key: Bytes<'_>,
        value: Bytes<'_>,
        ttl: Option<f64>,
        expires_at: Option<f64>,
    ) -> PyResult<()> {
        let (key, value, expiry) = (key.as_slice(), value.as_slice(), expiry(ttl, expires_at)?);
        let put = |writer: &mut SortedFileWriter| match expiry {
            None => writer.put(key, value),
            Some(at) => writer.put_until(key, value, at),
        };
        py.detach(|| self.with(put)).map_err(raise)
    }

    /// Adds the removal of a key.
    fn delete(&self, py: Python<'_>, key: Bytes<'_>) -> PyResult<()> {
        let key = key.as_slice();
        py.detach(|| self.with(|writer| writer.delete(key))).map_err(raise)
    }

    /// Completes the file, durably.
    fn finish(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| self.take().ok_or_else(ended)?.finish().map(drop)).map_err(raise)
    }

    /// Removes the file, unless it is finished.
    fn close(&self, py: Python<'_>) {
        py.detach(|| drop(self.take()));
    }
}

context_manager!(SortedFile, |file, py, is_complete| match file.get().take() {
    Some(writer) if is_complete => py.detach(|| writer.finish().map(drop)).map_err(raise)?,
    unfinished => py.detach(|| drop(unfinished)),
});
