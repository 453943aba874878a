//! Room for the next write: throttling, memtable rotation, write stalls.
//!
//! Writers are delayed in proportion to the backlog of background work before they are stopped: see
//! [`WriteController`](siltstone_runtime::WriteController). A full memtable is rotated: the log is
//! continued in a new file, and a flush job is queued. Writers stop while every memtable is full or
//! compactions are too far behind.
//!
//! Invariant: no lock is held while a writer waits.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use parking_lot::MutexGuard;
use siltstone_engine::{Error, Result};
use siltstone_runtime::{BackgroundWork, WriteStall};

use crate::core::{LogStructured, Writer};
use crate::group::Group;
use crate::jobs::schedule_flush;
use crate::publication::publish;

/// Makes room for `group` in the active memtable. The writer is unlocked while this waits.
pub(crate) fn make_room<T: LogStructured>(
    table: &T,
    writer: &mut MutexGuard<'_, Option<Writer<T>>>,
    group: &Group<'_>,
) -> Result<()> {
    let core = table.core();
    let fill = writer.as_ref().map_or(0.0, |open| table.fill(open));
    let written = core.written.user_bytes.load(Relaxed);
    if let Some(delay) = core.write_controller.delay_for(written, fill) {
        core.slowdown.begin(&core.env.events);
        let (scheduler, stalls) = (&core.env.scheduler, &core.written.stalls);
        let apply_delay = || core.write_controller.apply_delay(delay, scheduler, stalls);
        MutexGuard::unlocked(writer, apply_delay);
    }
    loop {
        if try_make_room(table, writer.as_mut().ok_or(Error::Closed)?, group)? {
            return Ok(());
        }
        MutexGuard::unlocked(writer, || wait_for_room(table))?;
        core.background.check_writable()?;
    }
}

/// Makes room for `group` without waiting; `false`: there is none.
pub(crate) fn try_make_room<T: LogStructured>(
    table: &T,
    writer: &mut Writer<T>,
    group: &Group<'_>,
) -> Result<bool> {
    if !table.is_full(writer, group) {
        return Ok(true);
    }
    match table.may_rotate(writer) {
        true => rotate(table, writer, false).map(|()| true),
        false => table.make_other_room(writer),
    }
}

/// Whether [`make_room`] would wait for `group`. If so, a leader whose own write is done must not
/// commit it for others.
pub(crate) fn must_wait<T: LogStructured>(table: &T, group: &Group<'_>) -> bool {
    table.core().writer.lock().as_ref().is_some_and(|open| lacks_room(table, open, group))
}

/// The same for a write that has not begun, which would wait for another writer as well. Does not
/// wait for that one either.
pub(crate) fn would_wait<T: LogStructured>(table: &T, group: &Group<'_>) -> bool {
    let writer = table.core().writer.try_lock();
    // A closed table refuses the write at once.
    writer.is_none_or(|writer| writer.as_ref().is_some_and(|open| lacks_room(table, open, group)))
}

fn lacks_room<T: LogStructured>(table: &T, open: &Writer<T>, group: &Group<'_>) -> bool {
    table.core().write_controller.is_throttling(table.fill(open))
        || (table.is_full(open, group) && !table.may_rotate(open))
}

/// Waits until a memtable is free and compactions have caught up.
fn wait_for_room<T: LogStructured>(table: &T) -> Result<()> {
    let core = table.core();
    let stalls = &core.written.stalls;
    core.stall_while(stalls, WriteStall::Flush, |state| table.is_flush_awaited(state))?;
    core.stall_while(stalls, WriteStall::Compaction, |_| table.is_compaction_behind())
}

/// Continues in a new log and a new memtable, and queues the full one for its flush; with
/// `overlay`, the overlay behind it.
///
/// # Errors
/// I/O errors; the old log and memtable are continued.
pub fn rotate<T: LogStructured>(table: &T, writer: &mut Writer<T>, overlay: bool) -> Result<()> {
    let core = table.core();
    let _guard = core.background.poison_on_panic();
    let number = table
        .begin_log(writer)
        .map_err(|error| core.background.poison_if_read_only("beginning a log", error))?;
    let next = Arc::new(table.next_memtable(writer, number, overlay));
    let mut state = core.background.lock();
    state.logs.push(number);
    writer.memtable = next.clone();
    publish(table, &mut state, |view| {
        view.flushing.push(std::mem::replace(&mut view.active, next));
        if overlay {
            view.flushing.extend(view.overlay.take());
        }
    });
    drop(state);
    schedule_flush(table);
    Ok(())
}
