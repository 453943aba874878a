//! Checks every byte of every file; and tells how the trie stands.
//!
//! Invariant: what a read would find damaged, `verify` finds.
//!
//! Source: ours.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering::Relaxed;

use siltstone_engine::stats::LevelStats;
use siltstone_engine::{Damage, Error, Purpose, Result, Stats, VerifyReport};
use siltstone_media::Mode;
use siltstone_table::{LogMode, LogReader, Manifest};

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
        let manifest = Manifest::open(self.media.clone(), ENGINE);
        note(&mut report, manifest.map(|(manifest, _)| (manifest.bytes(), 0)))?;
        for table in view.version.tables() {
            let checked = table.verify(self.versions.shape.hash);
            note(&mut report, checked.map(|()| (table.bytes(), table.entries())))?;
            done += table.bytes();
            progress(done, total);
        }
        for cluster in view.version.clusters() {
            let checked = cluster.load(Purpose::Maintenance);
            note(&mut report, checked.map(|_| (cluster.bytes(), 0)))?;
            done += cluster.bytes();
            progress(done, total);
        }
        for number in self.background.lock().logs.clone() {
            let name = Kind::Log.name(number);
            match self.media.open(&name, Mode::Read) {
                // A log that was flushed meanwhile is gone, and rightly so.
                Err(error) if error.is_not_found() => {}
                Err(error) => return Err(error),
                Ok(_) => note(&mut report, self.verify_log(&name, number))?,
            }
        }
        Ok(report)
    }

    fn verify_log(&self, name: &str, number: u64) -> Result<(u64, u64)> {
        let mut reader = LogReader::open(self.media.as_ref(), name, number, LogMode::Recover)?;
        let mut entries = 0;
        while let Some(record) = reader.next()? {
            let position = record.position;
            match Record::decode(record.bytes) {
                Ok(Record::Batch { batch, .. }) => entries += batch.len() as u64,
                Ok(Record::Link) => {}
                Err(reason) => return Err(Error::corruption(name, position, reason)),
            }
        }
        Ok((reader.valid_bytes(), entries))
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
            ("compaction_entries_in", &c.items_in),
            ("compaction_entries_out", &c.items_out),
            ("bucket_overflow", &c.overflow),
            ("cluster_reads", &c.cluster_reads),
            ("table_lookups", &c.table_lookups),
            ("false_positives", &c.false_positives),
            ("cluster_bytes_written", &c.cluster_bytes_written),
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
            io: self.homes.io(),
            nvm: self.media.counters().map(|io| io.nvm_snapshot()).unwrap_or_default(),
            keys_estimate: memtable_keys + live.sum::<u64>(),
            space_bytes: logs + levels.iter().map(|level| level.bytes).sum::<u64>(),
            memory: BTreeMap::from(memory),
            stall: c.stalls.get(),
            levels,
            counters: counters.map(|(name, counter)| (name, counter.load(Relaxed))).into(),
        }
    }

    fn level_stats(&self, view: &View, level: usize) -> LevelStats {
        let mut stats = LevelStats {
            name: format!("L{level}"),
            bytes_written: self.counters.level_bytes_written(level),
            ..LevelStats::default()
        };
        for (_, container) in view.version.containers().filter(|(place, _)| place.level == level) {
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
            let file = self.media.open(&Kind::Log.name(*number), Mode::Read);
            file.and_then(|file| file.len()).unwrap_or(0)
        };
        logs.iter().map(len).sum()
    }
}

/// Adds what a check found: bytes and entries, or damage. Other errors are failures to check.
fn note(report: &mut VerifyReport, checked: Result<(u64, u64)>) -> Result<()> {
    match checked {
        Ok((bytes, entries)) => {
            report.files += 1;
            report.bytes += bytes;
            report.entries += entries;
        }
        Err(Error::Corruption { file, offset, reason }) => {
            report.files += 1;
            report.damage.push(Damage { file, offset, reason });
        }
        Err(other) => return Err(other),
    }
    Ok(())
}
