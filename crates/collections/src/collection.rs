//! One collection at a key: what hashes, lists, sets, sorted sets and streams have in common.
//!
//! An operation opens the collection at a key, changes its element rows in the
//! [`WriteSet`], and saves the metadata last. The owner row of a version leads from the element
//! rows back to the key (see [`layout`](crate::layout)).
//!
//! A removed collection leaves its element rows behind: the next one at the key has another
//! version, and so other rows.
//!
//! Invariant: metadata and owner row are there together, and only for a collection with elements,
//! or of a kind that may be empty.

use std::ops::Bound;

use siltstone_engine::{Entry, KeyRange, Result as StoreResult, Timestamp};

use crate::encoding_limits::{CompactLimit, EncodingLimits};
use crate::error::{Error, Result};
use crate::layout::{ELEMENT_PREFIX_BYTES, Space, element_key, hash_of, owner_key};
use crate::metadata::{Encoding, Kind, Metadata, StreamState};
use crate::rows::{Order, Row, Visit, Walk};
use crate::write_set::WriteSet;

/// Draws a number below its argument, which is not 0.
pub type Below<'b> = dyn FnMut(u64) -> u64 + 'b;

/// A key and a value: of a row, or a field with its value.
pub type Pair = (Vec<u8>, Vec<u8>);

/// Part of a scan, and the position of the next part, if there is one.
pub type Page<T> = (Vec<T>, Option<u32>);

/// Up to this many elements a random element is drawn with exactly equal probabilities.
const MAX_EXACT_DRAW: u64 = 128;
/// Neighbours from which a random element of a larger collection is drawn.
const NEIGHBOURS: usize = 16;

/// A collection that is being read or changed.
pub struct Collection<'w, 'r> {
    writes: &'w mut WriteSet<'r>,
    key: &'w [u8],
    pub(crate) metadata: Metadata,
    expires_at: Option<Timestamp>,
    /// Whether metadata and owner row exist.
    is_stored: bool,
    /// The version was drawn here, so all rows are pending writes.
    is_new: bool,
    /// Elements whose expiry is not after it are hidden; 0: none has an expiry.
    pub(crate) hidden_to: Timestamp,
}

impl<'w, 'r> Collection<'w, 'r> {
    pub(crate) fn open(writes: &'w mut WriteSet<'r>, key: &'w [u8], kind: Kind) -> Result<Self> {
        let mut stored = writes.open_metadata(key)?;
        if let Some((Some(Metadata { field_expiry: Some(_), .. }), _)) = stored
            && writes.stop_clock()
        {
            stored = writes.metadata(key)?;
        }
        let is_stored = stored.is_some();
        writes.count_lookup(is_stored);
        let (metadata, expires_at) = match stored {
            Some((Some(metadata), expires_at)) if metadata.kind == kind => (metadata, expires_at),
            Some((other, _)) => {
                let found = other.map(|metadata| metadata.kind);
                return Err(Error::WrongType { wanted: kind, found });
            }
            None => {
                let version = writes.keyspace().next_version();
                let encoding =
                    if kind == Kind::Set { Encoding::Integers } else { Encoding::Compact };
                let stream = StreamState { next_group: 1, ..StreamState::default() };
                let stream = if kind == Kind::Stream { stream } else { StreamState::default() };
                let (count, head, field_expiry) = (0, 1 << 63, None);
                (Metadata { kind, version, count, head, encoding, stream, field_expiry }, None)
            }
        };
        let is_new = !is_stored;
        Ok(Collection { writes, key, metadata, expires_at, is_stored, is_new, hidden_to: 0 })
    }

