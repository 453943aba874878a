//! Background jobs: how they are queued and reported. When they run, wait and are retried is
//! described in [`Background`](siltstone_runtime::Background).
//!
//! Invariant: a queued job keeps the table only weakly: it does not delay closing.

use std::time::Instant;

use siltstone_engine::{EventKind, FileInfo, Job, Result};
use siltstone_runtime::{BackgroundWork, Priority};

use crate::core::{LogStructured, StateOf};

/// Queues `work` as a background job. `finish` runs after it, whether it succeeded or not, and
/// clears the flag in the state that says that the job is queued. After a success, jobs that have
/// become due are queued.
pub fn spawn_job<T: LogStructured>(
    table: &T,
    priority: Priority,
    finish: impl FnOnce(&mut StateOf<T>) + Send + 'static,
    work: impl FnOnce(&T) -> Result<()> + Send + 'static,
) {
    let weak = table.core().me.clone();
    table.core().env.scheduler.spawn(priority, move || {
        let Some(table) = weak.upgrade() else { return };
        if table.core().background.run(finish, || work(&table)) {
            table.core().schedule();
        }
    });
}

/// Queues a flush if one is due and none is queued.
pub fn schedule_flush<T: LogStructured>(table: &T) {
    let background = &table.core().background;
    let mut state = background.lock();
    if background.is_stopping() || !table.is_flush_due(&mut state) || state.is_flush_queued {
        return;
    }
    state.is_flush_queued = true;
    drop(state);
    let finish = |state: &mut StateOf<T>| state.is_flush_queued = false;
    spawn_job(table, Priority::Flush, finish, |table: &T| {
        table.core().with_view(|view| match view.flushing.is_empty() {
            true => Ok(()),
            false => {
                let flush = || Job::new("memtable full");
                let kinds = [EventKind::FlushBegun, EventKind::FlushCompleted];
                report_job(table, kinds, flush, || table.flush_oldest(view))
            }
        })
    });
}

/// Runs a compaction between its two events. `describe` returns its reason, levels and inputs;
/// `work` returns the files that it has added.
///
/// # Errors
/// Those of `work`.
pub fn report_compaction<T: LogStructured>(
    table: &T,
    describe: impl FnOnce() -> Job,
    work: impl FnOnce() -> Result<Vec<FileInfo>>,
) -> Result<()> {
    let kinds = [EventKind::CompactionBegun, EventKind::CompactionCompleted];
    report_job(table, kinds, describe, work)
}

/// Runs a job between its two events. Without listeners, only runs it.
fn report_job<T: LogStructured>(
    table: &T,
    [begun, completed]: [fn(Job) -> EventKind; 2],
    describe: impl FnOnce() -> Job,
    work: impl FnOnce() -> Result<Vec<FileInfo>>,
) -> Result<()> {
    let core = table.core();
    let events = &core.env.events;
    if !events.is_enabled() {
        return work().map(drop);
    }
    let mut job = describe();
    job.id = events.next_job();
    events.emit(|| begun(job.clone()));
    let start = Instant::now();
    let done = work();
    job.duration = start.elapsed();
    let done = done.map(|outputs| job.outputs = outputs);
    job.error = done.as_ref().err().cloned();
    events.emit(|| completed(job));
    core.slowdown.end_if_over(events, &core.write_controller);
    done
}
