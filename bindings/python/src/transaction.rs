//! Transactions, and `transact`, which repeats one after a conflict.

use std::sync::{Mutex, MutexGuard, PoisonError};

use pyo3::exceptions::PyKeyError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use siltstone::{Durability, Error, KeyRange, Retry};

use crate::bytes::{Bytes, expiry};
use crate::context::context_manager;
use crate::errors::{is_retryable, raise};
use crate::iterate::{Entries, Part};
use crate::reads::{self, Reads, mapping_reads};

/// Reads as of the beginning, and writes that are applied together if nothing that was read has
/// changed. A mapping, and a context manager that commits.
#[pyclass(module = "siltstone", frozen)]
pub(crate) struct Transaction {
    /// `None` after the end.
    open: Mutex<Option<siltstone::Transaction>>,
    durability: Durability,
    /// Of a transaction over several tables, which commits it.
    is_part: bool,
}

/// What ends by a commit or a rollback, whichever comes first.
pub(crate) trait Ending: Sync {
    /// Commits. `None` if it had already ended: the caller decides whether that is an error.
    fn end(&self) -> Option<Result<(), Error>>;

    /// Discards all writes.
    fn discard(&self);
}

impl Transaction {
    pub(crate) fn begin(table: &siltstone::Table, durability: Durability) -> Result<Self, Error> {
        let open = Mutex::new(Some(table.transaction()?));
        Ok(Transaction { open, durability, is_part: false })
    }

    /// The transaction on one table of a transaction over several.
    pub(crate) fn part(part: siltstone::Transaction, durability: Durability) -> Self {
        Transaction { open: Mutex::new(Some(part)), durability, is_part: true }
    }

    /// The transaction, which has ended for Python.
    pub(crate) fn take(&self) -> Option<siltstone::Transaction> {
        self.lock().take()
    }

    fn lock(&self) -> MutexGuard<'_, Option<siltstone::Transaction>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn read<R>(
        &self,
        read: impl FnOnce(&siltstone::Transaction) -> Result<R, Error>,
    ) -> Result<R, Error> {
        self.change(|transaction| read(transaction))
    }

    fn change<R>(
        &self,
        change: impl FnOnce(&mut siltstone::Transaction) -> Result<R, Error>,
    ) -> Result<R, Error> {
        change(self.lock().as_mut().ok_or_else(ended)?)
    }
}

impl Ending for Transaction {
    fn end(&self) -> Option<Result<(), Error>> {
        if self.is_part {
            return Some(Err(Error::Invalid(
                "the transaction over several tables commits this one".to_owned(),
            )));
        }
        self.take().map(|transaction| transaction.commit(self.durability))
    }

    fn discard(&self) {
        drop(self.take());
    }
}

pub(crate) fn ended() -> Error {
    Error::Invalid("the transaction has ended; begin a new one".to_owned())
}

mapping_reads!(Transaction, true);

#[pymethods]
impl Transaction {
    fn __setitem__(&self, py: Python<'_>, key: Bytes<'_>, value: Bytes<'_>) -> PyResult<()> {
        self.put(py, key, value, None, None)
    }

    /// Removes a key that exists.
    fn __delitem__(&self, py: Python<'_>, key: Bytes<'_>) -> PyResult<()> {
        let bytes = key.as_slice();
        let delete = |transaction: &mut siltstone::Transaction| {
            let is_there = transaction.contains_key(bytes)?;
            if is_there {
                transaction.delete(bytes)?;
            }
            Ok(is_there)
        };
        match py.detach(|| self.change(delete)).map_err(raise)? {
            true => Ok(()),
            false => Err(PyKeyError::new_err(PyBytes::new(py, bytes).unbind())),
        }
    }

    /// Sets the value of a key at the commit.
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
        let put = |transaction: &mut siltstone::Transaction| match expiry {
            None => transaction.put(key, value),
            Some(at) => transaction.put_until(key, value, at),
        };
        py.detach(|| self.change(put)).map_err(raise)
    }

    /// Removes a key at the commit. A missing one is not an error.
    fn delete(&self, py: Python<'_>, key: Bytes<'_>) -> PyResult<()> {
        let key = key.as_slice();
        py.detach(|| self.change(|transaction| transaction.delete(key))).map_err(raise)
    }

    /// Applies all writes, or none.
    fn commit(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| self.end().unwrap_or_else(|| Err(ended()))).map_err(raise)
    }

    /// Discards all writes.
    fn rollback(&self, py: Python<'_>) {
        py.detach(|| self.discard());
    }
}

context_manager!(Transaction, |transaction, py, is_complete| {
    end_block(py, transaction.get(), is_complete)?
});

/// Commits or discards a transaction at the end of a block, which may have ended it itself.
pub(crate) fn end_block(
    py: Python<'_>,
    transaction: &impl Ending,
    is_complete: bool,
) -> PyResult<()> {
    let end = || match is_complete {
        true => transaction.end().unwrap_or(Ok(())),
        false => {
            transaction.discard();
            Ok(())
        }
    };
    py.detach(end).map_err(raise)
}

/// Runs `work` in a transaction that `begin` begins, and commits it. After a conflict it does both
/// again, up to `tries` times in all.
pub(crate) fn transact<'py, T: Ending>(
    py: Python<'py>,
    begin: impl Fn() -> PyResult<Bound<'py, T>>,
    get: for<'t> fn(&'t Bound<'py, T>) -> &'t T,
    work: &Bound<'py, PyAny>,
    tries: u32,
) -> PyResult<Bound<'py, PyAny>> {
    let retry = Retry { tries, ..Retry::default() };
    let attempt = || {
        let transaction = begin()?;
        let result = work.call1((transaction.as_any(),));
        end_block(py, get(&transaction), result.is_ok())?;
        result
    };
    let mut number = 1;
    loop {
        match attempt() {
            Err(error) if number < retry.tries && is_retryable(py, &error) => {
                py.detach(|| std::thread::sleep(retry.pause(number)));
                py.check_signals()?;
                number += 1;
            }
            result => return result,
        }
    }
}
