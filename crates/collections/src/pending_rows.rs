//! Writes that are not applied yet: one per row.
//!
//! ```text
//!   batch       row │ row │ row │ …     in the order of the writes
//!   positions   row ─▶ its last write   a hash table, once there are many rows
//!   ordered     row ─▶ its last write   in order, once rows are scanned or a range is deleted
//! ```
//!
//! Most operations, and most groups of them, write rows and read single ones. So the batch that the
//! engine gets is ready at the end, and a few rows are searched one after the other. What needs
//! the order of the rows puts them into an [`Overlay`], where they stay.
//!
//! Invariant: while there are no positions, the batch has each row once. Once there is an overlay,
//! batch and positions are out of date.

use std::cell::OnceCell;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::LazyLock;

use hashbrown::HashTable;
use hashbrown::hash_table::Entry as Slot;
use siltstone::transaction::Overlay;
use siltstone_engine::batch::operations;
use siltstone_engine::{Op, Timestamp, WriteBatch};
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// The most rows without positions, and so the longest search, which decodes each of them.
const MAX_SEARCHED: usize = 4;

/// About what a row takes in memory besides its key and value.
pub const ROW_OVERHEAD_BYTES: usize = 128;

/// Replaced writes stay in the batch until they take more than this, and more than half of it.
const MAX_REPLACED_BYTES: usize = 64 << 10;

/// [`PendingRows::clear`] releases the memory of more rows.
const MAX_KEPT_ROWS: usize = 4096;
/// [`PendingRows::clear`] releases the memory of a longer batch.
const MAX_KEPT_BYTES: usize = 1 << 20;

/// So that clients cannot choose rows that collide.
static SEED: LazyLock<u64> = LazyLock::new(|| RandomState::new().build_hasher().finish());

/// Writes to a table.
#[derive(Debug, Default)]
pub struct PendingRows {
    batch: WriteBatch,
    /// Positions in the batch.
    positions: HashTable<usize>,
    /// Keys and values in the batch that later writes replace.
    replaced_bytes: usize,
    ordered: OnceCell<Overlay>,
}

/// A written row: its value and expiry, or `None` if it was deleted.
pub type WrittenRow<'a> = Option<(&'a [u8], Option<Timestamp>)>;

impl PendingRows {
    /// No writes, in the memory of a batch.
    pub(crate) fn in_memory_of(mut batch: WriteBatch) -> Self {
        batch.clear();
        PendingRows { batch, ..PendingRows::default() }
    }

