//! The writes of a transaction before they are applied.
//!
//! EXEC runs its commands against an overlay: reads look here first, writes land here only. When
//! all have run, the overlay becomes one batch. So a transaction that fails midway leaves nothing,
//! and the batch holds each key once, whatever the commands did to it.

use std::collections::BTreeMap;

use siltstone_engine::{Entry, Op, WriteBatch};

/// What a transaction has written to one table: an entry, or a removal.
#[derive(Default)]
pub(crate) struct Overlay {
    keys: BTreeMap<Vec<u8>, Option<Entry>>,
    bytes: usize,
}

impl Overlay {
    /// What the transaction wrote to `key`, if it did.
    pub(crate) fn get(&self, key: &[u8]) -> Option<Option<&Entry>> {
        self.keys.get(key).map(Option::as_ref)
    }

    /// Bytes of keys and values. Short commands can write much (COPY, SETRANGE), so it is this
    /// that must be limited, and not only what is queued.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Takes over the writes of a command.
    pub(crate) fn apply(&mut self, batch: &WriteBatch) {
        for op in batch.iter() {
            let entry = match op {
                Op::Put { value, expires_at, .. } => {
                    Some(Entry { value: value.to_vec(), expires_at })
                }
                Op::Delete { .. } => None,
            };
            let value_bytes = |entry: &Option<Entry>| entry.as_ref().map_or(0, |e| e.value.len());
            self.bytes += op.key().len() + value_bytes(&entry);
            if let Some(replaced) = self.keys.insert(op.key().to_vec(), entry) {
                self.bytes -= op.key().len() + value_bytes(&replaced);
            }
        }
    }

    /// The written keys at or after `from`, in order.
    pub(crate) fn from<'a>(
        &'a self,
        from: &[u8],
    ) -> impl Iterator<Item = (&'a [u8], Option<&'a Entry>)> + use<'a> {
        self.keys.range(from.to_vec()..).map(|(key, entry)| (key.as_slice(), entry.as_ref()))
    }

    /// All writes as one batch.
    pub(crate) fn to_batch(&self) -> WriteBatch {
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
