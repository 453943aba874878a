//! Stores: mappings from names to tables.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use pyo3::exceptions::PyKeyError;
use pyo3::prelude::*;
use serde::Serialize;
use siltstone::{DbBatch, DbOptions, Env, maintenance};

use crate::batch::Batch;
use crate::bytes::Bytes;
use crate::context::context_manager;
use crate::db_transaction::DbTransaction;
use crate::detached::Detached;
use crate::errors::{invalid, raise};
use crate::listener::Listener;
use crate::options;
use crate::snapshot::Snapshot;
use crate::table::{Table, durability};
use crate::table_move::TableMove;
use crate::transaction;

/// An open store: a mapping from names to tables, and a context manager that closes it.
#[pyclass(module = "siltstone", frozen)]
pub(crate) struct Db(Detached<siltstone::Db>);

/// Opens the store in a directory, and creates it if the directory is missing or empty.
#[pyfunction]
#[pyo3(signature = (
    path, *, create = true, read_only = false, direct_reads = false, threads = None,
    max_open_files = None, cache_bytes = None, idle = 300.0, transaction_memory_bytes = None,
    keys = None, merge_operators = None, listener = None
))]
#[expect(clippy::too_many_arguments, reason = "keyword arguments of Python")]
pub(crate) fn open(
    py: Python<'_>,
    path: PathBuf,
    create: bool,
    read_only: bool,
    direct_reads: bool,
    threads: Option<usize>,
    max_open_files: Option<usize>,
    cache_bytes: Option<u64>,
    idle: f64,
    transaction_memory_bytes: Option<usize>,
    keys: Option<Vec<Bytes<'_>>>,
    merge_operators: Option<BTreeMap<String, Bound<'_, PyAny>>>,
    listener: Option<Py<PyAny>>,
) -> PyResult<Db> {
    let mut options = DbOptions {
        read_only,
        direct_reads,
        cache_bytes,
        encryption: options::encryption(&keys.unwrap_or_default())?,
        merge_operators: options::merge_operators(merge_operators.unwrap_or_default())?,
        ..DbOptions::default()
    };
    if let Some(listener) = listener {
        options.listeners.push(Arc::new(Listener(listener)));
    }
    if let Some(threads) = threads {
        if !(1..=256).contains(&threads) {
            return Err(invalid("threads must be from 1 to 256"));
        }
        options.env = Env::system(threads);
    }
    if let Some(files) = max_open_files {
        options.max_open_files = files;
    }
    options.transactions.idle = match idle {
        f64::INFINITY => None,
        idle => {
            let idle = Duration::try_from_secs_f64(idle);
            Some(idle.map_err(|error| invalid(&format!("idle: {error}")))?)
        }
    };
    if let Some(bytes) = transaction_memory_bytes {
        options.transactions.remembered_bytes = bytes;
    }
    let opened = py.detach(|| match create {
        true => siltstone::Db::open_or_create(path, options),
        false => siltstone::Db::open(path, options),
    });
    opened.map(|db| Db(Detached::new(db))).map_err(raise)
}

#[pymethods]
impl Db {
    fn __getitem__(&self, py: Python<'_>, name: &str) -> PyResult<Table> {
        py.detach(|| self.0.table(name)).map(Table::new).map_err(|error| match error {
            siltstone::Error::Invalid(message) => PyKeyError::new_err(message),
            other => raise(other),
        })
    }

    fn __delitem__(&self, py: Python<'_>, name: &str) -> PyResult<()> {
        if !self.__contains__(py, name)? {
            return Err(PyKeyError::new_err(name.to_owned()));
        }
        py.detach(|| self.0.drop_table(name)).map_err(raise)
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

    /// Opens a table, and creates it on `engine` with `options` if there is none.
    #[pyo3(signature = (name, engine = "lsm", options = None))]
    fn table(
        &self,
        py: Python<'_>,
        name: &str,
        engine: &str,
        options: Option<BTreeMap<String, String>>,
    ) -> PyResult<Table> {
        let options = options.unwrap_or_default();
        let table = py.detach(|| self.0.table_or_create(name, engine, &options));
        table.map(Table::new).map_err(raise)
    }

    /// Renames a table that is not in use.
    fn rename(&self, py: Python<'_>, name: &str, new_name: &str) -> PyResult<()> {
        py.detach(|| self.0.rename_table(name, new_name)).map_err(raise)
    }

    /// Begins to move a table to `engine` with `options`, while it is in use.
    #[pyo3(signature = (name, engine, options = None))]
    fn begin_move(
        &self,
        py: Python<'_>,
        name: &str,
        engine: &str,
        options: Option<BTreeMap<String, String>>,
    ) -> PyResult<TableMove> {
        let options = options.unwrap_or_default();
        let begun = py.detach(|| self.0.begin_move(name, engine, &options));
        begun.map(TableMove::new).map_err(raise)
    }

    /// The engine and the options of each table.
    fn tables<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        loads(py, &py.detach(|| self.0.catalogue()).map_err(raise)?.tables)
    }

