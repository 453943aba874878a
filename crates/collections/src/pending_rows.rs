//! The writes of an operation so far: one per row.
//!
//! Most operations write a few rows. They go to a batch, whose operations are searched one after
//! the other, so a write allocates nothing and the batch is ready at the end. An operation that
//! writes more rows, or deletes a range of them, continues in an [`Overlay`].
//!
//! Invariant: the batch, or the overlay, has each row once.

use std::borrow::Cow;

use siltstone::transaction::Overlay;
use siltstone_engine::{Entry, Op, WriteBatch};

/// The most operations in the batch, and so the longest search.
const MAX_SEARCHED: usize = 12;

/// About what a row takes in memory besides its key and value.
pub const ROW_OVERHEAD_BYTES: usize = 128;

/// Writes of an operation.
#[derive(Debug, Default)]
pub(crate) struct PendingRows {
    /// Empty once there is an overlay.
    batch: WriteBatch,
    overlay: Option<Overlay>,
}

impl PendingRows {
    /// No writes, in the memory of a batch.
    pub(crate) fn in_memory_of(mut batch: WriteBatch) -> Self {
        batch.clear();
        PendingRows { batch, overlay: None }
    }

    /// What was written to a row, or `None` if nothing was.
    pub(crate) fn get(&self, key: &[u8]) -> Option<Option<Entry>> {
        if let Some(overlay) = &self.overlay {
            return overlay.get(key).map(Option::<&Entry>::cloned);
        }
        let op = self.batch.iter().find(|op| op.key() == key)?;
        Some(match op {
            Op::Put { value, expires_at, .. } => Some(Entry { value: value.to_vec(), expires_at }),
            Op::Delete { .. } => None,
        })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.batch.is_empty() && self.overlay.is_none()
    }

    /// Adds a write, in place of an earlier one of the row.
    pub(crate) fn push(&mut self, op: Op<'_>) {
        if let Some(overlay) = &mut self.overlay {
            overlay.push(op);
            return;
        }
        let is_repeated = self.batch.iter().any(|earlier| earlier.key() == op.key());
        if !is_repeated && self.batch.len() < MAX_SEARCHED {
            self.batch.push(op);
        } else if self.batch.len() >= MAX_SEARCHED {
            let mut overlay = self.as_overlay().into_owned();
            overlay.push(op);
            (self.overlay, self.batch) = (Some(overlay), WriteBatch::new());
        } else {
            let earlier = std::mem::take(&mut self.batch);
            let others = earlier.iter().filter(|earlier| earlier.key() != op.key());
            others.for_each(|other| _ = self.batch.push(other));
            self.batch.push(op);
        }
    }

    /// Deletes the rows from `start` to before `end`, and drops earlier writes of them.
    pub(crate) fn delete_range(&mut self, start: &[u8], end: &[u8]) {
        let mut overlay = self.overlay.take().unwrap_or_else(|| {
            let mut overlay = Overlay::default();
            overlay.apply(&std::mem::take(&mut self.batch));
            overlay
        });
        overlay.delete_range(start, Some(end));
        self.overlay = Some(overlay);
    }

    /// The writes in the order of their rows. Cost: nothing, or a copy of a batch.
    pub(crate) fn as_overlay(&self) -> Cow<'_, Overlay> {
        match &self.overlay {
            Some(overlay) => Cow::Borrowed(overlay),
            None => {
                let mut overlay = Overlay::default();
                overlay.apply(&self.batch);
                Cow::Owned(overlay)
            }
        }
    }

    /// About what the writes take in memory; 0 while they are few.
    pub(crate) fn memory_bytes(&self) -> usize {
        let overlay = self.overlay.as_ref();
        overlay.map_or(0, |overlay| overlay.bytes() + overlay.len() * ROW_OVERHEAD_BYTES)
    }

    /// Bytes of keys and values.
    pub(crate) fn bytes(&self) -> usize {
        self.overlay.as_ref().map_or(self.batch.user_bytes() as usize, Overlay::bytes)
    }

    /// All writes as one batch.
    pub(crate) fn into_batch(self) -> WriteBatch {
        self.overlay.map_or(self.batch, |overlay| overlay.to_batch())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn each_row_is_there_once_with_its_last_write() {
        for rows in [3u8, 12, 13, 40] {
            let (mut pending, mut expected) = (PendingRows::default(), BTreeMap::new());
            assert!(pending.is_empty());
            for step in 0..4 * rows {
                let (key, value) = ([step.wrapping_mul(7) % rows], [step]);
                let entry = (step % 3 > 0).then(|| Entry::new(value));
                pending.push(match &entry {
                    Some(_) => Op::Put { key: &key, value: &value, expires_at: None },
                    None => Op::Delete { key: &key },
                });
                expected.insert(key, entry);
                for (key, entry) in &expected {
                    assert_eq!(pending.get(key).as_ref(), Some(entry));
                    assert_eq!(pending.as_overlay().get(key), Some(entry.as_ref()));
                }
                assert_eq!(pending.get(b"none"), None);
            }
            let bytes = expected.values().map(|entry| 1 + usize::from(entry.is_some()));
            assert_eq!(pending.bytes(), bytes.sum::<usize>());
            let batch = pending.into_batch();
            assert_eq!(batch.len(), expected.len());
            for op in batch.iter() {
                let entry = expected.get(op.key()).unwrap();
                let value = entry.as_ref().map(|entry| &entry.value[..]);
                match op {
                    Op::Put { value: put, .. } => assert_eq!(Some(put), value),
                    Op::Delete { .. } => assert_eq!(None, value),
                }
            }
        }
    }
}
