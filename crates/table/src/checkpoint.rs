//! Streaming what a checkpoint holds into its sink.
//!
//! ```text
//!   each file of a version   linked, if the sink can; else copied in chunks
//!   a manifest of its own    one snapshot, closed: the copy opens as if it had been closed
//! ```
//!
//! Source: ours.

use std::sync::Arc;

use siltstone_engine::{CheckpointSink, Purpose, Result};
use siltstone_vfs::{Mode, Ram, Vfs};

use crate::Manifest;

const CHUNK_BYTES: usize = 1 << 20;

/// Copies a file. Memory: a chunk of 1 MiB.
///
/// # Errors
/// The medium's and the sink's.
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

/// Writes a closed manifest of this one snapshot.
///
/// # Errors
/// The sink's.
pub fn write_manifest(engine: &str, snapshot: &[u8], sink: &mut dyn CheckpointSink) -> Result<()> {
    let manifest: Arc<dyn Vfs> = Arc::new(Ram::new());
    Manifest::create(manifest.clone(), engine, snapshot)?.close()?;
    for name in manifest.list()? {
        copy_file(manifest.as_ref(), &name, sink)?;
    }
    Ok(())
}
