//! Tables: mappings from bytes to bytes.

use std::collections::BTreeMap;
use std::path::PathBuf;

use pyo3::exceptions::PyKeyError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};
use siltstone::{
    ChangeOptions, Durability, Entry, Error, IngestMode, IngestOptions, KeyRange, WriteBatch,
    merge_operator,
};

use crate::batch::Batch;
use crate::bytes::{Bytes, expiry};
use crate::changes::Changes;
use crate::db::loads;
use crate::detached::Detached;
use crate::errors::{invalid, raise};
use crate::iterate::{Entries, Part, pair};
use crate::reads::{self, Reads, mapping_reads};
use crate::snapshot::Snapshot;
use crate::transaction::{self, Transaction};

/// A table of a store: a mapping from bytes to bytes. Threads may share it.
#[pyclass(module = "siltstone", frozen)]
pub(crate) struct Table(Detached<siltstone::Table>);

/// Synced or buffered.
pub(crate) fn durability(is_synced: bool) -> Durability {
    if is_synced { Durability::Synced } else { Durability::Buffered }
}

impl Table {
    pub(crate) fn new(table: siltstone::Table) -> Self {
        Table(Detached::new(table))
    }

    pub(crate) fn handle(&self) -> &siltstone::Table {
        &self.0
    }

    fn read<R>(
        &self,
        read: impl FnOnce(&siltstone::Table) -> Result<R, Error>,
    ) -> Result<R, Error> {
        read(&self.0)
    }

    fn write(&self, py: Python<'_>, batch: &WriteBatch, is_synced: bool) -> PyResult<()> {
        py.detach(|| self.0.write(batch, durability(is_synced))).map_err(raise)
    }

    /// Removes a key, and returns its value.
    fn take(&self, py: Python<'_>, key: &[u8]) -> PyResult<Option<Vec<u8>>> {
        py.detach(|| self.0.fetch_and_update(key, |_| None::<Vec<u8>>)).map_err(raise)
    }
}

mapping_reads!(Table, false);

fn missing(py: Python<'_>, key: &[u8]) -> PyErr {
    PyKeyError::new_err(PyBytes::new(py, key).unbind())
}

fn entry_pair<'py>(
    py: Python<'py>,
    popped: Option<(Vec<u8>, Entry)>,
) -> PyResult<Option<Bound<'py, PyTuple>>> {
    popped.map(|(key, entry)| pair(py, &key, &entry.value)).transpose()
}

#[pymethods]
impl Table {
    /// The table's name.
    #[getter]
    fn name(&self) -> &str {
        self.0.name()
    }

