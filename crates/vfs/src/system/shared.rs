//! What the forms share.

use std::io;

/// The granularity of mappings. The machine's pages may be larger, never smaller.
pub(crate) const MAP_BYTES: usize = 4096;

/// The error for a hole where the file system has none, of the kind that the contract requires.
pub(super) fn has_no_holes() -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, "the file system has no holes")
}
