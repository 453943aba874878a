//! Serializes checkpoints, and has a flag by which flushes see that one is running.
//!
//! A checkpoint copies files, not memtables. So while it runs, flushes retain no hot keys in
//! memory, and with a NoveLSM overlay no memtable is flushed before the overlay, which has older
//! writes.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use parking_lot::{Mutex, MutexGuard};
use siltstone_engine::Result;

/// Held by the one running checkpoint until everything in memory is in L0 runs.
#[derive(Default)]
pub(crate) struct CheckpointLock {
    is_running: AtomicBool,
    lock: Mutex<()>,
}

impl CheckpointLock {
    /// Whether a checkpoint is flushing.
    ///
    /// The caller holds the writer lock. A checkpoint sets the flag before it takes that lock to
    /// rotate the memtable, so every memtable that the checkpoint contains is rotated with the flag
    /// set.
    pub(crate) fn is_running(&self) -> bool {
        self.is_running.load(Relaxed)
    }

    /// Waits for the running checkpoint, and prevents others until the guard is dropped.
    pub(crate) fn lock(&self) -> MutexGuard<'_, ()> {
        self.lock.lock()
    }

    /// Runs `flush` with the flag set.
    pub(crate) fn while_running<T>(&self, flush: impl FnOnce() -> Result<T>) -> Result<T> {
        let _lock = self.lock();
        self.is_running.store(true, Relaxed);
        let flushed = flush();
        self.is_running.store(false, Relaxed);
        flushed
    }
}
