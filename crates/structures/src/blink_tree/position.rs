//! Positions of keys in leaves: search, next, previous.
//!
//! ```text
//!   leaf  [ b  d  f │ ·  · ] ─ next ─▶ [ h  k │ ·  ·  · ]
//!              ▲ position 1: f is next if the leaf is unchanged; otherwise search for a key > d
//! ```

use std::marker::PhantomData;
use std::ptr::NonNull;

use super::BLinkTree;
use super::entry::EntryRef;
use super::node::{Node, Rank, View};
use super::search_key::SearchKey;

/// The position of an entry in a leaf.
#[derive(Clone, Copy)]
pub(super) struct LeafPosition<'a> {
    pub(super) entry: EntryRef<'a>,
    /// Not a reference, because dropping a cursor may free the tree.
    leaf: NonNull<Node>,
    view: View,
    position: usize,
    tree: PhantomData<&'a Node>,
}

// SAFETY: what a position leads to may be shared, as a reference to it may.
unsafe impl Send for LeafPosition<'_> {}
// SAFETY: as for `Send`.
unsafe impl Sync for LeafPosition<'_> {}

impl<'a> LeafPosition<'a> {
    /// The entry at a position of a leaf; `None` if the view is outdated.
    fn at(leaf: &'a Node, view: View, position: usize) -> Option<Self> {
        let entry = leaf.entry(view, position);
        let (place, tree) = (NonNull::from(leaf), PhantomData);
        leaf.is_unchanged(view).then_some(LeafPosition { entry, leaf: place, view, position, tree })
    }

    /// The first entry of a leaf, if it has any.
    pub(super) fn first(leaf: &'a Node) -> Option<Self> {
        loop {
            let view = leaf.view();
            if view.count() == 0 {
                return None;
            }
            // Callers mostly iterate over the leaf, and continue in the next.
            leaf.prefetch_items(view);
            if let Some(pos) = LeafPosition::at(leaf, view, 0) {
                return Some(pos);
            }
        }
    }

    /// Finds the target, starting at a leaf that is the target's or to the left of it.
    #[inline]
    fn find(mut leaf: &'a Node, target: &SearchKey<'_>) -> Option<Self> {
        loop {
            let (found, view, rank) = search(leaf, target, false);
            leaf = found;
            if !rank.is_found {
                return None;
            }
            let pos = LeafPosition::at(leaf, view, rank.up_to - 1);
            if pos.is_some() {
                return pos;
            }
        }
    }

    /// The first key `>= target`, or `> target` if `strict`, starting at a leaf that is the
    /// target's or to the left of it.
    pub(super) fn first_from(
        mut leaf: &'a Node,
        target: &SearchKey<'_>,
        strict: bool,
    ) -> Option<Self> {
        loop {
            let (found, view, rank) = search(leaf, target, false);
            leaf = found;
            let position = if strict { rank.up_to } else { rank.below() };
            if position == view.count() {
                let next = leaf.next()?;
                if !next.starts_at_or_before(target, false) {
                    return LeafPosition::first(next);
                }
                // The leaf was split meanwhile.
                leaf = next.move_right(target, false).unwrap_or(next);
                continue;
            }
            if let Some(pos) = LeafPosition::at(leaf, view, position) {
                return Some(pos);
            }
        }
    }

    /// The last key `<= target`, or `< target` if `strict`, starting at a leaf that is the target's
    /// or to the left of it.
    pub(super) fn last_to(
        mut leaf: &'a Node,
        target: &SearchKey<'_>,
        strict: bool,
    ) -> Option<Self> {
        loop {
            let (found, view, rank) = search(leaf, target, strict);
            leaf = found;
            let position = if strict { rank.below() } else { rank.up_to };
            let pos = LeafPosition::at(leaf, view, position.checked_sub(1)?);
            if pos.is_some() {
                return pos;
            }
        }
    }

