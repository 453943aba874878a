//! The state of a growing log that its writer, its sync handles and its readers share.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use siltstone_engine::{Error, Purpose, Result};
use siltstone_vfs::{File, removed_error};

/// A growing log.
pub(super) struct Shared {
    pub(super) file: Arc<dyn File>,
    pub(super) name: String,
    pub(super) purpose: Purpose,
    /// The file's length up to the last append that succeeded.
    pub(super) written: AtomicU64,
    /// The durable length.
    pub(super) synced: AtomicU64,
    /// Why the log rejects appends.
    pub(super) fault: OnceLock<String>,
    /// Held during a sync. The system reports a failure once: a sync of another thread could
    /// succeed before the failure is recorded. Held also while an append is undone: a sync must
    /// not report bytes as durable that were removed meanwhile.
    pub(super) syncing: Mutex<()>,
}

impl Shared {
    /// The file's length up to the last append that succeeded.
    pub(super) fn written(&self) -> u64 {
        self.written.load(Ordering::Acquire)
    }

    pub(super) fn check_usable(&self) -> Result<()> {
        match self.fault.get() {
            None => Ok(()),
            Some(cause) => Err(Error::ReadOnly { cause: cause.clone() }),
        }
    }

    pub(super) fn sync(&self) -> Result<u64> {
        let _syncing = self.syncing.lock();
        self.check_usable()?;
        let written = self.written.load(Ordering::Acquire);
        self.sync_file()?;
        self.synced.fetch_max(written, Ordering::AcqRel);
        Ok(written)
    }

    /// Makes everything appended durable, and does not advance `synced`: PREV_SYNCED in the next
    /// record would state that the previous segments were synced too.
    pub(super) fn sync_alone(&self) -> Result<()> {
        let _syncing = self.syncing.lock();
        self.check_usable()?;
        self.sync_file()
    }

    fn sync_file(&self) -> Result<()> {
        self.file.sync(self.purpose).inspect_err(|error| {
            self.poison(format!("a sync of {} failed: {error}", self.name));
        })
    }

    /// Fails if the file was removed: its contents would be durable but unreachable.
    pub(super) fn check_not_removed(&self) -> Result<()> {
        if !self.file.is_removed()? {
            return Ok(());
        }
        let error = removed_error(&self.name);
        self.poison(error.to_string());
        Err(error)
    }

    /// Durably removes what comes after `len`: what a failed append has left, or records that
    /// nobody has read. This does not advance `synced`, as in [`sync_alone`](Self::sync_alone).
    pub(super) fn truncate_to(&self, len: u64, cause: &Error) -> Result<()> {
        let _syncing = self.syncing.lock();
        self.written.store(len, Ordering::Release);
        self.synced.fetch_min(len, Ordering::AcqRel);
        let truncated = self.file.set_len(len).and_then(|()| self.file.sync(self.purpose));
        match truncated {
            Ok(()) => Ok(()),
            Err(error) => {
                self.poison(format!(
                    "an append to {} failed ({cause}) and could not be undone ({error})",
                    self.name
                ));
                self.check_usable()
            }
        }
    }

    pub(super) fn poison(&self, cause: String) {
        // Report the first cause.
        let _ = self.fault.set(cause);
    }
}
