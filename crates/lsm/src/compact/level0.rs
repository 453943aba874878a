//! Level-0 compaction policy: when level 0 is compacted, and which key range.
//!
//! - `whole`: all L0 runs with the overlapping part of level 1, once there are
//!   `l0_compaction_trigger` runs (small ones count in part), or once those in persistent memory
//!   fill [`COMPACTION_FILL`] of their capacity. With TRIAD-DISK earlier: once the overlap ratio of
//!   the runs and the tables below, 1 − distinct keys / keys, is large enough by their
//!   HyperLogLogs.
//! - `sliced` (default): level 0 may contain up to `l0_capacity` bytes (counted by
//!   `version/l0_occupancy.rs`). Above [`COMPACTION_FILL`] of it, one *slice* is compacted: the
//!   keys of all runs from a cursor up to a file boundary of level 1. A slice has between AF·S/2
//!   and AF·S bytes (AF: size ratio of levels 2 and 1; S: target file size), but at most 1/8
//!   of the capacity. The cursor then advances, and wraps around at the end. So no L0 compaction is
//!   long, and level 0 may have many runs. The TriangleKV paper calls a slice a right-angle side.
//! - `columns` (MatrixKV): as `sliced`, but takes only the older of two groups of runs.
//!
//! ```text
//!   runs   ░░░░░░░░┊▓▓▓▓▓▓▓▓▓┊████████     newest: inserted at the present cursor
//!          ░░░░░░░░┊▓▓▓▓▓▓▓▓▓┊██           older: inserted further right, in the last pass
//!          ░░░░░░░░┊▓▓▓▓▓                  oldest
//!   level 1 ──────┴cursor┴───┴────┴─────   ▓ the slice
//! ```
//!
//! With `columns` the groups follow from the live ranges. While no run has lost keys, a column
//! makes every present run part of the *compactor*. From then on a run that has lost keys belongs
//! to the compactor. A run with its full range belongs to the *receiver*, and counts as inserted at
//! the new position whenever the cursor moves. When the cursor completes its pass, the compactor is
//! empty and the receiver takes its place. (Keys of the receiver in the range just merged are
//! merged again one pass later.)
//!
//! ```text
//!   receiver   ████████████████████████     full range
//!   compactor  ░░░░░░░░┊▓▓▓▓▓┊█████████     lost the keys that the cursor passed
//!              ░░░░░░░░┊▓▓▓▓▓┊█████████     ▓ the column
//! ```
//!
//! Invariant: a slice takes the oldest runs of its key range without gaps, so level 0 is always
//! newer than level 1.
//!
//! Sources: TRIAD paper, section 4.2; TriangleKV paper, sections 2.4.4, 3.1 and 3.2.

use std::sync::Arc;

use siltstone_structures::HyperLogLog;

use super::{Compaction, InProgress, complete};
use crate::options::{L0Policy, LiveOptions};
use crate::version::{L0Run, TableFile, Version};

/// The fill of level 0 at which its compaction begins (TriangleKV paper, section 3.1).
const COMPACTION_FILL: f64 = 0.6;
/// The fill of level 0 from which writers are delayed.
const SLOWDOWN_FILL: f64 = 0.85;

/// A slice is at most this fraction of the L0 capacity. With fewer slices per pass, level 0 is
/// emptier on average after each, so more of level 1 is rewritten for the same bytes. With more
/// slices, the records of one slice are farther apart in the logs.
const MIN_SLICES_PER_PASS: u64 = 8;

/// The weight of the smallest run when runs are counted.
const MIN_RUN_WEIGHT: f64 = 0.25;

/// The policy of level 0.
pub(super) struct Level0 {
    options: Arc<LiveOptions>,
}

impl Level0 {
    pub(super) fn new(options: Arc<LiveOptions>) -> Self {
        Level0 { options }
    }

    /// The compaction score of level 0; a compaction is due from 1 on.
    pub(super) fn score(&self, version: &Version) -> f64 {
        let fill = self.fill(version) / COMPACTION_FILL;
        if self.is_l0_sliced() {
            return fill;
        }
        let options = self.options.load();
        let due = fill.max(self.run_count(version) / options.level0.compaction_trigger as f64);
        if options.triad.disk && due < 1.0 && version.level0.len() > 1 {
            return due.max(overlap_ratio(version) / options.triad.min_overlap);
        }
        due
    }

