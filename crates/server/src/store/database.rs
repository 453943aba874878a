//! One SELECT index: an engine, and its locks and watches.
//!
//! All writes of all clients come through [`Database::write`], under the locks of their keys; that
//! is where watchers hear of them and where the table is marked for its next sync.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use siltstone_engine::{Durability, Engine, MAX_KEY_BYTES, Result, WriteBatch};
use siltstone_mica::Store;

use super::annex;
use super::locks::KeyLocks;
use super::reads::Reads;
use super::versions::Versions;
use super::watch::Watches;

/// One SELECT index.
pub(crate) struct Database {
    pub(crate) name: String,
    pub(crate) engine: Arc<dyn Engine>,
    pub(crate) locks: KeyLocks,
    pub(crate) watches: Watches,
    pub(crate) max_value_bytes: usize,
    /// The engine's inside, if it is `mica`.
    pub(crate) mica: Option<Arc<Store>>,
    /// What memcached's `cas` compares, if the table is served to its clients.
    pub(crate) versions: Option<Versions>,
    /// What memcached's clients have looked up, if the table is served to them.
    pub(crate) reads: Option<Reads>,
    /// Written since the last sync began.
    unsynced: AtomicBool,
}

impl Database {
    /// A table whose values have at most `max_value_bytes`, or less where the engine takes less.
    pub(crate) fn new(name: &str, engine: Arc<dyn Engine>, max_value_bytes: usize) -> Self {
        Database {
            name: name.to_owned(),
            locks: KeyLocks::new(),
            watches: Watches::default(),
            max_value_bytes: max_value_bytes.min(engine.capabilities().max_value_bytes),
            mica: engine.behind().and_then(|inside| inside.downcast().ok()),
            versions: None,
            reads: None,
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
        // After the write: a sync that began before it does not cover it.
        self.unsynced.store(true, Ordering::Release);
        if let Some(versions) = &self.versions {
            // However it went: a write that failed may be there in part.
            for op in batch.iter() {
                versions.count(op.key());
            }
        }
        written
    }

    /// Removes every key, durably. The caller holds all locks.
    pub(crate) fn clear(&self) -> Result<()> {
        // As in Redis, a watched key that is not there is not changed.
        let mut watched = self.watches.keys();
        watched.retain(|key| !matches!(self.engine.get(key), Ok(None)));
        self.watches.touch(watched.iter().map(Vec::as_slice));
        let cleared = self.engine.clear();
        if let Some(versions) = &self.versions {
            // However it went: it may have been done in part.
            versions.count_all();
        }
        cleared
    }

    /// Makes durable what was written, if anything was since the last time.
    pub(crate) fn sync_if_written(&self) -> Result<()> {
        if !self.unsynced.swap(false, Ordering::AcqRel) {
            return Ok(());
        }
        self.engine.sync().inspect_err(|_| self.unsynced.store(true, Ordering::Release))
    }

    /// Whether a key and a value are within the limits and can be stored as they are, to tell before
    /// they share a batch with others.
    pub(crate) fn accepts(&self, key: &[u8], value: &[u8]) -> bool {
        let fits =
            !key.is_empty() && key.len() <= MAX_KEY_BYTES && value.len() <= self.max_value_bytes;
        fits && !(self.has_annexes() && annex::is_mistakable(value))
    }
}
