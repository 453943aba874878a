//! The write path: group commit, log, memtable, visible.
//!
//! ```text
//!   write(batch) ─ group ─ leader: room? ─ log append ─ [sync] ─ memtable ─ visible := sequence
//!                                   │
//!                                   └ memtable full: next log, next memtable, queue a flush
//! ```
//!
//! A failure before the append changes nothing, and neither does an append that fails for want of
//! space. After any other failure of the log the outcome is unknown, and the table rejects writes
//! until it is reopened.
//!
//! Invariant: readers see a batch entirely or not at all, and only once its record is in the log.

use std::sync::atomic::Ordering::{Relaxed, Release};

use siltstone_engine::{Durability, Error, Result, WriteBatch};
use siltstone_table::RecordParts;

use crate::core::{LogStructured, Writer};
use crate::group::{Group, QueuedWrite};
use crate::stall;

/// Applies `batch` atomically.
///
/// # Errors
/// Those of the medium, and what keeps background work from making room; `ReadOnly`, `Closed`.
pub fn write<T: LogStructured>(
    table: &T,
    batch: &WriteBatch,
    durability: Durability,
) -> Result<()> {
    let core = table.core();
    core.background.check_writable()?;
    batch.check(T::MAX_VALUE_BYTES)?;
    table.check_batch(batch)?;
    if batch.is_empty() && durability == Durability::Buffered {
        return Ok(());
    }
    let queue = || QueuedWrite { batch: batch.clone(), durability };
    let lead = |followers: &[QueuedWrite]| {
        commit_group(table, &Group { own: batch, durability, followers })
    };
    core.commits.commit(queue, lead)
}

/// Makes every write that has returned durable.
///
/// # Errors
/// Those of [`write`](fn@write).
pub fn sync<T: LogStructured>(table: &T) -> Result<()> {
    write(table, &WriteBatch::new(), Durability::Synced)
}

/// Commits a group as its leader.
fn commit_group<T: LogStructured>(table: &T, group: &Group<'_>) -> Result<()> {
    let core = table.core();
    let mut writer = core.writer.lock();
    core.background.check_writable()?;
    // A sync alone takes no room, and does not fail for want of any.
    let is_sync_alone = group.batches().all(|batch| batch.is_empty());
    match stall::make_room(table, &mut writer, group) {
        Err(error) if is_sync_alone && error.is_transient() => {}
        made => made?,
    }
    let writer = writer.as_mut().ok_or(Error::Closed)?;
    let logged = table.log_group(writer, group)?;
    if group.is_synced() {
        writer.log.sync().map_err(|error| core.background.poison("syncing the log", error))?;
    }
    table.insert_group(writer, group, logged)?;
    for batch in group.batches() {
        core.written.user_bytes.fetch_add(batch.user_bytes(), Relaxed);
        core.written.operations.fetch_add(batch.len() as u64, Relaxed);
    }
    // Everything up to this sequence number is in the memtable: readers see it from now on, at
    // once.
    core.visible.store(writer.last_sequence, Release);
    Ok(())
}

/// Appends records to the log with one request, and adds their positions to `positions`.
///
/// # Errors
/// Those of the medium. Unless the error is transient the table becomes read-only.
pub fn append<T: LogStructured>(
    table: &T,
    writer: &mut Writer<T>,
    records: &[RecordParts<'_>],
    positions: &mut Vec<u64>,
) -> Result<()> {
    if records.is_empty() {
        return Ok(());
    }
    let appended = writer.log.append(records, positions);
    appended.map_err(|error| {
        table.core().background.poison_unless_transient("appending to the log", error)
    })
}
