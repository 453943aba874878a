//! Errors of the disk, with the operation and the path.

use std::io;
use std::path::Path;

use siltstone_engine::Error;

pub(super) fn display(path: &Path) -> String {
    path.display().to_string()
}

pub(super) fn disk_fault(operation: &'static str, path: &Path, error: io::Error) -> Error {
    Error::io(operation, display(path), &error)
}
