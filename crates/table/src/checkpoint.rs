//! Writes the contents of a checkpoint to its sink.
//!
//! ```text
//!   each file of a version   hard-linked if the sink can, else copied in chunks
//!   its own manifest         one snapshot, cleanly closed: the copy opens like a clean close
//! ```

use std::sync::Arc;

use siltstone_engine::{CheckpointSink, Purpose, Result};
use siltstone_vfs::{Mode, Ram, Vfs};

use crate::Manifest;

const CHUNK_BYTES: usize = 1 << 20;

/// Copies a file. Memory: one chunk of 1 MiB.
///
/// # Errors
/// I/O errors of the file and of the sink.
pub fn copy_file(vfs: &dyn Vfs, name: &str, sink: &mut dyn CheckpointSink) -> Result<()> {
    let file = vfs.open(name, Mode::Read)?;
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

/// Writes a cleanly closed manifest that contains only `snapshot`.
///
/// # Errors
/// I/O errors of the sink.
pub fn write_manifest(engine: &str, snapshot: &[u8], sink: &mut dyn CheckpointSink) -> Result<()> {
    let manifest: Arc<dyn Vfs> = Arc::new(Ram::new());
    Manifest::create(manifest.clone(), engine, snapshot)?.close()?;
    for name in manifest.list()? {
        copy_file(manifest.as_ref(), &name, sink)?;
    }
    Ok(())
}
