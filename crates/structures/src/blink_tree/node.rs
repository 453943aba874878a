//! A node: up to fourteen slots in four cache lines, with lock-free reads beside one writer.
//!
//! ```text
//!   byte 0  permutation  8  which slots are filled, in which order (`permutation.rs`)
//!        8  splits       4  number of splits
//!       12  skip         2  bytes common to all keys, omitted from prefixes (`search_key.rs`)
//!       14  height       1  0 in a leaf
//!       16  next         8  the right sibling
//!       24  low key      8  the entry of the least key below; null in the leftmost node
//!       32  prefixes 14 × 8  of the slots' keys
//!      144  items    14 × 8  entries in a leaf; otherwise child nodes, whose key is their low key
//!      256
//! ```
//!
//! A slot is filled first, then published by one store of the permutation. A split writes the new
//! node completely, links it as `next`, removes the upper half from the permutation, increments
//! `splits`, and only then may slots of that half be reused. So if a reader finds `splits`
//! unchanged, it has read the slots that its permutation named (a [`View`]); otherwise it retries.
//! A reader of a node from which its key has moved continues to the right.
//!
//! Invariant: a node's keys are at least its low key, which is the first of them, and below the low
//! key of `next`. All keys between its low key and the low key of the `next` with which it was
//! created start with the bytes that it skips, and only such keys are searched for in it.
//!
//! Source: Lehman, Yao, "Efficient locking for concurrent operations on B-trees" (B-link trees),
//! TODS 1981; Masstree, EuroSys 2012, for permutations and optimistic readers.

use std::cmp::Ordering::{Equal, Greater, Less};

use super::entry::EntryRef;
use super::permutation::{Permutation, SLOTS};
use super::search_key::{SearchKey, prefix};
use crate::arena::{ALIGN, Arena};
use crate::sync::{AtomicPtr, AtomicU32, AtomicU64, Ordering, PublishedCell};

/// A cache line, in bytes.
const LINE_BYTES: usize = 64;

/// A node. The nodes of a tree are in one arena and live as long as the tree.
#[repr(C)]
pub(super) struct Node {
    permutation: AtomicU64,
    splits: AtomicU32,
    skip: PublishedCell<u16>,
    height: PublishedCell<u8>,
    next: AtomicPtr<Node>,
    low_key: PublishedCell<LowKey>,
    prefixes: [AtomicU64; SLOTS],
    items: [AtomicPtr<u8>; SLOTS],
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<Node>() == 4 * LINE_BYTES);
const _: () = assert!(align_of::<Node>() <= ALIGN);

/// The address of an entry, or null.
#[derive(Clone, Copy)]
struct LowKey(*mut u8);

// SAFETY: entries may be shared, and the address of one is held by a node that is kept as long.
unsafe impl Send for LowKey {}
// SAFETY: as for `Send`.
unsafe impl Sync for LowKey {}

/// A consistent view of a node's slots.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct View {
    splits: u32,
    permutation: Permutation,
}

impl View {
    /// Number of filled slots.
    #[inline]
    pub(super) fn count(self) -> usize {
        self.permutation.count()
    }
}

/// The rank of a key in a node.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rank {
    /// Number of keys less than or equal to the search key.
    pub(super) up_to: usize,
    /// Whether the last of these is the search key.
    pub(super) is_found: bool,
}

impl Rank {
    /// Number of keys less than the search key.
    #[inline]
    pub(super) fn below(self) -> usize {
        self.up_to - usize::from(self.is_found)
    }
}

/// The contents of a slot, with its key.
#[derive(Clone, Copy)]
pub(super) struct Item<'a> {
    pub(super) address: *mut u8,
    pub(super) low_key: EntryRef<'a>,
}

impl<'a> Item<'a> {
    /// For a leaf.
    pub(super) fn of_entry(entry: EntryRef<'a>) -> Self {
        Item { address: entry.address(), low_key: entry }
    }

    /// For an inner node; the child must not be leftmost, as that has no low key.
    pub(super) fn of_node(node: &'a Node) -> Self {
        let low_key = node.low_key().expect("a node created by a split has a low key");
        Item { address: std::ptr::from_ref(node).cast_mut().cast(), low_key }
    }
}

impl Node {
    /// Allocates the root of an otherwise empty level: a leaf that is the whole tree, or an inner
    /// node above `child`.
    pub(super) fn root(arena: &Arena, child: Option<&Node>) -> *mut Node {
        let height = child.map_or(0, |child| child.height() + 1);
        let mut node = Node::empty(0, height, std::ptr::null_mut(), None);
        if let Some(child) = child {
            // Its key is never compared.
            node.items[0] = AtomicPtr::new(std::ptr::from_ref(child).cast_mut().cast());
            node.permutation = AtomicU64::new(Permutation::of_first(1).word());
        }
        node.write(arena)
    }

