//! Removes every key of a table with one manifest edit.
//!
//! The edit removes all files and advances the first log that recovery reads; then an empty
//! memtable replaces the memtables of the view.
//!
//! ```text
//!   writer locked ─ next log, next memtable ─ edit: no files, logs from the next one on
//!                                                │ durable
//!                                                └─ view: the empty memtable alone ─ old files go
//! ```
//!
//! The removal is atomic because it is one edit: a power cut before it leaves all keys, and a power
//! cut after it none, since no log with an earlier write is read again. Later writes are in the
//! next log.
//!
//! Running flushes and compactions are not waited for. Each has the generation of the view that it
//! began with, and the output of a job of an earlier generation is dropped. Cursors keep what they
//! read.
//!
//! Invariant: once the edit is durable, earlier writes are in no view, manifest or log that is
//! read.

use std::sync::Arc;
use std::sync::atomic::Ordering::Release;

use siltstone_engine::{Error, Result};

use crate::VersionEdit;
use crate::core::{EditOf, LogStructured, StateOf, ViewOf, Writer};
use crate::publication::publish;
use crate::stall::rotate;

/// An engine that can remove all keys at once.
pub trait Clear: LogStructured {
    /// Whether the removal has a sequence number of its own, as snapshots need it.
    const TAKES_SEQUENCE: bool = false;

    /// The edit that removes all files of a version, and the version after it.
    fn cleared(version: &Self::Version) -> (EditOf<Self>, Self::Version);

    /// Whether a version has files, or state that depends on removed keys. Without it, and with
    /// empty memtables, there is nothing to clear.
    fn has_files(version: &Self::Version) -> bool;

    /// The logs that have become files of a version.
    fn logs_of(_version: &Self::Version) -> Vec<u64> {
        Vec::new()
    }

    /// Called before readers see the removal at `sequence`; `view` is the previous view.
    fn before_clear(&self, _sequence: u64, _view: Arc<ViewOf<Self>>) {}

    /// Called with the state of background work locked, before the empty version is published.
    fn on_cleared(&self, _state: &mut StateOf<Self>) {}

    /// Makes the logs that the removal makes obsolete durable, if they are kept.
    ///
    /// # Errors
    /// I/O errors; nothing has changed.
    fn sync_cleared_logs(&self, _writer: &mut Writer<Self>) -> Result<()> {
        Ok(())
    }

    /// Called with the writer locked when the removal at `sequence` is durable, before it is
    /// visible.
    fn log_cleared(&self, _writer: &mut Writer<Self>, _sequence: u64) {}

    /// Called when the removal has failed.
    fn clear_failed(&self, _sequence: u64) {}

    /// Called when the removal is visible and the writer is unlocked again.
    fn after_clear(&self, _sequence: u64) {}
}

/// Removes every key, durably.
///
/// # Errors
/// I/O errors. After a transient error nothing has changed; after any other error the next
/// open decides.
pub fn clear<T: Clear>(table: &T) -> Result<()> {
    let core = table.core();
    let mut guard = core.writer.lock();
    let panic_guard = core.background.poison_on_panic();
    core.background.check_writable()?;
    let writer = guard.as_mut().ok_or(Error::Closed)?;
    let is_empty = {
        let view = core.view.load();
        !table.has_unflushed(writer) && view.flushing.is_empty() && !T::has_files(&view.version)
    };
    if is_empty {
        return Ok(());
    }
    rotate(table, writer, true)?;
    let durable_batch = core.parts.make_durable()?;
    table.sync_cleared_logs(writer)?;
    let first_log = writer.log.number();
    let sequence = writer.last_sequence + u64::from(T::TAKES_SEQUENCE);
    table.before_clear(sequence, core.view.load_full());
    // A flush may have installed a file that is a log and not yet taken that log from the list of
    // those to be removed. Such a log goes with the last version that names it: a checkpoint may be
    // copying it.
    let mut kept = Vec::new();
    let make_empty = |version: &T::Version| {
        let (mut edit, empty) = T::cleared(version);
        edit.header_mut().durable_batch = durable_batch;
        (edit, empty)
    };
    let cleared = core.versions.clear(first_log, sequence, make_empty, |version, edit| {
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
    table.log_cleared(writer, sequence);
    writer.last_sequence = sequence;
    core.note_durable(sequence);
    core.visible.store(sequence, Release);
    drop(panic_guard);
    drop(guard);
    // Files go with the last view that names them: no writer waits for that.
    table.after_clear(sequence);
    core.discard_logs_before(first_log, &kept);
    core.slowdown.end_if_over(&core.env.events, &core.write_controller);
    Ok(())
}
