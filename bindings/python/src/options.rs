//! What `open` and `open_reader` take: keys and merge operators.

use std::collections::BTreeMap;
use std::sync::Arc;

use pyo3::prelude::*;
use siltstone::MergeOperator;
use siltstone::encryption::{KeyRing, Keys, MasterKey};

use crate::bytes::Bytes;
use crate::errors::invalid;
use crate::merge_operator::PythonOperator;

/// The keys of an encrypted store, the current one first; none for one that is not encrypted.
pub(crate) fn encryption(keys: &[Bytes<'_>]) -> PyResult<Keys> {
    let key = |key: &Bytes<'_>| {
        let key = key.as_slice().try_into().map_err(|_| {
            invalid(&format!("a key has 32 bytes, and one has {}", key.as_slice().len()))
        })?;
        Ok(MasterKey::new(key))
    };
    let keys: Vec<MasterKey> = keys.iter().map(key).collect::<PyResult<_>>()?;
    Ok(match keys.split_first() {
        Some((current, earlier)) => {
            Keys::new(Arc::new(KeyRing::new(current.clone(), earlier.to_vec())))
        }
        None => Keys::default(),
    })
}

/// Merge operators by the name of their table.
pub(crate) fn merge_operators(
    operators: BTreeMap<String, Bound<'_, PyAny>>,
) -> PyResult<BTreeMap<String, Arc<dyn MergeOperator>>> {
    let operator = |(table, operator): (String, Bound<'_, PyAny>)| {
        let operator: Arc<dyn MergeOperator> = Arc::new(PythonOperator::new(&operator)?);
        Ok((table, operator))
    };
    operators.into_iter().map(operator).collect()
}
