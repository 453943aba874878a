//! What every engine reports, in the field's words.
//!
//! Every engine fills the same struct, so the command line, the metrics page, the lab and the tests
//! read one thing.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::{IoCounts, NvmCounts};

/// Counters since open, and sizes as of now.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Stats {
    /// The engine's name.
    pub engine: &'static str,
    /// Keys and values given by the user, in bytes.
    pub user_bytes_written: u64,
    /// Operations of all batches.
    pub writes: u64,
    /// Point lookups.
    pub gets: u64,
    /// Point lookups that found an entry.
    pub gets_found: u64,
    /// Cursors placed (seeks).
    pub seeks: u64,
    /// Requests and bytes at the medium, by purpose.
    pub io: BTreeMap<&'static str, IoCounts>,
    /// Loads, stores and persist barriers in byte-addressable memory, by purpose; empty where there
    /// is none. Not part of `io`, so write amplification stays that of the files.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub nvm: BTreeMap<&'static str, NvmCounts>,
    /// An estimate of live keys, exact where the engine can; `None` where it cannot tell.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keys_estimate: Option<u64>,
    /// Bytes of all live files.
    pub space_bytes: u64,
    /// Resident memory by structure, in bytes (`memtable`, `filter`, `index`, `cache`, …).
    pub memory: BTreeMap<&'static str, u64>,
    /// How long writers waited, by cause.
    pub stall: Stalls,
    /// One row a level, stage or store, newest first.
    pub levels: Vec<LevelStats>,
    /// Counters that one engine alone has (`flushes`, `block_cache_hits`, …).
    pub counters: BTreeMap<&'static str, u64>,
}

/// How long writers waited, in microseconds, by cause.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Stalls {
    /// Slowed down in proportion to debt.
    pub insert_us: u64,
    /// Stopped until a write buffer was flushed.
    pub flush_us: u64,
    /// Stopped until a compaction made room.
    pub compaction_us: u64,
    /// The longest single wait.
    pub longest_us: u64,
    /// The longest, without the time by which the machine's clock was late to end a pause.
    pub longest_own_us: u64,
    /// Of a pause, the longest time that the system let a writer sleep beyond what was asked for.
    pub late_us: u64,
}

/// One level, stage or store.
#[derive(Debug, Clone, Default, Serialize)]
pub struct LevelStats {
    /// Its name, e.g. `L1`.
    pub name: String,
    /// Files or tables.
    pub files: u64,
    /// Bytes on the medium.
    pub bytes: u64,
    /// Bytes it aims at; 0 where it has no aim.
    pub target_bytes: u64,
    /// Entries, all versions counted.
    pub entries: u64,
    /// Bytes written into it since open.
    pub bytes_written: u64,
}

impl Stats {
    /// Bytes written to the medium, all purposes.
    pub fn media_bytes_written(&self) -> u64 {
        self.io.values().map(|io| io.bytes_written).sum()
    }

    /// Bytes stored in byte-addressable memory, all purposes.
    pub fn nvm_bytes_stored(&self) -> u64 {
        self.nvm.values().map(|nvm| nvm.bytes_stored).sum()
    }

    /// Bytes written to the medium for each byte the user wrote; `None` before the first.
    pub fn write_amplification(&self) -> Option<f64> {
        (self.user_bytes_written > 0)
            .then(|| self.media_bytes_written() as f64 / self.user_bytes_written as f64)
    }

    /// Read requests at the medium for each point lookup; `None` before the first.
    pub fn reads_per_lookup(&self) -> Option<f64> {
        let reads = self.io.get("get").map_or(0, |io| io.reads);
        (self.gets > 0).then(|| reads as f64 / self.gets as f64)
    }

    /// Resident memory of all structures, in bytes.
    pub fn memory_bytes(&self) -> u64 {
        self.memory.values().sum()
    }
}
