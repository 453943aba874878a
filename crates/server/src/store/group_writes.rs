//! The writes of a group of commands, before they are applied.
//!
//! ```text
//!   batch       row │ row │ row │ …          in the order of the commands
//!   positions   row ─▶ its last write        a hash table
//!   metadata    of the collection that was used last, decoded
//! ```
//!
//! Most groups write rows and read single ones, so the rows are not kept in order: the batch that
//! the engine gets is ready at the end. The first scan of rows puts them in order, in an
//! [`Overlay`], where they stay.
//!
//! Invariant: the metadata are newer than the row of their key in the batch.

use std::cell::OnceCell;
use std::hash::{BuildHasher, Hasher, RandomState};

use hashbrown::HashTable;
use siltstone::transaction::Overlay;
use siltstone_collections::KeyMetadata;
use siltstone_engine::batch::operations;
use siltstone_engine::{Op, Timestamp, WriteBatch};
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Memory of more rows is released at the end of a group.
const MAX_KEPT_ROWS: usize = 4096;
/// Memory of a longer batch is released at the end of a group.
const MAX_KEPT_BYTES: usize = 1 << 20;

/// Writes of a group of commands to one table.
pub(crate) struct GroupWrites {
    batch: WriteBatch,
    /// Positions in the batch.
    positions: HashTable<usize>,
    /// The batch has writes that later ones replace.
    has_replaced: bool,
    /// All writes in the order of their rows, once they were needed so.
    ordered: OnceCell<Overlay>,
    /// Of the collection that was used last.
    pub(crate) metadata: Option<KeyMetadata>,
    seed: u64,
}

/// A written row: its value and expiry, or `None` if it was deleted.
pub(crate) type WrittenRow<'a> = Option<(&'a [u8], Option<Timestamp>)>;

impl Default for GroupWrites {
    fn default() -> Self {
        GroupWrites {
            batch: WriteBatch::new(),
            positions: HashTable::new(),
            has_replaced: false,
            ordered: OnceCell::new(),
            metadata: None,
            // So that clients cannot choose rows that collide.
            seed: RandomState::new().build_hasher().finish(),
        }
    }
}

impl GroupWrites {
    /// What was written to a row; `None` if nothing was.
    pub(crate) fn get(&self, key: &[u8]) -> Option<WrittenRow<'_>> {
        if let Some(ordered) = self.ordered.get() {
            let entry = ordered.get(key)?;
            return Some(entry.map(|entry| (entry.value.as_slice(), entry.expires_at)));
        }
        if self.positions.is_empty() {
            return None;
        }
        let bytes = self.batch.as_bytes();
        let hash = xxh3_64_with_seed(key, self.seed);
        let at = self.positions.find(hash, |at| key_at(bytes, *at) == key)?;
        Some(match op_at(bytes, *at)? {
            Op::Put { value, expires_at, .. } => Some((value, expires_at)),
            Op::Delete { .. } => None,
        })
    }

    /// Whether no rows were written.
    pub(crate) fn is_empty(&self) -> bool {
        self.batch.is_empty() && self.ordered.get().is_none()
    }

    /// The writes in the order of their rows.
    pub(crate) fn ordered(&self) -> &Overlay {
        self.ordered.get_or_init(|| {
            let mut overlay = Overlay::default();
            overlay.apply(&self.batch);
            overlay
        })
    }

    /// Bytes of keys and values.
    pub(crate) fn bytes(&self) -> usize {
        self.ordered.get().map_or(self.batch.as_bytes().len(), Overlay::bytes)
    }

    /// Adds the writes of a batch of stored keys.
    pub(crate) fn apply(&mut self, batch: &WriteBatch) {
        if batch.range_deletions() > 0 {
            self.ordered();
        }
        if let Some(ordered) = self.ordered.get_mut() {
            return ordered.apply(batch);
        }
        for op in batch.iter() {
            self.push(op);
        }
    }

    fn push(&mut self, op: Op<'_>) {
        let GroupWrites { batch, positions, seed, .. } = self;
        let (at, key) = (batch.as_bytes().len(), op.key());
        batch.push(op);
        let bytes = batch.as_bytes();
        let is_same = |other: &usize| key_at(bytes, *other) == key;
        let hash_of = |at: &usize| xxh3_64_with_seed(key_at(bytes, *at), *seed);
        match positions.entry(xxh3_64_with_seed(key, *seed), is_same, hash_of) {
            hashbrown::hash_table::Entry::Occupied(mut earlier) => {
                *earlier.get_mut() = at;
                self.has_replaced = true;
            }
            hashbrown::hash_table::Entry::Vacant(place) => _ = place.insert(at),
        }
    }

    /// Adds the row of the metadata, if they are not saved. A command that does not use them is
    /// about to write.
    pub(crate) fn write_metadata(&mut self) {
        if let Some(metadata) = self.metadata.take().filter(KeyMetadata::is_unsaved) {
            let mut row = WriteBatch::new();
            metadata.write_to(&mut row);
            self.apply(&row);
        }
    }

    /// All writes as one batch, which has each row once.
    pub(crate) fn finish(&mut self) -> &WriteBatch {
        self.write_metadata();
        if let Some(ordered) = self.ordered.get() {
            self.batch = ordered.to_batch();
        } else if self.has_replaced {
            let all = std::mem::take(&mut self.batch);
            let mut last: Vec<usize> = self.positions.iter().copied().collect();
            last.sort_unstable();
            for op in last.into_iter().filter_map(|at| op_at(all.as_bytes(), at)) {
                self.batch.push(op);
            }
        }
        &self.batch
    }

    /// Forgets all writes.
    pub(crate) fn clear(&mut self) {
        if self.positions.capacity() > MAX_KEPT_ROWS || self.batch.as_bytes().len() > MAX_KEPT_BYTES
        {
            *self = GroupWrites { seed: self.seed, ..GroupWrites::default() };
        }
        self.batch.clear();
        self.positions.clear();
        self.has_replaced = false;
        self.ordered = OnceCell::new();
        self.metadata = None;
    }
}

