//! Readers beside the process that writes a store.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use pyo3::exceptions::PyKeyError;
use pyo3::prelude::*;
use siltstone::{DbOptions, Error};

use crate::bytes::Bytes;
use crate::context::context_manager;
use crate::errors::raise;
use crate::options;
use crate::table::Table;

/// A store that another process may write at the same time, as of the last catch-up.
#[pyclass(module = "siltstone", frozen)]
pub(crate) struct DbReader(Mutex<Option<Arc<siltstone::DbReader>>>);

/// Opens the store in a directory for reading, also while another process has it open for writing.
#[pyfunction]
#[pyo3(signature = (
    path, *, direct_reads = false, cache_bytes = None, keys = None, merge_operators = None
))]
pub(crate) fn open_reader(
    py: Python<'_>,
    path: PathBuf,
    direct_reads: bool,
    cache_bytes: Option<u64>,
    keys: Option<Vec<Bytes<'_>>>,
    merge_operators: Option<BTreeMap<String, Bound<'_, PyAny>>>,
) -> PyResult<DbReader> {
    let options = DbOptions {
        direct_reads,
        cache_bytes,
        encryption: options::encryption(&keys.unwrap_or_default())?,
        merge_operators: options::merge_operators(merge_operators.unwrap_or_default())?,
        ..DbOptions::default()
    };
    let opened = py.detach(|| siltstone::Db::open_reader(path, options));
    opened.map(|reader| DbReader(Mutex::new(Some(Arc::new(reader))))).map_err(raise)
}

impl DbReader {
    fn read<R>(
        &self,
        read: impl FnOnce(&siltstone::DbReader) -> Result<R, Error>,
    ) -> Result<R, Error> {
        // A clone, so that threads read at the same time.
        let reader = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        read(&*reader.ok_or(Error::Closed)?)
    }

    fn names(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        py.detach(|| self.read(|reader| reader.db().table_names())).map_err(raise)
    }
}

#[pymethods]
impl DbReader {
    fn __getitem__(&self, py: Python<'_>, name: &str) -> PyResult<Table> {
        let table = py.detach(|| self.read(|reader| reader.table(name)));
        table.map(Table::new).map_err(|error| match error {
            Error::Invalid(message) => PyKeyError::new_err(message),
            other => raise(other),
        })
    }

    fn __contains__(&self, py: Python<'_>, name: &str) -> PyResult<bool> {
        Ok(self.names(py)?.iter().any(|table| table == name))
    }

    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        Ok(self.names(py)?.len())
    }

    fn __iter__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        Ok(self.names(py)?.into_pyobject(py)?.try_iter()?.into_any())
    }

    /// Reads what the writer has written since; returns whether there is anything.
    fn catch_up(&self, py: Python<'_>) -> PyResult<bool> {
        py.detach(|| self.read(siltstone::DbReader::catch_up)).map_err(raise)
    }

    /// Releases the files. Tables that were opened stay as they are.
    fn close(&self, py: Python<'_>) {
        py.detach(|| drop(self.0.lock().unwrap_or_else(PoisonError::into_inner).take()));
    }
}

context_manager!(DbReader, |reader, py, _| reader.get().close(py));
