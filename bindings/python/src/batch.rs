//! Write batches.

use pyo3::prelude::*;
use siltstone::{DbBatch, Durability, WriteBatch};

use crate::bytes::{Bytes, expiry};
use crate::changes::Change;
use crate::context::context_manager;
use crate::errors::raise;
use crate::reads;

/// Writes that are applied together: at the end of a `with` block, or by `write`.
#[pyclass(module = "siltstone")]
pub(crate) struct Batch {
    table: siltstone::Table,
    durability: Durability,
    writes: WriteBatch,
}

impl Batch {
    pub(crate) fn new(table: siltstone::Table, durability: Durability) -> Self {
        Batch { table, durability, writes: WriteBatch::new() }
    }

    /// Adds the operations to a batch over several tables.
    pub(crate) fn append_to(&self, whole: &mut DbBatch) {
        whole.table(&self.table).append(&self.writes);
    }

    /// Removes all operations.
    pub(crate) fn forget(&mut self) {
        self.writes.clear();
    }
}

#[pymethods]
impl Batch {
    fn __setitem__(&mut self, key: Bytes<'_>, value: Bytes<'_>) {
        self.writes.put(key.as_slice(), value.as_slice());
    }

    fn __delitem__(&mut self, key: Bytes<'_>) {
        self.writes.delete(key.as_slice());
    }

    fn __len__(&self) -> usize {
        self.writes.len()
    }

    /// Adds the assignment of a value to a key.
    #[pyo3(signature = (key, value, *, ttl = None, expires_at = None))]
    fn put(
        &mut self,
        key: Bytes<'_>,
        value: Bytes<'_>,
        ttl: Option<f64>,
        expires_at: Option<f64>,
    ) -> PyResult<()> {
        let (key, value) = (key.as_slice(), value.as_slice());
        match expiry(ttl, expires_at)? {
            None => self.writes.put(key, value),
            Some(at) => self.writes.put_until(key, value, at),
        };
        Ok(())
    }

    /// Adds the removal of a key.
    fn delete(&mut self, key: Bytes<'_>) {
        self.writes.delete(key.as_slice());
    }

    /// Adds the removal of a range of keys.
    #[pyo3(signature = (start = None, end = None, *, prefix = None))]
    fn delete_range(
        &mut self,
        start: Option<Bytes<'_>>,
        end: Option<Bytes<'_>>,
        prefix: Option<Bytes<'_>>,
    ) -> PyResult<()> {
        let range = reads::range(prefix, start, end)?;
        range.check().map_err(raise)?;
        self.writes.delete_range((range.start, range.end));
        Ok(())
    }

    /// Adds the merge of an operand into a key.
    fn merge(&mut self, key: Bytes<'_>, operand: Bytes<'_>) {
        self.writes.merge(key.as_slice(), operand.as_slice());
    }

    /// Adds the operations of a change.
    fn append(&mut self, change: &Bound<'_, Change>) -> PyResult<()> {
        self.writes.append(change.get().writes()?);
        Ok(())
    }

    /// Removes all operations.
    fn clear(&mut self) {
        self.forget();
    }

    /// Applies the operations, and removes them from the batch.
    fn write(&mut self, py: Python<'_>) -> PyResult<()> {
        let Batch { table, durability, writes } = &*self;
        py.detach(|| table.write(writes, *durability)).map_err(raise)?;
        self.writes.clear();
        Ok(())
    }

    /// Applies the operations, buffered, and removes them, unless the write would have to wait:
    /// then nothing is written, and False is returned.
    fn try_write(&mut self, py: Python<'_>) -> PyResult<bool> {
        let Batch { table, writes, .. } = &*self;
        let is_written = py.detach(|| table.try_write(writes)).map_err(raise)?;
        if is_written {
            self.writes.clear();
        }
        Ok(is_written)
    }
}

context_manager!(Batch, |batch, py, is_complete| match is_complete {
    true => batch.borrow_mut().write(py)?,
    false => batch.borrow_mut().writes.clear(),
});
