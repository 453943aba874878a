//! Checkpoints: converts all LogStores to HashStores, then copies or links the files of one version
//! and writes a manifest that names them.

use siltstone_durable::checkpoint::{Checkpoint, link_or_copy, write_manifest};
use siltstone_durable::flush;
use siltstone_engine::{CheckpointSink, Result};

use crate::engine::SiltEngine;
use crate::names::{self, Kind};

impl Checkpoint for SiltEngine {
    fn checkpoint(&self, sink: &mut dyn CheckpointSink) -> Result<()> {
        flush::flush(self)?;
        // The version holds its files open and on disk until the copy is done.
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
