//! The write path: group commit, log, memtable, visible.
//!
//! ```text
//!   write(batch) ─ group ─ leader: room? ─ log append ─ [sync] ─ memtable ─ visible := sequence
//!                                   │
//!                                   └ memtable full: next log, next memtable, queue a flush
//! ```
//!
//! A failure before the append changes nothing, and neither does an append that fails because the
//! disk is full. After any other failure of the log the outcome is unknown, and the table rejects
//! writes until it is reopened.
//!
//! Invariant: readers see a batch entirely or not at all, and only once its record is in the log.

use std::sync::atomic::Ordering::{Relaxed, Release};

use siltstone_engine::{Durability, Error, MAX_VALUE_BYTES, Result, WriteBatch};
use siltstone_table::RecordParts;

use crate::core::{LogStructured, Writer};
use crate::group::{Group, WriteRef};
use crate::stall;

/// Applies `batch` atomically.
///
/// # Errors
/// I/O errors, also of the flush or compaction that the write waits for; `ReadOnly` after an
/// earlier failure; `Closed`; invalid keys or values.
pub fn write<T: LogStructured>(
    table: &T,
    batch: &WriteBatch,
    durability: Durability,
) -> Result<()> {
    let core = table.core();
    core.background.check_writable()?;
    batch.check(MAX_VALUE_BYTES)?;
    table.check_batch(batch)?;
    if batch.is_empty() && durability == Durability::Buffered {
        return Ok(());
    }
    let write = WriteRef { batch, durability };
    core.commits.commit(
        write,
        |group| !stall::must_wait(table, &Group(*group)),
        |group| commit_group(table, &Group(group)),
    )
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
    let _guard = core.background.poison_on_panic();
    core.background.check_writable()?;
    // A sync alone takes no room in the memtable, so a full disk does not fail it here.
    let is_sync_alone = group.batches().all(|batch| batch.is_empty());
    match stall::make_room(table, &mut writer, group) {
        Err(error) if is_sync_alone && error.is_transient() => {}
        made => made?,
    }
    let writer = writer.as_mut().ok_or(Error::Closed)?;
    let logged = table.log_group(writer, group)?;
    if group.is_synced() {
        writer.log.sync().map_err(|error| core.background.poison("syncing the log", error))?;
        let durable = core.parts.make_durable();
        durable
            .map_err(|error| core.background.poison("syncing the logs of other tables", error))?;
    }
    insert(table, writer, group, logged)?;
    if group.is_synced() {
        core.note_durable(writer.last_sequence);
    }
    Ok(())
}

/// Inserts a group that is in the log into the memtable, and makes it visible.
pub(crate) fn insert<T: LogStructured>(
    table: &T,
    writer: &mut Writer<T>,
    group: &Group<'_>,
    logged: T::LoggedGroup<'_>,
) -> Result<()> {
    let core = table.core();
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
/// I/O errors. Unless the error is transient the table becomes read-only.
pub fn append<'r, T: LogStructured>(
    table: &T,
    writer: &mut Writer<T>,
    records: impl ExactSizeIterator<Item = RecordParts<'r>>,
    positions: &mut Vec<u64>,
) -> Result<()> {
    if records.len() == 0 {
        return Ok(());
    }
    let appended = match writer.part.take() {
        Some(part) => part.append(&mut writer.log, records, positions),
        None => writer.log.append(records, positions),
    };
    appended.map_err(|error| {
        table.core().background.poison_unless_transient("appending to the log", error)
    })
}