    /// The fill of level 0 as a fraction of its capacity; 0 if only the number of runs is limited.
    fn fill(&self, version: &Version) -> f64 {
        let (capacity, is_sliced) = (self.capacity(version), self.is_l0_sliced());
        if capacity == 0 {
            return 0.0;
        }
        let occupied = if is_sliced {
            version.l0_occupancy()
        } else {
            version
                .level0
                .iter()
                .filter(|run| run.pmem_table().is_some())
                .map(L0Run::owned_bytes)
                .sum()
        };
        occupied as f64 / capacity as f64
    }

    /// The capacity of level 0 in bytes; 0 if only the number of runs is limited.
    pub(super) fn capacity(&self, version: &Version) -> u64 {
        self.options.load().l0_capacity(version.data_bytes_below())
    }

    pub(super) fn is_l0_sliced(&self) -> bool {
        self.options.load().is_l0_sliced()
    }

    /// The back-pressure of level 0 on writers, from 0 (none) to 1 (stop).
    pub(super) fn pressure(&self, version: &Version) -> f64 {
        let options = self.options.load();
        let l0 = &options.level0;
        let slope = |now: f64, slow_at: f64, stop_at: f64| {
            ((now - slow_at) / (stop_at - slow_at)).clamp(0.0, 1.0)
        };
        let by_fill = slope(self.fill(version), SLOWDOWN_FILL, 1.0);
        if self.is_l0_sliced() {
            return by_fill;
        }
        by_fill.max(slope(
            self.run_count(version),
            l0.slowdown_trigger as f64 - 1.0,
            l0.stop_trigger as f64,
        ))
    }

    /// The number of runs. One much smaller than a memtable counts in part, because merging few
    /// bytes with all of level 1 would cost more than reading the extra run does.
    fn run_count(&self, version: &Version) -> f64 {
        let whole = self.options.load().memtable() as f64 / 4.0;
        let weight = |run: &L0Run| (run.live_bytes() as f64 / whole).clamp(MIN_RUN_WEIGHT, 1.0);
        version.level0.iter().map(weight).sum()
    }

    pub(super) fn pick(&self, version: &Version, in_progress: &InProgress) -> Option<Compaction> {
        if in_progress.level0 || version.level0.is_empty() {
            return None;
        }
        let is_free = |compaction: &Compaction| {
            compaction.below.iter().all(|table| !in_progress.contains(table.number()))
        };
        let compaction = match (self.options.load().l0_policy(), lone_run(version)) {
            (L0Policy::Whole | L0Policy::NoveLsm, _) => {
                complete(version, 0, version.level0.clone(), Vec::new(), None)
            }
            (_, Some(run)) => complete(version, 0, vec![run], Vec::new(), None),
            (L0Policy::Sliced, None) => self.slice(version, &version.level0, in_progress)?,
            (L0Policy::Columns, None) => self.slice(version, compactor(version), in_progress)?,
        };
        is_free(&compaction).then_some(compaction)
    }

    /// The slice of `runs` at the cursor.
    fn slice(
        &self,
        version: &Version,
        runs: &[L0Run],
        in_progress: &InProgress,
    ) -> Option<Compaction> {
        let max_bytes = self.max_slice_bytes(version);
        let from = &*version.cursor;
        let bytes_to = |to: Option<&[u8]>| runs.iter().map(|run| run.slice_bytes(to)).sum::<u64>();
        // The file boundaries of level 1 in key order.
        let tables: &[Arc<TableFile>] = version.levels.first().map_or(&[], |tables| tables);
        let ahead = &tables[tables.partition_point(|table| table.largest() < from)..];
        let boundaries = ahead.iter().map(|table| table.smallest()).filter(|key| *key > from);
        let mut to: Option<Vec<u8>> = None;
        let mut is_last = true;
        for boundary in boundaries {
            let bytes = bytes_to(Some(boundary));
            if bytes > max_bytes {
                is_last = false;
                break;
            }
            to = Some(boundary.to_vec());
            let next_is_in_progress = ahead
                .iter()
                .any(|table| table.smallest() == boundary && in_progress.contains(table.number()));
            if bytes >= max_bytes / 2 || next_is_in_progress {
                is_last = false;
                break;
            }
        }
        if is_last && bytes_to(None) <= max_bytes {
            to = None;
        } else if to.as_deref().is_none_or(|to| bytes_to(Some(to)) == 0) {
            // No boundary is near enough: end the slice inside a table of level 1.
            to = self.cut_at_anchor(from, runs, max_bytes);
        }
        Some(complete(version, 0, runs.to_vec(), Vec::new(), Some(to)))
    }

