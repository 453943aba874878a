//! The write path: the records of a batch are linked into the chains of their buckets, buffered
//! until a page is full, and published to readers.
//!
//! ```text
//!   make room ─▶ one timestamp, one record per key ─▶ payload pages ─▶ links
//!     small and buffered:  journaled ─▶ pending ─▶ published ─▶ full pages are programmed
//!     else:                pending ─▶ all programmed ─▶ [flushed] ─▶ published
//! ```
//!
//! A batch is published when no later step can fail for lack of space. Until then it can be undone:
//! records that are already in pages form a group whose last record is missing, and readers and
//! recovery ignore such a group.
//!
//! Source: SkimpyFTL, section 3.3, for a put. Batches are not in the paper.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::AcqRel;

use siltstone_engine::{Durability, Error, Op, Purpose, Result, WriteBatch};

use crate::buffer_journal::Frame;
use crate::keys;
use crate::location::{self, Location};
use crate::log::Writer;
use crate::mapping::Mapping;
use crate::page::HEADER_BYTES;
use crate::record::{self, Content, FIRST, LAST, Payload, Record};
use crate::shared::Shared;
use crate::{tail, timestamp};

/// Bytes of a record beyond its operation in a batch, without skip links.
const RECORD_OVERHEAD_BYTES: u64 = 20;
/// The maximum number of operations in a batch; well below the number of pending locations.
const MAX_OPERATIONS: usize = 1 << 18;

/// Rejects a batch that exceeds a limit.
pub(crate) fn check(shared: &Shared, batch: &WriteBatch) -> Result<()> {
    batch.check(shared.options.max_value_bytes())?;
    for (what, size, limit) in [
        ("batch", batch.as_bytes().len() as u64, shared.options.capacity_bytes / 8),
        ("batch's number of operations", batch.len() as u64, MAX_OPERATIONS as u64),
    ] {
        // A single operation has limits of its own.
        if size > limit && batch.len() > 1 {
            return Err(Error::TooLarge { what, size, limit });
        }
    }
    Ok(())
}

/// Makes room for a batch, and writes it with the next timestamp.
pub(crate) fn write(
    shared: &Shared,
    mapping: &dyn Mapping,
    writer: &mut Writer,
    batch: &WriteBatch,
    durability: Durability,
) -> Result<()> {
    if batch.is_empty() {
        return match durability {
            Durability::Synced => writer.force(shared, mapping),
            Durability::Buffered => Ok(()),
        };
    }
    let overhead = batch.len() as u64 * RECORD_OVERHEAD_BYTES;
    tail::make_room(shared, mapping, writer, batch.as_bytes().len() as u64 + overhead)?;
    program_overdue(shared, mapping, writer)?;
    let timestamp = timestamp::after(writer.used, shared.env.clock.now());
    apply(shared, mapping, writer, batch, timestamp, durability)
}

/// Programs pending records: all of them if the oldest exceeds the buffer delay or the journal
/// is full, else full pages only.
fn program_overdue(shared: &Shared, mapping: &dyn Mapping, writer: &mut Writer) -> Result<()> {
    let now = shared.env.clock.now();
    let delay = shared.options.buffer_delay.as_millis() as u64;
    let is_overdue =
        writer.pending_since.is_some_and(|since| now.saturating_sub(since) >= delay.max(1));
    let is_full = writer.journal.as_ref().is_some_and(|journal| journal.is_full());
    writer.program_pending(shared, mapping, is_overdue || is_full)
}

