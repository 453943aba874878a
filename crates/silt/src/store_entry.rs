//! The entry of a store in the manifest.

use siltstone_engine::FileInfo;

use crate::names::Kind;

/// A store as the manifest records it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StoreEntry {
    pub(crate) partition: u32,
    pub(crate) number: u64,
    /// Bytes of its data file.
    pub(crate) bytes: u64,
    pub(crate) entries: u64,
}

impl StoreEntry {
    /// Its data file, for listeners of events.
    pub(crate) fn info(&self, kind: Kind) -> FileInfo {
        FileInfo::new(kind.name(self.number), self.bytes)
    }
}
