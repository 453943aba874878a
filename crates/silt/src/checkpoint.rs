//! A consistent copy: everything into HashStores, then the stores of one version and a manifest that
//! names them.

use siltstone_engine::{CheckpointSink, Result};
use siltstone_table::checkpoint::{copy_file, write_manifest};

use crate::engine::Inner;
use crate::names::{self, Kind};
use crate::version::{ENGINE, Edit};

impl Inner {
    /// Writes the table, as of a moment during this call, into `sink`.
    pub(crate) fn checkpoint(&self, sink: &mut dyn CheckpointSink) -> Result<()> {
        self.flush()?;
        // The version holds its files open and on the medium until the copy is done.
        let (version, edit) = self.versions.snapshot();
        for name in version.names() {
            // A filter or index that could not be written again is made again from the copy. A store that is
            // gone from the medium is not: a copy without it would be no copy.
            let is_derived = names::parse(&name)
                .is_some_and(|(kind, _)| matches!(kind, Kind::Filter | Kind::Index));
            if is_derived && !self.vfs.exists(&name)? {
                continue;
            }
            if !sink.link(&name)? {
                copy_file(self.vfs.as_ref(), &name, sink)?;
            }
        }
        // No log comes along: whatever is in one was written after the copy's moment.
        let edit = Edit { first_log: edit.next_file, ..edit };
        write_manifest(ENGINE, &edit.encode(), sink)
    }
}