    /// The name of the table's engine.
    #[getter]
    fn engine(&self) -> &'static str {
        self.0.engine().name()
    }

    fn __repr__(&self) -> String {
        format!("<siltstone.Table '{}' on {}>", self.0.name(), self.0.engine().name())
    }

    fn __setitem__(&self, py: Python<'_>, key: Bytes<'_>, value: Bytes<'_>) -> PyResult<()> {
        self.put(py, key, value, None, None, false)
    }

    fn __delitem__(&self, py: Python<'_>, key: Bytes<'_>) -> PyResult<()> {
        let key = key.as_slice();
        self.take(py, key)?.map(drop).ok_or_else(|| missing(py, key))
    }

    /// Sets the value of a key.
    #[pyo3(signature = (key, value, *, ttl = None, expires_at = None, sync = false))]
    fn put(
        &self,
        py: Python<'_>,
        key: Bytes<'_>,
        value: Bytes<'_>,
        ttl: Option<f64>,
        expires_at: Option<f64>,
        sync: bool,
    ) -> PyResult<()> {
        let mut batch = WriteBatch::new();
        match expiry(ttl, expires_at)? {
            None => batch.put(key.as_slice(), value.as_slice()),
            Some(at) => batch.put_until(key.as_slice(), value.as_slice(), at),
        };
        self.write(py, &batch, sync)
    }

    /// Removes a key. A missing one is not an error.
    #[pyo3(signature = (key, *, sync = false))]
    fn delete(&self, py: Python<'_>, key: Bytes<'_>, sync: bool) -> PyResult<()> {
        self.write(py, WriteBatch::new().delete(key.as_slice()), sync)
    }

    /// Removes a key, and returns its value or `default`, atomically.
    #[pyo3(signature = (key, *default))]
    fn pop<'py>(
        &self,
        py: Python<'py>,
        key: Bytes<'py>,
        default: Bound<'py, PyTuple>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let key = key.as_slice();
        match self.take(py, key)? {
            Some(value) => Ok(PyBytes::new(py, &value).into_any()),
            None => default.get_item(0).map_err(|_| missing(py, key)),
        }
    }

    /// Removes the last entry, and returns it.
    fn popitem<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        self.pop_last(py)?.ok_or_else(|| PyKeyError::new_err("the table is empty"))
    }

    /// Removes the first entry, and returns it, or None.
    fn pop_first<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        entry_pair(py, py.detach(|| self.0.pop_first()).map_err(raise)?)
    }

    /// Removes the last entry, and returns it, or None.
    fn pop_last<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        entry_pair(py, py.detach(|| self.0.pop_last()).map_err(raise)?)
    }

    /// The value of a key; `default` becomes it if there is none, atomically.
    fn setdefault<'py>(
        &self,
        py: Python<'py>,
        key: Bytes<'py>,
        default: Bytes<'py>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let (key, default) = (key.as_slice(), default.as_slice());
        let swapped = py.detach(|| self.0.compare_and_swap(key, None, Some(default)));
        let current = swapped.map_err(raise)?.err().and_then(|mismatch| mismatch.current);
        Ok(PyBytes::new(py, current.as_deref().unwrap_or(default)))
    }

    /// Sets a key to `new` if its value is `expected`, and returns whether it was; None is no
    /// value.
    fn compare_and_swap(
        &self,
        py: Python<'_>,
        key: Bytes<'_>,
        expected: Option<Bytes<'_>>,
        new: Option<Bytes<'_>>,
    ) -> PyResult<bool> {
        let (expected, new) =
            (expected.as_ref().map(Bytes::as_slice), new.as_ref().map(Bytes::as_slice));
        let key = key.as_slice();
        let swapped = py.detach(|| self.0.compare_and_swap(key, expected, new));
        Ok(swapped.map_err(raise)?.is_ok())
    }

    /// Sets all entries of a mapping or an iterable of pairs, atomically.
    #[pyo3(signature = (entries, *, sync = false))]
    fn update(&self, py: Python<'_>, entries: &Bound<'_, PyAny>, sync: bool) -> PyResult<()> {
        let is_mapping = entries.hasattr("keys")?;
        let pairs = if is_mapping { entries.call_method0("items")? } else { entries.clone() };
        let mut batch = WriteBatch::new();
        for pair in pairs.try_iter()? {
            let (key, value): (Bytes<'_>, Bytes<'_>) = pair?.extract()?;
            batch.put(key.as_slice(), value.as_slice());
        }
        self.write(py, &batch, sync)
    }

    /// A batch of writes.
    #[pyo3(signature = (*, sync = false))]
    fn batch(&self, sync: bool) -> Batch {
        Batch::new(self.0.clone(), durability(sync))
    }

    /// The table at this moment, unaffected by later writes.
    fn snapshot(&self, py: Python<'_>) -> PyResult<Snapshot> {
        py.detach(|| self.0.snapshot()).map(Snapshot::new).map_err(raise)
    }

    /// Begins a transaction.
    #[pyo3(signature = (*, sync = false))]
    fn transaction(&self, py: Python<'_>, sync: bool) -> PyResult<Transaction> {
        py.detach(|| Transaction::begin(&self.0, durability(sync))).map_err(raise)
    }

    /// Runs `work` with a transaction, commits it, and returns what `work` returned; runs it again
    /// after a conflict.
    #[pyo3(signature = (work, *, tries = 16, sync = false))]
    fn transact<'py>(
        &self,
        py: Python<'py>,
        work: &Bound<'py, PyAny>,
        tries: u32,
        sync: bool,
    ) -> PyResult<Bound<'py, PyAny>> {
        let begin = || Bound::new(py, self.transaction(py, sync)?);
        transaction::transact(py, begin, |transaction| transaction.get(), work, tries)
    }

    /// Removes a range of keys, at a cost independent of their number.
    #[pyo3(signature = (start = None, end = None, *, prefix = None, sync = false))]
    fn delete_range(
        &self,
        py: Python<'_>,
        start: Option<Bytes<'_>>,
        end: Option<Bytes<'_>>,
        prefix: Option<Bytes<'_>>,
        sync: bool,
    ) -> PyResult<()> {
        let range = reads::range(prefix, start, end)?;
        range.check().map_err(raise)?;
        let mut batch = WriteBatch::new();
        batch.delete_range((range.start, range.end));
        self.write(py, &batch, sync)
    }

    /// Sets a built-in merge operator by its name.
    fn set_merge_operator(&self, py: Python<'_>, name: &str) -> PyResult<()> {
        let operator = merge_operator::built_in(name)
            .ok_or_else(|| invalid(&format!("there is no merge operator '{name}'")))?;
        py.detach(|| self.0.set_merge_operator(Some(operator))).map_err(raise)
    }

    /// Merges an operand into a key, without reading its value.
    #[pyo3(signature = (key, operand, *, sync = false))]
    fn merge(
        &self,
        py: Python<'_>,
        key: Bytes<'_>,
        operand: Bytes<'_>,
        sync: bool,
    ) -> PyResult<()> {
        self.write(py, WriteBatch::new().merge(key.as_slice(), operand.as_slice()), sync)
    }

    /// Follows the changes after a sequence number.
    #[pyo3(signature = (since = 0, *, include_unsynced = false))]
    fn changes(&self, py: Python<'_>, since: u64, include_unsynced: bool) -> PyResult<Changes> {
        let options = ChangeOptions { since, include_unsynced };
        py.detach(|| Changes::new(&self.0, options)).map_err(raise)
    }

    /// Makes sorted files a part of the table, all at once and durably.
    #[pyo3(signature = (paths, *, mode = "copy"))]
    fn ingest<'py>(
        &self,
        py: Python<'py>,
        paths: Vec<PathBuf>,
        mode: &str,
    ) -> PyResult<Bound<'py, PyAny>> {
        let mode = match mode {
            "copy" => IngestMode::Copy,
            "link" => IngestMode::Link,
            "move" => IngestMode::Move,
            other => return Err(invalid(&format!("mode is copy, link or move, not '{other}'"))),
        };
        let options = IngestOptions { mode, ..IngestOptions::default() };
        loads(py, &py.detach(|| self.0.ingest(&paths, options)).map_err(raise)?)
    }

    /// Compacts a range of keys down to their deepest level.
    #[pyo3(signature = (start = None, end = None, *, prefix = None))]
    fn compact_range(
        &self,
        py: Python<'_>,
        start: Option<Bytes<'_>>,
        end: Option<Bytes<'_>>,
        prefix: Option<Bytes<'_>>,
    ) -> PyResult<()> {
        let range = reads::range(prefix, start, end)?;
        py.detach(|| self.0.compact_range((range.start, range.end))).map_err(raise)
    }

    /// Changes options, durably. Returns the names of those that take effect at the next open.
    fn set_options(
        &self,
        py: Python<'_>,
        options: BTreeMap<String, String>,
    ) -> PyResult<Vec<String>> {
        let options: Vec<_> = options.iter().map(|(name, value)| (&name[..], &value[..])).collect();
        py.detach(|| self.0.set_options(&options)).map_err(raise)
    }

    /// Removes every key, durably.
    fn clear(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| self.0.clear()).map_err(raise)
    }

    /// Makes every write that has returned durable against a power cut.
    fn sync(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| self.0.sync()).map_err(raise)
    }

    /// Writes buffered data to the engine's files, durably.
    fn flush(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| self.0.flush()).map_err(raise)
    }

    /// Runs background work until none is due.
    fn maintain(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| self.0.maintain()).map_err(raise)
    }

    /// The number of keys as the engine estimates it, or None.
    fn approximate_len(&self, py: Python<'_>) -> Option<u64> {
        py.detach(|| self.0.approximate_len())
    }

    /// Counters and sizes.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        loads(py, &py.detach(|| self.0.stats()))
    }
}
