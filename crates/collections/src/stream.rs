//! Streams: entries in the order of their ids, each with fields and values.
//!
//! ```text
//!   metadata: count, last id, …      'e' rows   id → fields     in the order of ids
//!                                    consumer groups beside: [`crate::stream_groups`]
//! ```
//!
//! A stream exists without entries: one that was emptied keeps its last id and its groups.
//!
//! Invariant: the count is that of the 'e' rows, and none of them has an id above the last one.

use std::ops::{Bound, RangeInclusive};

use siltstone_engine::{KeyRange, Result};

use crate::collection::Collection;
use crate::error::Result as OpenResult;
use crate::layout::{ELEMENT_PREFIX_BYTES, Space};
use crate::metadata::{Kind, Metadata, StreamState};
use crate::rows::Order;
use crate::stream_id::StreamId;
use crate::write_set::WriteSet;

/// A stream in a [`WriteSet`].
///
/// Every change of entries also writes the metadata. Errors are those of reads.
#[derive(Debug)]
pub struct Stream<'w, 'r>(pub(crate) Collection<'w, 'r>);

/// An entry's id and its encoded fields ([`fields`]).
pub type StreamEntry = (StreamId, Vec<u8>);

/// Receives the id and the encoded fields of an entry; returns whether to continue.
pub type VisitEntry<'v> = dyn FnMut(StreamId, &[u8]) -> bool + 'v;

/// The entries that a trimmed stream keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TrimTo {
    /// Up to this many of the last entries.
    MaxLen(u64),
    /// Entries with at least this id.
    MinId(StreamId),
}

/// Fields and values of an entry, one after the other.
pub fn fields(mut encoded: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let (len, rest) = encoded.split_first_chunk()?;
        let (field, rest) = rest.split_at_checked(u32::from_le_bytes(*len) as usize)?;
        encoded = rest;
        Some(field)
    })
}

/// Encodes fields and values, as [`fields`] reads them. Each has less than 4 GiB.
pub(crate) fn encode_fields<'f>(fields: impl Iterator<Item = &'f [u8]>) -> Vec<u8> {
    let mut encoded = Vec::new();
    for field in fields {
        encoded.extend_from_slice(&(field.len() as u32).to_le_bytes());
        encoded.extend_from_slice(field);
    }
    encoded
}

impl<'w, 'r> Stream<'w, 'r> {
    /// Opens the stream at a key; an empty one that does not exist yet if the key is missing.
    ///
    /// # Errors
    /// [`Error::WrongType`](crate::Error::WrongType), and those of reads.
    pub fn open(writes: &'w mut WriteSet<'r>, key: &'w [u8]) -> OpenResult<Self> {
        Ok(Stream(Collection::open(writes, key, Kind::Stream)?))
    }

    /// The metadata.
    pub fn metadata(&self) -> &Metadata {
        &self.0.metadata
    }

    /// Ids and counters.
    pub fn state(&self) -> &StreamState {
        &self.0.metadata.stream
    }

    /// Whether the key exists.
    pub fn exists(&self) -> bool {
        self.0.is_stored()
    }

    /// Number of entries.
    pub fn len(&self) -> u64 {
        self.0.metadata.count
    }

    /// Whether there are no entries.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Stores the stream if it does not exist.
    pub fn create(&mut self) {
        if !self.exists() {
            self.0.save();
        }
    }

    /// Sets the last id, and the other ids and counters that are given.
    pub fn set_state(&mut self, last: StreamId, deleted: Option<StreamId>, added: Option<u64>) {
        let state = &mut self.0.metadata.stream;
        state.last = last;
        state.deleted = deleted.unwrap_or(state.deleted);
        state.added = added.unwrap_or(state.added);
        self.0.save();
    }

    /// Draws the number of a new group.
    pub(crate) fn draw_group_number(&mut self) -> u64 {
        let number = self.0.metadata.stream.next_group;
        self.0.metadata.stream.next_group += 1;
        self.0.save();
        number
    }

    fn key(&self, id: StreamId) -> Vec<u8> {
        self.0.element(Space::Entries, &id.to_bytes(), &[])
    }

