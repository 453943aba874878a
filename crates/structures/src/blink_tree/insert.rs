//! Insertion by one writer at a time; readers never wait.
//!
//! ```text
//!   parent   [ a  ·  ·  k ]          [ a  ·  f  k ]           3  insert into the parent
//!              │                       │     │                   (which may split in turn)
//!   node     [ a b c d e f g … ] ──▶ [ a b c … ]─▶[ f g … ]   1  link new node with upper half
//!                                                             2  remove it from the old node
//! ```
//!
//! Between these steps, a reader finds every key: before 3 through the node's left sibling. With
//! ascending keys nodes are not halved: the last node stays full, and a new one is started.
//!
//! Keys with a common beginning (names, zero-padded numbers) would have equal prefixes in a node. A
//! new node with equal neighbouring prefixes therefore skips the bytes common to all keys between
//! its low key and that of the next node.
//!
//! Invariant: nothing is inserted into a full node, and only the leftmost node gets keys below its
//! first.
//!
//! Source: Lehman, Yao, TODS 1981, section 4.2, with one writer.

use super::BLinkTree;
use super::entry::EntryRef;
use super::node::{Item, Node};
use super::permutation::SLOTS;
use super::search_key::{SearchKey, prefix};
use super::version::NewVersion;
use crate::common_prefix_len;
use crate::sync::Ordering;

impl BLinkTree {
    /// Inserts a version of a key, and counts the update.
    ///
    /// Copies key and value into the arena. Concurrent inserts are serialized. Of two versions with
    /// the same key and sequence number, the one inserted last hides the other.
    ///
    /// Cost: about five nodes at 250,000 keys, most of them in the CPU caches.
    ///
    /// # Panics
    ///
    /// If the key or the value has 4 GiB or more.
    pub fn insert(&self, key: &[u8], version: NewVersion<'_>) {
        let _writer = self.writer.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let root = self.root();
        if let Some(right) = self.insert_below(root, &SearchKey::new(key), &version) {
            let above = Node::root(&self.nodes, Some(root));
            // SAFETY: written right there, and kept as long as the tree.
            let has_room = unsafe { &*above }.put(1, Item::of_node(right));
            debug_assert!(has_room);
            // Release: a reader of the root sees its contents.
            self.root.store(above, Ordering::Release);
        }
        let versions = self.versions.load(Ordering::Relaxed);
        self.versions.store(versions + 1, Ordering::Relaxed);
    }

    /// Inserts below a node; returns the node's new right sibling, to be added to its parent.
    fn insert_below<'a>(
        &'a self,
        node: &'a Node,
        target: &SearchKey<'_>,
        version: &NewVersion<'_>,
    ) -> Option<&'a Node> {
        // There is no other writer, so every view stays valid.
        let view = node.view();
        if node.height() == 0 {
            let rank = node.rank(view, target, 0);
            if rank.is_found {
                // SAFETY: the entry is of the same arena.
                unsafe { node.entry(view, rank.up_to - 1).add(&self.entries, version) };
                return None;
            }
            let entry = EntryRef::write(&self.entries, target.key, version);
            let right = self.put(node, rank.up_to, Item::of_entry(entry));
            // Release: a reader of the count finds as many keys.
            let keys = self.keys.load(Ordering::Relaxed);
            self.keys.store(keys + 1, Ordering::Release);
            return right;
        }
        let rank = node.rank(view, target, 1);
        let child = node.child(view, rank.up_to - 1);
        child.prefetch();
        let right = self.insert_below(child, target, version)?;
        self.put(node, rank.up_to, Item::of_node(right))
    }

    /// Inserts an item into a node at a position, splitting a full node; returns the new node.
    fn put<'a>(&'a self, node: &'a Node, position: usize, item: Item<'a>) -> Option<&'a Node> {
        if node.put(position, item) {
            return None;
        }
        let is_at_the_end = position == SLOTS && node.next().is_none();
        let keep = if is_at_the_end { SLOTS } else { SLOTS.div_ceil(2) };
        let goes_right = position > keep || is_at_the_end;
        let mut moved: Vec<_> = (keep..SLOTS).map(|from| node.item(from)).collect();
        if goes_right {
            moved.insert(position - keep, (item, prefix(item.low_key.key(), node.skip())));
        }
        let skip = prefix_skip(node, &moved);
        if skip != node.skip() {
            moved.iter_mut().for_each(|(item, short)| *short = prefix(item.low_key.key(), skip));
        }
        let right = node.new_right_sibling(&self.nodes, skip, &moved);
        node.split_off(keep, right);
        if !goes_right {
            let has_room = node.put(position, item);
            debug_assert!(has_room);
        }
        Some(right)
    }
}

/// Number of key bytes that a new right sibling of `node` with these items skips: as many as
/// `node`, unless neighbouring prefixes would be equal.
fn prefix_skip(node: &Node, items: &[(Item<'_>, u64)]) -> usize {
    let are_told_apart = items.windows(2).all(|pair| pair[0].1 < pair[1].1);
    let next = node.next().and_then(Node::low_key);
    match next.filter(|_| !are_told_apart) {
        Some(next) => {
            common_prefix_len(items[0].0.low_key.key(), next.key()).min(usize::from(u16::MAX))
        }
        None => node.skip(),
    }
}
