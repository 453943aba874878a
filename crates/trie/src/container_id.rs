//! The name of a container: a node of the trie.
//!
//! Source: LSM-trie paper, section 2.3.

/// The maximum level: the options allow fewer levels, so a deeper one means damage. With five bits
/// of prefix per level it needs fewer than 64 bits.
pub(crate) const MAX_LEVEL: usize = 12;

/// Identifies a container.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ContainerId {
    pub(crate) level: usize,
    /// The hash prefix of its items.
    pub(crate) id: u64,
}

impl std::fmt::Display for ContainerId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "container {} of level {}", self.id, self.level)
    }
}
