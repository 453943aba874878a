//! Merge operators that are Python objects.
//!
//! The store calls them in reads, flushes and compactions, on any thread, without its locks. Each
//! call attaches to the interpreter; when the interpreter has ended, the merge fails.

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};
use siltstone::MergeOperator;

use crate::bytes::Bytes;
use crate::errors::invalid;

/// An object with `name`, `merge`, and perhaps `partial_merge`.
pub(crate) struct PythonOperator {
    name: String,
    object: Py<PyAny>,
    has_partial: bool,
}

impl PythonOperator {
    pub(crate) fn new(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        let name: String = object.getattr("name")?.extract()?;
        if name.is_empty() || name.starts_with("siltstone.") {
            return Err(invalid(&format!(
                "the merge operator's name '{name}' is empty or reserved; choose one without the \
                 prefix siltstone."
            )));
        }
        object.getattr("merge")?;
        let has_partial = object.hasattr("partial_merge")?;
        Ok(PythonOperator { name, object: object.clone().unbind(), has_partial })
    }
}

fn list<'py>(py: Python<'py>, operands: &[&[u8]]) -> PyResult<Bound<'py, PyList>> {
    PyList::new(py, operands.iter().map(|operand| PyBytes::new(py, operand)))
}

impl MergeOperator for PythonOperator {
    fn name(&self) -> &str {
        &self.name
    }

    fn full_merge(
        &self,
        key: &[u8],
        value: Option<&[u8]>,
        operands: &[&[u8]],
    ) -> Result<Vec<u8>, String> {
        let merge = |py: Python<'_>| {
            let value = value.map(|value| PyBytes::new(py, value));
            let arguments = (PyBytes::new(py, key), value, list(py, operands)?);
            let merged = self.object.bind(py).call_method1("merge", arguments)?;
            Ok(merged.extract::<Bytes<'_>>()?.as_slice().to_vec())
        };
        let merged = Python::try_attach(|py| merge(py).map_err(|error: PyErr| error.to_string()));
        merged.unwrap_or_else(|| Err("the Python interpreter has ended".to_owned()))
    }

    fn partial_merge(&self, key: &[u8], operands: &[&[u8]]) -> Option<Vec<u8>> {
        if !self.has_partial {
            return None;
        }
        let merge = |py: Python<'_>| {
            let arguments = (PyBytes::new(py, key), list(py, operands)?);
            let merged = self.object.bind(py).call_method1("partial_merge", arguments)?;
            let merged: Option<Bytes<'_>> = merged.extract()?;
            PyResult::Ok(merged.map(|merged| merged.as_slice().to_vec()))
        };
        // After an exception the operands are stored one by one, and the reads report it.
        Python::try_attach(|py| merge(py).unwrap_or(None)).flatten()
    }
}
