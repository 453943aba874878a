//! The writes of a transaction before they are applied.
//!
//! A transaction's reads look here first, its writes land here only. In the end the overlay becomes one
//! batch. So a transaction that is given up leaves nothing, and the batch holds each key once, whatever
//! was done to it.

use std::collections::BTreeMap;
use std::ops::Bound;

use siltstone_engine::{Entry, Op, WriteBatch};

/// What a transaction has written to one table: an entry, or a removal.
#[derive(Debug, Clone, Default)]
pub struct Overlay {
    keys: BTreeMap<Vec<u8>, Option<Entry>>,
    bytes: usize,
}

impl Overlay {
    /// What the transaction wrote to `key`, if it did.
    pub fn get(&self, key: &[u8]) -> Option<Option<&Entry>> {
        self.keys.get(key).map(Option::as_ref)
    }

    /// Whether nothing was written.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Bytes of keys and values: what a limit on a transaction's memory is about.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Takes over one write.
    pub fn push(&mut self, op: Op<'_>) {
        let entry = match op {
            Op::Put { value, expires_at, .. } => Some(Entry { value: value.to_vec(), expires_at }),
            Op::Delete { .. } => None,
        };
        let value_bytes = |entry: &Option<Entry>| entry.as_ref().map_or(0, |e| e.value.len());
        self.bytes += op.key().len() + value_bytes(&entry);
        if let Some(replaced) = self.keys.insert(op.key().to_vec(), entry) {
            self.bytes -= op.key().len() + value_bytes(&replaced);
        }
    }

    /// Takes over the writes of a batch.
    pub fn apply(&mut self, batch: &WriteBatch) {
        batch.iter().for_each(|op| self.push(op));
    }

    /// The written keys at or after `from`, in order.
    pub fn from<'a>(
        &'a self,
        from: &[u8],
    ) -> impl Iterator<Item = (&'a [u8], Option<&'a Entry>)> + use<'a> {
        self.keys.range(from.to_vec()..).map(|(key, entry)| (key.as_slice(), entry.as_ref()))
    }

    /// The first written key from this end on.
    pub(super) fn first_from(&self, start: Bound<&[u8]>) -> Option<(&[u8], Option<&Entry>)> {
        let (key, entry) = self.keys.range::<[u8], _>((start, Bound::Unbounded)).next()?;
        Some((key, entry.as_ref()))
    }

    /// The last written key up to this end.
    pub(super) fn last_to(&self, end: Bound<&[u8]>) -> Option<(&[u8], Option<&Entry>)> {
        let (key, entry) = self.keys.range::<[u8], _>((Bound::Unbounded, end)).next_back()?;
        Some((key, entry.as_ref()))
    }

    /// All writes as one batch.
    pub fn to_batch(&self) -> WriteBatch {
        let mut batch = WriteBatch::new();
        for (key, entry) in &self.keys {
            match entry {
                Some(entry) => batch.put_entry(key, entry),
                None => batch.delete(key),
            };
        }
        batch
    }
}
