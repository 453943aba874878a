//! How a batch is written: linked, kept, published.
//!
//! ```text
//!   room for it ─▶ one timestamp, one record a key ─▶ payloads ─▶ links
//!     small and buffered:  staged ─▶ pending ─▶ published ─▶ full pages are programmed
//!     else:                pending ─▶ all programmed ─▶ [flushed] ─▶ published
//! ```
//!
//! A batch is published when nothing that it needs can fail any more for want of space; until then it
//! can be taken back, and what is already in pages is a group without an end, which nobody reads.
//!
//! Source: SkimpyFTL, section 3.3, for a put; batches are ours.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Relaxed};

use siltstone_engine::{Durability, Error, Op, Purpose, Result, WriteBatch};

use crate::engine::Inner;
use crate::keys;
use crate::location::{self, Location};
use crate::log::Writer;
use crate::page::HEADER_BYTES;
use crate::record::{self, Content, FIRST, LAST, Payload, Record};
use crate::stage::Frame;
use crate::timestamp;

/// What a record takes more than its operation in a batch, if it has no detours.
const HEAD_BYTES: u64 = 20;
/// Operations of a batch: far fewer than there are numbers of pending records.
const MOST_OPERATIONS: usize = 1 << 18;

impl Inner {
    pub(crate) fn write(&self, batch: &WriteBatch, durability: Durability) -> Result<()> {
        self.check_writable()?;
        batch.check(self.options.max_value_bytes())?;
        for (what, size, limit) in [
            ("batch", batch.as_bytes().len() as u64, self.options.capacity_bytes / 8),
            ("batch's number of operations", batch.len() as u64, MOST_OPERATIONS as u64),
        ] {
            // One operation that is within its own limits is no batch.
            if size > limit && batch.len() > 1 {
                return Err(Error::TooLarge { what, size, limit });
            }
        }
        self.with_writer(|writer| {
            if batch.is_empty() {
                return match durability {
                    Durability::Synced => writer.force(self),
                    Durability::Buffered => Ok(()),
                };
            }
            let heads = batch.len() as u64 * HEAD_BYTES;
            self.make_room(writer, batch.as_bytes().len() as u64 + heads)?;
            self.pack_what_is_old(writer)?;
            let timestamp = timestamp::after(writer.used, self.env.clock.now());
            self.apply(writer, batch, timestamp, durability)
        })?;
        self.counters.writes.fetch_add(batch.len() as u64, Relaxed);
        self.counters.user_bytes.fetch_add(batch.user_bytes(), Relaxed);
        Ok(())
    }

    /// Programs a page that has waited long enough for others to share it, or a buffer whose
    /// keeper is full.
    fn pack_what_is_old(&self, writer: &mut Writer) -> Result<()> {
        let now = self.env.clock.now();
        let pack = self.options.pack.as_millis() as u64;
        let is_old =
            writer.pending_since.is_some_and(|since| now.saturating_sub(since) >= pack.max(1));
        let is_full = writer.stage.as_ref().is_some_and(|stage| stage.is_full());
        if is_old || is_full { writer.place(self, true) } else { writer.place(self, false) }
    }

