//! A consistent copy: everything into tables, then the files of one version and a manifest that
//! names them. Files of a second medium are copied: the copy has all files on one.

use std::sync::Arc;

use siltstone_durable::checkpoint::{link_or_copy, write_manifest};
use siltstone_durable::flush;
use siltstone_engine::{CheckpointSink, Result};
use siltstone_table::checkpoint::copy_file;

use crate::engine::Tree;

impl Tree {
    /// Writes the table, as of a moment during this call, into `sink`.
    pub(crate) fn checkpoint(&self, sink: &mut dyn CheckpointSink) -> Result<()> {
        flush::flush(self)?;
        // The version holds its files open and on the medium until the copy is done.
        let (version, edit) = self.versions.snapshot();
        let tables = version.tables().map(|table| (table.name(), table.vfs()));
        let clusters = version.clusters().map(|cluster| (cluster.name(), cluster.vfs()));
        for (name, vfs) in tables.chain(clusters) {
            // A file that is not on the table's own medium cannot be linked from there.
            match Arc::ptr_eq(vfs, &self.tiers.main) {
                true => link_or_copy(vfs.as_ref(), name, sink)?,
                false => copy_file(vfs.as_ref(), name, sink)?,
            }
        }
        write_manifest(&self.versions, edit, sink)
    }
}
