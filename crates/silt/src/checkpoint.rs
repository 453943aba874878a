//! A consistent copy: everything into HashStores, then the stores of one version and a manifest
//! that names them.

use siltstone_durable::checkpoint::{link_or_copy, write_manifest};
use siltstone_durable::flush;
use siltstone_engine::{CheckpointSink, Result};

use crate::engine::SiltEngine;
use crate::names::{self, Kind};

impl SiltEngine {
    /// Writes the table, as of a moment during this call, into `sink`.
    pub(crate) fn checkpoint(&self, sink: &mut dyn CheckpointSink) -> Result<()> {
        flush::flush(self)?;
        // The version holds its files open and on the medium until the copy is done.
        let (version, edit) = self.versions.snapshot();
        for name in version.names() {
            // A filter or index that could not be written is rebuilt from the copy. Without one of
            // its stores the copy would be incomplete.
            let is_derived = names::parse(&name)
                .is_some_and(|(kind, _)| matches!(kind, Kind::Filter | Kind::Index));
            if !is_derived || self.vfs.exists(&name)? {
                link_or_copy(self.vfs.as_ref(), &name, sink)?;
            }
        }
        write_manifest(&self.versions, edit, sink)
    }
}