    /// Writes a batch with its timestamp; there is room for it.
    pub(crate) fn apply(
        &self,
        writer: &mut Writer,
        batch: &WriteBatch,
        timestamp: u64,
        durability: Durability,
    ) -> Result<()> {
        writer.moved.clear();
        let number = writer.number;
        let (records, has_payload) = self.records(writer, batch, timestamp)?;
        let end = self.pending.end();
        let at = |index: usize| location::pending(end + index as u64);
        let mut records: Vec<(Location, Record)> =
            records.into_iter().enumerate().map(|(i, record)| (at(i), record)).collect();
        let body = self.device.geometry.page_bytes() - HEADER_BYTES;
        self.mapping.link(&mut records, body);
        let records: Vec<(Location, Arc<Record>)> =
            records.into_iter().map(|(at, record)| (at, Arc::new(record))).collect();
        let own = || records.iter().map(|(_, record)| record.clone());
        let is_small = !has_payload && batch.as_bytes().len() < body;
        if durability == Durability::Buffered && (is_small || self.vfs.is_none()) {
            if let Some(stage) = &mut writer.stage {
                let (epoch, durable) = (writer.epoch, writer.durable);
                let batch = batch.clone();
                let frame = Frame { epoch, timestamp, previous: writer.last, durable, batch };
                stage.append(&frame).map_err(|error| self.doubt("stage a batch", error))?;
            }
            match self.mapping.together() {
                0 => self.pending.push(own()),
                _ => self.pending.gather(own()),
            }
            self.publish(writer, &records, number, timestamp);
            writer.pending_since.get_or_insert_with(|| self.env.clock.now());
            // It is kept and visible: that a page can't be programmed now is the next write's
            // affair, which is refused if the table is read-only by it.
            let _ = writer.place(self, false);
            return Ok(());
        }
        // Alone, and behind all that waits: so it can be taken back.
        self.mapping.settle(&self.pending, writer.number);
        self.pending.push(own());
        let programmed = match durability {
            Durability::Buffered => writer.place(self, true),
            Durability::Synced => writer.force(self),
        };
        if let Err(error) = programmed {
            self.pending.truncate(end);
            // Its timestamp is used up: what is in pages bears it.
            writer.used = timestamp;
            self.mapping.give_up(timestamp, writer.number);
            return Err(error);
        }
        let placed: Vec<_> = records
            .into_iter()
            .enumerate()
            .map(|(index, (_, record))| (writer.place_of(end + index as u64), record))
            .collect();
        self.publish(writer, &placed, number, timestamp);
        Ok(())
    }

    fn publish(
        &self,
        writer: &mut Writer,
        records: &[(Location, Arc<Record>)],
        number: u64,
        timestamp: u64,
    ) {
        self.mapping.publish(records, number);
        writer.last = timestamp;
        writer.used = writer.used.max(timestamp);
        self.visible.fetch_max(timestamp, AcqRel);
    }

    /// The records of a batch, the last of each key, as a group; and whether any has a payload in pages,
    /// which is programmed then.
    fn records(
        &self,
        writer: &mut Writer,
        batch: &WriteBatch,
        timestamp: u64,
    ) -> Result<(Vec<Record>, bool)> {
        let mut last_of: HashMap<&[u8], usize> = HashMap::new();
        let operations: Vec<Op<'_>> = batch.iter().collect();
        for (index, op) in operations.iter().enumerate() {
            last_of.insert(op.key(), index);
        }
        let body = self.device.geometry.page_bytes() - HEADER_BYTES;
        let mut has_payload = false;
        let mut records = Vec::with_capacity(last_of.len());
        for (index, op) in operations.into_iter().enumerate() {
            if last_of.get(op.key()) != Some(&index) {
                continue;
            }
            let mut record = Record::of(op, timestamp, keys::hash(op.key()));
            // It may be remapped as the first of a group, and must fit a page then, too.
            if record.encoded_bytes() + record::SINCE_BYTES > body {
                has_payload = true;
                self.put_in_pages(writer, &mut record)?;
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

    fn put_in_pages(&self, writer: &mut Writer, record: &mut Record) -> Result<()> {
        let value = match &mut record.content {
            Content::Value(value) => std::mem::take(value),
            _ => Vec::new(),
        };
        let parts = [record.key.as_slice(), &value];
        let pages = writer.program_payload(self, record, parts, Purpose::Flush)?;
        let (key_bytes, value_bytes) = (record.key.len(), value.len());
        record.payload = Some(Payload { key_bytes, value_bytes, pages });
        Ok(())
    }

    /// Gives a record that is remapped its payload in new pages.
    pub(crate) fn repay(&self, writer: &mut Writer, record: &mut Record) -> Result<()> {
        if record.payload.is_none() || record.is_buried() {
            return Ok(());
        }
        record.key.clear();
        self.device.load(record, true, Purpose::Compaction)?;
        let value = match &mut record.content {
            Content::Value(value) => std::mem::take(value),
            _ => Vec::new(),
        };
        let parts = [record.key.as_slice(), &value];
        let pages = writer.program_payload(self, record, parts, Purpose::Compaction)?;
        if let Some(payload) = &mut record.payload {
            payload.pages = pages;
        }
        Ok(())
    }
}
