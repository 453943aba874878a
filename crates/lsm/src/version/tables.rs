//! The tables of a level ≥ 1, disjoint and in key order, with the heads of their last keys.
//!
//! Every read searches the tables of each level for its key. The heads are adjacent integers, while
//! the keys are two pointers away, so the search reads the keys of one table at most, mostly none.
//!
//! Invariant: with heads, there is one for each table.

use std::ops::Deref;
use std::sync::Arc;

use siltstone_structures::KeyHeads;

use super::TableFile;

/// The tables of one level ≥ 1, shared by the versions with the same level and by iterators.
pub(crate) type Tables = Arc<LevelTables>;

/// Tables in key order.
#[derive(Default, Clone)]
pub(crate) struct LevelTables {
    tables: Vec<Arc<TableFile>>,
    /// The last keys; empty while the tables are edited.
    ends: KeyHeads,
}

impl LevelTables {
    /// `tables`, disjoint and in key order.
    pub(crate) fn new(tables: Vec<Arc<TableFile>>) -> Self {
        let mut level = LevelTables { tables, ends: KeyHeads::default() };
        level.index();
        level
    }

    /// The tables, to be edited. [`index`](Self::index) must follow.
    pub(super) fn edit(&mut self) -> &mut Vec<Arc<TableFile>> {
        self.ends = KeyHeads::default();
        &mut self.tables
    }

    /// Whether it was edited since the last [`index`](Self::index).
    pub(super) fn is_edited(&self) -> bool {
        self.ends.len() != self.tables.len()
    }

    /// Makes the heads.
    pub(super) fn index(&mut self) {
        self.ends = KeyHeads::of(self.tables.iter().map(|table| table.largest()));
    }

    /// The first table that does not end before `key`. Cost: a binary search over integers.
    #[inline]
    pub(crate) fn find(&self, key: &[u8]) -> usize {
        let undecided = self.ends.undecided(key);
        let tables = &self.tables[undecided.clone()];
        undecided.start + tables.partition_point(|table| table.largest() < key)
    }
}

impl Deref for LevelTables {
    type Target = [Arc<TableFile>];

    fn deref(&self) -> &Self::Target {
        &self.tables
    }
}
