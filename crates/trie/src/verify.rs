//! Checks every byte of every file; and tells how the trie stands.
//!
//! Invariant: what a read would find damaged, `verify` finds.
//!
//! Source: ours.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering::Relaxed;

use siltstone_engine::stats::LevelStats;
use siltstone_engine::{Purpose, Result, Stats, VerifyReport};
use siltstone_table::Manifest;
use siltstone_table::log::verify_logs;
use siltstone_vfs::Mode;

use crate::engine::Inner;
use crate::files::Kind;
use crate::read::View;
use crate::record::Record;
use crate::version::ENGINE;

impl Inner {
    /// Reads the manifest, every table and cluster of the current version, and every log.
    pub(crate) fn verify(&self, progress: &mut dyn FnMut(u64, u64)) -> Result<VerifyReport> {
        self.background.check_open()?;
        let mut report = VerifyReport::default();
        let view = self.view.load_full();
        let tables: u64 = view.version.tables().map(|table| table.bytes()).sum();
        let total = tables + view.version.clusters().map(|cluster| cluster.bytes()).sum::<u64>();
        let mut done = 0;
        let manifest = Manifest::open(self.vfs.clone(), ENGINE);
        report.note(manifest.map(|(manifest, _)| (manifest.bytes(), 0)))?;
        for table in view.version.tables() {
            let checked = table.verify(self.versions.config.hash);
            report.note(checked.map(|()| (table.bytes(), table.entries())))?;
            done += table.bytes();
            progress(done, total);
        }
        for cluster in view.version.clusters() {
            let checked = cluster.load(Purpose::Maintenance);
            report.note(checked.map(|_| (cluster.bytes(), 0)))?;
            done += cluster.bytes();
            progress(done, total);
        }
        let logs = self.background.lock().logs.clone();
        verify_logs(self.vfs.as_ref(), &logs, &mut report, |record| {
            match Record::decode(record)? {
                Record::Batch { batch, .. } => Ok(batch.len() as u64),
                Record::Link(_) => Ok(0),
            }
        })?;
        Ok(report)
    }

    /// Counters and sizes.
    pub(crate) fn stats(&self) -> Stats {
        let view = self.view.load_full();
        let c = &self.counters;
        let levels: Vec<LevelStats> =
            (0..view.version.levels().max(1)).map(|level| self.level_stats(&view, level)).collect();
        let memories: Vec<[u64; 3]> = view.version.tables().map(|table| table.memory()).collect();
        let sum = |at: usize| memories.iter().map(|memory| memory[at]).sum::<u64>();
        let memory = [
            ("memtable", view.memtables().map(|memtable| memtable.bytes()).sum()),
            ("filter", sum(0)),
            ("rank_index", sum(1)),
            ("migrations", sum(2)),
        ];
        let counters = [
            ("flushes", &c.flushes),
            ("compactions", &c.compactions),
            ("collections", &c.collections),
            ("clusterings", &c.clusterings),
            ("garbage_samples", &c.samples),
            ("choices", &c.choices),
            ("candidates_seen", &c.candidates_seen),
            ("compaction_entries_in", &c.items_in),
            ("compaction_entries_out", &c.items_out),
            ("bucket_overflow", &c.overflow),
            ("cluster_reads", &c.cluster_reads),
            ("table_lookups", &c.table_lookups),
            ("false_positives", &c.false_positives),
            ("cluster_bytes_written", &c.cluster_bytes_written),
            ("table_item_bytes", &c.table_item_bytes),
            ("table_bucket_bytes", &c.table_bucket_bytes),
            ("table_filter_bytes", &c.table_filter_bytes),
            ("background_us", &c.background_us),
            ("job_memory_bytes", &c.job_memory),
            ("sequence", &self.visible),
        ];
        let memtable_keys: u64 = view.memtables().map(|memtable| memtable.keys()).sum();
        let live = view.version.tables().map(|table| {
            // A deletion hides another entry and is none itself.
            table.entries().saturating_sub(2 * table.deletes())
        });
        let logs = self.log_bytes();
        Stats {
            engine: "trie",
            user_bytes_written: c.user_bytes_written.load(Relaxed),
            writes: c.writes.load(Relaxed),
            gets: c.gets.load(Relaxed),
            gets_found: c.gets_found.load(Relaxed),
            seeks: c.seeks.load(Relaxed),
            io: self.tiers.io(),
            nvm: self.vfs.counters().map(|io| io.nvm_snapshot()).unwrap_or_default(),
            keys_estimate: Some(memtable_keys + live.sum::<u64>()),
            space_bytes: logs + levels.iter().map(|level| level.bytes).sum::<u64>(),
            memory: BTreeMap::from(memory),
            stall: c.stalls.get(),
            levels,
            counters: counters
                .map(|(name, counter)| (name, counter.load(Relaxed)))
                .into_iter()
                .chain(self.background.counters())
                .collect(),
        }
    }

    fn level_stats(&self, view: &View, level: usize) -> LevelStats {
        let mut stats = LevelStats {
            name: format!("L{level}"),
            bytes_written: self.counters.level_bytes_written(level),
            ..LevelStats::default()
        };
        for (_, container) in
            view.version.containers().filter(|(container_id, _)| container_id.level == level)
        {
            stats.files += container.tables.len() as u64;
            stats.entries += container.tables.iter().map(|table| table.entries()).sum::<u64>();
            stats.bytes += container.bytes();
            stats.bytes += container.cluster.as_ref().map_or(0, |cluster| cluster.bytes());
        }
        stats
    }

    fn log_bytes(&self) -> u64 {
        let logs = self.background.lock().logs.clone();
        let len = |number: &u64| {
            let file = self.vfs.open(&Kind::Log.name(*number), Mode::Read);
            file.and_then(|file| file.len()).unwrap_or(0)
        };
        logs.iter().map(len).sum()
    }
}
