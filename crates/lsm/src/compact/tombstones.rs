//! Tombstone-triggered compactions: of ranges in which many tombstones were written, or passed by
//! cursors.
//!
//! ```text
//!   cursor:   t t t t t t t t t k        t: a tombstone that hides a key, k: the first entry
//!             └─ passed: charged ─┘      charge ≥ bytes of the files in between → compacted
//! ```
//!
//! A cursor cannot skip tombstones: after a million deletions in a row the first key costs a
//! million steps, and each later walk pays again. So a walk is charged for the tombstones that it
//! passes, as seeks in level 0 are (`pick`; LevelDB's seek compactions), and the charges are kept
//! with the range of keys that they were passed in. When they reach the bytes of the memtable and
//! of all files in that range, the memtable is flushed, and the range is compacted level by level:
//! the tables in it with many tombstones go down until nothing is below them, where tombstones are
//! dropped. All walks together have then cost about as much as the compaction.
//!
//! A flush charges the tombstones of its run. Once those of all flushes are half the number of the
//! other entries in their range, it is compacted, too. That compaction drops a row for each one that
//! it writes. A later walk finds the tombstones gone, and the space of what they hide is free.
//! RocksDB has `NewCompactOnDeletionCollectorFactory` for it.
//!
//! Tombstones that a snapshot still needs stay: tables with them are not written again for it.
//!
//! Invariant: each compaction moves tombstones down or drops them, so that a range is done after
//! a bounded number of them.

use std::sync::Arc;

use siltstone_durable::{self as durable, LogStructured, spawn_job};
use siltstone_engine::KeyRange;
use siltstone_runtime::Priority;

use super::compaction::rewrite;
use super::range::{overlapping, overlapping_runs};
use super::tombstone_accounts::PASSED_COST_BYTES;
use super::{Compaction, InProgress, complete};
use crate::engine::{State, Tree};
use crate::version::{L0Run, TableFile, Version};
use crate::view::View;

/// A table has many tombstones if at least one of this number of entries is a tombstone.
const MAX_ENTRIES_PER_TOMBSTONE: u64 = 8;

impl Tree {
    /// Charges a walk over tombstones between two keys, and makes the compaction of that range due
    /// once the charges reach its cost.
    #[cold]
    pub(crate) fn charge_walk(&self, view: &View, passed: u64, ends: [&[u8]; 2]) {
        let mut state = self.background.lock();
        if state.tombstones.due.is_some() {
            return;
        }
        let range = state.tombstones.walks.add(passed, ends);
        let runs = overlapping_runs(&view.version, &range);
        let files = runs.iter().map(L0Run::live_bytes);
        let files = files.chain(tables_in(&view.version, &range).map(TableFile::bytes));
        let memtables = view.memtables().map(|memtable| memtable.bytes());
        if state.tombstones.walks.count * PASSED_COST_BYTES < memtables.chain(files).sum() {
            return;
        }
        state.tombstones.make_due(range);
        state.tombstones.is_rotation_queued = true;
        drop(state);
        let on_finish = |state: &mut State| state.tombstones.is_rotation_queued = false;
        spawn_job(self, Priority::Flush, on_finish, |tree: &Tree| {
            // A writer that has it now will fill the memtable.
            let Some(mut writer) = tree.writer.try_lock() else { return Ok(()) };
            match writer.as_mut() {
                Some(writer) if tree.has_unflushed(writer) && tree.may_rotate(writer) => {
                    durable::stall::rotate(tree, writer, false)
                }
                _ => Ok(()),
            }
        });
    }

    /// Charges the tombstones of a run that a flush has installed, and begins the compaction of
    /// their range once they hide most of it.
    pub(crate) fn charge_flush(&self, run: u64) {
        let view = self.view.load_full();
        let mut files = view.version.level0.iter().filter_map(L0Run::file);
        let Some(run) = files.find(|file| file.number() == run && has_many(file)) else { return };
        let mut state = self.background.lock();
        if state.tombstones.due.is_some() {
            return;
        }
        let deletes = run.table().meta().deletes;
        let range = state.tombstones.flushes.add(deletes, [run.smallest(), run.largest()]);
        let runs = overlapping_runs(&view.version, &range);
        let runs = runs.iter().filter_map(L0Run::file).map(Arc::as_ref);
        let files = runs.chain(tables_in(&view.version, &range));
        let entries: u64 = files.map(|file| file.table().meta().entries).sum();
        // A third of all is half of the others.
        if state.tombstones.flushes.count < entries / 3 {
            return;
        }
        state.tombstones.make_due(range);
        drop(state);
        self.schedule_compaction();
    }
}

