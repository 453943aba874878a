//! Flushes: full memtables become files, the oldest first and one at a time.
//!
//! The order makes the content of the files a prefix of the writes. The engine defines how a
//! memtable becomes files. The manifest edit that adds these files also advances `first_log`, the
//! first log that recovery replays; the older logs are removed after it is durable.
//!
//! Invariant: every write is in a log that recovery replays or in a file that the manifest names.

use siltstone_engine::Result;
use siltstone_runtime::BackgroundWork;

use crate::EditHeader;
use crate::core::{LogStructured, Memtable, apply_header};
use crate::jobs::schedule_flush;
use crate::stall::rotate;

/// Writes everything in memory to files, and waits until they are durable.
///
/// # Errors
/// Those of the flushes; `ReadOnly`, `Closed`.
pub fn flush<T: LogStructured>(table: &T) -> Result<()> {
    let core = table.core();
    core.background.check_writable()?;
    if let Some(writer) = core.writer.lock().as_mut() {
        if table.has_unflushed(writer) {
            rotate(table, writer, true)?;
        }
        table.force_flush(&core.view.load());
    }
    wait_for_flushes(table)
}

/// Waits until the memtables that are full now are flushed.
///
/// # Errors
/// Those of the flushes; `ReadOnly`, `Closed`.
pub fn wait_for_flushes<T: LogStructured>(table: &T) -> Result<()> {
    schedule_flush(table);
    let until = {
        let state = table.core().background.lock();
        state.flushed + state.flushing as u64
    };
    table.core().wait_while(|state| state.flushed < until).map(drop)
}

/// Flushes the writes replayed from logs at open, so that the old logs can be removed.
///
/// # Errors
/// Those of [`flush`] and of the manifest.
pub fn flush_recovered<T: LogStructured>(table: &T) -> Result<()> {
    flush(table)?;
    let core = table.core();
    let (first_log, generation) = {
        let view = core.view.load();
        (view.active.first_log(), view.generation)
    };
    let header = EditHeader { first_log: Some(first_log), ..EditHeader::default() };
    apply_header(table, generation, header)?;
    core.remove_logs_before(first_log, &[]);
    Ok(())
}
