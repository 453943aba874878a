//! Garbage collection of the files with values (key-value separation).
//!
//! Every compaction moves the values that it meets out of the files that are collected
//! ([`BlobFiles::collectable`](crate::version::BlobFiles::collectable)) and writes them to a blob
//! file. If nothing else is due, the tables that refer to such files are rewritten on their level,
//! one after the other. They contain no large values, so that costs little more than the values
//! that are moved. A file without references is removed by the edit that drops the last one.
//!
//! It ends: a rewritten table refers to no file that was collected, and a new blob file has no
//! garbage.

use std::sync::Arc;

use super::compaction::rewrite;
use super::{Compaction, InProgress};
use crate::version::{TableFile, Version};

/// A rewrite of a table that refers to a file that is collected; `None`: nothing is to be done.
pub(super) fn pick(version: &Version, in_progress: &InProgress, ratio: f64) -> Option<Compaction> {
    let collected = version.blobs.collectable(ratio);
    if collected.is_empty() {
        return None;
    }
    let refers = |table: &&Arc<TableFile>| {
        !in_progress.contains(table.number())
            && table.entry().blobs.iter().any(|used| collected.contains(&used.file.number))
    };
    (1..=version.levels.len()).find_map(|level| {
        let table = version.level(level).iter().find(refers)?;
        Some(rewrite(version, level, table).because("garbage of blob files"))
    })
}
