//! Whether a checkpoint is about to take its version.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use parking_lot::{Mutex, MutexGuard};
use siltstone_engine::Result;

/// Marks the time until everything in memory is in runs of the checkpoint; one at a time.
#[derive(Default)]
pub(crate) struct CheckpointLock {
    is_begun: AtomicBool,
    lock: Mutex<()>,
}

impl CheckpointLock {
    /// Whether a checkpoint has begun. Asked while the writer is locked, as the flush of a
    /// checkpoint locks it after the change: so each memtable that the checkpoint contains, and
    /// each after it, is full only when the answer is yes.
    pub(crate) fn is_begun(&self) -> bool {
        self.is_begun.load(Relaxed)
    }

    /// Waits until no checkpoint is being made, and prevents others.
    pub(crate) fn lock(&self) -> MutexGuard<'_, ()> {
        self.lock.lock()
    }

    pub(crate) fn while_begun<T>(&self, flush: impl FnOnce() -> Result<T>) -> Result<T> {
        let _lock = self.lock();
        self.is_begun.store(true, Relaxed);
        let flushed = flush();
        self.is_begun.store(false, Relaxed);
        flushed
    }
}