    pub(crate) fn writes(&mut self) -> &mut WriteSet<'r> {
        self.writes
    }

    /// The time by the table's clock.
    pub(crate) fn now(&self) -> Timestamp {
        self.writes.now()
    }

    pub(crate) fn key(&self) -> &[u8] {
        self.key
    }

    pub(crate) fn element(&self, space: Space, head: &[u8], tail: &[u8]) -> Vec<u8> {
        element_key(self.metadata.version, space, head, tail)
    }

    /// Key of an element that is found by its name.
    pub(crate) fn hashed(&self, space: Space, name: &[u8]) -> Vec<u8> {
        self.element(space, &hash_of(name).to_be_bytes(), name)
    }

    /// Whether metadata and owner row exist.
    pub(crate) fn is_stored(&self) -> bool {
        self.is_stored
    }

    /// Whether the collection has no rows of elements.
    fn has_no_rows(&self) -> bool {
        match self.metadata.kind.may_be_empty() {
            true => !self.is_stored,
            false => self.metadata.count == 0,
        }
    }

    pub(crate) fn get(&self, key: &[u8]) -> StoreResult<Option<Vec<u8>>> {
        Ok(self.entry(key)?.map(|entry| entry.value))
    }

    /// The value of a row, and its expiry.
    pub(crate) fn entry(&self, key: &[u8]) -> StoreResult<Option<Entry>> {
        if self.has_no_rows() {
            return Ok(None);
        }
        let mut found = None;
        if self.is_new {
            found = self.writes.pending_entry(key);
        } else {
            self.writes.lookup(key, &mut |value, expires_at| {
                found = Some(Entry { value: value.to_vec(), expires_at });
            })?;
        }
        Ok(found.filter(|entry| !self.hides(entry.expires_at)))
    }

    /// The expiry of a row; `None` if there is no row.
    pub(crate) fn expiry(&self, key: &[u8]) -> StoreResult<Option<Option<Timestamp>>> {
        if self.has_no_rows() {
            return Ok(None);
        }
        let found = match self.is_new {
            true => self.writes.pending_entry(key).map(|entry| entry.expires_at),
            false => self.writes.expiry(key)?,
        };
        Ok(found.filter(|expires_at| !self.hides(*expires_at)))
    }

    /// Whether there is a row.
    pub(crate) fn has(&self, key: &[u8]) -> StoreResult<bool> {
        Ok(self.expiry(key)?.is_some())
    }

    fn hides(&self, expires_at: Option<Timestamp>) -> bool {
        expires_at.is_some_and(|at| at <= self.hidden_to)
    }

    pub(crate) fn put(&mut self, key: &[u8], value: &[u8]) {
        self.writes.put(key, value, None);
    }

    pub(crate) fn put_until(&mut self, key: &[u8], value: &[u8], expires_at: Option<Timestamp>) {
        self.writes.put(key, value, expires_at);
    }

    pub(crate) fn delete(&mut self, key: &[u8]) {
        self.writes.delete(key);
    }

    /// Whether to delete this number of adjacent rows as a range.
    pub(crate) fn deletes_as_range(&self, rows: u64) -> bool {
        rows >= self.writes.keyspace().min_range_rows()
    }

    /// Deletes the rows from `start` to before `end`, if [`deletes_as_range`] of their number.
    ///
    /// [`deletes_as_range`]: Self::deletes_as_range
    pub(crate) fn delete_range(&mut self, start: &[u8], end: &[u8]) {
        self.writes.delete_range(start, end);
    }

    pub(crate) fn scan(
        &self,
        range: &KeyRange,
        walk: impl Into<Walk>,
        visit: &mut Visit<'_>,
    ) -> StoreResult<()> {
        if self.has_no_rows() {
            return Ok(());
        }
        let walk = walk.into();
        match self.hidden_to {
            0 => self.writes.scan(range, walk, visit),
            _ => {
                self.writes.scan(range, walk, &mut |row| self.hides(row.expires_at()) || visit(row))
            }
        }
    }

    /// All rows of a space.
    pub(crate) fn space(&self, space: Space) -> KeyRange {
        KeyRange::prefix(&self.element(space, &[], &[]))
    }

    /// Up to which sizes Redis would store collections compactly.
    pub(crate) fn limits(&self) -> &EncodingLimits {
        self.writes.encoding_limits()
    }

    /// Raises the encoding if the count or an element of `bytes` is above the limit.
    pub(crate) fn raise_encoding(&mut self, limit: CompactLimit, bytes: usize) {
        if !limit.holds(self.metadata.count, bytes) {
            self.metadata.encoding = Encoding::Large;
        }
    }

    /// Writes the metadata and, for a new collection, the owner row. Removes both if there are no
    /// elements left, unless it may be empty.
    pub(crate) fn save(&mut self) {
        if self.metadata.count == 0 && !self.metadata.kind.may_be_empty() {
            if self.is_stored {
                self.writes.delete_collection(self.key, self.metadata.version);
            }
            self.is_stored = false;
            self.expires_at = None;
            // Elements may be left: a later one must not meet them.
            self.metadata.version = self.writes.keyspace().next_version();
            self.metadata.field_expiry = None;
            self.is_new = true;
            return;
        }
        self.writes.save(self.key, self.metadata, self.expires_at);
        if !self.is_stored {
            self.writes.put(&owner_key(self.metadata.version), self.key, None);
            self.is_stored = true;
        }
    }

    /// Leaves all element rows behind, as if the collection were removed: the caller puts the rows
    /// of the `kept` elements, which are not none, and saves.
    pub(crate) fn begin_again(&mut self, kept: u64) {
        self.writes.delete(&owner_key(self.metadata.version));
        self.metadata.version = self.writes.keyspace().next_version();
        self.metadata.count = kept;
        self.is_stored = false;
    }

    /// Rows of a space whose elements are found by their names, from a hash on: at least `count` if
    /// there are as many, and the hash from which to continue, if there are more.
    pub(crate) fn scan_hashed(
        &self,
        space: Space,
        from: u32,
        count: usize,
    ) -> StoreResult<Page<Pair>> {
        let (mut rows, mut next): (Vec<Pair>, _) = (Vec::new(), None);
        let start = Bound::Included(self.element(space, &from.to_be_bytes(), &[]));
        let range = KeyRange { start, end: self.space(space).end };
        let hash = |key: &[u8]| key[ELEMENT_PREFIX_BYTES..].first_chunk().copied();
        self.scan(&range, Order::Ascending, &mut |Row { key, value, .. }| {
            // Elements with the same hash look the same to a cursor, so they stay together.
            if rows.len() >= count && rows.last().is_some_and(|(last, _)| hash(last) != hash(key)) {
                next = hash(key).map(u32::from_be_bytes);
                return false;
            }
            rows.push((key.to_vec(), value.to_vec()));
            true
        })?;
        Ok((rows, next))
    }

    /// A random row of a space whose elements are found by their names. Up to 128 elements all have
    /// the same probability; above, about the same. Cost: a seek and up to 128 steps.
    pub(crate) fn draw(&self, space: Space, below: &mut Below<'_>) -> StoreResult<Option<Pair>> {
        let count = self.metadata.count;
        let mut drawn = None;
        if count <= MAX_EXACT_DRAW {
            let mut rank = if count == 0 { 0 } else { below(count) };
            self.scan(&self.space(space), Order::Ascending, &mut |row| {
                if rank == 0 {
                    drawn = Some((row.key.to_vec(), row.value.to_vec()));
                    return false;
                }
                rank -= 1;
                true
            })?;
            return Ok(drawn);
        }
        let start = self.element(space, &(below(1 << 32) as u32).to_be_bytes(), &[]);
        let all = self.space(space);
        let mut near = Vec::with_capacity(NEIGHBOURS);
        let tail = KeyRange { start: Bound::Included(start), end: all.end.clone() };
        // The elements before `start` follow those after it, as in a ring.
        for range in [&tail, &all] {
            self.scan(range, Order::Ascending, &mut |row| {
                near.push((row.key.to_vec(), row.value.to_vec()));
                near.len() < NEIGHBOURS
            })?;
            if near.len() == NEIGHBOURS {
                break;
            }
        }
        let at = below(near.len().max(1) as u64) as usize;
        Ok((at < near.len()).then(|| near.swap_remove(at)))
    }
}

impl std::fmt::Debug for Collection<'_, '_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Collection").field("metadata", &self.metadata).finish_non_exhaustive()
    }
}
