//! One key of the skip list as readers see it: its bytes, its count of updates, its versions.
//!
//! A reference into the arena, free to copy. What it shows moves on while writers insert: versions
//! appear and the count rises, but what was seen once stays.
//!
//! Invariant: an entry always has a newest version, since nodes are published with their first.
//!
//! Source: ours.

use super::node::NodeRef;
use super::version::Version;

/// A key in a skip list with its versions.
#[derive(Clone, Copy)]
pub struct EntryRef<'a> {
    node: NodeRef<'a>,
}

impl<'a> EntryRef<'a> {
    pub(super) fn new(node: NodeRef<'a>) -> Self {
        Self { node }
    }

    /// The key.
    pub fn key(&self) -> &'a [u8] {
        self.node.key()
    }

    /// How often the key was inserted, the first time included; modulo 2³².
    pub fn updates(&self) -> u32 {
        self.node.updates()
    }

    /// The version with the highest sequence; costs a cache miss.
    pub fn newest(&self) -> Version<'a> {
        self.node.chain().newest().expect("nodes are published with their first version")
    }

    /// The newest version with a sequence of at most `at`; costs a cache miss a version looked at.
    pub fn version_at(&self, at: u64) -> Option<Version<'a>> {
        self.node.chain().at(at)
    }

    /// All versions, newest first.
    pub fn versions(&self) -> impl Iterator<Item = Version<'a>> + use<'a> {
        std::iter::successors(Some(self.newest()), Version::older)
    }
}
