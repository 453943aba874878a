//! Compaction jobs: picks due compactions, runs them in the background, and installs the results.
//!
//! ```text
//!   schedule ── pick: by level size and seeks, else range deletions, garbage in blob files,
//!      │              tombstones ─▶ in progress ─▶ queue of the scheduler
//!      └─ job ── move | remove | merge ── manifest edit ── next version ── schedule again
//! ```
//!
//! Invariants: two running compactions have no common input. A job whose edit is not applied
//! removes the files that it wrote, unless it is unknown whether the manifest names them.

use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::time::Instant;

use siltstone_durable::report_compaction;
use siltstone_engine::{FileInfo, Result};
use siltstone_runtime::Priority;

use super::merge::MergeResult;
use super::output::OutputFiles;
use super::{Compaction, blob_gc, range_deletions, tombstones};
use crate::engine::{State, Tree};
use crate::version::{Edit, FileEntry, L0Run, TableFile};

impl Tree {
    /// Queues compactions while some are due and the job limit allows it.
    pub(crate) fn schedule_compaction(&self) {
        let mut state = self.background.lock();
        if self.compaction_waiters.load(SeqCst) > 0 || state.in_progress.is_held() {
            return;
        }
        // Loaded under the lock: inputs of finished compactions are gone from this view.
        let view = self.view.load_full();
        while state.compactions < self.options.load().max_compactions
            && !self.background.is_stopping()
        {
            let due = self.strategy.pick(&view.version, &state.in_progress);
            let due = due
                .or_else(|| {
                    let snapshots = self.snapshots.boundaries(&self.visible);
                    range_deletions::pick(&view.version, &state.in_progress, &snapshots)
                })
                .or_else(|| {
                    let ratio = self.options.load().blob_gc_ratio;
                    blob_gc::pick(&view.version, &state.in_progress, ratio)
                })
                .or_else(|| {
                    let snapshots = self.snapshots.boundaries(&self.visible);
                    tombstones::pick(&view.version, &mut state, &snapshots)
                });
            let Some(compaction) = due else { return };
            state.in_progress.insert(&compaction);
            state.compactions += 1;
            let priority =
                if compaction.level == 0 { Priority::L0Compaction } else { Priority::Compaction };
            let weak = self.me.clone();
            let number = state.next_compaction;
            state.next_compaction += 1;
            state.queued.insert(number, (view.generation, compaction));
            self.env.scheduler.spawn(priority, move || {
                if let Some(tree) = weak.upgrade() {
                    run_job(&tree, number);
                }
            });
        }
    }

    /// Removes the range deletions from the version that hide nothing any more.
    pub(crate) fn forget_range_deletes(&self) -> Result<()> {
        let view = self.view.load_full();
        if view.version.range_deletes.is_empty() {
            return Ok(());
        }
        let snapshots = self.snapshots.boundaries(&self.visible);
        let forgotten = range_deletions::forgettable(&view, &snapshots);
        if forgotten.is_empty() {
            return Ok(());
        }
        let edit = Edit { forgotten, ..Edit::default() };
        self.install(view.generation, edit, None, &[], |_| ()).map(drop)
    }

    /// Whether its files are to be compressed otherwise at their new place, which a move would not
    /// do. Only those of level 0 were written for a place above others, except where what was
    /// below them is gone: these move.
    fn is_recompressed(&self, compaction: &Compaction) -> bool {
        let options = self.options.load();
        compaction.level == 0
            && compaction.is_bottom()
            && options.bottommost_table_options() != options.table_options()
    }

    pub(super) fn compact(&self, generation: u64, compaction: &Compaction) -> Result<()> {
        if self.is_cleared_since(generation) {
            return Ok(());
        }
        let work = || self.compact_files(generation, compaction);
        let compacted = report_compaction(self, || compaction.job(), work);
        // After a clear the inputs are obsolete, and so is any error.
        if self.is_cleared_since(generation) { Ok(()) } else { compacted }
    }

