//! The statistics that every engine reports.
//!
//! Every engine fills the same struct for the command line, the metrics page, benchmarks and tests.

use std::collections::BTreeMap;

#[cfg(feature = "serde")]
use serde::Serialize;

use crate::{IoCounts, NvmCounts};

/// Counters since open, and current sizes.
#[derive(Debug, Clone, Default)]
#[cfg_attr(feature = "serde", derive(Serialize))]
pub struct Stats {
    /// The engine's name.
    pub engine: &'static str,
    /// The options in force that were given; the others have their defaults. Set by the store.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "BTreeMap::is_empty"))]
    pub options: BTreeMap<String, String>,
    /// Bytes of keys and values written by the user.
    pub user_bytes_written: u64,
    /// Operations of all batches.
    pub writes: u64,
    /// Point lookups.
    pub gets: u64,
    /// Point lookups that found an entry.
    pub gets_found: u64,
    /// Positioned cursors (seeks).
    pub seeks: u64,
    /// Entries that expiry removed: each is counted once, when the engine drops it, replaces it by
    /// a tombstone or gives its memory to a later write of its key. An entry that only reads as
    /// missing is not counted yet. One that was overwritten is counted only if the engine drops it
    /// before it meets the later write. [`clear`](crate::Engine::clear) counts none.
    pub expired_entries_dropped: u64,
    /// I/O requests and bytes, by purpose.
    pub io: BTreeMap<&'static str, IoCounts>,
    /// Loads, stores and persist barriers in byte-addressable memory, by purpose; empty without
    /// such memory. Not part of `io`, so that write amplification is that of files.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "BTreeMap::is_empty"))]
    pub nvm: BTreeMap<&'static str, NvmCounts>,
    /// The number of live keys, estimated or exact; `None` if the engine cannot estimate it.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub keys_estimate: Option<u64>,
    /// Bytes of all current files.
    pub space_bytes: u64,
    /// Resident memory by structure, in bytes (`memtable`, `filter`, `index`, `cache`, …).
    pub memory: BTreeMap<&'static str, u64>,
    /// The time that writers waited, by cause.
    pub stall: Stalls,
    /// One entry per level, stage or store, newest first.
    pub levels: Vec<LevelStats>,
    /// Counters of one engine (`flushes`, `block_cache_hits`, …).
    pub counters: BTreeMap<&'static str, u64>,
}

/// The time that writers waited, in microseconds, by cause.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(Serialize))]
pub struct Stalls {
    /// Delayed in proportion to the backlog of background work.
    pub slowdown_us: u64,
    /// Stopped until a memtable was flushed.
    pub flush_us: u64,
    /// Stopped until a compaction finished.
    pub compaction_us: u64,
    /// The longest single wait.
    pub longest_us: u64,
}

/// One level, stage or store.
#[derive(Debug, Clone, Default)]
#[cfg_attr(feature = "serde", derive(Serialize))]
pub struct LevelStats {
    /// Its name, e.g. `L1`.
    pub name: String,
    /// Files or tables.
    pub files: u64,
    /// Bytes in files.
    pub bytes: u64,
    /// The target size in bytes; 0 if there is none.
    pub target_bytes: u64,
    /// Entries, counting all versions.
    pub entries: u64,
    /// Bytes written to it since open.
    pub bytes_written: u64,
}

impl Stats {
    /// Bytes written to files, for all purposes.
    pub fn media_bytes_written(&self) -> u64 {
        self.io.values().map(|io| io.bytes_written).sum()
    }

    /// Bytes stored in byte-addressable memory, for all purposes.
    pub fn nvm_bytes_stored(&self) -> u64 {
        self.nvm.values().map(|nvm| nvm.bytes_stored).sum()
    }

    /// Bytes written to files per byte written by the user; `None` before the first.
    pub fn write_amplification(&self) -> Option<f64> {
        (self.user_bytes_written > 0)
            .then(|| self.media_bytes_written() as f64 / self.user_bytes_written as f64)
    }

    /// Read requests per point lookup; `None` before the first.
    pub fn reads_per_lookup(&self) -> Option<f64> {
        let reads = self.io.get("get").map_or(0, |io| io.reads);
        (self.gets > 0).then(|| reads as f64 / self.gets as f64)
    }

    /// Resident memory of all structures, in bytes.
    pub fn memory_bytes(&self) -> u64 {
        self.memory.values().sum()
    }
}