    /// The last key, starting at any leaf.
    pub(super) fn last(mut leaf: &'a Node) -> Option<Self> {
        loop {
            let view = leaf.view();
            if let Some(next) = leaf.next() {
                leaf = next;
                continue;
            }
            let pos = LeafPosition::at(leaf, view, view.count().checked_sub(1)?);
            if pos.is_some() {
                return pos;
            }
        }
    }

    /// The next key.
    pub(super) fn next(self) -> Option<Self> {
        let (leaf, position) = (self.leaf(), self.position + 1);
        if position < self.view.count() && leaf.view() == self.view {
            let pos = LeafPosition::at(leaf, self.view, position);
            if pos.is_some() {
                return pos;
            }
        }
        LeafPosition::first_from(leaf, &SearchKey::new(self.entry.key()), true)
    }

    /// The previous key, if it is in the same leaf and the leaf is unchanged.
    fn prev(self) -> Option<Self> {
        let position = self.position.checked_sub(1)?;
        let leaf = self.leaf();
        if leaf.view() == self.view { LeafPosition::at(leaf, self.view, position) } else { None }
    }

    fn leaf(self) -> &'a Node {
        // SAFETY: a node that was borrowed for `'a`, or one of a tree that is kept by the caller of
        // `detach`.
        unsafe { self.leaf.as_ref() }
    }

    /// The same position without a lifetime, for holders that keep the tree alive themselves.
    ///
    /// # Safety
    ///
    /// The result must not be used once the tree is dropped.
    pub(super) unsafe fn detach(self) -> LeafPosition<'static> {
        // SAFETY: guaranteed by the caller.
        let entry = unsafe { self.entry.detach() };
        LeafPosition {
            entry,
            leaf: self.leaf,
            view: self.view,
            position: self.position,
            tree: PhantomData,
        }
    }
}

/// The leaf of the target, starting at it or to the left of it; with a view of it and the rank.
#[inline]
fn search<'a>(mut leaf: &'a Node, target: &SearchKey<'_>, strict: bool) -> (&'a Node, View, Rank) {
    loop {
        let view = leaf.view();
        let rank = leaf.rank(view, target, 0);
        if !leaf.is_unchanged(view) {
            continue;
        }
        let is_inside = rank.is_found || rank.up_to < view.count();
        // Only then: the next leaf's low key is not in the CPU caches.
        match if is_inside { None } else { leaf.move_right(target, strict) } {
            Some(next) => leaf = next,
            None => return (leaf, view, rank),
        }
    }
}

impl BLinkTree {
    /// The target's leaf, or one to the left of it. With `strict`, the leaf of the last key below.
    #[inline]
    fn leaf(&self, target: &SearchKey<'_>, strict: bool) -> &Node {
        let mut node = self.root();
        while node.height() > 0 {
            node = child_for(node, target, strict);
            node.prefetch();
        }
        node
    }

    /// The entry of a key.
    #[inline]
    pub(super) fn find(&self, key: &[u8]) -> Option<EntryRef<'_>> {
        let target = SearchKey::new(key);
        LeafPosition::find(self.leaf(&target, false), &target).map(|pos| pos.entry)
    }

    pub(super) fn first(&self) -> Option<LeafPosition<'_>> {
        LeafPosition::first(self.leftmost())
    }

    pub(super) fn last(&self) -> Option<LeafPosition<'_>> {
        let mut node = self.root();
        while node.height() > 0 {
            node = loop {
                let view = node.view();
                let child = node.child(view, view.count() - 1);
                if node.is_unchanged(view) {
                    break node.next().unwrap_or(child);
                }
            };
        }
        LeafPosition::last(node)
    }

    pub(super) fn first_from(&self, key: &[u8]) -> Option<LeafPosition<'_>> {
        let target = SearchKey::new(key);
        LeafPosition::first_from(self.leaf(&target, false), &target, false)
    }

    pub(super) fn last_to(&self, key: &[u8], strict: bool) -> Option<LeafPosition<'_>> {
        let target = SearchKey::new(key);
        LeafPosition::last_to(self.leaf(&target, strict), &target, strict)
    }

    /// The position before `pos`.
    pub(super) fn prev<'a>(&'a self, pos: LeafPosition<'a>) -> Option<LeafPosition<'a>> {
        pos.prev().or_else(|| self.last_to(pos.entry.key(), true))
    }
}

