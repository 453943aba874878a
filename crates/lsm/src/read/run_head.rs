//! What a merge compares of a run at its current version.

use siltstone_structures::key_head;

/// The head of the current version of a run: what most comparisons need.
#[derive(Clone, Copy)]
pub(super) struct RunHead {
    /// The first bytes of the key.
    pub(super) key: u64,
    pub(super) sequence: u64,
}

impl RunHead {
    #[inline]
    pub(super) fn of(key: &[u8], sequence: u64) -> Self {
        RunHead { key: key_head(key), sequence }
    }
}
