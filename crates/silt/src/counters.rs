//! Counters of the engine, beside those of all durable engines.

use std::sync::atomic::AtomicU64;

/// Live counters; relaxed, because nothing is decided by them.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) gets: AtomicU64,
    pub(crate) seeks: AtomicU64,
    /// By the kind of store: log, hash, sorted.
    pub(crate) gets_found: [AtomicU64; 3],
    pub(crate) conversions: AtomicU64,
    pub(crate) converted_entries: AtomicU64,
    pub(crate) merges: AtomicU64,
    /// Entries that merges read and wrote, in total.
    pub(crate) merged_in: AtomicU64,
    pub(crate) merged_out: AtomicU64,
    /// Expired entries that merges dropped.
    pub(crate) expired: AtomicU64,
    /// Bytes of sorted runs that merges wrote beside their result.
    pub(crate) run_bytes: AtomicU64,
    pub(crate) hash_bytes: AtomicU64,
    pub(crate) sorted_bytes: AtomicU64,
    pub(crate) convert_us: AtomicU64,
    pub(crate) merge_us: AtomicU64,
}
