//! Missing files are corruption: a manifest that `CURRENT` names, a file that the manifest names, and
//! the manifest of a directory that has other files of a table.

use siltstone_engine::{Error, Result};
use siltstone_table::Manifest;
use siltstone_vfs::Vfs;

/// Refuses to create a table beside files that a table has left: `is_table_file` recognizes them. A
/// table that lost its manifest is damaged, and a new manifest would have them removed.
///
/// # Errors
/// `Corruption` if there is such a file; I/O errors.
pub fn reject_orphans(vfs: &dyn Vfs, is_table_file: impl Fn(&str) -> bool) -> Result<()> {
    match vfs.list()?.into_iter().find(|name| is_table_file(name)) {
        None => Ok(()),
        Some(name) => Err(Manifest::missing(&name)),
    }
}

/// A manifest that `CURRENT` names and that does not exist is corruption.
pub fn missing_manifest(error: Error) -> Error {
    missing(error, "CURRENT names this manifest, and it is missing")
}

/// A file that the manifest names and that does not exist is corruption.
pub fn missing_file(error: Error) -> Error {
    missing(error, "the manifest names this file, and it is missing")
}

fn missing(error: Error, reason: &str) -> Error {
    match &error {
        Error::Io { file, .. } if error.is_not_found() => Error::corruption(file, 0, reason),
        _ => error,
    }
}
