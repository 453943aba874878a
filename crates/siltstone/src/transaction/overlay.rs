//! The write set of a transaction, before it is applied.
//!
//! Reads of the transaction search it first; at commit it becomes one batch. So a rolled-back
//! transaction leaves nothing, and the batch holds each key once.

use std::collections::BTreeMap;
use std::ops::Bound;

use siltstone_engine::{Entry, KeyRange, Op, WriteBatch};

/// The write set for one table: an entry or a removal per key.
#[derive(Debug, Clone, Default)]
pub struct Overlay {
    keys: BTreeMap<Vec<u8>, Option<Entry>>,
    bytes: usize,
    /// All keys of the table were removed before `keys` were written.
    is_cleared: bool,
}

impl Overlay {
    /// What the transaction wrote to `key`, or `None` if it did not write it.
    pub fn get(&self, key: &[u8]) -> Option<Option<&Entry>> {
        let written = self.keys.get(key).map(Option::as_ref);
        written.or(self.is_cleared.then_some(None))
    }

    /// Number of written keys.
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Whether there are no writes.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty() && !self.is_cleared
    }

    /// Removes all keys of the table. [`to_batch`](Self::to_batch) then has only later writes:
    /// whoever applies it must remove the other keys in the same step.
    pub fn clear(&mut self) {
        *self = Overlay { is_cleared: true, ..Overlay::default() };
    }

    /// Whether all keys of the table were removed.
    pub fn is_cleared(&self) -> bool {
        self.is_cleared
    }

    /// Bytes of keys and values, for limits on a transaction's memory.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Adds one write.
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

    /// Adds the writes of a batch.
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

    /// The written keys of a range, in order, from both ends.
    pub fn range<'a>(
        &'a self,
        range: &KeyRange,
    ) -> impl DoubleEndedIterator<Item = (&'a [u8], Option<&'a Entry>)> + use<'a> {
        use Bound::Excluded;
        // A map panics at such a range.
        let is_empty = range.check().is_err()
            || matches!((&range.start, &range.end), (Excluded(a), Excluded(b)) if a == b);
        let bounds = match is_empty {
            false => (range.start.clone(), range.end.clone()),
            true => (Bound::Included(Vec::new()), Excluded(Vec::new())),
        };
        self.keys.range(bounds).map(|(key, entry)| (key.as_slice(), entry.as_ref()))
    }

    /// The first written key from `start` on.
    pub(super) fn first_from(&self, start: Bound<&[u8]>) -> Option<(&[u8], Option<&Entry>)> {
        let (key, entry) = self.keys.range::<[u8], _>((start, Bound::Unbounded)).next()?;
        Some((key, entry.as_ref()))
    }

    /// The last written key up to `end`.
    pub(super) fn last_to(&self, end: Bound<&[u8]>) -> Option<(&[u8], Option<&Entry>)> {
        let (key, entry) = self.keys.range::<[u8], _>((Bound::Unbounded, end)).next_back()?;
        Some((key, entry.as_ref()))
    }

    /// All writes to single keys as one batch.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clear_hides_every_key_except_later_writes() {
        let mut overlay = Overlay::default();
        overlay.push(Op::Put { key: b"a", value: b"1", expires_at: None });
        overlay.clear();
        assert!(overlay.is_cleared() && !overlay.is_empty());
        assert_eq!(overlay.bytes(), 0);
        assert_eq!(overlay.get(b"a"), Some(None));
        assert_eq!(overlay.get(b"never written"), Some(None));
        overlay.push(Op::Put { key: b"b", value: b"2", expires_at: None });
        assert_eq!(overlay.get(b"b").flatten().map(|entry| &entry.value[..]), Some(&b"2"[..]));
        assert_eq!(overlay.to_batch().len(), 1);
    }
}