    /// What was written to a row; `None` if nothing was.
    pub fn get(&self, key: &[u8]) -> Option<WrittenRow<'_>> {
        if let Some(ordered) = self.ordered.get() {
            let entry = ordered.get(key)?;
            return Some(entry.map(|entry| (entry.value.as_slice(), entry.expires_at)));
        }
        let op = match self.positions.is_empty() {
            true => self.batch.iter().find(|op| op.key() == key)?,
            false => {
                let bytes = self.batch.as_bytes();
                let at = self.positions.find(hash(key), |at| key_at(bytes, *at) == key)?;
                op_at(bytes, *at)?
            }
        };
        Some(match op {
            Op::Put { value, expires_at, .. } => Some((value, expires_at)),
            Op::Delete { .. } => None,
        })
    }

    /// Whether there are no writes.
    pub fn is_empty(&self) -> bool {
        self.ordered.get().map_or(self.batch.is_empty(), Overlay::is_empty)
    }

    /// Adds a write, in place of an earlier one of the row.
    pub fn push(&mut self, op: Op<'_>) {
        if let Some(ordered) = self.ordered.get_mut() {
            return ordered.push(op);
        }
        if self.positions.is_empty() {
            let is_repeated = || self.batch.iter().any(|earlier| earlier.key() == op.key());
            if self.batch.len() < MAX_SEARCHED && !is_repeated() {
                self.batch.push(op);
                return;
            }
            let few = std::mem::take(&mut self.batch);
            few.iter().for_each(|op| self.push_with_position(op));
        }
        self.push_with_position(op);
        if self.replaced_bytes > MAX_REPLACED_BYTES.max(self.batch.as_bytes().len() / 2) {
            self.drop_replaced();
        }
    }

    fn push_with_position(&mut self, op: Op<'_>) {
        let (at, key) = (self.batch.as_bytes().len(), op.key());
        self.batch.push(op);
        let bytes = self.batch.as_bytes();
        let is_same = |other: &usize| key_at(bytes, *other) == key;
        let hash_at = |at: &usize| hash(key_at(bytes, *at));
        match self.positions.entry(hash(key), is_same, hash_at) {
            Slot::Occupied(mut last) => {
                let replaced = op_at(bytes, std::mem::replace(last.get_mut(), at));
                self.replaced_bytes += replaced.map_or(0, |op| user_bytes(&op));
            }
            Slot::Vacant(slot) => _ = slot.insert(at),
        }
    }

    /// Leaves each row once in the batch.
    fn drop_replaced(&mut self) {
        let mut last: Vec<usize> = self.positions.drain().collect();
        last.sort_unstable();
        let all = std::mem::take(&mut self.batch);
        self.replaced_bytes = 0;
        for op in last.into_iter().filter_map(|at| op_at(all.as_bytes(), at)) {
            self.push_with_position(op);
        }
    }

    /// Adds the writes of a batch, besides merges.
    pub fn apply(&mut self, batch: &WriteBatch) {
        if batch.range_deletions() > 0 {
            self.ordered();
        }
        match self.ordered.get_mut() {
            Some(ordered) => ordered.apply(batch),
            None => batch.iter().for_each(|op| self.push(op)),
        }
    }

    /// Deletes the rows from `start` to before `end`, and drops earlier writes of them.
    pub(crate) fn delete_range(&mut self, start: &[u8], end: &[u8]) {
        self.ordered();
        if let Some(ordered) = self.ordered.get_mut() {
            ordered.delete_range(start, Some(end));
        }
    }

    /// The writes in the order of their rows, in which they are kept from now on.
    pub fn ordered(&self) -> &Overlay {
        self.ordered.get_or_init(|| {
            let mut overlay = Overlay::default();
            overlay.apply(&self.batch);
            overlay
        })
    }

    /// About what the writes take in memory; 0 while they are few.
    pub(crate) fn memory_bytes(&self) -> usize {
        let rows = self.ordered.get().map_or(self.positions.len(), Overlay::len);
        if rows == 0 { 0 } else { self.bytes() + self.replaced_bytes + rows * ROW_OVERHEAD_BYTES }
    }

    /// Bytes of keys and values.
    pub fn bytes(&self) -> usize {
        let in_batch = || self.batch.user_bytes() as usize - self.replaced_bytes;
        self.ordered.get().map_or_else(in_batch, Overlay::bytes)
    }

    /// All writes as one batch, which has each row once. After it, the writes can only be cleared.
    pub fn finish(&mut self) -> &WriteBatch {
        if let Some(ordered) = self.ordered.get() {
            self.batch = ordered.to_batch();
        } else if self.positions.len() < self.batch.len() && !self.positions.is_empty() {
            self.drop_replaced();
        }
        &self.batch
    }

    /// As [`finish`](Self::finish), with the memory of the batch.
    pub(crate) fn take_batch(&mut self) -> WriteBatch {
        self.finish();
        std::mem::take(&mut self.batch)
    }

    /// Drops all writes, and keeps memory for some.
    pub fn clear(&mut self) {
        if self.positions.capacity() > MAX_KEPT_ROWS || self.batch.as_bytes().len() > MAX_KEPT_BYTES
        {
            *self = PendingRows::default();
        }
        self.batch.clear();
        self.positions.clear();
        self.replaced_bytes = 0;
        self.ordered = OnceCell::new();
    }
}

fn hash(key: &[u8]) -> u64 {
    xxh3_64_with_seed(key, *SEED)
}

/// The operation at a position of the log form of a batch of puts and deletes.
fn op_at(bytes: &[u8], at: usize) -> Option<Op<'_>> {
    operations(bytes.get(at..)?).next()?.ok()
}

