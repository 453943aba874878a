//! Settings of every peer: those of our tree, if the peer has them.
//!
//! Invariant: each peer lists its settings under its own names, and they are in the report.

use std::path::PathBuf;

use siltstone_bench::engines::Storage;
use siltstone_engine::Result;
use siltstone_lsm::{Compression, Options as LsmOptions};

use super::Task;

/// Settings of a peer, by our names.
#[derive(Debug, Clone)]
pub(super) struct PeerSettings {
    /// A fresh directory.
    pub(super) directory: PathBuf,
    /// Bytes per memtable.
    pub(super) memtable: u64,
    /// Number of memtables, including the active one.
    pub(super) memtables: usize,
    /// Bytes per table.
    pub(super) table: u64,
    /// Bytes of level 1.
    pub(super) level_1: u64,
    /// Number of level-0 tables that triggers a compaction.
    pub(super) level0_files: usize,
    /// Bytes per block.
    pub(super) block: usize,
    /// Bytes of the block cache.
    pub(super) cache: u64,
    /// Bits of filter per key.
    pub(super) filter_bits: f64,
    pub(super) compression: Compression,
    /// Number of background threads.
    pub(super) jobs: usize,
    /// Whether reads bypass the page cache.
    pub(super) direct: bool,
    /// Upper limit of the bytes of keys and values, for peers that need it.
    pub(super) data: u64,
}

impl PeerSettings {
    /// Those of the task's tree, or of our default tree if the task has another engine.
    pub(super) fn of(task: &Task<'_>, directory: PathBuf) -> Result<Self> {
        let ours = match task.target.engine.as_str() {
            "lsm" => LsmOptions::from_map(&task.target.options)?,
            _ => LsmOptions::default(),
        };
        let item = (task.settings.key_bytes + task.settings.value.max()) as u64;
        Ok(PeerSettings {
            jobs: task.target.background_threads,
            direct: matches!(task.target.storage, Storage::Direct(_)),
            data: task.settings.keys.saturating_mul(item),
            ..PeerSettings::equal_to(&ours, directory)
        })
    }

    /// Those of a tree, for small data in the page cache.
    pub(super) fn equal_to(ours: &LsmOptions, directory: PathBuf) -> Self {
        PeerSettings {
            directory,
            memtable: ours.memtable_bytes,
            memtables: ours.memtables,
            table: ours.target_file_bytes,
            level_1: ours.level_bytes[0],
            level0_files: ours.level0.compaction_trigger,
            block: ours.file.block_bytes,
            cache: ours.cache_bytes,
            filter_bits: ours.file.filter_bits_per_key,
            compression: ours.file.compression,
            jobs: 2,
            direct: false,
            data: 1 << 20,
        }
    }
}
