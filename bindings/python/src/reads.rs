//! The reads that tables, snapshots and transactions have in common.

use std::ops::Bound;

use pyo3::PyResult;
use siltstone::{Entry, Error, KeyRange};

use crate::bytes::Bytes;
use crate::errors::invalid;
use crate::iterate::{Part, Scan};

/// The reads of the store's handles: table, snapshot, transaction.
pub(crate) trait Reads {
    fn entry(&self, key: &[u8]) -> Result<Option<Entry>, Error>;
    fn contains(&self, key: &[u8]) -> Result<bool, Error>;
    fn values(&self, keys: &[&[u8]]) -> Result<Vec<Option<Vec<u8>>>, Error>;
    fn scan(&self, range: KeyRange, part: Part) -> Result<Scan, Error>;
    fn count(&self) -> Result<u64, Error>;
    fn has_no_keys(&self) -> Result<bool, Error>;
}

macro_rules! implement_reads {
    ($($reader:ty)*) => {$(
        impl Reads for $reader {
            fn entry(&self, key: &[u8]) -> Result<Option<Entry>, Error> {
                self.get_entry(key)
            }

            fn contains(&self, key: &[u8]) -> Result<bool, Error> {
                self.contains_key(key)
            }

            fn values(&self, keys: &[&[u8]]) -> Result<Vec<Option<Vec<u8>>>, Error> {
                self.multi_get(keys)
            }

            fn scan(&self, range: KeyRange, part: Part) -> Result<Scan, Error> {
                let range = (range.start, range.end);
                Ok(match part {
                    Part::Keys => Scan::Keys(self.keys_range(range)?),
                    Part::Items | Part::Values => Scan::Entries(self.range(range)?),
                })
            }

            fn count(&self) -> Result<u64, Error> {
                self.len()
            }

            fn has_no_keys(&self) -> Result<bool, Error> {
                self.is_empty()
            }
        }
    )*};
}

implement_reads!(siltstone::Table siltstone::Snapshot siltstone::Transaction);

/// A range from the arguments of `items`, `keys` and `values`.
pub(crate) fn range(
    prefix: Option<Bytes<'_>>,
    start: Option<Bytes<'_>>,
    end: Option<Bytes<'_>>,
) -> PyResult<KeyRange> {
    let own = |bytes: &Bytes<'_>| bytes.as_slice().to_vec();
    match (&prefix, &start, &end) {
        (Some(prefix), None, None) => Ok(KeyRange::prefix(prefix.as_slice())),
        (Some(_), _, _) => Err(invalid("give a prefix, or start and end, not both")),
        (None, start, end) => Ok(KeyRange {
            start: start.as_ref().map_or(Bound::Unbounded, |key| Bound::Included(own(key))),
            end: end.as_ref().map_or(Bound::Unbounded, |key| Bound::Excluded(own(key))),
        }),
    }
}

