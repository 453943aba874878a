//! A key's place in a leaf, and the way to the places beside it.
//!
//! ```text
//!   leaf  [ b  d  f │ ·  · ] ─ next ─▶ [ h  k │ ·  ·  · ]
//!              ▲ position 1: f is next, if the leaf is as it was; else the first behind d, here or further right
//! ```
//!
//! Searches of the leaves are here, too: each ends at a spot, or at none.
//!
//! Source: ours.

use std::marker::PhantomData;
use std::ptr::NonNull;

use super::BLinkTree;
use super::entry::EntryRef;
use super::node::{Node, Rank, View};
use super::probe::Probe;

/// The place of an entry.
#[derive(Clone, Copy)]
pub(super) struct Spot<'a> {
    pub(super) entry: EntryRef<'a>,
    /// Not a reference: a cursor that is dropped may take the tree with it.
    leaf: NonNull<Node>,
    view: View,
    position: usize,
    tree: PhantomData<&'a Node>,
}

// SAFETY: what a spot leads to may be shared, as a reference to it may.
unsafe impl Send for Spot<'_> {}
// SAFETY: as for `Send`.
unsafe impl Sync for Spot<'_> {}

impl<'a> Spot<'a> {
    /// What is at a position of a leaf; `None` if the view holds no more.
    fn at(leaf: &'a Node, view: View, position: usize) -> Option<Self> {
        let entry = leaf.entry(view, position);
        let (place, tree) = (NonNull::from(leaf), PhantomData);
        leaf.holds(view).then_some(Spot { entry, leaf: place, view, position, tree })
    }

    /// The first of a leaf, if it has any.
    pub(super) fn first(leaf: &'a Node) -> Option<Self> {
        loop {
            let view = leaf.view();
            if view.count() == 0 {
                return None;
            }
            // Who is here mostly goes through the leaf, and on to the next.
            leaf.prefetch_items(view);
            if let Some(spot) = Spot::at(leaf, view, 0) {
                return Some(spot);
            }
        }
    }

    /// The key searched for, from a leaf on that it is in or to the right of.
    #[inline]
    fn find(mut leaf: &'a Node, probe: &Probe<'_>) -> Option<Self> {
        loop {
            let (found, view, rank) = search(leaf, probe, false);
            leaf = found;
            if !rank.is_found {
                return None;
            }
            let spot = Spot::at(leaf, view, rank.up_to - 1);
            if spot.is_some() {
                return spot;
            }
        }
    }

    /// The first key of at least the one searched for, or behind it if `strict`, from a leaf on that it is in or
    /// to the right of.
    pub(super) fn first_from(mut leaf: &'a Node, probe: &Probe<'_>, strict: bool) -> Option<Self> {
        loop {
            let (found, view, rank) = search(leaf, probe, false);
            leaf = found;
            let position = if strict { rank.up_to } else { rank.below() };
            if position == view.count() {
                let next = leaf.next()?;
                if !next.is_for(probe, false) {
                    return Spot::first(next);
                }
                // Split meanwhile.
                leaf = next.onward(probe, false).unwrap_or(next);
                continue;
            }
            if let Some(spot) = Spot::at(leaf, view, position) {
                return Some(spot);
            }
        }
    }

    /// The last key of at most the one searched for, or below it if `strict`, from a leaf on that it is in or to
    /// the right of.
    pub(super) fn last_to(mut leaf: &'a Node, probe: &Probe<'_>, strict: bool) -> Option<Self> {
        loop {
            let (found, view, rank) = search(leaf, probe, strict);
            leaf = found;
            let position = if strict { rank.below() } else { rank.up_to };
            let spot = Spot::at(leaf, view, position.checked_sub(1)?);
            if spot.is_some() {
                return spot;
            }
        }
    }

    /// The last key from a leaf on.
    pub(super) fn last(mut leaf: &'a Node) -> Option<Self> {
        loop {
            let view = leaf.view();
            if let Some(next) = leaf.next() {
                leaf = next;
                continue;
            }
            let spot = Spot::at(leaf, view, view.count().checked_sub(1)?);
            if spot.is_some() {
                return spot;
            }
        }
    }

    /// The key behind this one.
    pub(super) fn next(self) -> Option<Self> {
        let (leaf, position) = (self.leaf(), self.position + 1);
        if position < self.view.count() && leaf.view() == self.view {
            let spot = Spot::at(leaf, self.view, position);
            if spot.is_some() {
                return spot;
            }
        }
        Spot::first_from(leaf, &Probe::new(self.entry.key()), true)
    }

    /// The key before this one, if it is in the same leaf and that is as it was.
    fn before(self) -> Option<Self> {
        let position = self.position.checked_sub(1)?;
        let leaf = self.leaf();
        if leaf.view() == self.view { Spot::at(leaf, self.view, position) } else { None }
    }

    fn leaf(self) -> &'a Node {
        // SAFETY: a node that was borrowed for `'a`, or one of a tree that is kept by who detached the spot.
        unsafe { self.leaf.as_ref() }
    }

    /// The same spot without a lifetime, for holders that keep the tree alive themselves.
    ///
    /// # Safety
    ///
    /// The result must not be used once the tree is dropped.
    pub(super) unsafe fn detach(self) -> Spot<'static> {
        // SAFETY: the caller's word.
        let entry = unsafe { self.entry.detach() };
        Spot { entry, leaf: self.leaf, view: self.view, position: self.position, tree: PhantomData }
    }
}

