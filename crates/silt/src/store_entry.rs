//! What the manifest records of a store.

/// A store as the manifest records it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StoreEntry {
    pub(crate) partition: u32,
    pub(crate) number: u64,
    /// Bytes of its data file.
    pub(crate) bytes: u64,
    pub(crate) entries: u64,
}