    /// Allocates a right sibling with `items`, at least one, of this node.
    pub(super) fn new_right_sibling<'a>(
        &'a self,
        arena: &'a Arena,
        skip: usize,
        items: &[(Item<'a>, u64)],
    ) -> &'a Node {
        let skip = u16::try_from(skip).expect("skip is at most u16::MAX");
        let next = self.next.load(Ordering::Relaxed);
        let mut node = Node::empty(skip, self.height(), next, Some(items[0].0.low_key));
        for (slot, (item, prefix)) in items.iter().enumerate() {
            node.prefixes[slot] = AtomicU64::new(*prefix);
            node.items[slot] = AtomicPtr::new(item.address);
        }
        node.permutation = AtomicU64::new(Permutation::of_first(items.len()).word());
        // SAFETY: written right there, and kept as long as the arena.
        unsafe { &*node.write(arena) }
    }

    fn empty(skip: u16, height: u8, next: *mut Node, low: Option<EntryRef<'_>>) -> Self {
        Node {
            permutation: AtomicU64::new(Permutation::of_first(0).word()),
            splits: AtomicU32::new(0),
            skip: PublishedCell::new(skip),
            height: PublishedCell::new(height),
            next: AtomicPtr::new(next),
            low_key: PublishedCell::new(LowKey(
                low.map_or(std::ptr::null_mut(), EntryRef::address),
            )),
            prefixes: std::array::from_fn(|_| AtomicU64::new(0)),
            items: std::array::from_fn(|_| AtomicPtr::new(std::ptr::null_mut())),
        }
    }

    fn write(self, arena: &Arena) -> *mut Node {
        let place = arena.allocate(size_of::<Node>()).cast::<Node>();
        // SAFETY: the arena gave these bytes to us alone, aligned to `ALIGN`.
        unsafe { place.write(self) };
        place.as_ptr()
    }

    #[inline]
    pub(super) fn height(&self) -> u8 {
        self.height.get()
    }

    #[inline]
    pub(super) fn skip(&self) -> usize {
        usize::from(self.skip.get())
    }

