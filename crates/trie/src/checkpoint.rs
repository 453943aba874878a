//! A consistent copy: everything into tables, then the files of one version and a manifest that
//! names them. Files of a second medium are copied: the copy has all on one.
//!
//! Invariant: the copy names no log, so it holds what was written before this call began, and
//! perhaps some of what was written during it.
//!
//! Source: ours; as in the ordered engine.

use std::sync::Arc;

use siltstone_engine::{CheckpointSink, Purpose, Result};
use siltstone_media::{Media, Mode, Ram};
use siltstone_table::Manifest;

use crate::engine::Inner;
use crate::version::{ENGINE, Edit};

/// Bytes copied at once where a file cannot be linked.
const CHUNK_BYTES: usize = 1 << 20;

impl Inner {
    /// Writes the table, as of a moment during this call, into `sink`.
    pub(crate) fn checkpoint(&self, sink: &mut dyn CheckpointSink) -> Result<()> {
        self.flush()?;
        // The version holds its files open and on the medium until the copy is done.
        let (version, edit) = self.versions.snapshot();
        let tables = version.tables().map(|table| (table.name(), table.media()));
        let clusters = version.clusters().map(|cluster| (cluster.name(), cluster.media()));
        for (name, media) in tables.chain(clusters) {
            // What is not on the table's own medium cannot be linked from there.
            let is_own = Arc::ptr_eq(media, &self.homes.main);
            if !(is_own && sink.link(name)?) {
                copy(media.as_ref(), name, sink)?;
            }
        }
        // No log comes along: whatever is in one was written after the copy's moment.
        let edit = Edit { first_log: edit.next_file, ..edit };
        let manifest: Arc<dyn Media> = Arc::new(Ram::new());
        Manifest::create(manifest.clone(), ENGINE, &edit.encode())?.close()?;
        for name in manifest.list()? {
            copy(manifest.as_ref(), &name, sink)?;
        }
        Ok(())
    }
}

fn copy(media: &dyn Media, name: &str, sink: &mut dyn CheckpointSink) -> Result<()> {
    let file = media.open(name, Mode::Read)?;
    let len = file.len()?;
    let mut buffer = vec![0; CHUNK_BYTES.min(len as usize)];
    sink.create(name)?;
    let mut offset = 0;
    while offset < len {
        let chunk = &mut buffer[..CHUNK_BYTES.min((len - offset) as usize)];
        file.read_at(offset, chunk, Purpose::Maintenance)?;
        sink.write(chunk)?;
        offset += chunk.len() as u64;
    }
    sink.finish()
}
