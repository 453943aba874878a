//! Counters of the trie, beside those of all durable engines.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Levels with a counter of their own; deeper ones count as the last.
pub(crate) const LEVELS: usize = 12;

/// Live counters; relaxed, because nothing is decided by them.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) gets: AtomicU64,
    pub(crate) gets_found: AtomicU64,
    pub(crate) seeks: AtomicU64,
    /// Expired items that flushes and jobs dropped or replaced by deletions.
    pub(crate) expired: AtomicU64,
    pub(crate) flushes: AtomicU64,
    pub(crate) compactions: AtomicU64,
    pub(crate) collections: AtomicU64,
    pub(crate) clusterings: AtomicU64,
    pub(crate) samples: AtomicU64,
    /// Searches for a job, and the candidates that they compared.
    pub(crate) choices: AtomicU64,
    pub(crate) candidates_seen: AtomicU64,
    pub(crate) items_in: AtomicU64,
    pub(crate) items_out: AtomicU64,
    /// Small items that fit in no bucket.
    pub(crate) overflow: AtomicU64,
    /// Lookups' reads of BloomClusters, and of tables.
    pub(crate) cluster_reads: AtomicU64,
    pub(crate) table_lookups: AtomicU64,
    /// Lookups of tables that did not have the key.
    pub(crate) false_positives: AtomicU64,
    pub(crate) cluster_bytes_written: AtomicU64,
    /// Of the bytes of tables written: keys and values, buckets, filters.
    pub(crate) table_item_bytes: AtomicU64,
    pub(crate) table_bucket_bytes: AtomicU64,
    pub(crate) table_filter_bytes: AtomicU64,
    pub(crate) background_us: AtomicU64,
    /// Maximum bytes that one job held in memory.
    pub(crate) job_memory: AtomicU64,
    /// Bytes of tables and clusters written into each level.
    level_bytes_written: [AtomicU64; LEVELS],
}

impl Counters {
    /// Counts a file written into `level`.
    pub(crate) fn wrote(&self, level: usize, bytes: u64) {
        self.level_bytes_written[level.min(LEVELS - 1)].fetch_add(bytes, Relaxed);
    }

    pub(crate) fn level_bytes_written(&self, level: usize) -> u64 {
        self.level_bytes_written[level.min(LEVELS - 1)].load(Relaxed)
    }

    /// Records how many bytes a job holds in memory.
    pub(crate) fn used_memory(&self, bytes: usize) {
        self.job_memory.fetch_max(bytes as u64, Relaxed);
    }
}