    /// Applies batches of several tables, all of them or none, and removes their operations.
    #[pyo3(signature = (batches, *, sync = false))]
    fn write(
        &self,
        py: Python<'_>,
        mut batches: Vec<PyRefMut<'_, Batch>>,
        sync: bool,
    ) -> PyResult<()> {
        let mut whole = DbBatch::new();
        for batch in &batches {
            batch.append_to(&mut whole);
        }
        py.detach(|| self.0.write(&whole, durability(sync))).map_err(raise)?;
        batches.iter_mut().for_each(|batch| batch.forget());
        Ok(())
    }

    /// Snapshots of several tables as of one moment, in the order of the tables.
    fn snapshots(&self, py: Python<'_>, tables: Vec<Bound<'_, Table>>) -> PyResult<Vec<Snapshot>> {
        let tables: Vec<_> = tables.iter().map(|table| table.get().handle()).collect();
        let snapshots = py.detach(|| {
            let snapshot = self.0.snapshot(&tables)?;
            tables.iter().map(|table| snapshot.table(table).cloned()).collect::<Result<Vec<_>, _>>()
        });
        Ok(snapshots.map_err(raise)?.into_iter().map(Snapshot::new).collect())
    }

    /// Begins a transaction over several tables.
    #[pyo3(signature = (tables, *, sync = false))]
    fn transaction(
        &self,
        py: Python<'_>,
        tables: Vec<Bound<'_, Table>>,
        sync: bool,
    ) -> PyResult<DbTransaction> {
        let tables: Vec<_> = tables.iter().map(|table| table.get().handle().clone()).collect();
        DbTransaction::begin(py, &self.0, &tables, durability(sync))
    }

    /// Runs `work` with a transaction over several tables, commits it, and returns what `work`
    /// returned; runs it again after a conflict.
    #[pyo3(signature = (tables, work, *, tries = 16, sync = false))]
    fn transact<'py>(
        &self,
        py: Python<'py>,
        tables: Vec<Bound<'py, Table>>,
        work: &Bound<'py, PyAny>,
        tries: u32,
        sync: bool,
    ) -> PyResult<Bound<'py, PyAny>> {
        let tables: Vec<_> = tables.iter().map(|table| table.get().handle().clone()).collect();
        let begin =
            || Bound::new(py, DbTransaction::begin(py, &self.0, &tables, durability(sync))?);
        transaction::transact(py, begin, |transaction| transaction.get(), work, tries)
    }

    /// The bytes of the files of each table.
    fn disk_usage(&self, py: Python<'_>) -> PyResult<BTreeMap<String, u64>> {
        py.detach(|| self.0.disk_usage()).map_err(raise)
    }

    /// Makes every write that has returned, to any table, durable against a power cut.
    fn sync(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| self.0.sync()).map_err(raise)
    }

    /// Copies the store into a new directory while it is in use.
    fn checkpoint(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        py.detach(|| self.0.checkpoint(path)).map_err(raise)
    }

    /// Reads and checks every byte.
    fn verify<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let report = py.detach(|| self.0.verify()).map_err(raise)?;
        with_verdict(loads(py, &report)?, "intact", report.is_intact())
    }

    /// Makes everything durable, and releases the directory.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| self.0.close()).map_err(raise)
    }
}

context_manager!(Db, |db, py, _| db.get().close(py)?);

impl Db {
    fn names(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        py.detach(|| self.0.table_names()).map_err(raise)
    }
}

/// Reads and checks every byte of a store that no process has open.
#[pyfunction]
pub(crate) fn verify(py: Python<'_>, path: PathBuf) -> PyResult<Bound<'_, PyAny>> {
    let report = py.detach(|| maintenance::verify(path)).map_err(raise)?;
    with_verdict(loads(py, &report)?, "intact", report.is_intact())
}

/// Repairs a store that no process has open, as far as possible.
#[pyfunction]
pub(crate) fn repair(py: Python<'_>, path: PathBuf) -> PyResult<Bound<'_, PyAny>> {
    let report = py.detach(|| maintenance::repair(path, None)).map_err(raise)?;
    with_verdict(loads(py, &report)?, "lossless", report.is_lossless())
}

/// A value as dictionaries, lists, strings and numbers.
pub(crate) fn loads<'py>(py: Python<'py>, value: &impl Serialize) -> PyResult<Bound<'py, PyAny>> {
    let json = serde_json::to_string(value).map_err(|error| invalid(&error.to_string()))?;
    py.import("json")?.call_method1("loads", (json,))
}

fn with_verdict<'py>(
    report: Bound<'py, PyAny>,
    name: &str,
    verdict: bool,
) -> PyResult<Bound<'py, PyAny>> {
    report.set_item(name, verdict)?;
    Ok(report)
}
