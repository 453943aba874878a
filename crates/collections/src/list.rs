//! Lists: elements by index.
//!
//! ```text
//!   metadata: head, count       rows   head  head+1  …  head+count-1
//!                               push front: head-1            push back: head+count
//! ```
//!
//! The first element of a new list has the index 2^63, so that both ends can grow without end.
//! Indices are contiguous: an insertion or removal inside moves the elements on the shorter side.
//!
//! Invariant: the rows are exactly those of `head..head+count`.

use std::ops::{Bound, Range};

use siltstone_engine::{KeyRange, Result};

use crate::collection::Collection;
use crate::encoding_limits::{LISTPACK_FRAME_BYTES, listpack_entry_bytes};
use crate::error::Result as OpenResult;
use crate::layout::Space;
use crate::metadata::{Encoding, Kind, Metadata};
use crate::rows::Order;
use crate::write_set::WriteSet;

/// End of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// Before the first element.
    Front,
    /// After the last element.
    Back,
}

/// A list in a [`WriteSet`]. Positions are counted from the front, from 0.
///
/// Every change also writes the metadata. Errors are those of reads.
#[derive(Debug)]
pub struct List<'w, 'r>(pub(crate) Collection<'w, 'r>);

impl<'w, 'r> List<'w, 'r> {
    /// Opens the list at a key; an empty one if the key is missing.
    ///
    /// # Errors
    /// [`Error::WrongType`](crate::Error::WrongType), and those of reads.
    pub fn open(writes: &'w mut WriteSet<'r>, key: &'w [u8]) -> OpenResult<Self> {
        Ok(List(Collection::open(writes, key, Kind::List)?))
    }

    /// The metadata.
    pub fn metadata(&self) -> &Metadata {
        &self.0.metadata
    }

    /// Number of elements.
    pub fn len(&self) -> u64 {
        self.0.metadata.count
    }

    /// Whether the list is missing.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Key of the row at a position, which may be -1.
    fn key(&self, position: i64) -> Vec<u8> {
        let index = self.0.metadata.head.wrapping_add_signed(position);
        self.0.element(Space::Indices, &index.to_be_bytes(), &[])
    }

    fn put(&mut self, position: i64, value: &[u8]) {
        let key = self.key(position);
        self.0.put(&key, value);
    }

    /// Deletes the rows of positions from the front or up to the back.
    fn delete(&mut self, positions: Range<u64>) {
        let Range { start, end } = positions;
        if self.0.deletes_as_range(end.saturating_sub(start)) {
            // No rows are before the front or behind the back. Ranges that begin or end there
            // replace those of earlier operations.
            let first = if start == 0 { 0 } else { self.0.metadata.head + start };
            let after = if end == self.len() { u64::MAX } else { self.0.metadata.head + end };
            let key = |index: u64| self.0.element(Space::Indices, &index.to_be_bytes(), &[]);
            let (first, after) = (key(first), key(after));
            return self.0.delete_range(&first, &after);
        }
        for position in positions {
            let key = self.key(position as i64);
            self.0.delete(&key);
        }
    }

    /// Element at a position. Cost: a lookup.
    ///
    /// # Errors
    /// Those of reads.
    pub fn get(&self, position: u64) -> Result<Option<Vec<u8>>> {
        if position >= self.len() {
            return Ok(None);
        }
        self.0.get(&self.key(position as i64))
    }

    /// Replaces the element at a position, and returns whether there is one.
    pub fn set(&mut self, position: u64, value: &[u8]) -> bool {
        if position >= self.len() {
            return false;
        }
        self.put(position as i64, value);
        // As in Redis, where the new element is added before the old one goes.
        if !self.0.limits().list.holds(self.len() + 1, 0) {
            self.0.metadata.encoding = Encoding::Large;
        }
        self.finish(value);
        true
    }

    fn finish(&mut self, value: &[u8]) {
        self.0.raise_encoding(self.0.limits().list, value.len());
        self.0.save();
    }

    /// Adds an element at an end.
    pub fn push(&mut self, end: End, value: &[u8]) {
        match end {
            End::Front => {
                self.put(-1, value);
                self.0.metadata.head -= 1;
            }
            End::Back => self.put(self.len() as i64, value),
        }
        self.0.metadata.count += 1;
        self.finish(value);
    }

    /// Removes and returns the element at an end. Cost: a lookup.
    ///
    /// # Errors
    /// Those of reads.
    pub fn pop(&mut self, end: End) -> Result<Option<Vec<u8>>> {
        let Some(last) = self.len().checked_sub(1) else { return Ok(None) };
        let position = if end == End::Front { 0 } else { last };
        let value = self.get(position)?;
        self.delete(position..position + 1);
        self.0.metadata.head += u64::from(end == End::Front);
        self.0.metadata.count -= 1;
        self.0.save();
        Ok(value)
    }