    /// A slice end that takes about three quarters of `max_bytes` bytes.
    fn cut_at_anchor(&self, from: &[u8], runs: &[L0Run], max_bytes: u64) -> Option<Vec<u8>> {
        let anchors = runs.iter().flat_map(|run| run.anchors(64));
        let mut anchors: Vec<_> = anchors.filter(|key| key[..] > *from).collect();
        anchors.sort_unstable();
        anchors.dedup();
        let bytes_to = |key: &[u8]| runs.iter().map(|run| run.slice_bytes(Some(key))).sum::<u64>();
        let at = anchors.partition_point(|key| bytes_to(key) < max_bytes * 3 / 4);
        let at = if at > 0 && anchors.get(at).is_none_or(|key| bytes_to(key) > max_bytes) {
            at - 1
        } else {
            at
        };
        anchors.into_iter().nth(at)
    }

    /// The maximum size of a slice: AF·S, limited by the L0 capacity.
    fn max_slice_bytes(&self, version: &Version) -> u64 {
        let options = self.options.load();
        let factor = match options.level_bytes[..] {
            [first, second, ..] => (second / first).clamp(2, 100),
            _ => 10,
        };
        let capacity = self.capacity(version);
        (factor * options.target_file_bytes).min(capacity / MIN_SLICES_PER_PASS).max(1)
    }
}

/// The runs of the compactor, oldest last: the newest one that has lost keys and all older ones; if
/// none has, every run.
fn compactor(version: &Version) -> &[L0Run] {
    let newest = version.level0.iter().position(|run| !run.live().is_full());
    &version.level0[newest.unwrap_or(0)..]
}

/// A run with its full range that overlaps no other run nor level 1, as after a sequential load. It
/// can be moved to level 1 alone, even before older runs.
fn lone_run(version: &Version) -> Option<L0Run> {
    let is_disjoint = |run: &L0Run, other: &L0Run| {
        run.number() == other.number()
            || run.largest() < other.smallest()
            || other.largest() < run.smallest()
    };
    let is_lone = |run: &&L0Run| {
        let has_level1 = !version.levels.is_empty();
        run.file_with_values().is_some()
            && run.live().is_full()
            && version.level0.iter().all(|other| is_disjoint(run, other))
            && (!has_level1 || version.overlapping(1, run.smallest(), run.largest()).is_empty())
    };
    version.level0.iter().rfind(is_lone).cloned()
}

/// The overlap ratio of level 0 with the tables of level 1 below it: the share of their keys that a
/// merge would drop.
fn overlap_ratio(version: &Version) -> f64 {
    let runs = version.level0.iter();
    let smallest = runs.clone().map(L0Run::smallest).min().unwrap_or_default();
    let largest = runs.clone().map(L0Run::largest).max().unwrap_or_default();
    let under: &[_] = match version.levels.is_empty() {
        true => &[],
        false => version.overlapping(1, smallest, largest),
    };
    let mut union = HyperLogLog::new();
    let mut keys = 0.0;
    for table in runs.map(L0Run::file).chain(under.iter().map(Some)) {
        let Some(sketch) = table.and_then(|table| table.sketch()) else { return 0.0 };
        keys += sketch.estimate();
        union.merge(sketch);
    }
    if keys > 0.0 { 1.0 - union.estimate() / keys } else { 0.0 }
}
