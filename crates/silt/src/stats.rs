//! Statistics and warnings.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering::Relaxed;

use siltstone_engine::Stats;
use siltstone_engine::stats::LevelStats;

use crate::engine::SiltEngine;

impl SiltEngine {
    /// Which filters and indexes of the current stores had to be rebuilt, and why.
    pub(crate) fn warnings(&self) -> Vec<String> {
        let version = self.view.load_full().version.clone();
        let hash = version.hash_stores().filter_map(|store| store.warning());
        let sorted = version.sorted_stores().filter_map(|store| store.warning());
        hash.chain(sorted).map(str::to_owned).collect()
    }

    /// Counters and sizes.
    pub(crate) fn stats(&self) -> Stats {
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
            ("indexes_made_again", self.warnings().len() as u64),
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
                bytes: hash_stores().map(|store| store.bytes).sum(),
                entries: hash_stores().map(|store| store.entries).sum(),
                bytes_written: c.hash_bytes.load(Relaxed),
                ..LevelStats::default()
            },
            LevelStats {
                name: "SortedStore".to_owned(),
                files: sorted_stores().count() as u64,
                bytes: sorted_stores().map(|store| store.bytes).sum(),
                entries: sorted_stores().map(|store| store.entries).sum(),
                bytes_written: c.sorted_bytes.load(Relaxed),
                ..LevelStats::default()
            },
        ];
        Stats {
            engine: crate::version::ENGINE,
            user_bytes_written: self.written.user_bytes.load(Relaxed),
            writes: self.written.operations.load(Relaxed),
            gets: c.gets.load(Relaxed),
            gets_found: log + hash + sorted,
            seeks: c.seeks.load(Relaxed),
            io: self.vfs.counters().map(|io| io.snapshot()).unwrap_or_default(),
            nvm: self.vfs.counters().map(|io| io.nvm_snapshot()).unwrap_or_default(),
            keys_estimate: Some(levels.iter().map(|level| level.entries).sum()),
            space_bytes: levels.iter().map(|level| level.bytes).sum(),
            memory: BTreeMap::from(memory),
            stall: self.written.stalls.get(),
            levels,
            counters: counters.into_iter().chain(self.background.counters()).collect(),
        }
    }
}
