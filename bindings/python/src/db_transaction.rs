//! Transactions over several tables.

use std::ptr;
use std::sync::Arc;

use pyo3::prelude::*;
use siltstone::{Durability, Error};

use crate::context::context_manager;
use crate::errors::{invalid, raise};
use crate::table::Table;
use crate::transaction::{Ending, Transaction, end_block, ended};

/// A transaction over several tables, which are applied together: a mapping from tables to their
/// transactions, and a context manager that commits.
#[pyclass(module = "siltstone", frozen)]
pub(crate) struct DbTransaction {
    db: siltstone::Db,
    parts: Vec<(siltstone::Table, Py<Transaction>)>,
    durability: Durability,
}

impl DbTransaction {
    pub(crate) fn begin(
        py: Python<'_>,
        db: &siltstone::Db,
        tables: &[siltstone::Table],
        durability: Durability,
    ) -> PyResult<Self> {
        let tables: Vec<_> = tables.iter().collect();
        let begun = py.detach(|| db.transaction(&tables)).map_err(raise)?;
        let part = |part: siltstone::Transaction| {
            let table = part.table().clone();
            Ok((table, Py::new(py, Transaction::part(part, durability))?))
        };
        let parts = begun.into_parts().into_iter().map(part).collect::<PyResult<_>>()?;
        Ok(DbTransaction { db: db.clone(), parts, durability })
    }
}

impl Ending for DbTransaction {
    fn end(&self) -> Option<Result<(), Error>> {
        let open: Vec<_> = self.parts.iter().filter_map(|(_, part)| part.get().take()).collect();
        match open.len() {
            0 => None,
            count if count < self.parts.len() => Some(Err(ended())),
            _ => Some(siltstone::DbTransaction::of_parts(&self.db, open).commit(self.durability)),
        }
    }

    fn discard(&self) {
        self.parts.iter().for_each(|(_, part)| part.get().discard());
    }
}

#[pymethods]
impl DbTransaction {
    /// The transaction on one of the tables, to read and write there.
    fn __getitem__(&self, py: Python<'_>, table: &Bound<'_, Table>) -> PyResult<Py<Transaction>> {
        let table = table.get().handle();
        let is_same = |part: &siltstone::Table| {
            ptr::addr_eq(Arc::as_ptr(part.engine()), Arc::as_ptr(table.engine()))
        };
        let part = self.parts.iter().find(|(part, _)| is_same(part));
        let part = part.ok_or_else(|| {
            invalid(&format!(
                "table '{}' is not in this transaction; name it at the beginning",
                table.name()
            ))
        })?;
        Ok(part.1.clone_ref(py))
    }

    /// Applies all writes to all tables, or none.
    fn commit(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| self.end().unwrap_or_else(|| Err(ended()))).map_err(raise)
    }

    /// Discards all writes.
    fn rollback(&self, py: Python<'_>) {
        py.detach(|| self.discard());
    }
}

context_manager!(DbTransaction, |transaction, py, is_complete| {
    end_block(py, transaction.get(), is_complete)?
});
