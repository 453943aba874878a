//! Removing every key: the files leave the manifest, the memtables the view.
//!
//! ```text
//!   writer locked ─ next log, next memtable ─ edit: no files, logs from the next one on
//!                                                │ durable
//!                                                └─ view: the empty memtable alone ─ old files go
//! ```
//!
//! The edit is the one moment at which all keys are removed: before it a power cut leaves
//! everything, after it nothing, since no log with an earlier write is read again. Later writes are
//! in the next log.
//!
//! Running flushes and compactions are not waited for. Each knows the generation of the view that
//! it began with; what it has made from an earlier one is dropped. Cursors keep what they read.
//!
//! Invariant: once the edit is durable, earlier writes are in no view, manifest or log that is
//! read.

use std::sync::Arc;
use std::sync::atomic::Ordering::Release;

use siltstone_engine::{Error, Result};

use crate::core::{EditOf, LogStructured, StateOf, ViewOf, publish};
use crate::stall::rotate;

/// An engine that can remove all keys at once.
pub trait Clear: LogStructured {
    /// Whether the removal has a sequence number of its own, as snapshots need it.
    const TAKES_SEQUENCE: bool = false;

    /// The edit that removes all files of a version, and the version after it.
    fn cleared(version: &Self::Version) -> (EditOf<Self>, Self::Version);

    /// Whether a version has neither files nor traces of removed keys.
    fn has_files(version: &Self::Version) -> bool;

    /// The logs that have become files of a version.
    fn logs_of(_version: &Self::Version) -> Vec<u64> {
        Vec::new()
    }

    /// Called before the removal at `sequence` can be seen; `view` is what was there before.
    fn before_clear(&self, _sequence: u64, _view: Arc<ViewOf<Self>>) {}

    /// Called with the state of background work locked, before the empty version is published.
    fn on_cleared(&self, _state: &mut StateOf<Self>) {}

    /// Called when the removal has failed.
    fn clear_failed(&self, _sequence: u64) {}

    /// Called when the removal is visible and the writer is unlocked again.
    fn after_clear(&self, _sequence: u64) {}
}

/// Removes every key, durably.
///
/// # Errors
/// Those of the medium. After a transient error nothing has changed; after any other error the next
/// open decides.
pub fn clear<T: Clear>(table: &T) -> Result<()> {
    let core = table.core();
    let mut guard = core.writer.lock();
    core.background.check_writable()?;
    let writer = guard.as_mut().ok_or(Error::Closed)?;
    let is_bare = {
        let view = core.view.load();
        !table.has_unflushed(writer) && view.flushing.is_empty() && !T::has_files(&view.version)
    };
    if is_bare {
        return Ok(());
    }
    rotate(table, writer, true)?;
    let first_log = writer.log.number();
    let sequence = writer.last_sequence + u64::from(T::TAKES_SEQUENCE);
    table.before_clear(sequence, core.view.load_full());
    // A flush may have installed a file that is a log and not yet taken that log from the list of
    // those to be removed. Such a log goes with the last version that names it: a checkpoint may be
    // copying it.
    let mut kept = Vec::new();
    let cleared = core.versions.clear(first_log, sequence, T::cleared, |version, edit| {
        kept = T::logs_of(&core.view.load().version);
        let mut state = core.background.lock();
        table.on_cleared(&mut state);
        table.on_new_version(&mut state, version, edit);
        publish(table, &mut state, |view| {
            view.flushing.clear();
            view.version = version.clone();
            view.generation += 1;
        });
    });
    if let Err(error) = cleared {
        table.clear_failed(sequence);
        return Err(core.background.poison_unless_transient("clearing", error));
    }
    writer.last_sequence = sequence;
    core.visible.store(sequence, Release);
    drop(guard);
    // Files go with the last view that names them: no writer waits for that.
    table.after_clear(sequence);
    core.remove_logs_before(first_log, &kept);
    Ok(())
}
