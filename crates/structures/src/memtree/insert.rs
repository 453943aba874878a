//! Insertion into the tree: by one writer at a time, beside readers who do not wait for it.
//!
//! ```text
//!   parent   [ a  ·  ·  k ]          [ a  ·  f  k ]           3  the parent learns of it
//!              │                       │     │                   (and splits in its turn)
//!   node     [ a b c d e f g … ] ──▶ [ a b c … ]─▶[ f g … ]   1  the upper half, in a new node, linked
//!                                                             2  and taken out of the old one
//! ```
//!
//! A reader that comes between two of these steps finds the key: until 3 by way of the node to the left. Where keys
//! ascend, nothing is halved: the last node stays full, and a new one begins.
//!
//! Keys that begin alike (names, zero-padded numbers) would have equal words in all nodes. So a new node in which
//! neighbours do skips what the keys between its least and the next node's least have in common.
//!
//! Invariant: a node that is full has nothing put into it, and none but the leftmost gets a key below its first.
//!
//! Source: Lehman, Yao, TODS 1981, section 4.2, with one writer.

use super::BLinkTree;
use super::entry::EntryRef;
use super::node::{Item, Node};
use super::permutation::SLOTS;
use super::probe::{Probe, shared, word};
use super::version::NewVersion;
use crate::sync::Ordering;

impl BLinkTree {
    /// Adds a version of a key, and counts it as an update of the key.
    ///
    /// Copies key and value into the arena. Threads that insert at once wait for one another. Of two
    /// versions with the same key and sequence, the one inserted last hides the other.
    ///
    /// Cost: some five nodes at 250,000 keys, of which the caches have most; readers wait for nothing.
    ///
    /// # Panics
    ///
    /// If the key or the value has 4 GiB or more.
    pub fn insert(&self, key: &[u8], version: NewVersion<'_>) {
        let _writer = self.writer.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let root = self.root();
        if let Some(right) = self.insert_below(root, &Probe::new(key), &version) {
            let above = Node::root(&self.nodes, Some(root));
            // SAFETY: written right there, and kept as long as the tree.
            let has_room = unsafe { &*above }.put(1, Item::of_node(right));
            debug_assert!(has_room);
            // Release: who sees the root sees what is in it.
            self.root.store(above, Ordering::Release);
        }
        let versions = self.versions.load(Ordering::Relaxed);
        self.versions.store(versions + 1, Ordering::Relaxed);
    }

    /// Inserts below a node; returns a new node to the right of it, of which its parent is to learn.
    fn insert_below<'a>(
        &'a self,
        node: &'a Node,
        probe: &Probe<'_>,
        version: &NewVersion<'_>,
    ) -> Option<&'a Node> {
        // What a writer reads nobody changes meanwhile: each view holds.
        let view = node.view();
        if node.height() == 0 {
            let rank = node.rank(view, probe, 0);
            if rank.is_found {
                // SAFETY: the entry is of the same arena.
                unsafe { node.entry(view, rank.up_to - 1).add(&self.entries, version) };
                return None;
            }
            let entry = EntryRef::write(&self.entries, probe.key, version);
            let right = self.put(node, rank.up_to, Item::of_entry(entry));
            // Release: who is told of so many finds them.
            let keys = self.keys.load(Ordering::Relaxed);
            self.keys.store(keys + 1, Ordering::Release);
            return right;
        }
        let rank = node.rank(view, probe, 1);
        let child = node.child(view, rank.up_to - 1);
        child.prefetch();
        let right = self.insert_below(child, probe, version)?;
        self.put(node, rank.up_to, Item::of_node(right))
    }

    /// Puts an item into a node at a position, or into the two that it becomes; returns the new one.
    fn put<'a>(&'a self, node: &'a Node, position: usize, item: Item<'a>) -> Option<&'a Node> {
        if node.put(position, item) {
            return None;
        }
        let is_at_the_end = position == SLOTS && node.next().is_none();
        let keep = if is_at_the_end { SLOTS } else { SLOTS.div_ceil(2) };
        let goes_right = position > keep || is_at_the_end;
        let mut moved: Vec<_> = (keep..SLOTS).map(|from| node.item(from)).collect();
        if goes_right {
            moved.insert(position - keep, (item, word(item.low.key(), node.skip())));
        }
        let skip = skip_of(node, &moved);
        if skip != node.skip() {
            moved.iter_mut().for_each(|(item, short)| *short = word(item.low.key(), skip));
        }
        let right = node.beside(&self.nodes, skip, &moved);
        node.hand_over(keep, right);
        if !goes_right {
            let has_room = node.put(position, item);
            debug_assert!(has_room);
        }
        Some(right)
    }
}

/// What a node to the right of `node` skips that takes these items: as much as that, unless words of its
/// neighbours would be equal.
fn skip_of(node: &Node, items: &[(Item<'_>, u64)]) -> usize {
    let are_told_apart = items.windows(2).all(|pair| pair[0].1 < pair[1].1);
    let next = node.next().and_then(Node::low);
    match next.filter(|_| !are_told_apart) {
        Some(next) => shared(items[0].0.low.key(), next.key()).min(usize::from(u16::MAX)),
        None => node.skip(),
    }
}