    /// Returns the files that the compaction has added.
    fn compact_files(&self, generation: u64, compaction: &Compaction) -> Result<Vec<FileInfo>> {
        let began = Instant::now();
        let is_move = compaction.is_move() && !self.is_recompressed(compaction);
        let MergeResult { written, expired, filtered, changed } = if is_move {
            self.counters.moves.fetch_add(1, Relaxed);
            let moved = |table: &Arc<TableFile>| {
                let level = compaction.target;
                FileEntry { level, run: None, ..table.entry().clone() }
            };
            let files = compaction.runs.iter().filter_map(L0Run::file);
            let tables = files.chain(&compaction.inputs).map(moved).collect();
            let written = OutputFiles { tables, blobs: Vec::new() };
            MergeResult { written, expired: 0, filtered: 0, changed: 0 }
        } else if compaction.is_removal {
            let removed = compaction.runs.len() + compaction.inputs.len();
            self.counters.range_deleted_tables.fetch_add(removed as u64, Relaxed);
            let written = OutputFiles::default();
            MergeResult { written, expired: 0, filtered: 0, changed: 0 }
        } else {
            self.merge_tables(generation, compaction)?
        };
        if filtered + changed > 0 {
            // A row may be gone, or changed, only if the reason survives a power cut. That may be
            // in a log that nobody has synced.
            let synced = self.sync_logs_from(1);
            synced.inspect_err(|_| self.remove_written(&written))?;
        }
        let is_leveled = !compaction.is_removal && !compaction.is_rewrite();
        let runs = compaction.exhausted_runs().map(|run| (0, run.number()));
        let inputs = compaction.inputs.iter().map(|table| (compaction.level, table.number()));
        let below = compaction.below.iter().map(|table| (compaction.target, table.number()));
        let edit = Edit {
            added: written.tables.clone(),
            removed: runs.chain(inputs).chain(below).collect(),
            cursors: match compaction.level {
                0 => Vec::new(),
                level if is_leveled => vec![(level, compaction.largest_input().to_vec())],
                _ => Vec::new(),
            },
            cursor: compaction.slice_end.as_ref().map(|to| to.clone().unwrap_or_default()),
            ..Edit::default()
        };
        let files = written.infos();
        let written = if is_move { OutputFiles::default() } else { written };
        if is_leveled {
            self.strategy.advance(compaction);
        }
        let installed = self
            .install(generation, edit, None, &compaction.runs, |_| ())
            .inspect_err(|error| {
                if error.is_transient() {
                    self.remove_written(&written);
                }
            })?;
        if !installed {
            self.remove_written(&written);
            return Ok(Vec::new());
        }
        if compaction.level == 0 && is_leveled {
            self.counters.largest_level0_bytes.fetch_max(compaction.l0_bytes(), Relaxed);
        }
        self.counters.compactions.fetch_add(1, Relaxed);
        self.counters.expired.fetch_add(expired, Relaxed);
        self.counters.filtered.fetch_add(filtered, Relaxed);
        self.counters.filter_changes.fetch_add(changed, Relaxed);
        self.counters.background_us.fetch_add(began.elapsed().as_micros() as u64, Relaxed);
        self.forget_range_deletes().map(|()| files)
    }
}