    /// The least key below; `None` in the leftmost node.
    #[inline]
    pub(super) fn low_key(&self) -> Option<EntryRef<'_>> {
        // SAFETY: null or an entry's, written before this node was published; entries live as long
        // as nodes.
        unsafe { EntryRef::at(self.low_key.get().0) }
    }

    /// The right sibling.
    #[inline]
    pub(super) fn next(&self) -> Option<&Node> {
        // SAFETY: null or a node of the same arena that was written in full before it was linked.
        unsafe { self.next.load(Ordering::Acquire).as_ref() }
    }

    /// The last node to the right whose low key is at or before the target, if any. The nodes in
    /// between must not be searched: the target need not start with the bytes that they skip.
    #[inline]
    pub(super) fn move_right(&self, target: &SearchKey<'_>, strict: bool) -> Option<&Node> {
        let mut found = None;
        while let Some(next) =
            found.unwrap_or(self).next().filter(|next| next.starts_at_or_before(target, strict))
        {
            found = Some(next);
        }
        found
    }

    /// Whether the low key is `<= target`, or `< target` if `strict`: then a search that has come
    /// to this node continues here or to the right.
    pub(super) fn starts_at_or_before(&self, target: &SearchKey<'_>, strict: bool) -> bool {
        match self.low_key().map(|low| low.key().cmp(target.key)) {
            Some(Less) | None => true,
            Some(Equal) => !strict,
            Some(Greater) => false,
        }
    }

    /// A view of the slots that are filled now.
    #[inline]
    pub(super) fn view(&self) -> View {
        // In this order: a reader that sees a split's count also sees its permutation.
        let splits = self.splits.load(Ordering::Acquire);
        View {
            splits,
            permutation: Permutation::from_word(self.permutation.load(Ordering::Acquire)),
        }
    }

    /// Whether the slots read since `view` were those that it names.
    #[inline]
    pub(super) fn is_unchanged(&self, view: View) -> bool {
        // Relaxed: the loads of the slots, which acquire, come before.
        self.splits.load(Ordering::Relaxed) == view.splits
    }

    /// The rank of a key among those from position `from` on. Valid only if the view is unchanged
    /// afterwards.
    #[inline]
    pub(super) fn rank(&self, view: View, target: &SearchKey<'_>, from: usize) -> Rank {
        let prefix = target.prefix(self.skip());
        let (mut up_to, mut rest) = (from, view.count() - from);
        // Binary search without branches that depend on the keys.
        while rest > 1 {
            let half = rest / 2;
            up_to += if self.prefix(view, up_to + half - 1) <= prefix { half } else { 0 };
            rest -= half;
        }
        up_to += usize::from(rest == 1 && self.prefix(view, up_to) <= prefix);
        if up_to == from || self.prefix(view, up_to - 1) != prefix {
            return Rank { up_to, is_found: false };
        }
        self.rank_equal_prefixes(view, target, from, up_to)
    }

    /// The same if prefixes are equal: the last keys of `from..to` have the target's prefix.
    fn rank_equal_prefixes(
        &self,
        view: View,
        target: &SearchKey<'_>,
        from: usize,
        to: usize,
    ) -> Rank {
        let prefix = target.prefix(self.skip());
        let (mut from, mut to) = (from, to);
        // The key is not before `from`, and before `to`.
        while from < to {
            let middle = from + (to - from) / 2;
            let order = match self.prefix(view, middle).cmp(&prefix) {
                Equal => self.key(view, middle).cmp(target.key),
                unequal => unequal,
            };
            match order {
                Less => from = middle + 1,
                Equal => return Rank { up_to: middle + 1, is_found: true },
                Greater => to = middle,
            }
        }
        Rank { up_to: from, is_found: false }
    }

    #[inline]
    fn prefix(&self, view: View, position: usize) -> u64 {
        self.prefixes[view.permutation.slot(position)].load(Ordering::Acquire)
    }

    /// The item at a position. Valid only if the view is unchanged afterwards.
    #[inline]
    fn address(&self, view: View, position: usize) -> *mut u8 {
        self.items[view.permutation.slot(position)].load(Ordering::Acquire)
    }

    /// The key at a position, which must not be the first of the leftmost inner node.
    fn key(&self, view: View, position: usize) -> &[u8] {
        self.low_key_at(view, position).expect("only the leftmost node has no low key").key()
    }

    fn low_key_at(&self, view: View, position: usize) -> Option<EntryRef<'_>> {
        if self.height() == 0 {
            Some(self.entry(view, position))
        } else {
            self.child(view, position).low_key()
        }
    }

    /// The entry at a position of a leaf. Valid only if the view is unchanged afterwards.
    #[inline]
    pub(super) fn entry(&self, view: View, position: usize) -> EntryRef<'_> {
        debug_assert_eq!(self.height(), 0);
        // SAFETY: a leaf's slots hold entries, stored after these were written and acquired here; a
        // slot that was reused meanwhile holds another. All live as long as nodes do.
        unsafe { EntryRef::at(self.address(view, position)) }
            .expect("a slot is filled before it is published")
    }

    /// The child at a position of an inner node. Valid only if the view is unchanged afterwards.
    #[inline]
    pub(super) fn child(&self, view: View, position: usize) -> &Node {
        debug_assert_ne!(self.height(), 0);
        let address = self.address(view, position).cast::<Node>();
        // SAFETY: as in `entry`, of nodes.
        unsafe { address.as_ref() }.expect("a slot is filled before it is published")
    }

    /// The item at a position with its prefix. For the writer.
    pub(super) fn item(&self, position: usize) -> (Item<'_>, u64) {
        let view = self.view();
        let low_key = self.low_key_at(view, position);
        let low_key = low_key.expect("the first child of the leftmost node is never moved");
        (Item { address: self.address(view, position), low_key }, self.prefix(view, position))
    }

    /// Inserts an item at a position; returns `false` if the node is full. For the writer.
    pub(super) fn put(&self, position: usize, item: Item<'_>) -> bool {
        let permutation = self.view().permutation;
        if permutation.count() == SLOTS {
            return false;
        }
        let (permutation, slot) = permutation.insert(position);
        // Release: a reader that sees a reused slot also sees the count of the split that freed it.
        self.prefixes[slot].store(prefix(item.low_key.key(), self.skip()), Ordering::Release);
        self.items[slot].store(item.address, Ordering::Release);
        // Release: a reader of the permutation sees the slot's contents.
        self.permutation.store(permutation.word(), Ordering::Release);
        true
    }

    /// Moves everything from position `keep >= 1` on to `right`, which has it already. For the
    /// writer.
    pub(super) fn split_off(&self, keep: usize, right: &Node) {
        let kept = self.view().permutation.truncate(keep);
        // In this order: see above.
        self.next.store(std::ptr::from_ref(right).cast_mut(), Ordering::Release);
        self.permutation.store(kept.word(), Ordering::Release);
        let splits = self.splits.load(Ordering::Relaxed).wrapping_add(1);
        self.splits.store(splits, Ordering::Release);
    }

    /// Prefetches the node.
    #[inline]
    pub(super) fn prefetch(&self) {
        (0..size_of::<Node>() / LINE_BYTES)
            .for_each(|line| prefetch(std::ptr::from_ref(self), line));
    }

    /// Prefetches a leaf's entries, up to their first versions, and the next leaf.
    pub(super) fn prefetch_items(&self, view: View) {
        for position in 0..view.count() {
            let entry = self.address(view, position);
            (0..2).for_each(|line| prefetch(entry, line));
        }
        self.next().into_iter().for_each(Node::prefetch);
    }
}

/// Prefetches the cache line number `line` after `place`.
#[inline]
fn prefetch<T>(place: *const T, line: usize) {
    crate::prefetch(place.cast::<u8>().wrapping_add(line * LINE_BYTES));
}