/// Defines the reads of a class that has `read`, which runs a closure on the store's handle.
macro_rules! mapping_reads {
    ($class:ty, $is_transaction:literal) => {
        #[pymethods]
        impl $class {
            fn __getitem__<'py>(
                &self,
                py: Python<'py>,
                key: Bytes<'py>,
            ) -> PyResult<Bound<'py, PyBytes>> {
                let bytes = key.as_slice();
                let entry = py.detach(|| self.read(|reads| reads.entry(bytes))).map_err(raise)?;
                let missing = || PyKeyError::new_err(PyBytes::new(py, bytes).unbind());
                Ok(PyBytes::new(py, &entry.ok_or_else(missing)?.value))
            }

            fn __contains__(&self, py: Python<'_>, key: Bytes<'_>) -> PyResult<bool> {
                let key = key.as_slice();
                py.detach(|| self.read(|reads| reads.contains(key))).map_err(raise)
            }

            fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
                let count = py.detach(|| self.read(Reads::count)).map_err(raise)?;
                Ok(usize::try_from(count)?)
            }

            fn __bool__(&self, py: Python<'_>) -> PyResult<bool> {
                Ok(!py.detach(|| self.read(Reads::has_no_keys)).map_err(raise)?)
            }

            fn __iter__(&self, py: Python<'_>) -> PyResult<Entries> {
                self.entries(py, KeyRange::all(), Part::Keys, false)
            }

            /// The value of a key, or `default`.
            #[pyo3(signature = (key, default = None))]
            fn get<'py>(
                &self,
                py: Python<'py>,
                key: Bytes<'py>,
                default: Option<Bound<'py, PyAny>>,
            ) -> PyResult<Option<Bound<'py, PyAny>>> {
                let key = key.as_slice();
                let entry = py.detach(|| self.read(|reads| reads.entry(key))).map_err(raise)?;
                Ok(entry.map(|entry| PyBytes::new(py, &entry.value).into_any()).or(default))
            }

            /// The values of keys in their order; None for a missing one.
            fn get_many<'py>(
                &self,
                py: Python<'py>,
                keys: &Bound<'py, PyAny>,
            ) -> PyResult<Vec<Option<Bound<'py, PyBytes>>>> {
                let keys: Vec<Bytes<'py>> =
                    keys.try_iter()?.map(|key| key?.extract()).collect::<PyResult<_>>()?;
                let keys: Vec<&[u8]> = keys.iter().map(Bytes::as_slice).collect();
                let values = py.detach(|| self.read(|reads| reads.values(&keys))).map_err(raise)?;
                let object = |value: Vec<u8>| PyBytes::new(py, &value);
                Ok(values.into_iter().map(|value| value.map(object)).collect())
            }

            /// When the value of a key expires, in seconds since 1970. None: never, or no value.
            fn expires_at(&self, py: Python<'_>, key: Bytes<'_>) -> PyResult<Option<f64>> {
                let key = key.as_slice();
                let entry = py.detach(|| self.read(|reads| reads.entry(key))).map_err(raise)?;
                Ok(entry.and_then(|entry| entry.expires_at).map(|at| at as f64 / 1000.0))
            }

            /// The entries of a range as pairs, in order.
            #[pyo3(signature = (*, prefix = None, start = None, end = None, reverse = false))]
            fn items(
                &self,
                py: Python<'_>,
                prefix: Option<Bytes<'_>>,
                start: Option<Bytes<'_>>,
                end: Option<Bytes<'_>>,
                reverse: bool,
            ) -> PyResult<Entries> {
                self.entries(py, reads::range(prefix, start, end)?, Part::Items, reverse)
            }

            /// The keys of a range, in order.
            #[pyo3(signature = (*, prefix = None, start = None, end = None, reverse = false))]
            fn keys(
                &self,
                py: Python<'_>,
                prefix: Option<Bytes<'_>>,
                start: Option<Bytes<'_>>,
                end: Option<Bytes<'_>>,
                reverse: bool,
            ) -> PyResult<Entries> {
                self.entries(py, reads::range(prefix, start, end)?, Part::Keys, reverse)
            }

            /// The values of a range, in the order of their keys.
            #[pyo3(signature = (*, prefix = None, start = None, end = None, reverse = false))]
            fn values(
                &self,
                py: Python<'_>,
                prefix: Option<Bytes<'_>>,
                start: Option<Bytes<'_>>,
                end: Option<Bytes<'_>>,
                reverse: bool,
            ) -> PyResult<Entries> {
                self.entries(py, reads::range(prefix, start, end)?, Part::Values, reverse)
            }
        }

        impl $class {
            fn entries(
                &self,
                py: Python<'_>,
                range: KeyRange,
                part: Part,
                is_reverse: bool,
            ) -> PyResult<Entries> {
                let scan = py.detach(|| self.read(|reads| reads.scan(range, part)));
                Ok(Entries::new(scan.map_err(raise)?, part, is_reverse, $is_transaction))
            }
        }
    };
}

pub(crate) use mapping_reads;
