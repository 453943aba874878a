//! Counters of the tree, beside those of all durable engines.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use siltstone_structures::StripedCounter;

use crate::rowtable::SearchStats;

/// Levels with a counter of their own; deeper ones count as the last.
const LEVELS: usize = 18;

/// The write amplification that is assumed before it is measured.
const DEFAULT_WRITE_AMP: f64 = 4.0;

/// Live counters; relaxed, because nothing is decided by them.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    /// Operations that the overlay took.
    pub(crate) large_memtable_writes: AtomicU64,
    pub(crate) gets: StripedCounter,
    pub(crate) gets_found: StripedCounter,
    pub(crate) seeks: StripedCounter,
    /// Tombstones that moves of cursors passed, of moves that passed many.
    pub(crate) tombstones_passed: AtomicU64,
    pub(crate) flushes: AtomicU64,
    /// Keys and values that flushes put into level 0, in bytes.
    pub(crate) flushed_bytes: AtomicU64,
    pub(crate) flush_entries_saved: AtomicU64,
    /// Hot keys that a flush retained in the next memtable.
    pub(crate) hot_keys_retained: AtomicU64,
    /// Sorted files that became tables, and their length.
    pub(crate) ingested_files: AtomicU64,
    pub(crate) ingested_bytes: AtomicU64,
    pub(crate) compactions: AtomicU64,
    pub(crate) moves: AtomicU64,
    pub(crate) compaction_entries_in: AtomicU64,
    pub(crate) compaction_entries_out: AtomicU64,
    /// Expired entries that compactions dropped or replaced by tombstones.
    pub(crate) expired: AtomicU64,
    /// Versions that compactions dropped because of range deletions.
    pub(crate) range_deleted_entries: AtomicU64,
    /// Tables and L0 runs that were removed unread because of range deletions.
    pub(crate) range_deleted_tables: AtomicU64,
    /// Rows that the compaction filter dropped.
    pub(crate) filtered: AtomicU64,
    /// Rows whose values the compaction filter changed.
    pub(crate) filter_changes: AtomicU64,
    /// Compactions that were repeated because the compaction filter panicked.
    pub(crate) filter_panics: AtomicU64,
    /// Reads of keys whose newest version is an operand of a merge.
    pub(crate) merged_reads: AtomicU64,
    /// Operands that flushes and compactions merged into values or into one another.
    pub(crate) operands_folded: AtomicU64,
    /// Maximum bytes of keys and values that one compaction took from level 0.
    pub(crate) largest_level0_bytes: AtomicU64,
    pub(crate) background_us: AtomicU64,
    /// L0 runs that flushes built in persistent memory.
    pub(crate) pmem_runs_built: AtomicU64,
    /// L0 runs that became files because the persistent memory had no free pages.
    pub(crate) pmem_alloc_failures: AtomicU64,
    /// Key comparisons and cache lines read by lookups in runs in persistent memory.
    pub(crate) pmem_comparisons: AtomicU64,
    pub(crate) pmem_lines: AtomicU64,
    /// Bytes of logs that running compactions hold in memory.
    pub(crate) held_ahead: Arc<AtomicU64>,
    /// Values that compactions wrote to blob files, and the bytes of their records.
    pub(crate) blob_values_written: AtomicU64,
    pub(crate) blob_bytes_written: AtomicU64,
    /// Bytes of tables written into each level.
    level_bytes_written: [AtomicU64; LEVELS],
}

impl Counters {
    /// Counts a table written into `level`.
    pub(crate) fn wrote(&self, level: usize, bytes: u64) {
        self.level_bytes_written[level.min(LEVELS - 1)].fetch_add(bytes, Relaxed);
    }

    /// Counts a value that a compaction wrote to a blob file.
    pub(crate) fn moved_value(&self, bytes: u64) {
        self.blob_values_written.fetch_add(1, Relaxed);
        self.blob_bytes_written.fetch_add(bytes, Relaxed);
    }

    pub(crate) fn level_bytes_written(&self, level: usize) -> u64 {
        self.level_bytes_written[level.min(LEVELS - 1)].load(Relaxed)
    }

    /// Counts a lookup's search of runs in persistent memory.
    pub(crate) fn count_pmem_search(&self, tally: &SearchStats) {
        if tally.comparisons > 0 {
            self.pmem_comparisons.fetch_add(tally.comparisons, Relaxed);
            self.pmem_lines.fetch_add(tally.lines, Relaxed);
        }
    }

    /// Write amplification: bytes written by flushes and compactions per byte of keys and values
    /// that entered level 0, since the table was opened; a default at first.
    pub(crate) fn written_for_each_flushed(&self) -> f64 {
        let flushed = self.flushed_bytes.load(Relaxed);
        let written: u64 = self.level_bytes_written.iter().map(|level| level.load(Relaxed)).sum();
        if flushed == 0 { DEFAULT_WRITE_AMP } else { written as f64 / flushed as f64 }
    }
}