/// Writes a batch with this timestamp. The caller has made room for it.
pub(crate) fn apply(
    shared: &Shared,
    mapping: &dyn Mapping,
    writer: &mut Writer,
    batch: &WriteBatch,
    timestamp: u64,
    durability: Durability,
) -> Result<()> {
    writer.placements.clear();
    let number = writer.number;
    let (records, has_payload) = records(shared, writer, batch, timestamp)?;
    let end = shared.buffer.end();
    let at = |index: usize| location::pending(end + index as u64);
    let mut records: Vec<(Location, Record)> =
        records.into_iter().enumerate().map(|(i, record)| (at(i), record)).collect();
    let body = shared.device.geometry.page_bytes() - HEADER_BYTES;
    mapping.link(&mut records, body);
    let records: Vec<(Location, Arc<Record>)> =
        records.into_iter().map(|(at, record)| (at, Arc::new(record))).collect();
    let own = || records.iter().map(|(_, record)| record.clone());
    let is_small = !has_payload && batch.as_bytes().len() < body;
    if durability == Durability::Buffered && (is_small || shared.vfs.is_none()) {
        if let Some(journal) = &mut writer.journal {
            let (epoch, durable) = (writer.epoch, writer.durable);
            let batch = batch.clone();
            let frame = Frame { epoch, timestamp, previous: writer.last, durable, batch };
            journal
                .append(&frame)
                .map_err(|error| shared.poison_unless_transient("journal a batch", error))?;
        }
        match mapping.accumulated_pages() {
            0 => shared.buffer.push(own()),
            _ => shared.buffer.accumulate(own()),
        }
        publish(shared, mapping, writer, &records, number, timestamp);
        writer.pending_since.get_or_insert_with(|| shared.env.clock.now());
        // The batch is journaled and visible, so this error is left to the next write, which is
        // refused if the table is read-only by then.
        let _ = writer.program_pending(shared, mapping, false);
        return Ok(());
    }
    // The batch is packed separately and last, so that it can be undone.
    mapping.pack_accumulated(&shared.buffer, writer.number);
    shared.buffer.push(own());
    let programmed = match durability {
        Durability::Buffered => writer.program_pending(shared, mapping, true),
        Durability::Synced => writer.force(shared, mapping),
    };
    if let Err(error) = programmed {
        shared.buffer.truncate(end);
        // The timestamp cannot be reused: pages of the failed batch carry it.
        writer.used = timestamp;
        mapping.abandon(timestamp, writer.number);
        return Err(error);
    }
    let programmed: Vec<_> = records
        .into_iter()
        .enumerate()
        .map(|(index, (_, record))| (writer.location_of(end + index as u64), record))
        .collect();
    publish(shared, mapping, writer, &programmed, number, timestamp);
    Ok(())
}

fn publish(
    shared: &Shared,
    mapping: &dyn Mapping,
    writer: &mut Writer,
    records: &[(Location, Arc<Record>)],
    number: u64,
    timestamp: u64,
) {
    mapping.publish(records, number);
    writer.last = timestamp;
    writer.used = writer.used.max(timestamp);
    shared.visible.fetch_max(timestamp, AcqRel);
}

/// The records of a batch as one group: the last operation of each key. Programs the payload pages
/// of records that do not fit a page, and returns whether there are any.
fn records(
    shared: &Shared,
    writer: &mut Writer,
    batch: &WriteBatch,
    timestamp: u64,
) -> Result<(Vec<Record>, bool)> {
    let mut last_of: HashMap<&[u8], usize> = HashMap::new();
    let operations: Vec<Op<'_>> = batch.iter().collect();
    for (index, op) in operations.iter().enumerate() {
        last_of.insert(op.key(), index);
    }
    let body = shared.device.geometry.page_bytes() - HEADER_BYTES;
    let mut has_payload = false;
    let mut records = Vec::with_capacity(last_of.len());
    for (index, op) in operations.into_iter().enumerate() {
        if last_of.get(op.key()) != Some(&index) {
            continue;
        }
        let mut record = Record::of(op, timestamp, keys::hash(op.key()));
        // A relocated first record of a group is longer, and must fit a page, too.
        if record.encoded_bytes() + record::SINCE_BYTES > body {
            has_payload = true;
            program_payload_of(shared, writer, &mut record)?;
        }
        records.push(record);
    }
    if let Some(first) = records.first_mut() {
        first.marks |= FIRST;
    }
    if let Some(last) = records.last_mut() {
        last.marks |= LAST;
    }
    Ok((records, has_payload))
}

fn program_payload_of(shared: &Shared, writer: &mut Writer, record: &mut Record) -> Result<()> {
    let value = match &mut record.content {
        Content::Value(value) => std::mem::take(value),
        _ => Vec::new(),
    };
    let parts = [record.key.as_slice(), &value];
    let pages = writer.program_payload(shared, record, parts, Purpose::Flush)?;
    let (key_bytes, value_bytes) = (record.key.len(), value.len());
    record.payload = Some(Payload { key_bytes, value_bytes, pages });
    Ok(())
}
