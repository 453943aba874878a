//! Statistics of the engine.

use std::sync::atomic::Ordering::Relaxed;

use siltstone_engine::{IoCounters, Purpose, Stats};
use siltstone_vfs::OpenFileCounts;

use crate::shared::ENGINE;
use crate::table::Table;

pub(crate) fn stats(table: &Table) -> Stats {
    let shared = &table.shared;
    let counters = &shared.counters;
    let device = shared.device.flash.counters();
    // The counters of the files include the journal of the write buffer.
    let io = match shared.vfs.as_ref().and_then(|vfs| vfs.counters()) {
        Some(files) => IoCounters::snapshot(&files),
        None => device.snapshot(),
    };
    let mut stats = Stats {
        engine: ENGINE,
        user_bytes_written: counters.user_bytes.load(Relaxed),
        writes: counters.writes.load(Relaxed),
        gets: counters.gets.load(Relaxed),
        gets_found: counters.gets_found.load(Relaxed),
        seeks: counters.seeks.load(Relaxed),
        expired_entries_dropped: counters.expired.load(Relaxed),
        io,
        ..Stats::default()
    };
    stats.memory.extend(table.mapping.memory());
    stats.memory.insert("write buffer", shared.buffer.bytes() as u64);
    stats.counters.extend(table.mapping.counters());
    stats.counters.insert("read_only", u64::from(shared.poisoned.get().is_some()));
    stats.counters.insert("checkpoints", counters.checkpoints.load(Relaxed));
    stats.counters.insert("snapshots", shared.history.pinned() as u64);
    let programmed: u64 = Purpose::ALL.iter().map(|purpose| device.get(*purpose).writes).sum();
    stats.counters.insert("pages_programmed", programmed);
    let files = shared.vfs.as_ref().and_then(|vfs| vfs.open_files());
    stats.counters.extend(files.map(OpenFileCounts::counters).into_iter().flatten());
    if let Some(writer) = table.writer.lock().as_ref() {
        let geometry = shared.device.geometry;
        let block = u64::from(geometry.pages_per_block()) * geometry.page_bytes() as u64;
        let free = writer.space.free_blocks();
        let used = u64::from(geometry.blocks()).saturating_sub(free + writer.space.worn);
        stats.space_bytes = used * block;
        stats.counters.insert("blocks_free", free);
        stats.counters.insert("blocks_erased", writer.space.erases);
        stats.counters.insert("blocks_worn_out", writer.space.worn);
        let (min_wear, max_wear) = writer.space.wear();
        stats.counters.insert("wear_min", min_wear);
        stats.counters.insert("wear_max", max_wear);
    }
    stats
}
