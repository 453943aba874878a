//! The report on an open tree: a verification of every byte, and statistics.
//!
//! Both read one version while writes and compactions go on. Verification reads tables, runs in
//! persistent memory, the logs that they refer to, and the logs of memtables.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::atomic::Ordering::Relaxed;

use siltstone_durable::offline::{Report, Verification};
use siltstone_engine::stats::LevelStats;
use siltstone_engine::{Purpose, Result, Stats, VerifyReport};
use siltstone_table::TableMeta;
use siltstone_vfs::{OpenFileCounts, PmemPool};

use crate::engine::Tree;
use crate::record::Record;
use crate::rowtable::RowTable;
use crate::version::L0Run;
use crate::view::View;

impl Report for Tree {
    fn verify(&self, progress: &mut dyn FnMut(u64, u64)) -> Result<VerifyReport> {
        let version = self.view.load_full().version.clone();
        let run_bytes = |run: &RowTable| run.owned_bytes().iter().sum::<u64>();
        let files = version.files().map(|(_, file)| file.bytes());
        let runs = version.pmem_runs().map(|run| run_bytes(run));
        let total = files.chain(runs).chain(version.logs().map(|log| log.bytes())).sum();
        let mut verification = Verification::begin(self, total, progress)?;
        for (_, file) in version.files() {
            verification.file(file.bytes(), |progress| {
                let table = file.table();
                table.verify(|bytes| {
                    progress(bytes);
                    ControlFlow::Continue(())
                })?;
                Ok(table.meta().entries)
            })?;
        }
        for run in version.pmem_runs() {
            let check = || run.verify(Purpose::Maintenance).map(|()| run.len() as u64);
            verification.file(run_bytes(run), |_| check())?;
        }
        for log in version.logs() {
            verification.file(log.bytes(), |_| log.verify().map(|()| 0))?;
        }
        verification.logs(self, operations)
    }

