//! RocksDB's shared library.
//!
//! Source: RocksDB's `c.h`, version 7.8.

mod ffi;
mod store;

use std::collections::BTreeMap;
use std::sync::Arc;

use siltstone_engine::{Engine, Result};

use super::asked::Asked;
use super::store::Peer;

/// Checks that the library is there.
pub(super) fn check() -> Result<()> {
    ffi::Library::open().map(drop)
}

/// Opens a database; answers what it was given, too.
pub(super) fn open(asked: &Asked) -> Result<(Arc<dyn Engine>, BTreeMap<String, String>)> {
    let store = store::RocksDb::open(asked)?;
    Ok((Arc::new(Peer::new(store)), store::listed(asked)))
}
