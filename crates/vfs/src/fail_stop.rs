//! A directory whose first failed sync is final.
//!
//! A failed sync leaves the names that it covers in doubt, and a later sync that succeeds does not
//! change that: the system reports an error once. So after a failed sync of the directory every
//! later one fails, too, whoever calls it. Syncs exclude each other, so a sync that succeeds has
//! ended before the failed one began, and it covers every name that existed then.
//!
//! Only syncs of the directory are handled here. The owner of a file has to apply the same rule to
//! syncs of the file.
//!
//! Invariant: no sync of the directory returns successfully once one has begun that fails.
//!
//! Source: Rebello et al., "Can Applications Recover from fsync Failures?", ATC 2020.

use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;
use siltstone_engine::{Error, IoCounters, Purpose, Result};

use crate::{File, LockGuard, Mapping, Mode, OpenFileCounts, Vfs};

/// A [`Vfs`] that fails every sync of the directory after a failed one. Only a new wrapper syncs
/// again.
pub struct FailStopVfs {
    inner: Arc<dyn Vfs>,
    /// The reason why no sync can succeed any more. The lock is held during a sync.
    fault: Mutex<Option<String>>,
}

impl FailStopVfs {
    /// Wraps a directory. A table does so when it is opened, for all its threads.
    #[must_use]
    pub fn new(inner: Arc<dyn Vfs>) -> Self {
        FailStopVfs { inner, fault: Mutex::new(None) }
    }
}

impl Vfs for FailStopVfs {
    fn name(&self) -> String {
        self.inner.name()
    }

    fn create(&self, name: &str) -> Result<Arc<dyn File>> {
        self.inner.create(name)
    }

    fn create_append(&self, name: &str) -> Result<Arc<dyn File>> {
        self.inner.create_append(name)
    }

    fn open(&self, name: &str, mode: Mode) -> Result<Arc<dyn File>> {
        self.inner.open(name, mode)
    }

    fn exists(&self, name: &str) -> Result<bool> {
        self.inner.exists(name)
    }

    fn list(&self) -> Result<Vec<String>> {
        self.inner.list()
    }

    fn remove(&self, name: &str) -> Result<()> {
        self.inner.remove(name)
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        self.inner.rename(from, to)
    }

    /// # Errors
    /// Those of the wrapped directory; `ReadOnly` after any of them.
    fn sync_dir(&self, purpose: Purpose) -> Result<()> {
        let mut fault = self.fault.lock();
        if let Some(cause) = &*fault {
            return Err(Error::ReadOnly { cause: cause.clone() });
        }
        let synced = self.inner.sync_dir(purpose);
        *fault = synced.as_ref().err().map(|error| format!("an earlier sync failed: {error}"));
        synced
    }

    fn subdirectory(&self, name: &str) -> Result<Arc<dyn Vfs>> {
        self.inner.subdirectory(name)
    }

    fn subdirectories(&self) -> Result<Vec<String>> {
        self.inner.subdirectories()
    }

    fn has_subdirectory(&self, name: &str) -> Result<bool> {
        self.inner.has_subdirectory(name)
    }

    fn remove_subdirectory(&self, name: &str) -> Result<()> {
        self.inner.remove_subdirectory(name)
    }

    fn lock(&self, name: &str) -> Result<LockGuard> {
        self.inner.lock(name)
    }

    fn share_lock(&self, name: &str) -> Result<LockGuard> {
        self.inner.share_lock(name)
    }

    fn link(&self, name: &str, target: &dyn Vfs, to_name: &str) -> Result<bool> {
        self.inner.link(name, target, to_name)
    }

    fn link_target(&self) -> Option<&dyn Vfs> {
        Some(self.inner.as_ref())
    }

    fn map(&self, name: &str, bytes: u64) -> Result<Mapping> {
        self.inner.map(name, bytes)
    }

    fn map_private(&self, name: &str, bytes: u64) -> Result<Option<Mapping>> {
        self.inner.map_private(name, bytes)
    }

    fn open_dir(&self, path: &Path) -> Result<Arc<dyn Vfs>> {
        self.inner.open_dir(path)
    }

    fn is_append_only(&self) -> bool {
        self.inner.is_append_only()
    }

    fn path(&self) -> Option<&Path> {
        self.inner.path()
    }

    fn counters(&self) -> Option<Arc<IoCounters>> {
        self.inner.counters()
    }

    fn open_files(&self) -> Option<OpenFileCounts> {
        self.inner.open_files()
    }
}