    /// Visits positions and elements of a range until `visit` returns false. Cost: a seek and a
    /// step per element.
    ///
    /// # Errors
    /// Those of reads.
    pub fn for_each(
        &self,
        positions: Range<u64>,
        order: Order,
        visit: &mut dyn FnMut(u64, &[u8]) -> bool,
    ) -> Result<()> {
        let Range { start, end } = positions;
        let end = end.min(self.len());
        if start >= end {
            return Ok(());
        }
        let range = KeyRange {
            start: Bound::Included(self.key(start as i64)),
            end: Bound::Excluded(self.key(end as i64)),
        };
        let mut position = if order == Order::Ascending { start } else { end - 1 };
        self.0.scan(&range, order, &mut |row| {
            let goes_on = visit(position, row.value);
            position = match order {
                Order::Ascending => position + 1,
                Order::Descending => position.wrapping_sub(1),
            };
            goes_on
        })
    }

    /// Elements of a range of positions.
    ///
    /// # Errors
    /// Those of reads.
    pub fn range(&self, positions: Range<u64>) -> Result<Vec<Vec<u8>>> {
        let mut elements = Vec::new();
        self.for_each(positions, Order::Ascending, &mut |_, value| {
            elements.push(value.to_vec());
            true
        })?;
        Ok(elements)
    }

    /// Position of the first element that equals `value`, in ascending order.
    ///
    /// # Errors
    /// Those of reads.
    pub fn find(&self, value: &[u8]) -> Result<Option<u64>> {
        let mut found = None;
        self.for_each(0..self.len(), Order::Ascending, &mut |position, element| {
            found = (element == value).then_some(position);
            found.is_none()
        })?;
        Ok(found)
    }

    /// Inserts an element at a position of up to the length. Cost: rewrites the elements on the
    /// shorter side.
    ///
    /// # Errors
    /// Those of reads.
    pub fn insert(&mut self, position: u64, value: &[u8]) -> Result<()> {
        let count = self.len();
        let position = position.min(count);
        if position < count / 2 {
            let moved = self.range(0..position)?;
            for (at, element) in moved.iter().enumerate() {
                self.put(at as i64 - 1, element);
            }
            self.put(position as i64 - 1, value);
            self.0.metadata.head -= 1;
        } else {
            let moved = self.range(position..count)?;
            for (at, element) in moved.iter().enumerate() {
                self.put(position as i64 + 1 + at as i64, element);
            }
            self.put(position as i64, value);
        }
        self.0.metadata.count += 1;
        self.finish(value);
        Ok(())
    }

    /// Removes up to `max` elements that equal `value`, the first ones in `order`, and returns
    /// their number. Cost: a step per element up to the last one removed, and a rewrite of the
    /// elements on the shorter side.
    ///
    /// # Errors
    /// Those of reads.
    pub fn remove(&mut self, value: &[u8], max: u64, order: Order) -> Result<u64> {
        let mut removed = Vec::new();
        self.for_each(0..self.len(), order, &mut |position, element| {
            if element == value {
                removed.push(position);
            }
            (removed.len() as u64) < max
        })?;
        removed.sort_unstable();
        let (Some(&first), Some(&last)) = (removed.first(), removed.last()) else { return Ok(0) };
        let (count, gone) = (self.len(), removed.len() as u64);
        let is_at_back = count - first <= last + 1;
        let touched = if is_at_back { first..count } else { 0..last + 1 };
        let kept: Vec<_> = self
            .range(touched.clone())?
            .into_iter()
            .zip(touched.clone())
            .filter(|(_, position)| removed.binary_search(position).is_err())
            .collect();
        let start = if is_at_back { touched.start } else { touched.start + gone };
        for (to, (element, from)) in (start..).zip(&kept) {
            if to != *from {
                self.put(to as i64, element);
            }
        }
        if is_at_back {
            self.delete(count - gone..count);
        } else {
            self.delete(0..gone);
            self.0.metadata.head += gone;
        }
        self.0.metadata.count -= gone;
        self.0.save();
        Ok(gone)
    }

    /// Keeps only a range of positions. Cost: a deletion per element removed; nothing if all are,
    /// and one per end if they are thousands.
    pub fn trim(&mut self, positions: Range<u64>) {
        let count = self.len();
        let end = positions.end.min(count);
        if positions.start < end {
            self.delete(0..positions.start);
            self.delete(end..count);
            self.0.metadata.head += positions.start;
            self.0.metadata.count = end - positions.start;
        } else {
            self.0.metadata.count = 0;
        }
        self.0.save();
    }

    /// Whether Redis would store it compactly at its current size. A list that was larger must have
    /// shrunk to half of the limit. Cost: reads elements up to the limit.
    ///
    /// # Errors
    /// Those of reads.
    pub fn fits_compact(&self) -> Result<bool> {
        let limit = match self.is_compact() {
            true => self.0.limits().list,
            false => self.0.limits().list.half(),
        };
        if !limit.holds(self.len(), 0) {
            return Ok(false);
        }
        let mut bytes = LISTPACK_FRAME_BYTES;
        self.for_each(0..self.len(), Order::Ascending, &mut |_, element| {
            bytes += listpack_entry_bytes(element);
            bytes <= limit.max_bytes
        })?;
        Ok(bytes <= limit.max_bytes)
    }

    /// Whether Redis would store it compactly, by the number of its elements and the longest one.
    pub fn is_compact(&self) -> bool {
        self.0.metadata.encoding < Encoding::Large
    }
}