    fn stats(&self) -> Stats {
        let view = self.view.load_full();
        let c = &self.counters;
        let levels: Vec<LevelStats> =
            (0..=view.version.levels.len()).map(|level| self.level_stats(&view, level)).collect();
        let memtable_keys: u64 = view.memtables().map(|m| m.tree().keys() as u64).sum();
        let tables = || view.version.files().map(|(_, file)| file.table());
        let memory = [
            ("memtable", view.memtables().map(|m| m.bytes() + m.filter_bytes()).sum()),
            ("spare_memtable", self.spares.bytes() as u64),
            ("filter", view.version.filter_bytes()),
            ("index", tables().map(|table| table.index_bytes() as u64).sum()),
            ("dictionary", tables().map(|table| table.dictionary_memory_bytes() as u64).sum()),
            ("block_cache", if self.shares_cache { 0 } else { self.cache.resident_bytes() }),
            ("sketch", view.version.sketch_bytes()),
            ("log_ahead", c.held_ahead.load(Relaxed)),
            ("row", view.version.pmem_runs().map(|run| run.memory_bytes() as u64).sum()),
        ];
        let held = view.version.pmem_runs().map(|run| run.owned_bytes());
        let [frame, metadata, data] =
            held.fold([0; 3], |[a, b, c], [x, y, z]| [a + x, b + y, c + z]);
        let pool = self.pool.lock().clone();
        let pages = |count: fn(&PmemPool) -> u32| pool.as_ref().map_or(0, count).into();
        let counters = [
            ("flushes", c.flushes.load(Relaxed)),
            ("large_memtable_writes", c.large_memtable_writes.load(Relaxed)),
            ("flush_entries_saved", c.flush_entries_saved.load(Relaxed)),
            ("hot_keys_retained", c.hot_keys_retained.load(Relaxed)),
            ("ingested_files", c.ingested_files.load(Relaxed)),
            ("ingested_bytes", c.ingested_bytes.load(Relaxed)),
            ("compactions", c.compactions.load(Relaxed)),
            ("table_moves", c.moves.load(Relaxed)),
            ("compaction_entries_in", c.compaction_entries_in.load(Relaxed)),
            ("compaction_entries_out", c.compaction_entries_out.load(Relaxed)),
            ("tombstones_passed", c.tombstones_passed.load(Relaxed)),
            ("range_deletes", view.version.range_deletes.len() as u64),
            ("range_deleted_entries", c.range_deleted_entries.load(Relaxed)),
            ("range_deleted_tables", c.range_deleted_tables.load(Relaxed)),
            ("blob_files", view.version.blobs.iter().count() as u64),
            ("blob_bytes", view.version.blobs.iter().map(|blob| blob.file.bytes()).sum()),
            (
                "blob_garbage_bytes",
                view.version.blobs.iter().map(|blob| blob.garbage_bytes()).sum(),
            ),
            ("blob_values_written", c.blob_values_written.load(Relaxed)),
            ("blob_bytes_written", c.blob_bytes_written.load(Relaxed)),
            ("compaction_filter_drops", c.filtered.load(Relaxed)),
            ("compaction_filter_changes", c.filter_changes.load(Relaxed)),
            ("compaction_filter_panics", c.filter_panics.load(Relaxed)),
            ("merged_reads", c.merged_reads.load(Relaxed)),
            ("merge_operands_folded", c.operands_folded.load(Relaxed)),
            ("largest_level0_bytes", c.largest_level0_bytes.load(Relaxed)),
            ("background_us", c.background_us.load(Relaxed)),
            ("l0_bytes", view.version.l0_occupancy()),
            ("l0_filter_queries", view.version.l0_filter_queries()),
            ("l0_cursor_ppm", view.version.passed_ppm()),
            ("pmem_pages", pages(PmemPool::pages)),
            ("pmem_pages_free", pages(PmemPool::free_pages)),
            ("pmem_directory_bytes", frame),
            ("pmem_metadata_bytes", metadata),
            ("pmem_data_bytes", data),
            ("pmem_runs", view.version.pmem_runs().count() as u64),
            ("pmem_runs_built", c.pmem_runs_built.load(Relaxed)),
            ("pmem_alloc_failures", c.pmem_alloc_failures.load(Relaxed)),
            ("pmem_comparisons", c.pmem_comparisons.load(Relaxed)),
            ("pmem_lines", c.pmem_lines.load(Relaxed)),
            ("block_cache_hits", self.cache.hits()),
            ("block_cache_misses", self.cache.misses()),
            ("popularity_skew_milli", (1e3 * self.sizes.skew().unwrap_or(0.0)) as u64),
            ("snapshots", self.snapshots.len() as u64),
            ("sequence", self.visible.load(Relaxed)),
            ("durable_sequence", self.durable.load(Relaxed)),
            ("archived_log_bytes", self.logs.bytes()),
        ];
        // Those of level 0 count there.
        let blobs = view.version.blobs.iter().filter(|blob| !blob.is_of_level0);
        let logs: u64 = self.log_bytes() + blobs.map(|blob| blob.file.bytes()).sum::<u64>();
        let counted = self.vfs.counters();
        let mut io = counted.as_ref().map(|io| io.snapshot()).unwrap_or_default();
        let mut nvm = counted.map(|io| io.nvm_snapshot()).unwrap_or_default();
        if self.has_overlay()
            && let Some(log) = io.remove("log")
        {
            // What would be stored to memtables in persistent memory is stored to the log here.
            nvm.entry("log").or_default().bytes_stored += log.bytes_written;
        }
        Stats {
            engine: "lsm",
            options: Default::default(),
            user_bytes_written: self.written.user_bytes.load(Relaxed),
            writes: self.written.operations.load(Relaxed),
            gets: c.gets.sum(),
            gets_found: c.gets_found.sum(),
            seeks: c.seeks.sum(),
            expired_entries_dropped: c.expired.load(Relaxed),
            io,
            nvm,
            keys_estimate: Some(
                memtable_keys
                    + tables().map(|t| live_estimate(t.meta())).sum::<u64>()
                    + view.version.pmem_runs().map(|run| run.len() as u64).sum::<u64>(),
            ),
            space_bytes: logs + levels.iter().map(|level| level.bytes).sum::<u64>(),
            memory: BTreeMap::from(memory),
            stall: self.written.stalls.get(),
            levels,
            counters: (counters.into_iter())
                .chain(
                    self.shares_cache.then(|| ("store_block_cache", self.cache.resident_bytes())),
                )
                .chain(self.vfs.open_files().map(OpenFileCounts::counters).into_iter().flatten())
                .chain(self.background.counters())
                .collect(),
        }
    }
}

impl Tree {
    fn level_stats(&self, view: &View, level: usize) -> LevelStats {
        let files: Vec<_> =
            view.version.files().filter(|(at, _)| *at == level).map(|(_, file)| file).collect();
        let bytes = match level {
            0 => view.version.level0.iter().map(L0Run::storage_bytes).sum(),
            _ => view.version.bytes(level),
        };
        let targets = self.sizes.targets();
        let target = level.checked_sub(1).and_then(|i| targets.get(i));
        LevelStats {
            name: format!("L{level}"),
            files: files.len() as u64,
            bytes,
            target_bytes: target.copied().unwrap_or(0),
            entries: match level {
                0 => view.version.level0.iter().map(L0Run::entries).sum(),
                _ => files.iter().map(|file| file.table().meta().entries).sum(),
            },
            bytes_written: self.counters.level_bytes_written(level),
        }
    }
}

/// How many operations a log record has.
///
/// # Errors
/// What is malformed.
pub(crate) fn operations(record: &[u8]) -> std::result::Result<u64, String> {
    match Record::decode(record)? {
        Record::Batch { batch, .. } | Record::Retained { batch, .. } => Ok(batch.len() as u64),
        Record::Link(_) | Record::Ingested(_) | Record::Cleared(_) => Ok(0),
    }
}

/// An estimate of the keys that a table adds: a deletion hides another entry and is none itself.
fn live_estimate(meta: &TableMeta) -> u64 {
    meta.entries.saturating_sub(2 * meta.deletes)
}
