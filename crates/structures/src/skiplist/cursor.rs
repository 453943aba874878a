//! A cursor over the keys of a skip list that owns a share of it, and so can outlive any borrow.
//!
//! A cursor is on a key or on none. Keys are never removed, so that it stays on its key whatever
//! is inserted; moves see what is in the list at the time of the move. Nodes have no backward
//! links (they would double the swaps of an insertion): `prev` searches anew for the greatest
//! smaller key.
//!
//! Invariant: the node under the cursor belongs to the list whose `Arc` the cursor holds.
//!
//! Source: ours; the moves are those of LevelDB's iterators.

use std::sync::Arc;

use super::node::NodeRef;
use super::{EntryRef, SkipList, Version};

/// An owning cursor over the keys of a [`SkipList`] in bytewise order.
pub struct Cursor {
    // Never lent out under its own lifetime, but only under that of a borrow of the cursor.
    node: Option<NodeRef<'static>>,
    list: Arc<SkipList>,
}

impl Cursor {
    pub(super) fn new(list: Arc<SkipList>) -> Self {
        Self { node: None, list }
    }

    /// Moves to the first key; costs a cache miss.
    pub fn seek_to_first(&mut self) {
        self.go(|list| list.head().next(0));
    }

    /// Moves to the last key; costs about as much as a search.
    pub fn seek_to_last(&mut self) {
        self.go(SkipList::last);
    }

    /// Moves to the first key of at least `key`; costs a search.
    pub fn seek(&mut self, key: &[u8]) {
        self.go(|list| list.first_from(key));
    }

    /// Moves to the last key of at most `key`; costs a search.
    pub fn seek_back(&mut self, key: &[u8]) {
        self.go(|list| list.last_to(key, false));
    }

    /// Moves to the next key, or from the last to none; costs a cache miss. On none, stays there.
    pub fn next(&mut self) {
        self.node = self.node.and_then(|node| node.next(0));
    }

    /// Moves to the key before, or from the first to none; costs a search. On none, stays there.
    pub fn prev(&mut self) {
        if let Some(node) = self.node {
            self.go(|list| list.last_to(node.key(), true));
        }
    }

    /// Whether the cursor is on a key.
    pub fn valid(&self) -> bool {
        self.node.is_some()
    }

    /// The key under the cursor with its versions, if it is on one.
    pub fn entry(&self) -> Option<EntryRef<'_>> {
        self.node.map(EntryRef::new)
    }

    /// The key under the cursor.
    ///
    /// # Panics
    ///
    /// If the cursor is on none.
    pub fn key(&self) -> &[u8] {
        self.expect_entry().key()
    }

    /// The newest version of the key under the cursor.
    ///
    /// # Panics
    ///
    /// If the cursor is on none.
    pub fn newest(&self) -> Version<'_> {
        self.expect_entry().newest()
    }

    /// The newest version of the key under the cursor with a sequence of at most `at`.
    ///
    /// # Panics
    ///
    /// If the cursor is on none.
    pub fn version_at(&self, at: u64) -> Option<Version<'_>> {
        self.expect_entry().version_at(at)
    }

    /// How often the key under the cursor was inserted.
    ///
    /// # Panics
    ///
    /// If the cursor is on none.
    pub fn updates(&self) -> u32 {
        self.expect_entry().updates()
    }

    fn expect_entry(&self) -> EntryRef<'_> {
        self.entry().expect("the cursor is on a key")
    }

    /// Moves to the node that a search of the list finds.
    fn go(&mut self, find: impl FnOnce(&SkipList) -> Option<NodeRef<'_>>) {
        // SAFETY: the cursor holds the list, and with it the arena, for as long as it has the node.
        self.node = find(&self.list).map(|node| unsafe { node.detach() });
    }
}
