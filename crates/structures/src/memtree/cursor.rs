//! A cursor over the keys of a tree that owns a share of it, and so can outlive any borrow.
//!
//! A cursor is on a key or on none. Keys are never removed, so that it stays on its key whatever
//! is inserted; moves see what is in the tree at the time of the move.
//!
//! Invariant: the spot under the cursor belongs to the tree whose `Arc` the cursor holds.
//!
//! Source: ours; the moves are those of LevelDB's iterators.

use std::sync::Arc;

use super::spot::Spot;
use super::{BLinkTree, EntryRef, Version};

/// An owning cursor over the keys of a [`BLinkTree`] in bytewise order.
pub struct Cursor {
    // Never lent out under its own lifetime, but only under that of a borrow of the cursor.
    spot: Option<Spot<'static>>,
    tree: Arc<BLinkTree>,
}

impl Cursor {
    pub(super) fn new(tree: Arc<BLinkTree>) -> Self {
        Self { spot: None, tree }
    }

    /// Moves to the first key; costs a cache miss or two.
    pub fn seek_to_first(&mut self) {
        self.go(|tree, _| tree.first());
    }

    /// Moves to the last key; costs about as much as a search.
    pub fn seek_to_last(&mut self) {
        self.go(|tree, _| tree.last());
    }

    /// Moves to the first key of at least `key`; costs a search.
    pub fn seek(&mut self, key: &[u8]) {
        self.go(|tree, _| tree.first_from(key));
    }

    /// Moves to the last key of at most `key`; costs a search.
    pub fn seek_back(&mut self, key: &[u8]) {
        self.go(|tree, _| tree.last_to(key, false));
    }

    /// Moves to the next key, or from the last to none; costs a cache miss. On none, stays there.
    pub fn next(&mut self) {
        self.go(|_, spot| spot?.next());
    }

    /// Moves to the key before, or from the first to none; costs a cache miss, and where a leaf begins a search. On
    /// none, stays there.
    pub fn prev(&mut self) {
        self.go(|tree, spot| tree.before(spot?));
    }

    /// Whether the cursor is on a key.
    pub fn valid(&self) -> bool {
        self.spot.is_some()
    }

    /// The key under the cursor with its versions, if it is on one.
    pub fn entry(&self) -> Option<EntryRef<'_>> {
        self.spot.map(|spot| spot.entry)
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

    /// Moves to the spot that is found in the tree, or from the present one.
    fn go(
        &mut self,
        find: impl for<'a> FnOnce(&'a BLinkTree, Option<Spot<'a>>) -> Option<Spot<'a>>,
    ) {
        // SAFETY: the cursor holds the tree, and with it the arenas, for as long as it has the spot.
        self.spot = find(&self.tree, self.spot).map(|spot| unsafe { spot.detach() });
    }
}