fn run_job(tree: &Arc<Tree>, number: u64) {
    let queued = tree.background.lock().queued.remove(&number);
    let Some((generation, compaction)) = &queued else { return };
    let on_finish = |state: &mut State| {
        state.compactions -= 1;
        state.in_progress.remove(compaction);
    };
    if tree.background.run(on_finish, || tree.compact(*generation, compaction)) {
        tree.schedule_compaction();
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use siltstone_engine::{Durability, Engine, ManualClock, WriteBatch};
    use siltstone_runtime::Env;
    use siltstone_vfs::Ram;

    use super::*;
    use crate::compact::InProgress;
    use crate::{Lsm, Options};

    /// With a version loaded before the lock is taken, a thread could select tables that are gone.
    #[test]
    fn compaction_is_picked_from_the_version_loaded_under_the_lock() {
        let options = [
            ("l0_capacity", "0"),
            ("triad.log", "off"),
            ("experimental.l0_compaction_trigger", "2"),
        ];
        let options: BTreeMap<_, _> = options.map(|(k, v)| (k.to_owned(), v.to_owned())).into();
        let env = Env::replayable(Arc::new(ManualClock::at(0)), 1);
        let options = Options::from_map(&options).unwrap();
        let lsm = Lsm::open(Arc::new(Ram::new()), env, options).unwrap();
        let tree = lsm.table();
        let mut due = None;
        for key in [b"a", b"b", b"c", b"d", b"e", b"f", b"g", b"h"] {
            let mut batch = WriteBatch::new();
            batch.put(key, b"1").put(b"z", key);
            lsm.write(&batch, Durability::Buffered).unwrap();
            lsm.flush().unwrap();
            let view = tree.view.load_full();
            if tree.strategy.pick(&view.version, &InProgress::default()).is_some() {
                due = Some(view);
            }
        }
        lsm.maintain().unwrap();
        let (due, now) = (due.expect("a compaction was due"), tree.view.load_full());
        assert!(tree.strategy.pick(&now.version, &InProgress::default()).is_none());

        tree.view.store(due);
        std::thread::scope(|scope| {
            let state = tree.background.lock();
            let scheduler = scope.spawn(|| tree.schedule_compaction());
            std::thread::sleep(std::time::Duration::from_millis(50));
            tree.view.store(now);
            drop(state);
            scheduler.join().unwrap();
        });
        assert_eq!(tree.background.lock().compactions, 0);
        lsm.maintain().unwrap();
    }

    #[test]
    fn compaction_that_is_due_when_a_table_is_opened_is_queued() {
        let vfs: Arc<dyn siltstone_vfs::Vfs> = Arc::new(Ram::new());
        let open = |trigger: &str| {
            let options = [
                ("l0_capacity", "0"),
                ("triad.log", "off"),
                ("experimental.l0_compaction_trigger", trigger),
            ];
            let options = options.map(|(k, v)| (k.to_owned(), v.to_owned()));
            let env = Env::replayable(Arc::new(ManualClock::at(1)), 1);
            Lsm::open(vfs.clone(), env, Options::from_map(&options.into()).unwrap()).unwrap()
        };
        let lsm = open("16");
        for _ in 0..8 {
            lsm.write(WriteBatch::new().put(b"k", b"v"), Durability::Buffered).unwrap();
            lsm.flush().unwrap();
        }
        assert_eq!(lsm.table().background.lock().compactions, 0);
        drop(lsm);
        let lsm = open("2");
        assert_eq!(lsm.table().background.lock().compactions, 1);
        lsm.maintain().unwrap();
    }

    /// Compacts two tables, with a gap between them, into the two below them; the output fills the
    /// gap.
    #[test]
    fn file_is_not_ingested_into_a_gap_that_a_running_compaction_fills() {
        let vfs: Arc<dyn siltstone_vfs::Vfs> = Arc::new(Ram::new());
        let options = [("levels", "1MiB:2MiB:4MiB"), ("l0_capacity", "0"), ("triad.log", "off")];
        let options = options.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let options = Options::from_map(&BTreeMap::from(options)).unwrap();
        let env = Env::replayable(Arc::new(ManualClock::at(1)), 1);
        let lsm = Lsm::open(vfs.clone(), env, options.clone()).unwrap();
        let ingest = |keys: &[&[u8]], value: &[u8]| {
            let mut writer = crate::SortedFileWriter::create(vfs.clone(), "f", &options).unwrap();
            keys.iter().for_each(|key| writer.put(key, value).unwrap());
            writer.finish().unwrap();
            let mode = siltstone_engine::IngestMode::Move;
            let options = siltstone_engine::IngestOptions { mode, ..Default::default() };
            let files = [std::path::Path::new("f")];
            lsm.prepare_ingestion(&files, options).unwrap().commit().unwrap().levels[0]
        };
        for level in [3, 2] {
            assert_eq!(ingest(&[b"a", b"c"], b"old"), level);
            assert_eq!(ingest(&[b"x", b"z"], b"old"), level);
        }
        let tree = lsm.table();
        let view = tree.view.load_full();
        let inputs = view.version.level(2).to_vec();
        let compaction = crate::compact::complete(&view.version, 2, Vec::new(), inputs, None);
        tree.background.lock().in_progress.insert(&compaction);
        assert_eq!(ingest(&[b"m", b"n"], b"new"), 2);
        tree.compact(view.generation, &compaction).unwrap();
        tree.background.lock().in_progress.remove(&compaction);
        assert_eq!(tree.view.load().version.level(3).len(), 1);
        assert_eq!(ingest(&[b"m"], b"newer"), 1);
        assert_eq!(lsm.get(b"n").unwrap().unwrap().value, b"new");
    }

    #[test]
    fn no_compaction_begins_while_they_are_held() {
        let options = [("l0_capacity", "0"), ("triad.log", "off")];
        let trigger = [("experimental.l0_compaction_trigger", "2")];
        let options = options.iter().chain(&trigger);
        let options = options.map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let env = Env::replayable(Arc::new(ManualClock::at(1)), 1);
        let options = Options::from_map(&options.collect()).unwrap();
        let lsm = Lsm::open(Arc::new(Ram::new()), env, options).unwrap();
        let tree = lsm.table();
        tree.background.lock().in_progress.hold();
        for _ in 0..12 {
            lsm.write(WriteBatch::new().put(b"k", b"v"), Durability::Buffered).unwrap();
            lsm.flush().unwrap();
        }
        tree.schedule_compaction();
        assert_eq!(tree.background.lock().compactions, 0);
        tree.background.lock().in_progress.release();
        tree.schedule_compaction();
        assert_eq!(tree.background.lock().compactions, 1);
        lsm.maintain().unwrap();
    }
}
