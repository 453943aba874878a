//! The LogStore of a partition: an in-memory index of its log entries, at six bytes each.
//!
//! ```text
//!   key ─ hash ─▶ cuckoo table ─▶ positions ─▶ records of the log, whose keys are compared
//! ```
//!
//! A key has one entry; a later write of the key updates its position, so a skewed workload fills a
//! LogStore slowly. When the table has no free slot, which can happen in the middle of a large
//! batch, another table is added; the store is full then and takes no further batch.
//!
//! Invariant: each key written since the store was created has exactly one entry in the tables,
//! with the position of its last write.
//!
//! Source: Lim, thesis, section 2.2.1; the additional tables are not in the thesis.

use std::sync::Arc;

use siltstone_structures::CuckooTable;

/// The tables of one partition.
#[derive(Debug, Clone)]
pub(crate) struct LogStore {
    /// Shared with cursors, which keep them as they were.
    tables: Vec<Arc<CuckooTable>>,
    slots: u32,
    /// The bytes of the shortest and the longest operation ever inserted.
    lengths: Option<(u32, u32)>,
}

impl LogStore {
    /// An empty store with tables of `slots` slots.
    pub(crate) fn new(slots: u32) -> Self {
        LogStore { tables: vec![Arc::new(CuckooTable::with_slots(slots))], slots, lengths: None }
    }

    /// The positions at which a key with these bits may be, in no particular order.
    pub(crate) fn candidates(&self, bits: u64) -> Vec<u32> {
        self.tables.iter().flat_map(|table| table.candidates(bits)).collect()
    }

    /// Inserts an operation of `bytes` bytes at `position`; `old` is the key's present position, if
    /// any.
    pub(crate) fn insert(&mut self, bits: u64, old: Option<u32>, position: u32, bytes: u32) {
        let (shortest, longest) = self.lengths.unwrap_or((bytes, bytes));
        self.lengths = Some((shortest.min(bytes), longest.max(bytes)));
        if let Some(old) = old {
            let has = |table: &&mut Arc<CuckooTable>| table.candidates(bits).any(|at| at == old);
            if let Some(table) = self.tables.iter_mut().find(has) {
                Arc::make_mut(table).update(bits, old, position);
                return;
            }
        }
        let newest = self.tables.last_mut();
        let done = newest.is_some_and(|table| Arc::make_mut(table).insert(bits, position).is_ok());
        if !done {
            let mut table = CuckooTable::with_slots(self.slots);
            // Cannot fail: the table is empty.
            let _ = table.insert(bits, position);
            self.tables.push(Arc::new(table));
        }
    }

    /// Whether a LogStore with tables filled up to `load` should take no further batch.
    pub(crate) fn is_full(&self, load: f64) -> bool {
        self.tables.len() > 1 || self.tables.iter().any(|table| table.load() >= load)
    }

    pub(crate) fn tables(&self) -> &[Arc<CuckooTable>] {
        &self.tables
    }

    /// The length of all operations in bytes, if they have one length.
    pub(crate) fn one_length(&self) -> Option<u32> {
        self.lengths.filter(|(shortest, longest)| shortest == longest).map(|(length, _)| length)
    }

    pub(crate) fn entries(&self) -> u64 {
        self.tables.iter().map(|table| u64::from(table.len())).sum()
    }

    pub(crate) fn memory(&self) -> u64 {
        self.tables.iter().map(|table| table.memory() as u64).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use siltstone_structures::hash64;

    #[test]
    fn every_key_has_one_entry_after_overflow_into_further_tables() {
        let mut store = LogStore::new(16);
        let bits = |key: u32| hash64(&key.to_le_bytes());
        for round in 0..3 {
            for key in 0..100 {
                let old = (round > 0).then(|| (round - 1) * 100 + key);
                store.insert(bits(key), old, round * 100 + key, 10 + round);
            }
            assert_eq!(store.entries(), 100);
        }
        assert!(store.is_full(0.97) && store.one_length().is_none());
        for key in 0..100 {
            assert!(store.candidates(bits(key)).contains(&(200 + key)));
        }
    }
}