fn key_at(bytes: &[u8], at: usize) -> &[u8] {
    op_at(bytes, at).map_or(&[], |op| op.key())
}

fn user_bytes(op: &Op<'_>) -> usize {
    match op {
        Op::Put { key, value, .. } => key.len() + value.len(),
        Op::Delete { key } => key.len(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    type Expected = BTreeMap<Vec<u8>, Option<(Vec<u8>, Option<Timestamp>)>>;

    fn rows_of(batch: &WriteBatch) -> Expected {
        let row = |op: Op<'_>| match op {
            Op::Put { value, expires_at, .. } => Some((value.to_vec(), expires_at)),
            Op::Delete { .. } => None,
        };
        batch.iter().map(|op| (op.key().to_vec(), row(op))).collect()
    }

    fn bytes_of(rows: &Expected) -> usize {
        rows.iter().map(|(key, row)| key.len() + row.as_ref().map_or(0, |row| row.0.len())).sum()
    }

    /// The memory of earlier writes serves later ones.
    #[test]
    fn each_row_is_there_once_with_its_last_write_in_order_or_not() {
        let mut pending = PendingRows::default();
        for (rows, ordered_at) in
            [(3, usize::MAX), (4, usize::MAX), (5, usize::MAX), (3, 2), (50, 0), (50, 70)]
        {
            let mut expected = Expected::new();
            for step in 0..4 * rows {
                if step == ordered_at {
                    assert_eq!(pending.ordered().len(), expected.len());
                }
                // The empty key is one of them.
                let row = step * 7 % rows;
                let key = vec![row as u8; row.min(1)];
                let value = vec![step as u8; step % 5];
                let mut batch = WriteBatch::new();
                match step % 3 {
                    0 => batch.delete(&key),
                    1 => batch.put(&key, &value),
                    _ => batch.put_until(&key, &value, 9),
                };
                pending.apply(&batch);
                expected.extend(rows_of(&batch));
                for (key, row) in &expected {
                    let row = row.as_ref().map(|(value, at)| (value.as_slice(), *at));
                    assert_eq!(pending.get(key), Some(row), "step {step}");
                }
                assert_eq!(pending.get(b"none"), None);
                assert_eq!(pending.bytes(), bytes_of(&expected));
            }
            let batch = pending.finish();
            assert_eq!((batch.len(), rows_of(batch)), (expected.len(), expected));
            pending.clear();
            assert!(pending.is_empty() && pending.get(&[1]).is_none() && pending.bytes() == 0);
        }
    }

    #[test]
    fn empty_row_that_is_written_twice_is_there_once() {
        let mut pending = PendingRows::default();
        for _ in 0..2 {
            pending.push(Op::Put { key: b"", value: b"", expires_at: None });
        }
        assert_eq!(pending.finish().len(), 1);
    }

    #[test]
    fn deleted_range_hides_earlier_rows_alone() {
        let mut pending = PendingRows::default();
        let mut batch = WriteBatch::new();
        pending.apply(batch.put(b"a", b"1").put(b"b", b"1"));
        batch.clear();
        pending.apply(batch.delete_range("a".."c").put(b"a", b"2"));
        assert_eq!(pending.get(b"a"), Some(Some((&b"2"[..], None))));
        assert_eq!(pending.get(b"b"), Some(None));
        assert_eq!(pending.get(b"c"), None);
        let batch = pending.finish();
        assert_eq!((batch.range_deletions(), batch.len()), (1, 2));
    }

    #[test]
    fn row_that_is_written_many_times_takes_bounded_memory() {
        let (mut pending, value) = (PendingRows::default(), [7; 1000]);
        for step in 0..10_000u32 {
            pending.push(Op::Put { key: b"key", value: &value, expires_at: None });
            pending.push(Op::Put { key: &step.to_be_bytes()[3..], value: b"", expires_at: None });
            assert!(pending.batch.as_bytes().len() < 3 * MAX_REPLACED_BYTES);
        }
        assert_eq!(pending.finish().len(), 257);
    }
}
