//! Compactions that are triggered by range deletions, and the removal of range deletions that hide
//! nothing any more.
//!
//! A table or L0 run that lies in a deleted range and is older than the deletion is removed without
//! being read. A table of which at least half lies in deleted ranges is rewritten on its level. The
//! rest is dropped by later compactions.
//!
//! A version forgets a range deletion when no memtable, run or table has an older key in its range,
//! as far as their bounds show, or when a newer one covers it and no snapshot is in between. Older
//! data never comes back: it only moves from memtables to files and from files to files. Tables
//! know up to which range deletion they are free of hidden keys
//! ([`FileEntry::deletes_applied`](crate::version::FileEntry::deletes_applied)), since their bounds
//! may reach over a range in which they have no keys.
//!
//! Invariant: nothing is removed that a snapshot sees.

use std::sync::Arc;

use super::compaction::{removal, rewrite};
use super::{Compaction, InProgress};
use crate::memtable::Memtable;
use crate::range_deletes::RangeDelete;
use crate::version::{L0Run, TableFile, Version};
use crate::view::View;

/// With more range deletions than this, each table and all of level 0 that keep one of them are
/// compacted, however little they lose.
pub(super) const MAX_RANGE_DELETES: usize = 256;

/// The next compaction that a range deletion makes due; `None`: there is none. `snapshots` ascend,
/// and the last one is now.
pub(super) fn pick(
    version: &Version,
    in_progress: &InProgress,
    snapshots: &[u64],
) -> Option<Compaction> {
    let deletes = &version.range_deletes;
    for delete in deletes.iter() {
        if let Some(removal) = pick_covered(version, delete, in_progress, snapshots) {
            return Some(removal);
        }
    }
    let is_crowded = deletes.len() > MAX_RANGE_DELETES;
    for delete in deletes.iter() {
        for level in 1..=version.levels.len() {
            let table = overlapping(version, level, delete).iter().find(|table| {
                table.entry().deletes_applied < delete.sequence
                    && is_unread(table.min_sequence(), delete.sequence, snapshots)
                    && !in_progress.contains(table.number())
                    && (is_crowded || is_half_deleted(table, delete))
            });
            if let Some(table) = table {
                return Some(rewrite(version, level, table).because("range deletions"));
            }
        }
    }
    None
}

/// The tables of a level, or the runs of level 0, that can be removed whole.
fn pick_covered(
    version: &Version,
    delete: &RangeDelete,
    in_progress: &InProgress,
    snapshots: &[u64],
) -> Option<Compaction> {
    let is_dead =
        |min: u64, max: u64| max < delete.sequence && is_unread(min, delete.sequence, snapshots);
    if !in_progress.level0 {
        let is_covered = |run: &&L0Run| {
            delete.covers(run.smallest(), run.largest())
                && is_dead(run.min_sequence(), run.max_sequence())
        };
        let runs: Vec<_> = version.level0.iter().filter(is_covered).cloned().collect();
        if !runs.is_empty() {
            return Some(removal(0, runs, Vec::new()));
        }
    }
    (1..=version.levels.len()).find_map(|level| {
        let is_covered = |table: &&Arc<TableFile>| {
            delete.covers(table.smallest(), table.largest())
                && is_dead(table.min_sequence(), table.max_sequence())
                && !in_progress.contains(table.number())
        };
        let tables = overlapping(version, level, delete);
        let tables: Vec<_> = tables.iter().filter(is_covered).cloned().collect();
        (!tables.is_empty()).then(|| removal(level, Vec::new(), tables))
    })
}

/// The tables of `level` ≥ 1 that overlap a range deletion.
fn overlapping<'v>(
    version: &'v Version,
    level: usize,
    delete: &RangeDelete,
) -> &'v [Arc<TableFile>] {
    let tables = version.level(level);
    let from = tables.partition_point(|table| table.largest() < delete.start.as_slice());
    let to = tables.partition_point(|table| delete.is_before_end(table.smallest()));
    &tables[from..to.max(from)]
}

/// Whether something is older than the range deletion `sequence`, and no snapshot can see any of
/// it, the oldest of which is `min`, from before the deletion.
fn is_unread(min: u64, sequence: u64, snapshots: &[u64]) -> bool {
    let next = snapshots.partition_point(|&snapshot| snapshot < min);
    min < sequence && snapshots.get(next).is_some_and(|&snapshot| snapshot >= sequence)
}

/// Whether at least half of a table lies in the range, by the offsets of its blocks.
fn is_half_deleted(table: &TableFile, delete: &RangeDelete) -> bool {
    let table = table.table();
    let from = table.approximate_offset(&delete.start);
    let to = delete.end.as_ref().map_or(table.data_bytes(), |end| table.approximate_offset(end));
    2 * to.saturating_sub(from) >= table.data_bytes()
}

/// The sequence numbers of the range deletions of the version that hide nothing.
pub(super) fn forgettable(view: &View, snapshots: &[u64]) -> Vec<u64> {
    let version = &view.version;
    let is_shadowed = |delete: &RangeDelete| {
        version.range_deletes.iter().rev().any(|newer| {
            newer.contains(delete) && is_unread(delete.sequence, newer.sequence, snapshots)
        })
    };
    let is_idle = |delete: &RangeDelete| {
        let in_run = |run: &L0Run| {
            delete.overlaps(run.smallest(), run.largest())
                && run.min_sequence() < delete.sequence
                && run.deletes_applied() < delete.sequence
        };
        let in_table = |table: &Arc<TableFile>| {
            table.min_sequence() < delete.sequence
                && table.entry().deletes_applied < delete.sequence
        };
        !view.memtables().any(|memtable| has_older(memtable, delete))
            && !version.level0.iter().any(in_run)
            && !(1..=version.levels.len())
                .any(|level| overlapping(version, level, delete).iter().any(in_table))
    };
    let deletes = version.range_deletes.iter();
    let forgotten = deletes.filter(|delete| is_shadowed(delete) || is_idle(delete));
    forgotten.map(|delete| delete.sequence).collect()
}

/// Whether a memtable may have a key that the range deletion hides.
fn has_older(memtable: &Memtable, delete: &RangeDelete) -> bool {
    if memtable.min_sequence() >= delete.sequence {
        return false;
    }
    let mut cursor = memtable.tree().cursor();
    cursor.seek(&delete.start);
    cursor.valid() && delete.is_before_end(cursor.key())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn snapshot_between_a_key_and_its_deletion_reads_the_key() {
        let snapshots = [10, 20, 40];
        for (min, sequence, unread) in [
            (5, 15, false),
            (5, 9, true),
            (5, 10, true),
            (11, 20, true),
            (10, 20, false),
            (21, 40, true),
            (21, 30, true),
            (30, 30, false),
            (31, 30, false),
        ] {
            assert_eq!(is_unread(min, sequence, &snapshots), unread, "{min} {sequence}");
        }
    }
}
