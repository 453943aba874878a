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
use crate::core::{LogStructured, Memtable};
use crate::jobs::schedule_flush;
use crate::publication::apply_header;
use crate::stall::rotate;

/// Writes everything in memory to files, and waits until they are durable.
///
/// # Errors
/// Those of the flushes; `ReadOnly`, `Closed`.
pub fn flush<T: LogStructured>(table: &T) -> Result<()> {
    let core = table.core();
    core.background.check_writable()?;
    let mut writer = core.writer.lock();
    if let Some(writer) = writer.as_mut().filter(|writer| table.has_unflushed(writer)) {
        rotate(table, writer, true)?;
    }
    // Counted before the flushes are forced, and while no memtable can become full: an engine may
    // leave those that become full later.
    let until = full_memtables(table);
    if writer.is_some() {
        table.force_flush(&core.view.load());
    }
    drop(writer);
    wait_until_flushed(table, until)
}

/// Waits until the memtables that are full now are flushed.
///
/// # Errors
/// Those of the flushes; `ReadOnly`, `Closed`.
pub fn wait_for_flushes<T: LogStructured>(table: &T) -> Result<()> {
    wait_until_flushed(table, full_memtables(table))
}

/// The number of memtables that have ever been full.
fn full_memtables<T: LogStructured>(table: &T) -> u64 {
    let state = table.core().background.lock();
    state.flushed + state.flushing as u64
}

/// Waits until this number of memtables is flushed.
fn wait_until_flushed<T: LogStructured>(table: &T, until: u64) -> Result<()> {
    schedule_flush(table);
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
    core.discard_logs_before(first_log, &[]);
    Ok(())
}
