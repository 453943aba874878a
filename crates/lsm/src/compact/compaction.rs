//! The inputs of one compaction: runs or tables of one level, and the overlapping tables below.
//!
//! Two kinds work for range deletions: a rewrite stays on its level, and a removal has no output.

use std::sync::Arc;

use siltstone_engine::{FileInfo, Job};

use crate::version::{L0Run, TableFile, Version};

/// Runs or tables of one level to be merged with the overlapping tables of the next.
#[derive(Clone)]
pub(crate) struct Compaction {
    /// Why it runs, for listeners of events.
    pub(crate) reason: &'static str,
    pub(crate) level: usize,
    /// The same as `level` in a rewrite.
    pub(crate) target: usize,
    /// The inputs are removed without being read: a range deletion covers them.
    pub(crate) is_removal: bool,
    /// Inputs of level 0, newest first.
    pub(crate) runs: Vec<L0Run>,
    /// Inputs of a deeper level.
    pub(crate) inputs: Vec<Arc<TableFile>>,
    /// The new position of the L0 cursor: only the keys before it are merged (`Some(None)`: up to
    /// the last key). `None`: the runs are merged completely.
    pub(crate) slice_end: Option<Option<Vec<u8>>>,
    /// The overlapping tables of `target`.
    pub(crate) below: Vec<Arc<TableFile>>,
    /// The overlapping tables of the level after `target`, where output tables end.
    pub(crate) grandparents: Vec<Arc<TableFile>>,
    /// The overlapping tables of all levels deeper than `target`: a tombstone above them is kept.
    pub(crate) deeper: Vec<Vec<Arc<TableFile>>>,
}

impl Compaction {
    /// Every input table; runs in persistent memory have none.
    pub(crate) fn tables(&self) -> impl Iterator<Item = &Arc<TableFile>> {
        self.runs.iter().filter_map(L0Run::file).chain(&self.inputs).chain(&self.below)
    }

    /// The same for another reason.
    pub(super) fn because(self, reason: &'static str) -> Self {
        Compaction { reason, ..self }
    }

    /// The job as it is reported to event listeners. The bytes of a run of level 0 are those of its
    /// live keys and values, as far as they are merged.
    pub(super) fn job(&self) -> Job {
        let of_run = |run: &L0Run| FileInfo::new(run.entry().info().name, self.bytes_of_run(run));
        let tables = self.inputs.iter().chain(&self.below);
        let inputs = self.runs.iter().map(of_run).chain(tables.map(|table| table.entry().info()));
        Job::new(self.reason).on_levels(self.level, self.target).with_inputs(inputs.collect())
    }

    /// The approximate number of bytes that it reads.
    pub(crate) fn bytes(&self) -> u64 {
        let tables = self.inputs.iter().chain(&self.below).map(|table| table.bytes());
        self.l0_bytes() + tables.sum::<u64>()
    }

    /// The approximate bytes of keys and values that it takes from L0 runs.
    pub(crate) fn l0_bytes(&self) -> u64 {
        self.runs.iter().map(|run| self.bytes_of_run(run)).sum()
    }

    fn bytes_of_run(&self, run: &L0Run) -> u64 {
        match &self.slice_end {
            None => run.live_bytes(),
            Some(to) => run.slice_bytes(to.as_deref()),
        }
    }

    /// Whether it is a trivial move: no table overlaps below, the inputs are disjoint, and all keys
    /// of each are live and have their values in the table.
    pub(crate) fn is_move(&self) -> bool {
        if self.is_rewrite() || self.is_removal {
            return false;
        }
        let is_table = |run: &L0Run| run.file_with_values().is_some() && run.live().is_full();
        let mut by_key: Vec<_> = self.spans().collect();
        by_key.sort_unstable();
        self.below.is_empty()
            && self.runs.iter().all(is_table)
            && self.exhausted_runs().count() == self.runs.len()
            && by_key.windows(2).all(|p| p[0].1 < p[1].0)
    }

    /// Whether the outputs replace the inputs on their level.
    pub(crate) fn is_rewrite(&self) -> bool {
        self.level == self.target
    }

    /// The runs with no live keys left afterwards.
    pub(crate) fn exhausted_runs(&self) -> impl Iterator<Item = &L0Run> {
        self.runs.iter().filter(|run| match &self.slice_end {
            None => true,
            Some(to) => run.live().is_exhausted_at(to.as_deref()),
        })
    }

    pub(crate) fn largest_input(&self) -> &[u8] {
        self.spans().map(|(_, largest)| largest).max().unwrap_or_default()
    }

    /// The first and the last key of everything that it reads.
    pub(super) fn span(&self) -> (&[u8], &[u8]) {
        let below = self.below.iter().map(|table| (table.smallest(), table.largest()));
        let all = || self.spans().chain(below.clone());
        let smallest = all().map(|(smallest, _)| smallest).min();
        let largest = all().map(|(_, largest)| largest).max();
        (smallest.unwrap_or_default(), largest.unwrap_or_default())
    }

