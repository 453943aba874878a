//! Verification and statistics of an open trie.
//!
//! Invariant: what a read would find damaged, `verify` finds.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering::Relaxed;

use siltstone_durable::offline::{Report, Verification};
use siltstone_engine::stats::LevelStats;
use siltstone_engine::{Purpose, Result, Stats, VerifyReport};
use siltstone_vfs::OpenFileCounts;

use crate::engine::Tree;
use crate::record::Record;
use crate::view::View;

impl Report for Tree {
    fn verify(&self, progress: &mut dyn FnMut(u64, u64)) -> Result<VerifyReport> {
        let version = self.view.load_full().version.clone();
        let tables = version.tables().map(|table| table.bytes());
        let total = tables.chain(version.clusters().map(|cluster| cluster.bytes())).sum();
        let mut verification = Verification::begin(self, total, progress)?;
        for table in version.tables() {
            let check = || table.verify(self.config.hash).map(|()| table.entries());
            verification.file(table.bytes(), |_| check())?;
        }
        for cluster in version.clusters() {
            let check = || cluster.load(Purpose::Maintenance).map(|_| 0);
            verification.file(cluster.bytes(), |_| check())?;
        }
        verification.logs(self, |record| match Record::decode(record)? {
            Record::Batch { batch, .. } => Ok(batch.len() as u64),
            Record::Link(_) => Ok(0),
        })
    }

    fn stats(&self) -> Stats {
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
            options: Default::default(),
            user_bytes_written: self.written.user_bytes.load(Relaxed),
            writes: self.written.operations.load(Relaxed),
            gets: c.gets.load(Relaxed),
            gets_found: c.gets_found.load(Relaxed),
            seeks: c.seeks.load(Relaxed),
            expired_entries_dropped: c.expired.load(Relaxed),
            io: self.tiers.io(),
            nvm: self.vfs.counters().map(|io| io.nvm_snapshot()).unwrap_or_default(),
            keys_estimate: Some(memtable_keys + live.sum::<u64>()),
            space_bytes: logs + levels.iter().map(|level| level.bytes).sum::<u64>(),
            memory: BTreeMap::from(memory),
            stall: self.written.stalls.get(),
            levels,
            counters: counters
                .map(|(name, counter)| (name, counter.load(Relaxed)))
                .into_iter()
                .chain(self.vfs.open_files().map(OpenFileCounts::counters).into_iter().flatten())
                .chain(self.background.counters())
                .collect(),
        }
    }
}

impl Tree {
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
}
