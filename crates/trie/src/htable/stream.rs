//! All items of a table in the order of their hashes, with one segment in memory.
//!
//! Within a segment items lie in the order of buckets but for those that migrated, so a segment is
//! read whole and its items are sorted, which costs little. Items of the special bucket are read one
//! by one, when they are looked at.
//!
//! Invariant: hashes ascend from segment to segment and within one; after the last segment there were
//! as many items as the footer says, unless segments were skipped.
//!
//! Source: ours.

use std::sync::Arc;

use siltstone_engine::{Purpose, Result};

use super::bucket::Shape;
use super::directory::segment_of;
use super::table::HTable;
use crate::hash::{Hash, HashKind};
use crate::item::Item;

/// Bytes read at once, at most.
const REQUEST_BYTES: usize = 1 << 20;

/// Where an item of the segment in memory stands.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Slot {
    pub(crate) hash: Hash,
    place: Place,
}

#[derive(Debug, Clone, Copy)]
enum Place {
    /// In the bytes of the buckets.
    Bucket { at: u32, shape: Shape },
    /// Its number among the table's special items.
    Special(u32),
}

/// A walk over a table.
pub(crate) struct Stream {
    table: Arc<HTable>,
    kind: HashKind,
    purpose: Purpose,
    /// The segment to be loaded next.
    next: usize,
    bytes: Vec<u8>,
    slots: Vec<Slot>,
    items: u64,
    /// It began behind the first segment, so the items seen are not all that there are.
    is_part: bool,
}

impl Stream {
    pub(crate) fn new(table: Arc<HTable>, kind: HashKind, purpose: Purpose) -> Self {
        let (bytes, slots) = (Vec::new(), Vec::new());
        Stream { table, kind, purpose, next: 0, bytes, slots, items: 0, is_part: false }
    }

    /// The table has 2^this segments.
    pub(crate) fn bits(&self) -> u32 {
        self.table.directory().bits()
    }

    /// The segments loaded so far.
    pub(crate) fn loaded(&self) -> usize {
        self.next
    }

    /// Goes on at this segment, as if those before had been loaded.
    pub(crate) fn skip_to(&mut self, segment: usize) {
        self.next = segment;
        self.is_part = true;
    }

    /// Takes the next segment into memory, in place of the one before; `false`: there is none.
    ///
    /// # Errors
    /// `Corruption`; the medium's.
    pub(crate) fn load_next(&mut self) -> Result<bool> {
        self.slots.clear();
        self.bytes.clear();
        let directory = self.table.directory();
        let Some(segment) = directory.segments().get(self.next).copied() else { return Ok(false) };
        let bucket_bytes = self.table.bucket_bytes() as usize;
        let place = directory.buckets_of(&segment, self.table.bucket_bytes());
        self.bytes.resize((place.end - place.start) as usize, 0);
        for (part, chunk) in self.bytes.chunks_mut(REQUEST_BYTES).enumerate() {
            let offset = segment.offset + (part * REQUEST_BYTES) as u64;
            self.table.read(offset, chunk, self.purpose)?;
        }
        for (number, bucket) in self.bytes.chunks(bucket_bytes).enumerate() {
            let start = number * bucket_bytes;
            let offset = segment.offset + start as u64;
            let (header, items) = self.table.open_bucket(offset, bucket)?;
            let head = start + bucket.len().min(super::bucket::BUCKET_HEADER);
            for item in header.items(items) {
                let (at, shape, item) = item.ok_or_else(|| self.table.bad_item(offset))?;
                let place = Place::Bucket { at: (head + at) as u32, shape };
                self.slots.push(Slot { hash: self.kind.hash(item.key), place });
            }
        }
        let (specials, bits) = (self.table.specials(), directory.bits());
        let from = specials.partition_point(|s| segment_of(s.hash.suffix, bits) < self.next);
        for (at, special) in (from as u32..).zip(&specials[from..]) {
            if segment_of(special.hash.suffix, bits) > self.next {
                break;
            }
            self.slots.push(Slot { hash: special.hash, place: Place::Special(at) });
        }
        self.slots.sort_unstable_by_key(|slot| slot.hash);
        let is_ours = |slot: &Slot| segment_of(slot.hash.suffix, bits) == self.next;
        let are_ours =
            self.slots.first().is_none_or(is_ours) && self.slots.last().is_none_or(is_ours);
        self.items += self.slots.len() as u64;
        self.next += 1;
        let is_last = self.next == directory.segments().len();
        let are_all = self.is_part || self.items == self.table.entries();
        if !are_ours || is_last && !are_all {
            return Err(self.table.bad_count());
        }
        Ok(true)
    }

    /// The items of the segment in memory, in the order of their hashes.
    pub(crate) fn slots(&self) -> &[Slot] {
        &self.slots
    }

    /// Shows item number `at` of the segment in memory.
    ///
    /// # Errors
    /// `Corruption`; the medium's; those of `look`.
    pub(crate) fn with_item<T>(
        &self,
        at: usize,
        look: impl FnOnce(&Item<'_>) -> Result<T>,
    ) -> Result<T> {
        match self.slots[at].place {
            Place::Bucket { at, shape } => match shape.parse(&self.bytes[at as usize..]) {
                Some((item, _)) => look(&item),
                None => Err(self.table.bad_item(0)),
            },
            Place::Special(at) => {
                let special = &self.table.specials()[at as usize];
                let bytes = self.table.read_special(special, self.purpose)?;
                look(&self.table.special_item(special, &bytes)?)
            }
        }
    }

    /// Bytes that it holds in memory.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.bytes.capacity() + self.slots.capacity() * size_of::<Slot>()
    }
}
