//! Verification, statistics and warnings.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering::Relaxed;

use siltstone_durable::offline::{Report, Verification};
use siltstone_engine::stats::LevelStats;
use siltstone_engine::{Result, Stats, VerifyReport};
use siltstone_vfs::OpenFileCounts;

use crate::engine::SiltEngine;
use crate::record::Record;

impl Report for SiltEngine {
    fn verify(&self, progress: &mut dyn FnMut(u64, u64)) -> Result<VerifyReport> {
        let version = self.view.load_full().version.clone();
        let hash = version.hash_stores().map(|store| store.entry().bytes);
        let total = hash.chain(version.sorted_stores().map(|store| store.entry().bytes)).sum();
        let mut verification = Verification::begin(self, total, progress)?;
        for store in version.hash_stores() {
            let entry = store.entry();
            verification.file(entry.bytes, |_| store.verify().map(|()| entry.entries))?;
        }
        for store in version.sorted_stores() {
            let entry = store.entry();
            verification.file(entry.bytes, |_| store.verify().map(|()| entry.entries))?;
        }
        verification.logs(self, |record| match Record::decode(record)? {
            Record::Operation { .. } => Ok(1),
            Record::Link(_) => Ok(0),
        })
    }

    fn warnings(&self) -> Vec<String> {
        let version = self.view.load_full().version.clone();
        let hash = version.hash_stores().filter_map(|store| store.warning());
        let sorted = version.sorted_stores().filter_map(|store| store.warning());
        hash.chain(sorted).map(str::to_owned).collect()
    }

    fn stats(&self) -> Stats {
        let view = self.view.load_full();
        let version = &view.version;
        let c = &self.counters;
        let [log, hash, sorted] = c.gets_found.each_ref().map(|count| count.load(Relaxed));
        let memory = [
            ("log_store", view.memtables().map(|generation| generation.memory()).sum()),
            ("hash_store_filter", version.hash_stores().map(|store| store.memory()).sum()),
            ("sorted_store_index", version.sorted_stores().map(|store| store.memory()).sum()),
        ];
        let counters = [
            ("conversions", c.conversions.load(Relaxed)),
            ("converted_entries", c.converted_entries.load(Relaxed)),
            ("merges", c.merges.load(Relaxed)),
            ("merge_entries_in", c.merged_in.load(Relaxed)),
            ("merge_entries_out", c.merged_out.load(Relaxed)),
            ("sort_run_bytes", c.run_bytes.load(Relaxed)),
            ("conversion_us", c.convert_us.load(Relaxed)),
            ("merge_us", c.merge_us.load(Relaxed)),
            ("background_us", c.convert_us.load(Relaxed) + c.merge_us.load(Relaxed)),
            ("found_in_log_store", log),
            ("found_in_hash_store", hash),
            ("found_in_sorted_store", sorted),
            ("indexes_rebuilt", self.warnings().len() as u64),
        ];
        let log_entries: u64 = view.memtables().map(|generation| generation.entries()).sum();
        let hash_stores = || version.hash_stores().map(|store| store.entry());
        let sorted_stores = || version.sorted_stores().map(|store| store.entry());
        let log_files = self.background.lock().logs.len() as u64;
        let levels = vec![
            LevelStats {
                name: "LogStore".to_owned(),
                files: log_files,
                bytes: self.log_bytes(),
                entries: log_entries,
                ..LevelStats::default()
            },
            LevelStats {
                name: "HashStore".to_owned(),
                files: hash_stores().count() as u64,
                bytes: version.hash_stores().map(|store| store.bytes()).sum(),
                entries: hash_stores().map(|store| store.entries).sum(),
                bytes_written: c.hash_bytes.load(Relaxed),
                ..LevelStats::default()
            },
            LevelStats {
                name: "SortedStore".to_owned(),
                files: sorted_stores().count() as u64,
                bytes: version.sorted_stores().map(|store| store.bytes()).sum(),
                entries: sorted_stores().map(|store| store.entries).sum(),
                bytes_written: c.sorted_bytes.load(Relaxed),
                ..LevelStats::default()
            },
        ];
        Stats {
            engine: crate::version::ENGINE,
            options: Default::default(),
            user_bytes_written: self.written.user_bytes.load(Relaxed),
            writes: self.written.operations.load(Relaxed),
            gets: c.gets.load(Relaxed),
            gets_found: log + hash + sorted,
            expired_entries_dropped: c.expired.load(Relaxed),
            seeks: c.seeks.load(Relaxed),
            io: self.vfs.counters().map(|io| io.snapshot()).unwrap_or_default(),
            nvm: self.vfs.counters().map(|io| io.nvm_snapshot()).unwrap_or_default(),
            keys_estimate: Some(levels.iter().map(|level| level.entries).sum()),
            space_bytes: levels.iter().map(|level| level.bytes).sum(),
            memory: BTreeMap::from(memory),
            stall: self.written.stalls.get(),
            levels,
            counters: (counters.into_iter())
                .chain(self.vfs.open_files().map(OpenFileCounts::counters).into_iter().flatten())
                .chain(self.background.counters())
                .collect(),
        }
    }
}
