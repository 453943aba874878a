//! What every peer is asked for: the settings of our tree, where it has them.
//!
//! Invariant: what a peer was given is listed by the peer itself, under its own names, and stands in the
//! report.
//!
//! Source: ours.

use std::path::PathBuf;

use siltstone_engine::Result;
use siltstone_lsm::{Compression, Options as LsmOptions};

use super::Task;
use crate::engines::Medium;

/// Settings, in our words.
#[derive(Debug, Clone)]
pub(super) struct Asked {
    /// A fresh directory.
    pub(super) directory: PathBuf,
    /// Bytes of a memtable.
    pub(super) memtable: u64,
    /// Memtables, the one that takes writes among them.
    pub(super) memtables: usize,
    /// Bytes of a table.
    pub(super) table: u64,
    /// Bytes of level 1.
    pub(super) level_1: u64,
    /// Tables in level 0 that make a compaction due.
    pub(super) level0_files: usize,
    /// Bytes of a block.
    pub(super) block: usize,
    /// Bytes of blocks in memory.
    pub(super) cache: u64,
    /// Bits of filter a key.
    pub(super) filter_bits: f64,
    pub(super) compression: Compression,
    /// Threads in the background.
    pub(super) jobs: usize,
    /// Whether reads go past the page cache.
    pub(super) direct: bool,
    /// Bytes of keys and values that will be written at most, for peers that must be told.
    pub(super) data: u64,
}

impl Asked {
    /// Those of the task's tree, or of our default one if another engine runs beside the peer.
    pub(super) fn of(task: &Task<'_>, directory: PathBuf) -> Result<Self> {
        let ours = match task.target.engine.as_str() {
            "lsm" => LsmOptions::from_map(&task.target.options)?,
            _ => LsmOptions::default(),
        };
        let item = (task.settings.key_bytes + task.settings.value.max()) as u64;
        Ok(Asked {
            jobs: task.target.background_threads,
            direct: matches!(task.target.medium, Medium::Direct(_)),
            data: task.settings.keys.saturating_mul(item),
            ..Asked::equal_to(&ours, directory)
        })
    }

    /// Those of a tree, for little data in the page cache.
    pub(super) fn equal_to(ours: &LsmOptions, directory: PathBuf) -> Self {
        Asked {
            directory,
            memtable: ours.memtable_bytes,
            memtables: ours.memtables,
            table: ours.table_bytes,
            level_1: ours.level_bytes[0],
            level0_files: ours.level0.compact_at,
            block: ours.file.block_bytes,
            cache: ours.cache_bytes,
            filter_bits: ours.file.filter_bits,
            compression: ours.file.compression,
            jobs: 2,
            direct: false,
            data: 1 << 20,
        }
    }
}
