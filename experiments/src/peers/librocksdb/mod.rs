//! RocksDB's shared library.
//!
//! Source: RocksDB's `c.h`, version 7.8.

mod ffi;
mod store;

use std::collections::BTreeMap;
use std::sync::Arc;

use siltstone_engine::{Engine, Result};

use super::peer_settings::PeerSettings;
use super::store::Peer;

/// Checks that the library is installed.
pub(super) fn check() -> Result<()> {
    ffi::Library::open().map(drop)
}

/// Opens a database; returns its settings, too.
pub(super) fn open(settings: &PeerSettings) -> Result<(Arc<dyn Engine>, BTreeMap<String, String>)> {
    let store = store::RocksDb::open(settings)?;
    Ok((Arc::new(Peer::new(store)), store::listed(settings)))
}