    /// Adds an entry after the last one. Returns whether its id is above the last one; if not,
    /// nothing changes.
    pub fn append<'f>(&mut self, id: StreamId, fields: impl Iterator<Item = &'f [u8]>) -> bool {
        let state = &mut self.0.metadata.stream;
        if id <= state.last {
            return false;
        }
        state.last = id;
        state.added += 1;
        self.0.metadata.count += 1;
        let key = self.key(id);
        self.0.put(&key, &encode_fields(fields));
        self.0.save();
        true
    }

    /// The encoded fields of an entry. Cost: a lookup.
    ///
    /// # Errors
    /// Those of reads.
    pub fn get(&self, id: StreamId) -> Result<Option<Vec<u8>>> {
        self.0.get(&self.key(id))
    }

    /// Deletes an entry, and returns whether it existed.
    ///
    /// # Errors
    /// Those of reads.
    pub fn remove(&mut self, id: StreamId) -> Result<bool> {
        let key = self.key(id);
        let is_there = self.0.get(&key)?.is_some();
        if is_there {
            self.0.delete(&key);
            self.0.metadata.count -= 1;
            let deleted = &mut self.0.metadata.stream.deleted;
            *deleted = id.max(*deleted);
            self.0.save();
        }
        Ok(is_there)
    }

    /// Visits the entries of a range of ids. Cost: a seek and a step per entry.
    ///
    /// # Errors
    /// Those of reads.
    pub fn for_each(
        &self,
        ids: RangeInclusive<StreamId>,
        order: Order,
        visit: &mut VisitEntry<'_>,
    ) -> Result<()> {
        let range = |id: &StreamId| Bound::Included(self.key(*id));
        self.visit_ids(ids, range, order, ELEMENT_PREFIX_BYTES, visit)
    }

    /// Visits rows whose keys end in ids, which begin at a position in the key.
    pub(crate) fn visit_ids(
        &self,
        ids: RangeInclusive<StreamId>,
        bound: impl Fn(&StreamId) -> Bound<Vec<u8>>,
        order: Order,
        at: usize,
        visit: &mut VisitEntry<'_>,
    ) -> Result<()> {
        if ids.is_empty() {
            return Ok(());
        }
        let range = KeyRange { start: bound(ids.start()), end: bound(ids.end()) };
        self.0.scan(&range, order, &mut |row| {
            let id = row.key.get(at..).and_then(StreamId::from_bytes);
            visit(id.unwrap_or_default(), row.value)
        })
    }

    /// Up to `max` entries of a range of ids.
    ///
    /// # Errors
    /// Those of reads.
    pub fn range(
        &self,
        ids: RangeInclusive<StreamId>,
        order: Order,
        max: u64,
    ) -> Result<Vec<StreamEntry>> {
        let mut entries = Vec::new();
        if max > 0 {
            self.for_each(ids, order, &mut |id, fields| {
                entries.push((id, fields.to_vec()));
                (entries.len() as u64) < max
            })?;
        }
        Ok(entries)
    }

    /// The first entry, or the last one in descending order.
    ///
    /// # Errors
    /// Those of reads.
    pub fn edge(&self, order: Order) -> Result<Option<StreamEntry>> {
        let edge = if self.is_empty() {
            Vec::new()
        } else {
            self.range(StreamId::MIN..=StreamId::MAX, order, 1)?
        };
        Ok(edge.into_iter().next())
    }

    /// Deletes entries from the front: as many as `to` asks for, up to `max`. Unless these are all,
    /// fewer are deleted: the number of entries that were ever added and are gone becomes a
    /// multiple of `step`. Returns the number of deletions. Cost: a step per entry, and a deletion
    /// each unless they are thousands. Thousands of deletions down to a length cost a step per
    /// entry that stays, if these are fewer.
    ///
    /// # Errors
    /// Those of reads.
    pub fn trim(&mut self, to: TrimTo, max: u64, step: u64) -> Result<u64> {
        let (end, limit) = match to {
            TrimTo::MaxLen(len) => (Some(StreamId::MAX), self.len().saturating_sub(len).min(max)),
            TrimTo::MinId(id) => (id.previous(), max),
        };
        let Some(end) = end.filter(|_| limit > 0) else { return Ok(0) };
        let gone = self.state().added.saturating_sub(self.len());
        if let TrimTo::MaxLen(_) = to {
            let excess = gone.saturating_add(limit) % step.max(1);
            let is_all = limit == self.len();
            let count = if is_all { limit } else { limit.saturating_sub(excess) };
            let kept = self.len() - count;
            if self.0.deletes_as_range(count) && kept < count {
                self.keep_last(kept)?;
                return Ok(count);
            }
        }
        let (mut ids, mut found, mut aligned) =
            (Vec::new(), (0, StreamId::MIN), (0, StreamId::MIN));
        self.for_each(StreamId::MIN..=end, Order::Ascending, &mut |id, _| {
            found = (found.0 + 1, id);
            if gone.saturating_add(found.0).is_multiple_of(step.max(1)) {
                aligned = found;
            }
            if !self.0.deletes_as_range(found.0) {
                ids.push(id);
            }
            found.0 < limit
        })?;
        let (count, last) = if found.0 < self.len() { aligned } else { found };
        if self.0.deletes_as_range(count) {
            // A range from the lowest id replaces those of earlier operations.
            let (first, after) = (self.key(StreamId::MIN), [&self.key(last)[..], &[0]].concat());
            self.0.delete_range(&first, &after);
        } else {
            for id in ids.iter().take(count as usize) {
                let key = self.key(*id);
                self.0.delete(&key);
            }
        }
        if count > 0 {
            self.0.metadata.count -= count;
            self.0.save();
        }
        Ok(count)
    }

    /// Deletes all but the last `kept` entries as a range. Cost: a step per entry that stays.
    fn keep_last(&mut self, kept: u64) -> Result<()> {
        let (mut passed, mut first) = (0, None);
        if kept > 0 {
            self.for_each(StreamId::MIN..=StreamId::MAX, Order::Descending, &mut |id, _| {
                (passed, first) = (passed + 1, Some(id));
                passed < kept
            })?;
        }
        let end = match first {
            Some(id) => self.key(id),
            None => [&self.key(StreamId::MAX)[..], &[0]].concat(),
        };
        let start = self.key(StreamId::MIN);
        self.0.delete_range(&start, &end);
        self.0.metadata.count = kept;
        self.0.save();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_round_trip_and_damaged_ones_end() {
        let all: [&[u8]; 4] = [b"a", b"", b"long value", b"\0"];
        let encoded = encode_fields(all.into_iter());
        assert_eq!(fields(&encoded).collect::<Vec<_>>(), all);
        // Pinned: a failure means that existing stores can no longer be read.
        assert_eq!(encoded[..9], *b"\x01\0\0\0a\0\0\0\0");
        for len in 0..encoded.len() {
            assert!(fields(&encoded[..len]).count() < all.len());
        }
    }
}