/// The node in which a search at an inner node continues: a child, or one to the right.
#[inline]
fn child_for<'a>(node: &'a Node, target: &SearchKey<'_>, strict: bool) -> &'a Node {
    loop {
        let view = node.view();
        let rank = node.rank(view, target, 1);
        let position = if strict { rank.below() } else { rank.up_to };
        let child = node.child(view, position - 1);
        if !node.is_unchanged(view) {
            continue;
        }
        let right = if position == view.count() { node.move_right(target, strict) } else { None };
        return right.unwrap_or(child);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::collections::BTreeSet;
    use std::ops::Bound::{Excluded, Unbounded};

    use super::super::NewVersion;
    use super::*;

    const NEW: NewVersion<'_> =
        NewVersion { sequence: 1, kind: 1, expires_at: 0, position: 0, value: b"" };

    /// All nodes on the search path of a key, from the root down.
    fn path<'a>(tree: &'a BLinkTree, target: &SearchKey<'_>, strict: bool) -> Vec<&'a Node> {
        std::iter::successors(Some(tree.root()), |node| {
            (node.height() > 0).then(|| child_for(node, target, strict))
        })
        .collect()
    }

    /// Continues a search at a node, down to the leaf.
    fn descend<'a>(mut node: &'a Node, target: &SearchKey<'_>, strict: bool) -> &'a Node {
        while node.height() > 0 {
            node = child_for(node, target, strict);
        }
        node
    }

    #[test]
    fn delayed_search_gives_same_result() {
        const KEYS: u64 = if cfg!(miri) { 150 } else { 3000 };
        for prefix in [0, 3, 8, 11] {
            let tree = BLinkTree::new();
            let key = |i: u64| [&vec![b'p'; prefix][..], format!("{i:06}").as_bytes()].concat();
            let order = |i: u64| i * 7919 % KEYS;
            let mut present = BTreeSet::new();
            let mut insert = |from: u64, to: u64| {
                for i in from..to {
                    tree.insert(&key(order(i)), NEW);
                    present.insert(key(order(i)));
                }
            };
            // Search for keys that exist then, and for others.
            insert(0, KEYS / 50);
            let paths: Vec<_> = (0..KEYS)
                .map(|i| {
                    let (key, strict) = (key(i), i % 2 == 0);
                    let target = SearchKey::new(&key);
                    let path = path(&tree, &target, strict);
                    (key, strict, path)
                })
                .collect();
            insert(KEYS / 50, KEYS * 9 / 10);
            let key_of = |pos: Option<LeafPosition<'_>>| pos.map(|pos| pos.entry.key().to_vec());
            for (key, strict, path) in &paths {
                let target = SearchKey::new(key);
                for &node in path {
                    let leaf = descend(node, &target, *strict);
                    let at_least = present.range::<Vec<u8>, _>(key..).next();
                    let above = present.range::<Vec<u8>, _>((Excluded(key), Unbounded)).next();
                    let below = present.range::<Vec<u8>, _>(..key).next_back();
                    let at_most = present.range::<Vec<u8>, _>(..=key).next_back();
                    if *strict {
                        assert_eq!(
                            key_of(LeafPosition::last_to(leaf, &target, true)).as_ref(),
                            below
                        );
                        continue;
                    }
                    assert_eq!(
                        key_of(LeafPosition::find(leaf, &target)).as_ref(),
                        present.get(key)
                    );
                    assert_eq!(
                        key_of(LeafPosition::first_from(leaf, &target, false)).as_ref(),
                        at_least
                    );
                    assert_eq!(
                        key_of(LeafPosition::first_from(leaf, &target, true)).as_ref(),
                        above
                    );
                    assert_eq!(
                        key_of(LeafPosition::last_to(leaf, &target, false)).as_ref(),
                        at_most
                    );
                }
            }
        }
    }
}
