//! Owning cursor over the keys of a tree. It shares ownership of the tree, so no borrow limits it.
//!
//! A cursor is on a key or invalid. Keys are never removed, so inserts do not move it off its key;
//! a move sees the tree as it is at the time of the move.
//!
//! Invariant: the cursor's position belongs to the tree whose `Arc` the cursor holds.

use std::sync::Arc;

use super::position::LeafPosition;
use super::{BLinkTree, EntryRef, Version};

/// An owning cursor over the keys of a [`BLinkTree`] in bytewise order.
pub struct Cursor {
    // Exposed only with the lifetime of a borrow of the cursor, never with its own.
    pos: Option<LeafPosition<'static>>,
    tree: Arc<BLinkTree>,
}

impl Cursor {
    pub(super) fn new(tree: Arc<BLinkTree>) -> Self {
        Self { pos: None, tree }
    }

    /// Moves to the first key; costs a cache miss or two.
    pub fn seek_to_first(&mut self) {
        self.move_to(|tree, _| tree.first());
    }

    /// Moves to the last key; costs about as much as a search.
    pub fn seek_to_last(&mut self) {
        self.move_to(|tree, _| tree.last());
    }

    /// Moves to the first key `>= key`; costs a search.
    pub fn seek(&mut self, key: &[u8]) {
        self.move_to(|tree, _| tree.first_from(key));
    }

    /// Moves to the last key `<= key`; costs a search.
    pub fn seek_back(&mut self, key: &[u8]) {
        self.move_to(|tree, _| tree.last_to(key, false));
    }

    /// Moves to the next key; invalid after the last. Costs a cache miss. Stays invalid.
    pub fn next(&mut self) {
        self.move_to(|_, pos| pos?.next());
    }

    /// Moves to the previous key; invalid before the first. Costs a cache miss, and at the start of
    /// a leaf a search. Stays invalid.
    pub fn prev(&mut self) {
        self.move_to(|tree, pos| tree.prev(pos?));
    }

    /// Whether the cursor is valid.
    pub fn valid(&self) -> bool {
        self.pos.is_some()
    }

    /// The current key with its versions; `None` if the cursor is invalid.
    pub fn entry(&self) -> Option<EntryRef<'_>> {
        self.pos.map(|pos| pos.entry)
    }

    /// The current key.
    ///
    /// # Panics
    ///
    /// If the cursor is invalid.
    pub fn key(&self) -> &[u8] {
        self.expect_entry().key()
    }

    /// The newest version of the current key.
    ///
    /// # Panics
    ///
    /// If the cursor is invalid.
    pub fn newest(&self) -> Version<'_> {
        self.expect_entry().newest()
    }

    /// The newest version of the current key with a sequence number of at most `at`.
    ///
    /// # Panics
    ///
    /// If the cursor is invalid.
    pub fn version_at(&self, at: u64) -> Option<Version<'_>> {
        self.expect_entry().version_at(at)
    }

    /// How often the current key was inserted.
    ///
    /// # Panics
    ///
    /// If the cursor is invalid.
    pub fn updates(&self) -> u32 {
        self.expect_entry().updates()
    }

    fn expect_entry(&self) -> EntryRef<'_> {
        self.entry().expect("the cursor is valid")
    }

    /// Moves to the position that `find` returns.
    fn move_to(
        &mut self,
        find: impl for<'a> FnOnce(&'a BLinkTree, Option<LeafPosition<'a>>) -> Option<LeafPosition<'a>>,
    ) {
        // SAFETY: the cursor holds the tree, and with it the arenas, for as long as it has the
        // position.
        self.pos = find(&self.tree, self.pos).map(|pos| unsafe { pos.detach() });
    }
}
