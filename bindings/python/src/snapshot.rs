//! Reads at a point in time.

use std::sync::{Mutex, PoisonError};

use pyo3::exceptions::PyKeyError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use siltstone::{Error, KeyRange};

use crate::bytes::Bytes;
use crate::context::context_manager;
use crate::errors::raise;
use crate::iterate::{Entries, Part};
use crate::reads::{self, Reads, mapping_reads};

/// A table as of the creation of the snapshot: a read-only mapping.
#[pyclass(module = "siltstone", frozen)]
pub(crate) struct Snapshot(Mutex<Option<siltstone::Snapshot>>);

impl Snapshot {
    pub(crate) fn new(snapshot: siltstone::Snapshot) -> Self {
        Snapshot(Mutex::new(Some(snapshot)))
    }

    fn read<R>(
        &self,
        read: impl FnOnce(&siltstone::Snapshot) -> Result<R, Error>,
    ) -> Result<R, Error> {
        // A clone, so that threads read at the same time.
        let snapshot = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        match snapshot {
            Some(snapshot) => read(&snapshot),
            None => Err(Error::Invalid("the snapshot is closed".to_owned())),
        }
    }
}

mapping_reads!(Snapshot, false);

#[pymethods]
impl Snapshot {
    /// The sequence number up to which it shows writes: a change feed resumes after it.
    #[getter]
    fn sequence(&self, py: Python<'_>) -> PyResult<u64> {
        py.detach(|| self.read(|snapshot| Ok(snapshot.sequence()))).map_err(raise)
    }

    /// Ends the snapshot, so that the versions that it shows need not be kept.
    fn close(&self, py: Python<'_>) {
        py.detach(|| drop(self.0.lock().unwrap_or_else(PoisonError::into_inner).take()));
    }
}

context_manager!(Snapshot, |snapshot, py, _| snapshot.get().close(py));
