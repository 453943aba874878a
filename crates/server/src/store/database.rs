//! One SELECT index: an engine, its locks and watches.
//!
//! All writes of all clients go through [`Database::write`], under the locks of their keys; it
//! notifies watches and marks the table for its next sync.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use siltstone_engine::{Durability, Engine, MAX_KEY_BYTES, Result, WriteBatch};
use siltstone_mica::Store;

use super::fetch_times::FetchTimes;
use super::flags_trailer;
use super::locks::KeyLocks;
use super::versions::Versions;
use super::watch::Watches;

/// One SELECT index.
pub(crate) struct Database {
    pub(crate) name: String,
    pub(crate) engine: Arc<dyn Engine>,
    pub(crate) locks: KeyLocks,
    pub(crate) watches: Watches,
    pub(crate) max_value_bytes: usize,
    /// The concrete store, if the engine is `mica`.
    pub(crate) mica: Option<Arc<Store>>,
    /// Version counters for `cas`, if the table serves memcached clients.
    pub(crate) versions: Option<Versions>,
    /// Fetch times for `mg`, if the table serves memcached clients.
    pub(crate) fetch_times: Option<FetchTimes>,
    /// Written since the last sync began.
    unsynced: AtomicBool,
}

impl Database {
    /// A table whose values have up to `max_value_bytes`, or fewer if the engine's limit is lower.
    pub(crate) fn new(name: &str, engine: Arc<dyn Engine>, max_value_bytes: usize) -> Self {
        Database {
            name: name.to_owned(),
            locks: KeyLocks::new(),
            watches: Watches::default(),
            max_value_bytes: max_value_bytes.min(engine.capabilities().max_value_bytes),
            mica: engine.as_any().and_then(|inside| inside.downcast().ok()),
            versions: None,
            fetch_times: None,
            unsynced: AtomicBool::new(false),
            engine,
        }
    }

    /// Applies a batch, buffered. The caller holds the locks of its keys.
    #[inline]
    pub(crate) fn write(&self, batch: &WriteBatch) -> Result<()> {
        if batch.as_bytes().len() > self.max_value_bytes {
            batch.check(self.max_value_bytes)?;
        }
        self.watches.touch(batch.iter().map(|op| op.key()));
        let written = self.engine.write(batch, Durability::Buffered);
        // After the write: a sync that began earlier does not cover it.
        self.unsynced.store(true, Ordering::Release);
        if let Some(versions) = &self.versions {
            // Whatever the outcome: a failed write may be applied in part.
            for op in batch.iter() {
                versions.record_write(op.key());
            }
        }
        written
    }

    /// Removes every key, durably. The caller holds all locks.
    pub(crate) fn clear(&self) -> Result<()> {
        // As in Redis, a watched key that does not exist is not changed.
        let mut watched = self.watches.keys();
        watched.retain(|key| !matches!(self.engine.get(key), Ok(None)));
        self.watches.touch(watched.iter().map(Vec::as_slice));
        let cleared = self.engine.clear();
        if let Some(versions) = &self.versions {
            // Whatever the outcome: it may be applied in part.
            versions.record_write_of_all();
        }
        cleared
    }

    /// Syncs the table if it was written since the last sync.
    pub(crate) fn sync_if_written(&self) -> Result<()> {
        if !self.unsynced.swap(false, Ordering::AcqRel) {
            return Ok(());
        }
        self.engine.sync().inspect_err(|_| self.unsynced.store(true, Ordering::Release))
    }

    /// Whether a key and a value are within the limits and need no escaping, checked before they
    /// join a batch.
    pub(crate) fn accepts(&self, key: &[u8], value: &[u8]) -> bool {
        let fits =
            !key.is_empty() && key.len() <= MAX_KEY_BYTES && value.len() <= self.max_value_bytes;
        fits && !(self.has_flags_trailers() && flags_trailer::needs_escape(value))
    }
}
