//! The change feed of a table.
//!
//! A call that waits does so in parts: between them signals are handled, and another thread may
//! close the feed.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};
use siltstone::{BatchOp, ChangeBatch, ChangeOptions, Error, Op, WriteBatch};

use crate::context::context_manager;
use crate::errors::{invalid, raise};

const WAIT_PART: Duration = Duration::from_millis(50);

/// The committed changes of a table, from one sequence number on. An iterator over those that are
/// there now.
#[pyclass(module = "siltstone", frozen)]
pub(crate) struct Changes(Mutex<Option<siltstone::Changes>>);

impl Changes {
    pub(crate) fn new(table: &siltstone::Table, options: ChangeOptions) -> Result<Self, Error> {
        Ok(Changes(Mutex::new(Some(table.changes_with(options)?))))
    }

    fn with<R>(
        &self,
        call: impl FnOnce(&mut siltstone::Changes) -> Result<R, Error>,
    ) -> Result<R, Error> {
        match &mut *self.0.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(changes) => call(changes),
            None => Err(Error::Invalid("the change feed is closed".to_owned())),
        }
    }
}

#[pymethods]
impl Changes {
    /// The next change; waits up to `timeout` seconds for one. None if none came.
    #[pyo3(signature = (timeout = 0.0))]
    fn next(&self, py: Python<'_>, timeout: f64) -> PyResult<Option<Change>> {
        let timeout = match timeout {
            f64::INFINITY => Duration::MAX,
            timeout => Duration::try_from_secs_f64(timeout)
                .map_err(|error| invalid(&format!("timeout: {error}")))?,
        };
        let began = Instant::now();
        loop {
            let left = timeout.saturating_sub(began.elapsed());
            let part = left.min(WAIT_PART);
            let next = py.detach(|| self.with(|changes| changes.next_timeout(part)));
            let next = next.map_err(raise)?;
            if next.is_some() || left.is_zero() {
                return Ok(next.map(Change));
            }
            py.check_signals()?;
        }
    }

    /// The sequence number of the last change that was returned, or the one to resume after.
    #[getter]
    fn position(&self, py: Python<'_>) -> PyResult<u64> {
        py.detach(|| self.with(|changes| Ok(siltstone::Changes::position(changes)))).map_err(raise)
    }

    /// Releases the feed.
    fn close(&self, py: Python<'_>) {
        py.detach(|| drop(self.0.lock().unwrap_or_else(PoisonError::into_inner).take()));
    }

    fn __iter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Change>> {
        self.next(py, 0.0)
    }
}

context_manager!(Changes, |changes, py, _| changes.get().close(py));

/// One committed change of a table.
#[pyclass(module = "siltstone", frozen)]
pub(crate) struct Change(ChangeBatch);

impl Change {
    /// The operations of a write.
    pub(crate) fn writes(&self) -> PyResult<&WriteBatch> {
        match &self.0.change {
            siltstone::Change::Write(writes) => Ok(writes),
            _ => Err(invalid("the change is no write: it has no operations")),
        }
    }
}

#[pymethods]
impl Change {
    /// "write", "cleared" or "ingested".
    #[getter]
    fn kind(&self) -> &'static str {
        match self.0.change {
            siltstone::Change::Write(_) => "write",
            siltstone::Change::Cleared => "cleared",
            siltstone::Change::Ingested => "ingested",
            _ => "unknown",
        }
    }

    /// The sequence number of its last operation.
    #[getter]
    fn sequence(&self) -> u64 {
        self.0.sequence
    }

    /// The number of the batch over several tables of which this is a part, or None.
    #[getter]
    fn part(&self) -> Option<u64> {
        self.0.part.as_ref().map(|part| part.batch)
    }

    /// The operations of a write as tuples: kind, key, value, expiry.
    #[getter]
    fn operations<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyTuple>>> {
        let siltstone::Change::Write(writes) = &self.0.change else { return Ok(Vec::new()) };
        writes.iter_all().map(|op| operation(py, op)).collect()
    }
}

fn operation<'py>(py: Python<'py>, op: BatchOp<'_>) -> PyResult<Bound<'py, PyTuple>> {
    let (kind, key, value, expires_at) = match op {
        BatchOp::Point(Op::Put { key, value, expires_at }) => ("put", key, Some(value), expires_at),
        BatchOp::Point(Op::Delete { key }) => ("delete", key, None, None),
        BatchOp::DeleteRange { start, end } => ("delete_range", start, end, None),
        BatchOp::Merge { key, operand } => ("merge", key, Some(operand), None),
    };
    let bytes = |bytes: &[u8]| PyBytes::new(py, bytes);
    let expires_at = expires_at.map(|at| at as f64 / 1000.0);
    (kind, bytes(key), value.map(bytes), expires_at).into_pyobject(py)
}