fn tables_in<'a>(version: &'a Version, range: &'a KeyRange) -> impl Iterator<Item = &'a TableFile> {
    (1..=version.levels.len())
        .flat_map(|level| overlapping(version, level, range, &[]).map(Arc::as_ref))
}

/// The next compaction that tombstones make due; `None`: there is none. `snapshots` ascend, and the
/// last one is now.
pub(super) fn pick(version: &Version, state: &mut State, snapshots: &[u64]) -> Option<Compaction> {
    let range = state.tombstones.due.as_ref()?;
    let picked = pick_in(version, range, &state.in_progress, snapshots);
    let is_idle = state.compactions == 0
        && state.flushing == 0
        && !state.is_flush_queued
        && !state.tombstones.is_rotation_queued;
    if picked.is_none() && is_idle {
        state.tombstones.due = None;
    }
    picked
}

fn pick_in(
    version: &Version,
    range: &KeyRange,
    in_progress: &InProgress,
    snapshots: &[u64],
) -> Option<Compaction> {
    let runs = overlapping_runs(version, range);
    if runs.iter().any(|run| run.file().is_none_or(|file| has_many(file))) {
        let compaction = complete(version, 0, runs, Vec::new(), None);
        if !in_progress.conflicts_with(&compaction) {
            return Some(compaction);
        }
    }
    let oldest_snapshot = snapshots.first().copied().unwrap_or(0);
    (1..=version.levels.len()).find_map(|level| {
        let mut tables = overlapping(version, level, range, &[]).filter(|table| has_many(table));
        tables.find_map(|table| {
            let down = complete(version, level, Vec::new(), vec![table.clone()], None);
            let is_lowest = down.below.is_empty() && down.is_bottom();
            if is_lowest && table.max_sequence() > oldest_snapshot {
                return None;
            }
            let compaction = if is_lowest { rewrite(version, level, table) } else { down };
            (!in_progress.conflicts_with(&compaction)).then(|| compaction.because("tombstones"))
        })
    })
}

