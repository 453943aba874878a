//! The LogStore of a partition: where in the log its entries lie, at six bytes each.
//!
//! ```text
//!   key ─ hash ─▶ cuckoo table ─▶ positions ─▶ records of the log, whose keys are compared
//! ```
//!
//! A key has one entry, moved to the newest position when it is written again; so popular keys fill
//! a LogStore late. When the table has no room left, as can happen amid a batch larger than it, a
//! further table is begun: the store is full then, and takes no other batch.
//!
//! Invariant: of each key written since the store was begun exactly one entry is in the tables, with
//! the position of its last write.
//!
//! Source: Lim, thesis, section 2.2.1. The further tables are ours.

use std::sync::Arc;

use siltstone_structures::CuckooTable;

/// The tables of one partition.
#[derive(Debug, Clone)]
pub(crate) struct LogStore {
    /// Shared with cursors, which see them as they were.
    tables: Vec<Arc<CuckooTable>>,
    slots: u32,
    /// The bytes of the shortest and the longest operation ever entered.
    lengths: Option<(u32, u32)>,
}

impl LogStore {
    /// An empty store whose tables have so many slots.
    pub(crate) fn new(slots: u32) -> Self {
        LogStore { tables: vec![Arc::new(CuckooTable::with_slots(slots))], slots, lengths: None }
    }

    /// Where a key with these bits may lie, in no particular order.
    pub(crate) fn candidates(&self, bits: u64) -> Vec<u32> {
        self.tables.iter().flat_map(|table| table.candidates(bits)).collect()
    }

    /// Enters an operation of `bytes` bytes at `position`; `old` is where the key lies, if it does.
    pub(crate) fn enter(&mut self, bits: u64, old: Option<u32>, position: u32, bytes: u32) {
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
            // An empty table has room.
            let _ = table.insert(bits, position);
            self.tables.push(Arc::new(table));
        }
    }

    /// Whether a LogStore with tables filled up to `load` should take no other batch.
    pub(crate) fn is_full(&self, load: f64) -> bool {
        self.tables.len() > 1 || self.tables.iter().any(|table| table.load() >= load)
    }

    pub(crate) fn tables(&self) -> &[Arc<CuckooTable>] {
        &self.tables
    }

    /// The length of all operations, if it is one.
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
    fn does_every_key_have_one_entry_however_many_there_are() {
        let mut store = LogStore::new(16);
        let bits = |key: u32| hash64(&key.to_le_bytes());
        for round in 0..3 {
            for key in 0..100 {
                let old = (round > 0).then(|| (round - 1) * 100 + key);
                store.enter(bits(key), old, round * 100 + key, 10 + round);
            }
            assert_eq!(store.entries(), 100);
        }
        assert!(store.is_full(0.97) && store.one_length().is_none());
        for key in 0..100 {
            assert!(store.candidates(bits(key)).contains(&(200 + key)));
        }
    }
}
