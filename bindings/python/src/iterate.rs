//! Iterators over entries, keys and values.
//!
//! An iterator fetches entries in chunks, detached from the interpreter, and returns those of a
//! chunk without detaching. A chunk grows from 1 to 64 entries, so that `next(iter(table))` stays
//! cheap. In a transaction it has 1 entry, because every entry fetched counts as read.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};
use siltstone::{Error, Iter, Keys};

use crate::errors::raise;

const MAX_CHUNK: usize = 64;

/// A key and its value, which is empty in a scan of keys.
type Fetched = Result<(Vec<u8>, Vec<u8>), Error>;

/// The items of an iterator: entries, keys or values.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    Items,
    Keys,
    Values,
}

/// A scan that yields entries, or keys with empty values.
pub(crate) enum Scan {
    Entries(Iter),
    Keys(Keys),
}

impl Scan {
    fn next(&mut self, is_reverse: bool) -> Option<Fetched> {
        match self {
            Scan::Entries(iter) => {
                let next = if is_reverse { iter.next_back() } else { iter.next() };
                next.map(|next| next.map(|(key, entry)| (key, entry.value)))
            }
            Scan::Keys(keys) => {
                let next = if is_reverse { keys.next_back() } else { keys.next() };
                next.map(|next| next.map(|key| (key, Vec::new())))
            }
        }
    }
}

/// An iterator over a table, as of its creation.
#[pyclass(module = "siltstone", frozen)]
pub(crate) struct Entries {
    part: Part,
    is_reverse: bool,
    max_chunk: usize,
    state: Mutex<State>,
}

struct State {
    scan: Scan,
    fetched: VecDeque<Fetched>,
    chunk: usize,
}

impl Entries {
    pub(crate) fn new(scan: Scan, part: Part, is_reverse: bool, is_transaction: bool) -> Self {
        let max_chunk = if is_transaction { 1 } else { MAX_CHUNK };
        let state = Mutex::new(State { scan, fetched: VecDeque::new(), chunk: 1 });
        Entries { part, is_reverse, max_chunk, state }
    }

    /// An entry that was fetched before; `None` also while another thread fetches.
    fn fetched(&self) -> Option<Fetched> {
        self.state.try_lock().ok()?.fetched.pop_front()
    }

    fn fetch(&self) -> Option<Fetched> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let State { scan, fetched, chunk } = &mut *state;
        if fetched.is_empty() {
            let entries = std::iter::from_fn(|| scan.next(self.is_reverse));
            fetched.extend(entries.take(*chunk));
            *chunk = (*chunk * 2).min(self.max_chunk);
        }
        fetched.pop_front()
    }
}

#[pymethods]
impl Entries {
    fn __iter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        // Detaching costs more than the rest.
        let entry = self.fetched().or_else(|| py.detach(|| self.fetch()));
        let Some(entry) = entry else { return Ok(None) };
        let (key, value) = entry.map_err(raise)?;
        Ok(Some(match self.part {
            Part::Items => pair(py, &key, &value)?.into_any(),
            Part::Keys => PyBytes::new(py, &key).into_any(),
            Part::Values => PyBytes::new(py, &value).into_any(),
        }))
    }
}

/// A key and its value.
pub(crate) fn pair<'py>(
    py: Python<'py>,
    key: &[u8],
    value: &[u8],
) -> PyResult<Bound<'py, PyTuple>> {
    PyTuple::new(py, [PyBytes::new(py, key), PyBytes::new(py, value)])
}