fn has_many(table: &TableFile) -> bool {
    let meta = table.table().meta();
    meta.deletes > 0 && meta.deletes.saturating_mul(MAX_ENTRIES_PER_TOMBSTONE) >= meta.entries
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use siltstone_engine::{Durability, Engine, ManualClock, Stats, WriteBatch};
    use siltstone_runtime::Env;
    use siltstone_structures::SplitMix64;
    use siltstone_vfs::Ram;

    use crate::{Lsm, Options};

    use super::*;

    const ROWS: u32 = 20_000;

    fn open(given: &[(&str, &str)]) -> Lsm {
        let small = [("memtable", "1MiB"), ("target_file_size", "256KiB"), ("levels", "1MiB:8MiB")];
        let options = small.iter().chain(given).map(|&(k, v)| (k.to_owned(), v.to_owned()));
        let options = Options::from_map(&options.collect::<BTreeMap<_, _>>()).unwrap();
        let env = Env::replayable(Arc::new(ManualClock::at(1)), 1);
        Lsm::open(Arc::new(Ram::new()), env, options).unwrap()
    }

    fn write(lsm: &Lsm, rows: std::ops::Range<u32>, value: Option<&[u8]>) {
        for row in rows {
            let mut batch = WriteBatch::new();
            match value {
                Some(value) => batch.put(&row.to_be_bytes(), value),
                None => batch.delete(&row.to_be_bytes()),
            };
            lsm.write(&batch, Durability::Buffered).unwrap();
        }
    }

    /// The first key, and the tombstones passed on the way to it.
    fn first_key(lsm: &Lsm) -> (Vec<u8>, u64) {
        let passed = || lsm.stats().counters["tombstones_passed"];
        let before = passed();
        let mut cursor = lsm.range(KeyRange::all(), None).unwrap();
        assert!(cursor.first().unwrap());
        (cursor.key().to_vec(), passed() - before)
    }

    #[test]
    fn walk_over_tombstones_makes_the_next_one_short() {
        for given in [
            &[][..],
            &[("l0_capacity", "0"), ("triad.log", "off")],
            &[("l0_capacity", "4MiB"), ("max_compactions", "1")],
            &[("pmem.size", "16MiB")],
        ] {
            let lsm = open(given);
            write(&lsm, 0..ROWS + 100, Some(&[7; 100]));
            lsm.flush().unwrap();
            lsm.maintain().unwrap();
            write(&lsm, 0..ROWS, None);
            let first = ROWS.to_be_bytes().to_vec();
            for _ in 0..2 {
                let (key, passed) = first_key(&lsm);
                assert!(key == first && passed > u64::from(ROWS) / 2, "{given:?} {passed}");
            }
            lsm.maintain().unwrap();
            let (key, passed) = first_key(&lsm);
            assert!(key == first && passed <= 1000, "{given:?} {passed}");
            lsm.verify(&mut |_, _| ()).unwrap();
        }
    }

    #[test]
    fn flush_of_many_tombstones_makes_the_first_walk_short_and_frees_space() {
        let lsm = open(&[]);
        write(&lsm, 0..ROWS + 100, Some(&[7; 100]));
        lsm.flush().unwrap();
        lsm.maintain().unwrap();
        let before = lsm.stats().space_bytes;
        write(&lsm, 0..ROWS, None);
        lsm.flush().unwrap();
        lsm.maintain().unwrap();
        assert!(lsm.stats().space_bytes < before / 4);
        let (key, passed) = first_key(&lsm);
        assert!(key == ROWS.to_be_bytes() && passed <= 1000, "{passed}");
    }

    #[test]
    fn compactions_for_flushed_tombstones_write_less_than_the_user() {
        let lsm = open(&[("memtable", "256KiB")]);
        write(&lsm, 0..ROWS, Some(&[7; 100]));
        lsm.flush().unwrap();
        lsm.maintain().unwrap();
        let written = |stats: Stats| {
            let compacted: u64 = stats.levels.iter().skip(1).map(|level| level.bytes_written).sum();
            (compacted, stats.user_bytes_written)
        };
        let before = written(lsm.stats());
        let mut rng = SplitMix64::new(1);
        for i in 0..3 * ROWS {
            let row = rng.below(u64::from(ROWS)) as u32;
            write(&lsm, row..row + 1, (i % 2 == 0).then_some(&[8; 100]));
            if i % 1000 == 0 {
                lsm.maintain().unwrap();
            }
        }
        let after = written(lsm.stats());
        let (compacted, by_user) = (after.0 - before.0, after.1 - before.1);
        assert!(compacted > 0 && compacted < by_user, "{compacted} of {by_user}");
    }

    #[test]
    fn tombstones_that_a_snapshot_needs_stay_until_it_is_gone() {
        let lsm = open(&[]);
        write(&lsm, 0..ROWS + 100, Some(&[7; 100]));
        let snapshot = lsm.snapshot().unwrap();
        write(&lsm, 0..ROWS, None);
        for _ in 0..3 {
            first_key(&lsm);
            lsm.maintain().unwrap();
        }
        assert!(first_key(&lsm).1 >= u64::from(ROWS));
        let mut cursor = lsm.range(KeyRange::all(), Some(&snapshot)).unwrap();
        assert!(cursor.first().unwrap() && cursor.key() == 0u32.to_be_bytes());
        drop((cursor, snapshot));
        for _ in 0..3 {
            first_key(&lsm);
            lsm.maintain().unwrap();
        }
        assert!(first_key(&lsm).1 <= 1000);
    }

    #[test]
    fn few_tombstones_between_entries_cause_no_compaction() {
        let lsm = open(&[]);
        write(&lsm, 0..ROWS, Some(&[7; 100]));
        for row in (0..ROWS).step_by(10) {
            write(&lsm, row..row + 1, None);
        }
        lsm.flush().unwrap();
        lsm.maintain().unwrap();
        let before = lsm.stats().counters["compactions"];
        for _ in 0..3 {
            let mut cursor = lsm.range(KeyRange::all(), None).unwrap();
            let mut is_valid = cursor.first().unwrap();
            while is_valid {
                is_valid = cursor.next().unwrap();
            }
            lsm.maintain().unwrap();
        }
        assert_eq!(lsm.stats().counters["compactions"], before);
    }
}
