//! Checkpoints: the files of one version, and a manifest that names them.
//!
//! ```text
//!   flush ─ take a version ─ link or copy its files ─ manifest of its own, closed
//! ```
//!
//! The version keeps its files open and on disk until the copy is complete. No log is copied:
//! what logs contain was written after the moment of the checkpoint.
//!
//! Invariant: a checkpoint contains every write that returned before it began, and opens like a
//! table that was closed.

use siltstone_engine::{CheckpointSink, Result};
use siltstone_table::checkpoint::{copy_file, write_manifest as write_manifest_bytes};
use siltstone_vfs::Vfs;

use crate::{LogStructured, VersionEdit, VersionSet, VersionState};

/// An engine whose tables can be copied while they are open.
pub trait Checkpoint: LogStructured {
    /// Writes the table, as of a moment during this call, into `sink`.
    ///
    /// # Errors
    /// Those of the flush, of the file system and of the sink.
    fn checkpoint(&self, sink: &mut dyn CheckpointSink) -> Result<()>;
}

/// Adds a file to the checkpoint: linked if the sink can, else copied.
///
/// # Errors
/// I/O errors; those of the sink.
pub fn link_or_copy(vfs: &dyn Vfs, name: &str, sink: &mut dyn CheckpointSink) -> Result<()> {
    if sink.link(name)? { Ok(()) } else { copy_file(vfs, name, sink) }
}

/// Writes the manifest of a checkpoint; `edit` names its files and needs no log.
///
/// # Errors
/// Those of the sink.
pub fn write_manifest<V: VersionState>(
    versions: &VersionSet<V>,
    mut edit: V::Edit,
    sink: &mut dyn CheckpointSink,
) -> Result<()> {
    let next = Some(versions.new_number());
    let header = edit.header_mut();
    (header.next_file, header.first_log) = (next, next);
    write_manifest_bytes(V::ENGINE, &edit.encode(), sink)
}
