//! When level 0 is compacted, and how much of it at once.
//!
//! **Whole** (`level0=rows`): all rows with all of level 1 under them, when there are `l0_compact` rows
//! (small ones count in part), or when those in persistent memory hold [`BEGIN_AT`] of its room. With
//! TRIAD-DISK earlier, as soon as the rows and the tables under them share enough keys: 1 − distinct
//! keys / keys, by their HyperLogLogs.
//!
//! **By right-angle sides** (`level0=triangle`): rows stack up in a container; from the share
//! [`BEGIN_AT`] of its capacity on (what rows take of it is told by `version/room.rs`), a *side* is compacted: what all rows hold from the cursor on, up
//! to a border of level 1 at which there are between AF·S/2 and AF·S bytes (AF: how much larger the
//! second level is than the first; S: the size of a table), but at most an eighth of the container. Then
//! the cursor moves there, and round at the end. So a compaction of level 0 is always small, and rows may
//! be many.
//!
//! ```text
//!   rows   ░░░░░░░░┊▓▓▓▓▓▓▓▓▓┊████████     newest: arrived when the cursor stood where it stands
//!          ░░░░░░░░┊▓▓▓▓▓▓▓▓▓┊██            older: arrived further on, a turn ago: less is left
//!          ░░░░░░░░┊▓▓▓▓▓                   oldest
//!   level 1 ──────┴cursor┴───┴────┴─────    ▓ the side
//! ```
//!
//! **By columns** (`level0=matrix`): the same, but of the older rows alone. Who is which follows from
//! the live ranges, so there is nothing else to remember. While no row has lost any keys, a column
//! makes every row there is the *compactor*. From then on a row that has lost keys is of the
//! compactor, and one that is whole is of the *receiver* and arrives anew with each move of the
//! cursor. When the cursor is through, nothing is left of the compactor, and the receiver takes its
//! place. (What the receiver holds of keys that were just merged is merged again a turn later: the
//! price.)
//!
//! ```text
//!   receiver   ████████████████████████      whole
//!   compactor  ░░░░░░░░┊▓▓▓▓▓┊█████████      lost what the cursor passed
//!              ░░░░░░░░┊▓▓▓▓▓┊█████████      ▓ the column
//! ```
//!
//! Invariant: what is taken of a stretch of keys are the oldest rows that have any of it, without a gap,
//! so that nothing in level 0 is older than what is in level 1.
//!
//! Sources: TRIAD paper, section 4.2; TriangleKV paper, sections 2.4.4, 3.1 and 3.2.

use std::sync::Arc;

use siltstone_structures::HyperLogLog;

use super::{Busy, Compaction, complete};
use crate::options::{Options, Shape};
use crate::version::{Row, TableFile, Version};

/// The share of a container at which its compaction begins (TriangleKV paper, section 3.1).
pub(super) const BEGIN_AT: f64 = 0.6;
/// The share of a container from which writers are slowed down.
const SLOW_AT: f64 = 0.85;

/// A side is at most the container by this. The fewer sides a turn has, the less lies in the container when
/// it is as full as may be, for what was taken is empty at once: of level 1 more is rewritten for the same
/// bytes. The more it has, the farther apart lies in a log what one side takes of it.
const LEAST_SIDES: u64 = 8;

/// What the smallest of rows counts as.
const LEAST_ROW: f64 = 0.25;

/// The policy of level 0.
pub(super) struct Level0 {
    options: Options,
}

impl Level0 {
    pub(super) fn new(options: &Options) -> Self {
        Level0 { options: options.clone() }
    }

    /// How urgently level 0 wants to be compacted; 1 and more is due.
    pub(super) fn score(&self, version: &Version) -> f64 {
        let fill = self.fill(version) / BEGIN_AT;
        if self.is_container() {
            return fill;
        }
        let due = fill.max(self.rows(version) / self.options.level0.compact_at as f64);
        if self.options.triad.disk && due < 1.0 && version.level0.len() > 1 {
            return due.max(overlap(version) / self.options.triad.overlap);
        }
        due
    }

    /// The share of its room that level 0 has taken, where it has a room of its own.
    fn fill(&self, version: &Version) -> f64 {
        let (room, is_container) = (self.container(version), self.is_container());
        if room == 0 {
            return 0.0;
        }
        let taken = if is_container {
            version.room()
        } else {
            version.level0.iter().filter(|row| row.nvm().is_some()).map(Row::held_bytes).sum()
        };
        taken as f64 / room as f64
    }

    /// What the rows may hold; 0 if that is told by their number alone.
    pub(super) fn container(&self, version: &Version) -> u64 {
        self.options.container(version.bytes_below())
    }

    pub(super) fn is_container(&self) -> bool {
        self.options.is_container()
    }

    /// From 0 (write on) to 1 (stop): how much writers are to wait for level 0.
    pub(super) fn pressure(&self, version: &Version) -> f64 {
        let l0 = &self.options.level0;
        let slope = |now: f64, slow_at: f64, stop_at: f64| {
            ((now - slow_at) / (stop_at - slow_at)).clamp(0.0, 1.0)
        };
        let by_room = slope(self.fill(version), SLOW_AT, 1.0);
        if self.is_container() {
            return by_room;
        }
        by_room.max(slope(self.rows(version), l0.slow_at as f64 - 1.0, l0.stop_at as f64))
    }

    /// How many rows there are; one far smaller than a memtable counts as part of one, because
    /// merging few bytes with all of level 1 would cost more than reading past it does.
    fn rows(&self, version: &Version) -> f64 {
        let whole = self.options.memtable() as f64 / 4.0;
        let weight = |row: &Row| (row.live_bytes() as f64 / whole).clamp(LEAST_ROW, 1.0);
        version.level0.iter().map(weight).sum()
    }

