//! A consistent copy: everything into tables, then the files of one version and a manifest that
//! names them. Files of a second medium are copied: the copy has all on one.
//!
//! Invariant: the copy names no log, so it holds what was written before this call began, and
//! perhaps some of what was written during it.
//!
//! Source: ours; as in the ordered engine.

use std::sync::Arc;

use siltstone_engine::{CheckpointSink, Result};
use siltstone_table::checkpoint::{copy_file, write_manifest};

use crate::engine::Inner;
use crate::version::{ENGINE, Edit};

impl Inner {
    /// Writes the table, as of a moment during this call, into `sink`.
    pub(crate) fn checkpoint(&self, sink: &mut dyn CheckpointSink) -> Result<()> {
        self.flush()?;
        // The version holds its files open and on the medium until the copy is done.
        let (version, edit) = self.versions.snapshot();
        let tables = version.tables().map(|table| (table.name(), table.vfs()));
        let clusters = version.clusters().map(|cluster| (cluster.name(), cluster.vfs()));
        for (name, vfs) in tables.chain(clusters) {
            // What is not on the table's own medium cannot be linked from there.
            let is_own = Arc::ptr_eq(vfs, &self.tiers.main);
            if !(is_own && sink.link(name)?) {
                copy_file(vfs.as_ref(), name, sink)?;
            }
        }
        // No log comes along: whatever is in one was written after the copy's moment.
        let edit = Edit { first_log: edit.next_file, ..edit };
        write_manifest(ENGINE, &edit.encode(), sink)
    }
}
