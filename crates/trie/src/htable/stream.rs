//! Iterates over all items of a table in hash order, with one segment in memory.
//!
//! Within a segment items are in bucket order except for those that migrated, so a segment is read
//! completely and its items are sorted, which is cheap. Items of the special bucket are read one by
//! one when they are accessed.
//!
//! Invariant: hashes ascend from segment to segment and within one; after the last segment the
//! number of items equals that in the footer, unless segments were skipped.

use std::sync::Arc;

use siltstone_engine::{Purpose, Result};

use super::bucket::ItemFormat;
use super::directory::segment_of;
use super::table::HTable;
use crate::hash::{Hash, HashKind};
use crate::item::Item;

/// The maximum size of a read.
const REQUEST_BYTES: usize = 1 << 20;

/// An item of the segment in memory.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Slot {
    pub(crate) hash: Hash,
    location: ItemLocation,
}

#[derive(Debug, Clone, Copy)]
enum ItemLocation {
    /// Offset in the bytes of the buckets.
    Bucket { at: u32, item_format: ItemFormat },
    /// Index in the table's special items.
    Special(u32),
}

/// An iterator over the segments of a table.
pub(crate) struct Stream {
    table: Arc<HTable>,
    kind: HashKind,
    purpose: Purpose,
    /// The next segment.
    next: usize,
    bytes: Vec<u8>,
    slots: Vec<Slot>,
    items: u64,
    /// Segments were skipped, so the items are not complete.
    is_partial: bool,
}

impl Stream {
    pub(crate) fn new(table: Arc<HTable>, kind: HashKind, purpose: Purpose) -> Self {
        let (bytes, slots) = (Vec::new(), Vec::new());
        Stream { table, kind, purpose, next: 0, bytes, slots, items: 0, is_partial: false }
    }

    /// The table has 2^`bits` segments.
    pub(crate) fn bits(&self) -> u32 {
        self.table.directory().bits()
    }

    /// The number of segments loaded so far.
    pub(crate) fn loaded(&self) -> usize {
        self.next
    }

    /// Continues at this segment.
    pub(crate) fn skip_to(&mut self, segment: usize) {
        self.next = segment;
        self.is_partial = true;
    }

    /// Loads the next segment; `false`: there is none.
    ///
    /// # Errors
    /// `Corruption`; errors of the file system.
    pub(crate) fn load_next(&mut self) -> Result<bool> {
        self.slots.clear();
        self.bytes.clear();
        let directory = self.table.directory();
        let Some(segment) = directory.segments().get(self.next).copied() else { return Ok(false) };
        let bucket_bytes = self.table.bucket_bytes() as usize;
        let range = directory.buckets_of(&segment, self.table.bucket_bytes());
        self.bytes.resize((range.end - range.start) as usize, 0);
        for (part, chunk) in self.bytes.chunks_mut(REQUEST_BYTES).enumerate() {
            let offset = segment.offset + (part * REQUEST_BYTES) as u64;
            self.table.read(offset, chunk, self.purpose)?;
        }
        for (number, bucket) in self.bytes.chunks(bucket_bytes).enumerate() {
            let start = number * bucket_bytes;
            let offset = segment.offset + start as u64;
            let (header, items) = self.table.open_bucket(offset, bucket)?;
            let head = start + bucket.len().min(super::bucket::BUCKET_HEADER_BYTES);
            for item in header.items(items) {
                let (at, item_format, item) =
                    item.ok_or_else(|| self.table.malformed_item(offset))?;
                let location = ItemLocation::Bucket { at: (head + at) as u32, item_format };
                self.slots.push(Slot { hash: self.kind.hash(item.key), location });
            }
        }
        let (specials, bits) = (self.table.specials(), directory.bits());
        let from = specials.partition_point(|s| segment_of(s.hash.suffix, bits) < self.next);
        for (at, special) in (from as u32..).zip(&specials[from..]) {
            if segment_of(special.hash.suffix, bits) > self.next {
                break;
            }
            self.slots.push(Slot { hash: special.hash, location: ItemLocation::Special(at) });
        }
        self.slots.sort_unstable_by_key(|slot| slot.hash);
        let is_in_segment = |slot: &Slot| segment_of(slot.hash.suffix, bits) == self.next;
        let are_in_segment = self.slots.first().is_none_or(is_in_segment)
            && self.slots.last().is_none_or(is_in_segment);
        self.items += self.slots.len() as u64;
        self.next += 1;
        let is_last = self.next == directory.segments().len();
        let is_complete = self.is_partial || self.items == self.table.entries();
        if !are_in_segment || is_last && !is_complete {
            return Err(self.table.wrong_item_count());
        }
        Ok(true)
    }

    /// The items of the segment in memory, in hash order.
    pub(crate) fn slots(&self) -> &[Slot] {
        &self.slots
    }

    /// Passes item number `at` of the segment in memory to `visit`.
    ///
    /// # Errors
    /// `Corruption`; errors of the file system; those of `visit`.
    pub(crate) fn with_item<T>(
        &self,
        at: usize,
        visit: impl FnOnce(&Item<'_>) -> Result<T>,
    ) -> Result<T> {
        match self.slots[at].location {
            ItemLocation::Bucket { at, item_format } => {
                match item_format.parse(&self.bytes[at as usize..]) {
                    Some((item, _)) => visit(&item),
                    None => Err(self.table.malformed_item(0)),
                }
            }
            ItemLocation::Special(at) => {
                let special = &self.table.specials()[at as usize];
                let bytes = self.table.read_special(special, self.purpose)?;
                visit(&self.table.special_item(special, &bytes)?)
            }
        }
    }

    /// Memory in bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.bytes.capacity() + self.slots.capacity() * size_of::<Slot>()
    }
}
