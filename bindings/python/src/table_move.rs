//! Moves of tables to other engines, or to other creation options, while they are in use.

use std::ops::ControlFlow;
use std::sync::{Mutex, PoisonError};

use pyo3::prelude::*;
use siltstone::Error;

use crate::context::context_manager;
use crate::errors::raise;
use crate::table::Table;

/// A table on its way to another engine. A context manager that cancels it unless it is finished.
#[pyclass(module = "siltstone", frozen)]
pub(crate) struct TableMove(Mutex<Option<siltstone::TableMove>>);

/// How far a move is.
#[pyclass(module = "siltstone", frozen, get_all)]
pub(crate) struct MoveProgress {
    /// Rows copied since the copy last began.
    rows: u64,
    /// Rows copied again because they were written meanwhile.
    changes: u64,
    /// How often the copy began again, after a removal of ranges or of all keys.
    restarts: u64,
}

#[pymethods]
impl MoveProgress {
    fn __repr__(&self) -> String {
        let MoveProgress { rows, changes, restarts } = self;
        format!("<siltstone.MoveProgress rows={rows} changes={changes} restarts={restarts}>")
    }
}

fn ended() -> Error {
    Error::Invalid("the move is finished or cancelled".to_owned())
}

impl TableMove {
    pub(crate) fn new(begun: siltstone::TableMove) -> Self {
        TableMove(Mutex::new(Some(begun)))
    }

    fn take(&self) -> Option<siltstone::TableMove> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// Copies, calls `on_progress` after each batch, and ends with its exception or that of a signal.
/// Detached from the interpreter.
fn copy(moving: &mut siltstone::TableMove, on_progress: Option<&Py<PyAny>>) -> PyResult<()> {
    let mut raised = Ok(());
    let copied = moving.copy(&mut |&siltstone::MoveProgress { rows, changes, restarts }| {
        raised = Python::attach(|py| {
            py.check_signals()?;
            let progress = MoveProgress { rows, changes, restarts };
            on_progress.map_or(Ok(()), |call| call.call1(py, (progress,)).map(drop))
        });
        if raised.is_err() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    raised?;
    copied.map(drop).map_err(raise)
}

#[pymethods]
impl TableMove {
    /// Copies all rows, then those that were written meanwhile, until few are left.
    #[pyo3(signature = (on_progress = None))]
    fn copy(&self, py: Python<'_>, on_progress: Option<Py<PyAny>>) -> PyResult<()> {
        py.detach(|| {
            let mut open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            copy(open.as_mut().ok_or_else(|| raise(ended()))?, on_progress.as_ref())
        })
    }

    /// Copies what is left, puts the copy in the place of the table, and returns it.
    #[pyo3(signature = (on_progress = None))]
    fn finish(&self, py: Python<'_>, on_progress: Option<Py<PyAny>>) -> PyResult<Table> {
        let mut moving = self.take().ok_or_else(|| raise(ended()))?;
        let moved = py.detach(|| {
            loop {
                copy(&mut moving, on_progress.as_ref())?;
                if let Some(table) = moving.try_switch(&mut |_| Ok(())).map_err(raise)? {
                    return moving.retire().map(|()| table).map_err(raise);
                }
            }
        });
        moved.map(Table::new)
    }

    /// Cancels the move, unless it is finished: the table stays as it is.
    fn close(&self, py: Python<'_>) {
        py.detach(|| drop(self.take()));
    }
}

context_manager!(TableMove, |moving, py, _| moving.get().close(py));
