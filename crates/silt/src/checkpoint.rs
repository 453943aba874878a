//! A consistent copy: everything into HashStores, then the stores of one version and a manifest that
//! names them.

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
        for name in version.names() {
            // A filter or index that could not be written again is made again from the copy.
            if !self.media.exists(&name)? {
                continue;
            }
            if !sink.link(&name)? {
                copy(self.media.as_ref(), &name, sink)?;
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
