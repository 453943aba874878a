//! An entry of a simulated table.

/// A key that was put or deleted. The order is that of keys, and within a key meaningless.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Entry(u32);

impl Entry {
    /// Keys are below 2³¹.
    pub(super) fn new(key: u32, is_tombstone: bool) -> Self {
        Entry(key << 1 | u32::from(is_tombstone))
    }

    pub(super) fn key(self) -> u32 {
        self.0 >> 1
    }

    pub(super) fn is_tombstone(self) -> bool {
        self.0 & 1 == 1
    }
}
