//! What the engine counts as it runs.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use siltstone_engine::stats::Stalls;

/// Live counters; relaxed, because nothing is decided by them.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) user_bytes_written: AtomicU64,
    pub(crate) writes: AtomicU64,
    pub(crate) gets: AtomicU64,
    pub(crate) seeks: AtomicU64,
    /// By the kind of store: log, hash, sorted.
    pub(crate) gets_found: [AtomicU64; 3],
    pub(crate) conversions: AtomicU64,
    pub(crate) converted_entries: AtomicU64,
    pub(crate) merges: AtomicU64,
    /// Entries that merges took in and wrote, in all.
    pub(crate) merged_in: AtomicU64,
    pub(crate) merged_out: AtomicU64,
    /// Bytes of sorted runs that merges wrote beside their result.
    pub(crate) run_bytes: AtomicU64,
    pub(crate) hash_bytes: AtomicU64,
    pub(crate) sorted_bytes: AtomicU64,
    pub(crate) convert_us: AtomicU64,
    pub(crate) merge_us: AtomicU64,
    pub(crate) stall_flush_us: AtomicU64,
    pub(crate) stall_compaction_us: AtomicU64,
    pub(crate) longest_stall_us: AtomicU64,
}

impl Counters {
    /// Counts a wait of a writer under `cause`.
    pub(crate) fn stalled(&self, cause: &AtomicU64, waited: Duration) {
        let micros = waited.as_micros() as u64;
        cause.fetch_add(micros, Relaxed);
        self.longest_stall_us.fetch_max(micros, Relaxed);
    }

    pub(crate) fn stalls(&self) -> Stalls {
        Stalls {
            insert_us: 0,
            flush_us: self.stall_flush_us.load(Relaxed),
            compaction_us: self.stall_compaction_us.load(Relaxed),
            longest_us: self.longest_stall_us.load(Relaxed),
        }
    }
}
