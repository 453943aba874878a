//! What Linux and the portable form on other Unix systems share: positioned reads and writes, syncs,
//! and the identity of files.

use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

/// Reads some bytes at an offset.
pub(crate) fn read_at(file: &File, buf: &mut [u8], offset: u64) -> io::Result<usize> {
    file.read_at(buf, offset)
}

/// Fills `buf` from an offset.
pub(crate) fn read_exact_at(file: &File, buf: &mut [u8], offset: u64) -> io::Result<()> {
    file.read_exact_at(buf, offset)
}

/// Writes all bytes at an offset.
pub(crate) fn write_all_at(file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
    file.write_all_at(bytes, offset)
}

/// Makes the bytes durable, and the metadata needed to read them, as the length (`fdatasync`). On
/// macOS the standard library also has the device write its cache (`F_FULLFSYNC`).
pub(crate) fn sync_data(file: &File, _path: &Path, _is_writable: bool) -> io::Result<()> {
    file.sync_data()
}

/// Identifies a file while it exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FileId {
    device: u64,
    inode: u64,
}

/// The file of this metadata.
pub(crate) fn file_id(metadata: &Metadata) -> Option<FileId> {
    Some(FileId { device: metadata.dev(), inode: metadata.ino() })
}

/// The mode of a file that others than its owner have access to.
#[cfg(feature = "encryption")]
pub(crate) fn foreign_access(metadata: &Metadata) -> Option<u32> {
    Some(metadata.mode() & 0o777).filter(|mode| mode & 0o077 != 0)
}
