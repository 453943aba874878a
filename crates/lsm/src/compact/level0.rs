//! When level 0 is compacted, and how much of it at once.
//!
//! **Whole** (no `container`): all rows with all of level 1 under them, when there are
//! `l0_compact` rows (small ones count in part). With TRIAD-DISK earlier, as soon as the rows and the tables under them share
//! enough keys: 1 − distinct keys / keys, by their HyperLogLogs.
//!
//! **By right-angle sides** (`container` set): rows stack up in a container; from the share
//! [`BEGIN_AT`] of its capacity on, a *side* is compacted: what all rows hold from the cursor on, up
//! to a border of level 1 at which there are between AF·S/2 and AF·S bytes (AF: how much larger the
//! second level is than the first; S: the size of a table). Then the cursor moves there, and round
//! at the end. So a compaction of level 0 is always small, and rows may be many.
//!
//! ```text
//!   rows   ░░░░░░░░┊▓▓▓▓▓▓▓▓▓┊████████     newest: arrived when the cursor stood where it stands
//!          ░░░░░░░░┊▓▓▓▓▓▓▓▓▓┊██            older: arrived further on, a turn ago: less is left
//!          ░░░░░░░░┊▓▓▓▓▓                   oldest
//!   level 1 ──────┴cursor┴───┴────┴─────    ▓ the side
//! ```
//!
//! Sources: TRIAD paper, section 4.2; TriangleKV paper, sections 3.1 and 3.2.

use std::sync::Arc;

use siltstone_structures::HyperLogLog;

use super::{Busy, Compaction, complete};
use crate::options::Options;
use crate::version::{Row, TableFile, Version};

/// The share of a container at which its compaction begins (TriangleKV paper, section 3.1).
const BEGIN_AT: f64 = 0.6;
/// The share of a container from which writers are slowed down.
const SLOW_AT: f64 = 0.85;

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
        let l0 = &self.options.level0;
        if l0.container_bytes > 0 {
            return version.bytes(0) as f64 / (BEGIN_AT * l0.container_bytes as f64);
        }
        let rows = self.rows(version) / l0.compact_at as f64;
        if self.options.triad.disk && rows < 1.0 && version.level0.len() > 1 {
            return rows.max(overlap(version) / self.options.triad.overlap);
        }
        rows
    }

    /// From 0 (write on) to 1 (stop): how much writers are to wait for level 0.
    pub(super) fn pressure(&self, version: &Version) -> f64 {
        let l0 = &self.options.level0;
        let (now, slow_at, stop_at) = match l0.container_bytes {
            0 => (self.rows(version), l0.slow_at as f64 - 1.0, l0.stop_at as f64),
            bytes => (version.bytes(0) as f64 / bytes as f64, SLOW_AT, 1.0),
        };
        ((now - slow_at) / (stop_at - slow_at)).clamp(0.0, 1.0)
    }

    /// How many rows there are; one far smaller than a memtable counts as part of one, because
    /// merging few bytes with all of level 1 would cost more than reading past it does.
    fn rows(&self, version: &Version) -> f64 {
        let whole = self.options.memtable_bytes as f64 / 4.0;
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
        let compaction = match self.options.level0.container_bytes {
            0 => complete(version, 0, version.level0.clone(), Vec::new(), None),
            _ => match lone_row(version) {
                Some(row) => complete(version, 0, vec![row], Vec::new(), None),
                None => self.side(version, busy)?,
            },
        };
        is_free(&compaction).then_some(compaction)
    }

    /// The right-angle side at the cursor.
    fn side(&self, version: &Version, busy: &Busy) -> Option<Compaction> {
        let most = self.side_bytes();
        let from = &*version.cursor;
        let bytes_to =
            |to: Option<&[u8]>| version.level0.iter().map(|row| row.side_bytes(to)).sum::<u64>();
        // The borders of level 1 in turn: each is the start of a table.
        let tables: &[Arc<TableFile>] = version.levels.first().map_or(&[], Vec::as_slice);
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
            to = self.cut(version, most);
        }
        let rows: Vec<_> = version.level0.clone();
        Some(complete(version, 0, rows, Vec::new(), Some(to)))
    }

    /// A key that parts about three quarters of `most` from the rest, from the cursor on.
    fn cut(&self, version: &Version, most: u64) -> Option<Vec<u8>> {
        let anchors = version.level0.iter().flat_map(|row| row.file().table().anchors(64));
        let mut anchors: Vec<_> = anchors.filter(|key| key[..] > *version.cursor).collect();
        anchors.sort_unstable();
        anchors.dedup();
        let bytes_to =
            |key: &[u8]| version.level0.iter().map(|row| row.side_bytes(Some(key))).sum::<u64>();
        let at = anchors.partition_point(|key| bytes_to(key) < most * 3 / 4);
        let at = if at > 0 && anchors.get(at).is_none_or(|key| bytes_to(key) > most) {
            at - 1
        } else {
            at
        };
        anchors.into_iter().nth(at)
    }

    /// AF·S, but never more than a quarter of the container.
    fn side_bytes(&self) -> u64 {
        let levels = &self.options.level_bytes;
        let factor = match levels[..] {
            [first, second, ..] => (second / first).clamp(2, 100),
            _ => 10,
        };
        let container = self.options.level0.container_bytes;
        (factor * self.options.table_bytes).min(container / 4).max(1)
    }
}

/// A whole row that shares no keys with any other nor with level 1, as a sequential load leaves
/// them: it goes down by name alone, before others that are older.
fn lone_row(version: &Version) -> Option<Row> {
    let is_apart = |row: &Row, other: &Row| {
        let (row, other) = (row.file(), other.file());
        row.number() == other.number()
            || row.largest() < other.smallest()
            || other.largest() < row.smallest()
    };
    let is_alone = |row: &&Row| {
        let file = row.file();
        let has_level1 = !version.levels.is_empty();
        row.log().is_none()
            && row.live().is_whole()
            && version.level0.iter().all(|other| is_apart(row, other))
            && (!has_level1 || version.overlapping(1, file.smallest(), file.largest()).is_empty())
    };
    version.level0.iter().rfind(is_alone).cloned()
}

/// The overlap ratio of level 0 with the tables of level 1 under it: the share of their keys that
/// a merge would drop.
fn overlap(version: &Version) -> f64 {
    let rows = version.level0.iter().map(|row| row.file());
    let smallest = rows.clone().map(|table| table.smallest()).min().unwrap_or_default();
    let largest = rows.clone().map(|table| table.largest()).max().unwrap_or_default();
    let under: &[_] = match version.levels.is_empty() {
        true => &[],
        false => version.overlapping(1, smallest, largest),
    };
    let mut union = HyperLogLog::new();
    let mut keys = 0.0;
    for table in rows.chain(under) {
        let Some(sketch) = table.sketch() else { return 0.0 };
        keys += sketch.estimate();
        union.merge(sketch);
    }
    if keys > 0.0 { 1.0 - union.estimate() / keys } else { 0.0 }
}
