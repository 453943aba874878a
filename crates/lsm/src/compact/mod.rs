//! Compaction: selection ([`pick`], [`level0`], [`level_sizes`], [`range_deletions`]), inputs
//! ([`compaction`]), merging ([`merge`]), the background job ([`job`]), and compaction of a range
//! on request ([`range`]).
//!
//! ```text
//!   level 1    [a....f] [g....m] [n....z]          one table is selected
//!   level 2    [a.c] [d..f] [g.j] [k.n] [o..z]     with the overlapping tables below
//!                            └── merged ──┘ → new tables of level 2, one manifest edit
//! ```

mod compaction;
mod job;
mod level0;
mod level_sizes;
mod merge;
mod pick;
mod range;
mod range_deletions;

pub(crate) use compaction::Compaction;
use compaction::complete;
pub(crate) use level_sizes::{LevelSizes, MemtableStats};
pub(crate) use pick::{LeveledStrategy, Strategy};

use std::collections::HashSet;

/// The inputs of queued and running compactions. No two compactions share a table.
#[derive(Default)]
pub(crate) struct InProgress {
    tables: HashSet<u64>,
    /// Level 0 is compacted by one job at a time.
    pub(crate) level0: bool,
}

impl InProgress {
    /// Whether the table `number` is an input of one.
    pub(crate) fn contains(&self, number: u64) -> bool {
        self.tables.contains(&number)
    }

    /// Whether one of them shares an input with `compaction`.
    fn has_input_of(&self, compaction: &Compaction) -> bool {
        (self.level0 && compaction.level == 0)
            || compaction.tables().any(|table| self.contains(table.number()))
    }

    fn insert(&mut self, compaction: &Compaction) {
        self.level0 |= compaction.level == 0;
        self.tables.extend(compaction.tables().map(|table| table.number()));
    }

    fn remove(&mut self, compaction: &Compaction) {
        self.level0 &= compaction.level != 0;
        for table in compaction.tables() {
            self.tables.remove(&table.number());
        }
    }
}