/// The leaf of a key, from one on that it is in or to the right of, as it was seen, and where the key stands in it.
#[inline]
fn search<'a>(mut leaf: &'a Node, probe: &Probe<'_>, strict: bool) -> (&'a Node, View, Rank) {
    loop {
        let view = leaf.view();
        let rank = leaf.rank(view, probe, 0);
        if !leaf.holds(view) {
            continue;
        }
        let is_inside = rank.is_found || rank.up_to < view.count();
        // Only then: the next leaf's key is not in the caches.
        match if is_inside { None } else { leaf.onward(probe, strict) } {
            Some(next) => leaf = next,
            None => return (leaf, view, rank),
        }
    }
}

impl BLinkTree {
    /// The leaf that a key is in, or one to the left of it. With `strict`, the leaf of the last key below.
    #[inline]
    fn leaf(&self, probe: &Probe<'_>, strict: bool) -> &Node {
        let mut node = self.root();
        while node.height() > 0 {
            node = toward(node, probe, strict);
            node.prefetch();
        }
        node
    }

    /// The entry of a key.
    #[inline]
    pub(super) fn find(&self, key: &[u8]) -> Option<EntryRef<'_>> {
        let probe = Probe::new(key);
        Spot::find(self.leaf(&probe, false), &probe).map(|spot| spot.entry)
    }

    pub(super) fn first(&self) -> Option<Spot<'_>> {
        Spot::first(self.leftmost())
    }

    pub(super) fn last(&self) -> Option<Spot<'_>> {
        let mut node = self.root();
        while node.height() > 0 {
            node = loop {
                let view = node.view();
                let child = node.child(view, view.count() - 1);
                if node.holds(view) {
                    break node.next().unwrap_or(child);
                }
            };
        }
        Spot::last(node)
    }

    pub(super) fn first_from(&self, key: &[u8]) -> Option<Spot<'_>> {
        let probe = Probe::new(key);
        Spot::first_from(self.leaf(&probe, false), &probe, false)
    }

    pub(super) fn last_to(&self, key: &[u8], strict: bool) -> Option<Spot<'_>> {
        let probe = Probe::new(key);
        Spot::last_to(self.leaf(&probe, strict), &probe, strict)
    }

    /// The spot before one of this tree.
    pub(super) fn before<'a>(&'a self, spot: Spot<'a>) -> Option<Spot<'a>> {
        spot.before().or_else(|| self.last_to(spot.entry.key(), true))
    }
}

/// From a node above others, the one where the search goes on: below, or to the right.
#[inline]
fn toward<'a>(node: &'a Node, probe: &Probe<'_>, strict: bool) -> &'a Node {
    loop {
        let view = node.view();
        let rank = node.rank(view, probe, 1);
        let position = if strict { rank.below() } else { rank.up_to };
        let child = node.child(view, position - 1);
        if !node.holds(view) {
            continue;
        }
        let onward = if position == view.count() { node.onward(probe, strict) } else { None };
        return onward.unwrap_or(child);
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

    /// All nodes that a search for a key passes, from the root down.
    fn path<'a>(tree: &'a BLinkTree, probe: &Probe<'_>, strict: bool) -> Vec<&'a Node> {
        std::iter::successors(Some(tree.root()), |node| {
            (node.height() > 0).then(|| toward(node, probe, strict))
        })
        .collect()
    }

    /// From a node that a search was at, down to the leaf.
    fn down<'a>(mut node: &'a Node, probe: &Probe<'_>, strict: bool) -> &'a Node {
        while node.height() > 0 {
            node = toward(node, probe, strict);
        }
        node
    }

    #[test]
    fn does_a_search_that_was_held_up_end_where_one_does_that_was_not() {
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
            // Of all keys, those that are there by then and those that are not.
            insert(0, KEYS / 50);
            let paths: Vec<_> = (0..KEYS)
                .map(|i| {
                    let (key, strict) = (key(i), i % 2 == 0);
                    let probe = Probe::new(&key);
                    let path = path(&tree, &probe, strict);
                    (key, strict, path)
                })
                .collect();
            insert(KEYS / 50, KEYS * 9 / 10);
            let key_of = |spot: Option<Spot<'_>>| spot.map(|spot| spot.entry.key().to_vec());
            for (key, strict, path) in &paths {
                let probe = Probe::new(key);
                for &node in path {
                    let leaf = down(node, &probe, *strict);
                    let at_least = present.range::<Vec<u8>, _>(key..).next();
                    let above = present.range::<Vec<u8>, _>((Excluded(key), Unbounded)).next();
                    let below = present.range::<Vec<u8>, _>(..key).next_back();
                    let at_most = present.range::<Vec<u8>, _>(..=key).next_back();
                    if *strict {
                        assert_eq!(key_of(Spot::last_to(leaf, &probe, true)).as_ref(), below);
                        continue;
                    }
                    assert_eq!(key_of(Spot::find(leaf, &probe)).as_ref(), present.get(key));
                    assert_eq!(key_of(Spot::first_from(leaf, &probe, false)).as_ref(), at_least);
                    assert_eq!(key_of(Spot::first_from(leaf, &probe, true)).as_ref(), above);
                    assert_eq!(key_of(Spot::last_to(leaf, &probe, false)).as_ref(), at_most);
                }
            }
        }
    }
}