/// The operation at a position of the log form of a batch of puts and deletes.
fn op_at(bytes: &[u8], at: usize) -> Option<Op<'_>> {
    operations(bytes.get(at..)?).next()?.ok()
}

fn key_at(bytes: &[u8], at: usize) -> &[u8] {
    op_at(bytes, at).map_or(&[], |op| op.key())
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

    /// The memory of one group serves the next one.
    #[test]
    fn rows_are_those_written_last_before_and_after_they_are_in_order() {
        let mut writes = GroupWrites::default();
        for ordered_at in [usize::MAX, 0, 70] {
            let mut expected = Expected::new();
            for step in 0..200 {
                if step == ordered_at {
                    assert_eq!(writes.ordered().len(), expected.len());
                }
                let (key, value) = (vec![(step * 7 % 50) as u8], [step as u8]);
                let mut batch = WriteBatch::new();
                match step % 3 {
                    0 => batch.delete(&key),
                    1 => batch.put(&key, &value),
                    _ => batch.put_until(&key, &value, 9),
                };
                writes.apply(&batch);
                expected.extend(rows_of(&batch));
                for (key, row) in &expected {
                    let row = row.as_ref().map(|(value, at)| (value.as_slice(), *at));
                    assert_eq!(writes.get(key), Some(row), "step {step}");
                }
                assert_eq!(writes.get(b"none"), None);
            }
            let batch = writes.finish();
            assert_eq!((batch.len(), rows_of(batch)), (expected.len(), expected));
            writes.clear();
            assert!(writes.is_empty() && writes.get(&[0]).is_none() && writes.bytes() == 0);
        }
    }

    #[test]
    fn deleted_range_hides_earlier_rows_alone() {
        let mut writes = GroupWrites::default();
        let mut batch = WriteBatch::new();
        writes.apply(batch.put(b"a", b"1").put(b"b", b"1"));
        batch.clear();
        writes.apply(batch.delete_range("a".."c").put(b"a", b"2"));
        assert_eq!(writes.get(b"a"), Some(Some((&b"2"[..], None))));
        assert_eq!(writes.get(b"b"), Some(None));
        assert_eq!(writes.get(b"c"), None);
        let batch = writes.finish();
        assert_eq!((batch.range_deletions(), batch.len()), (1, 2));
    }
}
