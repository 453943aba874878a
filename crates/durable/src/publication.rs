//! Changes of what reads see: a new view, after a new version of the files or without one.
//!
//! ```text
//!   apply_edit ─ version set: manifest durable ─ state locked ─ on_new_version ─ publish
//! ```
//!
//! Invariant: readers load the version of an edit only after the manifest names it durably.

use std::sync::Arc;

use siltstone_engine::Result;
use siltstone_table::SegmentLink;

use crate::core::{EditOf, LogStructured, StateOf, ViewOf, are_memtables_exhausted};
use crate::{EditHeader, VersionEdit, View};

/// Changes the view that reads load.
pub fn publish<T: LogStructured>(
    table: &T,
    state: &mut StateOf<T>,
    change: impl FnOnce(&mut ViewOf<T>),
) {
    let core = table.core();
    let mut view = View::clone(&core.view.load());
    let before = view.flushing.len();
    change(&mut view);
    state.flushing = view.flushing.len();
    state.flushed += before.saturating_sub(state.flushing) as u64;
    core.write_controller.set_memtables_exhausted(are_memtables_exhausted(table, state));
    core.write_controller.set(table.pressure(state, &view));
    core.view.store(Arc::new(view));
    core.background.notify();
}

/// Applies `edit` durably and publishes its version, with the view changed further by `change`.
/// `make_version` opens the files that the edit adds. Returns `false`, and changes nothing, if all
/// keys were removed since the view of `generation`: the files are garbage then.
///
/// Parts of batches over several tables that the edit makes durable are made durable in the other
/// tables first.
///
/// # Errors
/// Those of [`VersionSet::log_and_apply`](crate::VersionSet::log_and_apply), and of syncing the
/// logs of other tables.
pub fn apply_edit<T: LogStructured>(
    table: &T,
    generation: u64,
    mut edit: EditOf<T>,
    make_version: impl FnOnce(&T::Version, &mut EditOf<T>) -> Result<T::Version>,
    change: impl FnOnce(&mut ViewOf<T>),
) -> Result<bool> {
    let core = table.core();
    edit.header_mut().durable_batch = core.parts.make_durable()?;
    let mut newest = None;
    let applied =
        core.versions.log_and_apply(generation, edit, make_version, |version, edit| {
            newest = edit.header().last_sequence;
            let mut state = core.background.lock();
            table.on_new_version(&mut state, version, edit);
            publish(table, &mut state, |view| {
                view.version = version.clone();
                change(view);
            });
        })?;
    // Memtables are flushed in their order, so files have all writes up to their newest one.
    newest.into_iter().for_each(|newest| core.note_durable(newest));
    Ok(applied)
}

/// Records a fact about the logs in the manifest: an edit that changes no files.
pub(crate) fn apply_header<T: LogStructured>(
    table: &T,
    generation: u64,
    header: EditHeader,
) -> Result<bool> {
    let mut edit = EditOf::<T>::default();
    *edit.header_mut() = header;
    let unchanged = |version: &T::Version, _: &mut EditOf<T>| Ok(version.clone());
    table.core().versions.log_and_apply(generation, edit, unchanged, |_, _| ())
}

/// Closes the table: ends background work by `stop`, seals log and manifest.
///
/// # Errors
/// I/O errors; `ReadOnly` if an earlier fault may have lost buffered writes.
pub(crate) fn close<T: LogStructured>(table: &T, stop: impl FnOnce()) -> Result<()> {
    let core = table.core();
    if !core.background.close() {
        return Ok(());
    }
    stop();
    core.slowdown.end(&core.env.events);
    let writer = core.writer.lock().take();
    match writer {
        // After a fault the state of the log is unknown: the next open finds out.
        Some(writer) if !core.background.is_poisoned() => {
            // A sealed log is complete: nothing of it can be removed for the sake of other tables.
            let durable_batch = core.parts.make_durable()?;
            let SegmentLink { number, bytes } = writer.log.seal()?;
            let sealed_log = Some((number, bytes));
            let header = EditHeader { sealed_log, durable_batch, ..EditHeader::default() };
            apply_header(table, core.view.load().generation, header)?;
            core.versions.close()
        }
        _ => core.background.check_not_poisoned(),
    }
}
