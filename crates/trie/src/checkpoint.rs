//! Checkpoints: flushes all memtables, then copies or links the files of one version and writes a
//! manifest that names them. Files of the fast tier are copied, because a checkpoint has all files
//! in one directory.

use std::sync::Arc;

use siltstone_durable::checkpoint::{Checkpoint, link_or_copy, write_manifest};
use siltstone_durable::flush;
use siltstone_engine::{CheckpointSink, Result};
use siltstone_table::checkpoint::copy_file;

use crate::engine::Tree;

impl Checkpoint for Tree {
    fn checkpoint(&self, sink: &mut dyn CheckpointSink) -> Result<()> {
        flush::flush(self)?;
        // The version holds its files open and on disk until the copy is done.
        let (version, edit) = self.versions.snapshot();
        let tables = version.tables().map(|table| (table.name(), table.vfs()));
        let clusters = version.clusters().map(|cluster| (cluster.name(), cluster.vfs()));
        for (name, vfs) in tables.chain(clusters) {
            // A file of the fast tier may be on another device, to which it cannot be linked.
            match Arc::ptr_eq(vfs, &self.tiers.main) {
                true => link_or_copy(vfs.as_ref(), name, sink)?,
                false => copy_file(vfs.as_ref(), name, sink)?,
            }
        }
        write_manifest(&self.versions, edit, sink)
    }
}
