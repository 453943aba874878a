//! Compaction: merges tables of one level into the next, in background jobs.
//!
//! ```text
//!   level 1    [a....f] [g....m] [n....z]          one table is selected
//!   level 2    [a.c] [d..f] [g.j] [k.n] [o..z]     with the overlapping tables below
//!                            └── merged ──┘ → new tables of level 2, one manifest edit
//! ```
//!
//! | module | content |
//! | --- | --- |
//! | [`job`] | the background job: picks, runs and installs compactions |
//! | [`pick`], [`level0`], [`level_sizes`] | what is compacted next, by the sizes of levels |
//! | [`level_model`] | the model behind these sizes |
//! | [`range_deletions`], [`tombstones`], [`tombstone_accounts`], [`blob_gc`] | other reasons |
//! | [`range`] | compaction of a range of keys, on request |
//! | [`compaction`] | the inputs of one compaction |
//! | [`filter`] | the compaction filter of one compaction, and its panics |
//! | [`merge`], [`output`], [`table_end`], [`blob_writer`] | merging them into tables and blob files |
//!
//! This file has the inputs of all compactions that are in progress ([`InProgress`]).
//!
//! Invariant: concurrent compactions have disjoint inputs, and none writes a table whose range of
//! keys overlaps one that another writes into the same level.

mod blob_gc;
mod blob_writer;
mod compaction;
mod filter;
mod job;
mod level0;
mod level_model;
mod level_sizes;
mod merge;
mod output;
mod pick;
mod range;
mod range_deletions;
mod table_end;
mod tombstone_accounts;
mod tombstones;

pub(crate) use compaction::Compaction;
use compaction::complete;
pub(crate) use level_model::MemtableStats;
pub(crate) use level_sizes::LevelSizes;
pub(crate) use pick::{LeveledStrategy, Strategy};
pub(crate) use tombstone_accounts::{MIN_PASSED, TombstoneAccounts};

use std::collections::HashSet;

/// The inputs of queued and running compactions. No two compactions share a table, and none writes
/// into a gap between the tables that another one merges.
#[derive(Default)]
pub(crate) struct InProgress {
    tables: HashSet<u64>,
    /// Level 0 is compacted by one job at a time.
    pub(crate) level0: bool,
    /// The target level and the range of keys of each, by an input table or run.
    outputs: Vec<OutputSpan>,
    /// While it is not 0, no compaction begins.
    holds: usize,
}

/// Where a compaction writes.
#[derive(PartialEq, Eq)]
struct OutputSpan {
    level: usize,
    smallest: Vec<u8>,
    largest: Vec<u8>,
}

impl OutputSpan {
    /// The keys of all inputs.
    fn of(compaction: &Compaction) -> Self {
        let (smallest, largest) = compaction.span();
        let (smallest, largest) = (smallest.to_vec(), largest.to_vec());
        OutputSpan { level: compaction.target, smallest, largest }
    }
}

impl InProgress {
    /// Whether the table `number` is an input of a compaction.
    pub(crate) fn contains(&self, number: u64) -> bool {
        self.tables.contains(&number)
    }

    /// Whether a compaction in progress shares an input with `compaction`, or may write a table
    /// around one that it writes. A table that is rewritten stays in its place.
    fn conflicts_with(&self, compaction: &Compaction) -> bool {
        let (smallest, largest) = compaction.span();
        (self.level0 && compaction.level == 0)
            || compaction.tables().any(|table| self.contains(table.number()))
            || (!compaction.is_rewrite() && self.writes_into(compaction.target, smallest, largest))
    }

    /// Whether a compaction in progress may write keys below and above a part of the range into
    /// `level`: it has several inputs, and a gap between them.
    pub(crate) fn writes_into(&self, level: usize, smallest: &[u8], largest: &[u8]) -> bool {
        self.outputs.iter().any(|output| {
            output.level == level
                && output.smallest.as_slice() <= largest
                && smallest <= output.largest.as_slice()
        })
    }

    /// Whether no compaction may begin.
    pub(crate) fn is_held(&self) -> bool {
        self.holds > 0
    }

    /// Keeps compactions from beginning, until [`release`](Self::release).
    pub(crate) fn hold(&mut self) {
        self.holds += 1;
    }

    pub(crate) fn release(&mut self) {
        self.holds -= 1;
    }

    fn insert(&mut self, compaction: &Compaction) {
        self.outputs.push(OutputSpan::of(compaction));
        self.level0 |= compaction.level == 0;
        self.tables.extend(compaction.tables().map(|table| table.number()));
    }

    fn remove(&mut self, compaction: &Compaction) {
        let span = OutputSpan::of(compaction);
        if let Some(at) = self.outputs.iter().position(|output| *output == span) {
            self.outputs.swap_remove(at);
        }
        self.level0 &= compaction.level != 0;
        for table in compaction.tables() {
            self.tables.remove(&table.number());
        }
    }
}