    pub(super) fn pick(&self, version: &Version, busy: &Busy) -> Option<Compaction> {
        if busy.level0 || version.level0.is_empty() {
            return None;
        }
        let is_free = |compaction: &Compaction| {
            compaction.below.iter().all(|table| !busy.has(table.number()))
        };
        let compaction = match (self.options.shape(), lone_row(version)) {
            (Shape::Rows | Shape::NoveLsm, _) => {
                complete(version, 0, version.level0.clone(), Vec::new(), None)
            }
            (_, Some(row)) => complete(version, 0, vec![row], Vec::new(), None),
            (Shape::Triangle, None) => self.side(version, &version.level0, busy)?,
            (Shape::Matrix, None) => self.side(version, compactor(version), busy)?,
        };
        is_free(&compaction).then_some(compaction)
    }

    /// The right-angle side, or the column, that `rows` have at the cursor.
    fn side(&self, version: &Version, rows: &[Row], busy: &Busy) -> Option<Compaction> {
        let most = self.side_bytes(version);
        let from = &*version.cursor;
        let bytes_to = |to: Option<&[u8]>| rows.iter().map(|row| row.side_bytes(to)).sum::<u64>();
        // The borders of level 1 in turn: each is the start of a table.
        let tables: &[Arc<TableFile>] = version.levels.first().map_or(&[], |tables| tables);
        let ahead = &tables[tables.partition_point(|table| table.largest() < from)..];
        let borders = ahead.iter().map(|table| table.smallest()).filter(|key| *key > from);
        let mut to: Option<Vec<u8>> = None;
        let mut is_last = true;
        for border in borders {
            let bytes = bytes_to(Some(border));
            if bytes > most {
                is_last = false;
                break;
            }
            to = Some(border.to_vec());
            let next_is_busy =
                ahead.iter().any(|table| table.smallest() == border && busy.has(table.number()));
            if bytes >= most / 2 || next_is_busy {
                is_last = false;
                break;
            }
        }
        if is_last && bytes_to(None) <= most {
            to = None;
        } else if to.as_deref().is_none_or(|to| bytes_to(Some(to)) == 0) {
            // No border comes in time: cut between two, or take what cannot be cut whole.
            to = self.cut(from, rows, most);
        }
        Some(complete(version, 0, rows.to_vec(), Vec::new(), Some(to)))
    }

    /// A key that parts about three quarters of `most` from the rest, from the cursor on.
    fn cut(&self, from: &[u8], rows: &[Row], most: u64) -> Option<Vec<u8>> {
        let anchors = rows.iter().flat_map(|row| row.anchors(64));
        let mut anchors: Vec<_> = anchors.filter(|key| key[..] > *from).collect();
        anchors.sort_unstable();
        anchors.dedup();
        let bytes_to = |key: &[u8]| rows.iter().map(|row| row.side_bytes(Some(key))).sum::<u64>();
        let at = anchors.partition_point(|key| bytes_to(key) < most * 3 / 4);
        let at = if at > 0 && anchors.get(at).is_none_or(|key| bytes_to(key) > most) {
            at - 1
        } else {
            at
        };
        anchors.into_iter().nth(at)
    }

    /// AF·S, but never more than a certain share of the container.
    fn side_bytes(&self, version: &Version) -> u64 {
        let levels = &self.options.level_bytes;
        let factor = match levels[..] {
            [first, second, ..] => (second / first).clamp(2, 100),
            _ => 10,
        };
        let container = self.container(version);
        (factor * self.options.table_bytes).min(container / LEAST_SIDES).max(1)
    }
}

/// The rows of the compactor, oldest last: those that have lost keys, and all that are older; if none
/// has, every row.
fn compactor(version: &Version) -> &[Row] {
    let newest = version.level0.iter().position(|row| !row.live().is_whole());
    &version.level0[newest.unwrap_or(0)..]
}

/// A whole row that shares no keys with any other nor with level 1, as a sequential load leaves
/// them: it goes down by name alone, before others that are older.
fn lone_row(version: &Version) -> Option<Row> {
    let is_apart = |row: &Row, other: &Row| {
        row.number() == other.number()
            || row.largest() < other.smallest()
            || other.largest() < row.smallest()
    };
    let is_alone = |row: &&Row| {
        let has_level1 = !version.levels.is_empty();
        row.plain_file().is_some()
            && row.live().is_whole()
            && version.level0.iter().all(|other| is_apart(row, other))
            && (!has_level1 || version.overlapping(1, row.smallest(), row.largest()).is_empty())
    };
    version.level0.iter().rfind(is_alone).cloned()
}

/// The overlap ratio of level 0 with the tables of level 1 under it: the share of their keys that
/// a merge would drop.
fn overlap(version: &Version) -> f64 {
    let rows = version.level0.iter();
    let smallest = rows.clone().map(Row::smallest).min().unwrap_or_default();
    let largest = rows.clone().map(Row::largest).max().unwrap_or_default();
    let under: &[_] = match version.levels.is_empty() {
        true => &[],
        false => version.overlapping(1, smallest, largest),
    };
    let mut union = HyperLogLog::new();
    let mut keys = 0.0;
    for table in rows.map(Row::file).chain(under.iter().map(Some)) {
        let Some(sketch) = table.and_then(|table| table.sketch()) else { return 0.0 };
        keys += sketch.estimate();
        union.merge(sketch);
    }
    if keys > 0.0 { 1.0 - union.estimate() / keys } else { 0.0 }
}