    /// The first and the last key of each input run or table.
    fn spans(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let runs = self.runs.iter().map(|run| (run.smallest(), run.largest()));
        runs.chain(self.inputs.iter().map(|table| (table.smallest(), table.largest())))
    }

    /// Whether no deeper level has overlapping tables.
    pub(crate) fn is_bottom(&self) -> bool {
        self.deeper.iter().all(Vec::is_empty)
    }

    /// Whether a level deeper than the target may contain `key`.
    pub(crate) fn may_be_deeper(&self, key: &[u8]) -> bool {
        self.deeper.iter().any(|tables| {
            let at = tables.partition_point(|table| table.largest() < key);
            tables.get(at).is_some_and(|table| table.smallest() <= key)
        })
    }
}

/// A compaction of `runs` of level 0, or of `inputs` of a deeper level, with all overlapping
/// tables.
pub(super) fn complete(
    version: &Version,
    level: usize,
    runs: Vec<L0Run>,
    inputs: Vec<Arc<TableFile>>,
    slice_end: Option<Option<Vec<u8>>>,
) -> Compaction {
    let firsts = runs.iter().map(L0Run::smallest);
    let smallest = firsts.chain(inputs.iter().map(|table| table.smallest())).min();
    let lasts = runs.iter().map(L0Run::largest);
    let largest = lasts.chain(inputs.iter().map(|table| table.largest())).max();
    let (smallest, largest) = (smallest.unwrap_or_default(), largest.unwrap_or_default());
    let mut span = Span { from: smallest, to: End::Included(largest) };
    if let Some(to) = &slice_end {
        span.from = span.from.max(&version.cursor);
        if let Some(to) = to.as_deref().filter(|to| *to <= largest) {
            span.to = End::Excluded(to);
        }
    }
    let below = span.tables_in(version, level + 1);
    // The tables below extend further than the inputs, and their tombstones hide deeper entries
    // too.
    let mut wide_span = span;
    if let (Some(first), Some(last)) = (below.first(), below.last()) {
        wide_span.from = wide_span.from.min(first.smallest());
        if !wide_span.to.is_before_end(last.largest()) {
            wide_span.to = End::Included(last.largest());
        }
    }
    let grandparents = wide_span.tables_in(version, level + 2);
    let deeper = (level + 2..=version.levels.len())
        .map(|level| wide_span.tables_in(version, level))
        .collect();
    Compaction {
        reason: if level == 0 { "level 0" } else { "level size" },
        level,
        target: level + 1,
        is_removal: false,
        below,
        grandparents,
        deeper,
        runs,
        inputs,
        slice_end,
    }
}

/// The removal of L0 runs or of tables of a deeper level, all of which range deletions cover.
pub(super) fn removal(level: usize, runs: Vec<L0Run>, inputs: Vec<Arc<TableFile>>) -> Compaction {
    Compaction {
        reason: "range deletions",
        level,
        target: level + 1,
        is_removal: true,
        below: Vec::new(),
        grandparents: Vec::new(),
        deeper: Vec::new(),
        runs,
        inputs,
        slice_end: None,
    }
}

/// Writes `table` of a level ≥ 1 again, without what range deletions hide.
pub(super) fn rewrite(version: &Version, level: usize, table: &Arc<TableFile>) -> Compaction {
    let span = Span { from: table.smallest(), to: End::Included(table.largest()) };
    Compaction {
        reason: "garbage",
        level,
        target: level,
        is_removal: false,
        below: Vec::new(),
        grandparents: span.tables_in(version, level + 1),
        deeper: (level + 1..=version.levels.len())
            .map(|level| span.tables_in(version, level))
            .collect(),
        runs: Vec::new(),
        inputs: vec![table.clone()],
        slice_end: None,
    }
}

/// An interval of keys.
#[derive(Clone, Copy)]
struct Span<'a> {
    from: &'a [u8],
    to: End<'a>,
}

#[derive(Clone, Copy)]
enum End<'a> {
    Included(&'a [u8]),
    Excluded(&'a [u8]),
}

impl End<'_> {
    /// Whether `key` is not after the end.
    fn is_before_end(&self, key: &[u8]) -> bool {
        match *self {
            End::Included(last) => key <= last,
            End::Excluded(end) => key < end,
        }
    }
}

impl Span<'_> {
    /// The tables of `level` ≥ 1 that overlap the span.
    fn tables_in(&self, version: &Version, level: usize) -> Vec<Arc<TableFile>> {
        if level > version.levels.len() {
            return Vec::new();
        }
        let tables = version.level(level);
        let from = tables.partition_point(|table| table.largest() < self.from);
        let to = tables.partition_point(|table| self.to.is_before_end(table.smallest()));
        tables[from..to.max(from)].to_vec()
    }
}
