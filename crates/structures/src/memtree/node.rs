//! A node of the tree: up to fourteen slots in four cache lines, read without locks beside the one writer.
//!
//! ```text
//!   byte 0  permutation  8  which slots are filled, in which order (`permutation.rs`)
//!        8  splits       4  how often the upper half has moved to a new node
//!       12  skip         2  bytes that all keys below begin with, and words leave out (`probe.rs`)
//!       14  height       1  0 in a leaf
//!       16  next         8  the node to the right, in which keys go on
//!       24  low          8  the entry of the least key below; null for none, in the leftmost node
//!       32  words   14 × 8  of each slot's key
//!      144  items   14 × 8  in a leaf entries, above it nodes, whose key is their `low`
//!      256
//! ```
//!
//! A slot is filled first and then made known by one store of the permutation. A split writes the new node in full,
//! links it as `next`, takes the upper half out of the permutation, counts itself, and only then may slots
//! of that half be filled anew: so a reader that finds the count as it was before has read the slots that
//! its permutation named (a [`View`]), and one that does not looks again. A reader who comes to a node from which
//! its key has moved goes on to the right.
//!
//! Invariant: a node's keys are at least its `low`, and that is the first of them, and below the `low` of the next;
//! what a node skips, all keys begin with that lie between its `low` and that of the `next` it was made with, and a
//! search looks for no others in it.
//!
//! Source: Lehman, Yao, "Efficient locking for concurrent operations on B-trees" (B-link trees), TODS 1981; Masstree,
//! EuroSys 2012, for permutations and for readers that look again.

use std::cmp::Ordering::{Equal, Greater, Less};

use super::entry::EntryRef;
use super::permutation::{Permutation, SLOTS};
use super::probe::{Probe, word};
use crate::arena::{ALIGN, Arena};
use crate::sync::{AtomicPtr, AtomicU32, AtomicU64, Ordering, Published};

/// A cache line, in bytes.
const LINE: usize = 64;

/// A node; those of one tree lie in one arena and live as long as the tree.
#[repr(C)]
pub(super) struct Node {
    permutation: AtomicU64,
    splits: AtomicU32,
    skip: Published<u16>,
    height: Published<u8>,
    next: AtomicPtr<Node>,
    low: Published<Low>,
    words: [AtomicU64; SLOTS],
    items: [AtomicPtr<u8>; SLOTS],
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<Node>() == 4 * LINE);
const _: () = assert!(align_of::<Node>() <= ALIGN);

/// The address of an entry, or null.
#[derive(Clone, Copy)]
struct Low(*mut u8);

// SAFETY: entries may be shared, and who has the address of one has a node that is kept as long as it.
unsafe impl Send for Low {}
// SAFETY: as for `Send`.
unsafe impl Sync for Low {}

/// What a reader has seen of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct View {
    splits: u32,
    permutation: Permutation,
}

impl View {
    /// How many slots are filled.
    #[inline]
    pub(super) fn count(self) -> usize {
        self.permutation.count()
    }
}

/// Where a key stands in a node.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rank {
    /// How many keys are at most the one searched for.
    pub(super) up_to: usize,
    /// The last of these is the one searched for.
    pub(super) is_found: bool,
}

impl Rank {
    /// How many keys are less.
    #[inline]
    pub(super) fn below(self) -> usize {
        self.up_to - usize::from(self.is_found)
    }
}

/// A slot's key, as a word and in full, and what is in it.
#[derive(Clone, Copy)]
pub(super) struct Item<'a> {
    pub(super) address: *mut u8,
    pub(super) low: EntryRef<'a>,
}

impl<'a> Item<'a> {
    /// Of a leaf.
    pub(super) fn of_entry(entry: EntryRef<'a>) -> Self {
        Item { address: entry.address(), low: entry }
    }

    /// Of a node above others; not of the leftmost, which nothing comes before.
    pub(super) fn of_node(node: &'a Node) -> Self {
        let low = node.low().expect("a node that a split has made begins with a key");
        Item { address: std::ptr::from_ref(node).cast_mut().cast(), low }
    }
}

impl Node {
    /// Writes a node into the arena that has nothing below it yet: a leaf that is the whole tree, or a root
    /// above `child`.
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

    /// Writes the node into the arena that takes `items`, of which there is one at least, from this one.
    pub(super) fn beside<'a>(
        &'a self,
        arena: &'a Arena,
        skip: usize,
        items: &[(Item<'a>, u64)],
    ) -> &'a Node {
        let skip = u16::try_from(skip).expect("no more is skipped than fits");
        let next = self.next.load(Ordering::Relaxed);
        let mut node = Node::empty(skip, self.height(), next, Some(items[0].0.low));
        for (slot, (item, word)) in items.iter().enumerate() {
            node.words[slot] = AtomicU64::new(*word);
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
            skip: Published::new(skip),
            height: Published::new(height),
            next: AtomicPtr::new(next),
            low: Published::new(Low(low.map_or(std::ptr::null_mut(), EntryRef::address))),
            words: std::array::from_fn(|_| AtomicU64::new(0)),
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

    /// The least key below; none in the leftmost node.
    #[inline]
    pub(super) fn low(&self) -> Option<EntryRef<'_>> {
        // SAFETY: null or an entry's, written before this node was published; entries live as long as nodes.
        unsafe { EntryRef::at(self.low.get().0) }
    }

    /// The node to the right.
    #[inline]
    pub(super) fn next(&self) -> Option<&Node> {
        // SAFETY: null or a node of the same arena that was written in full before it was linked.
        unsafe { self.next.load(Ordering::Acquire).as_ref() }
    }

    /// The node further right where a search goes on, if it does: the last that is for it. To those between it must not
    /// look: what they skip, its key need not begin with.
    #[inline]
    pub(super) fn onward(&self, probe: &Probe<'_>, strict: bool) -> Option<&Node> {
        let mut found = None;
        while let Some(next) =
            found.unwrap_or(self).next().filter(|next| next.is_for(probe, strict))
        {
            found = Some(next);
        }
        found
    }

    /// Whether a search that has come to this node is for it, or for one to its right, and not for one before: a search for
    /// the last key less than `probe` if it is `strict`, else for the last of at most that.
    pub(super) fn is_for(&self, probe: &Probe<'_>, strict: bool) -> bool {
        match self.low().map(|low| low.key().cmp(probe.key)) {
            Some(Less) | None => true,
            Some(Equal) => !strict,
            Some(Greater) => false,
        }
    }

    /// The slots that are filled now.
    #[inline]
    pub(super) fn view(&self) -> View {
        // In this order: a count that is seen with a split in it is seen with the permutation after it.
        let splits = self.splits.load(Ordering::Acquire);
        View {
            splits,
            permutation: Permutation::from_word(self.permutation.load(Ordering::Acquire)),
        }
    }

    /// Whether what was read of slots since `view` is what it named.
    #[inline]
    pub(super) fn holds(&self, view: View) -> bool {
        // Relaxed: the loads of the slots, which acquire, come before.
        self.splits.load(Ordering::Relaxed) == view.splits
    }

    /// Where a key stands among those from position `from` on, which is at most the count. Of use only if the view
    /// holds afterwards.
    #[inline]
    pub(super) fn rank(&self, view: View, probe: &Probe<'_>, from: usize) -> Rank {
        let sought = probe.word(self.skip());
        let (mut up_to, mut rest) = (from, view.count() - from);
        // Without branches that depend on the keys.
        while rest > 1 {
            let half = rest / 2;
            up_to += if self.word(view, up_to + half - 1) <= sought { half } else { 0 };
            rest -= half;
        }
        up_to += usize::from(rest == 1 && self.word(view, up_to) <= sought);
        if up_to == from || self.word(view, up_to - 1) != sought {
            return Rank { up_to, is_found: false };
        }
        self.rank_alike(view, probe, from, up_to)
    }

    /// The same where words say nothing: of the keys from `from` to `to` the last have the word that is sought.
    fn rank_alike(&self, view: View, probe: &Probe<'_>, from: usize, to: usize) -> Rank {
        let sought = probe.word(self.skip());
        let (mut from, mut to) = (from, to);
        // Between `from`, which is not behind the key, and `to`, which is.
        while from < to {
            let middle = from + (to - from) / 2;
            let order = match self.word(view, middle).cmp(&sought) {
                Equal => self.key(view, middle).cmp(probe.key),
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
    fn word(&self, view: View, position: usize) -> u64 {
        self.words[view.permutation.slot(position)].load(Ordering::Acquire)
    }

    /// What is at a position. Of use only if the view holds afterwards.
    #[inline]
    fn address(&self, view: View, position: usize) -> *mut u8 {
        self.items[view.permutation.slot(position)].load(Ordering::Acquire)
    }

    /// The key at a position, of which it is known that it is not the first of the leftmost node above others.
    fn key(&self, view: View, position: usize) -> &[u8] {
        self.low_at(view, position).expect("only what nothing comes before is without a key").key()
    }

    fn low_at(&self, view: View, position: usize) -> Option<EntryRef<'_>> {
        if self.height() == 0 {
            Some(self.entry(view, position))
        } else {
            self.child(view, position).low()
        }
    }

    /// The entry at a position of a leaf. Of use only if the view holds afterwards.
    #[inline]
    pub(super) fn entry(&self, view: View, position: usize) -> EntryRef<'_> {
        debug_assert_eq!(self.height(), 0);
        // SAFETY: a leaf's slots hold entries, stored after these were written and acquired here; a slot that was
        // filled anew meanwhile holds another. All live as long as nodes do.
        unsafe { EntryRef::at(self.address(view, position)) }
            .expect("a slot is filled before it is named")
    }

    /// The node at a position of one above others. Of use only if the view holds afterwards.
    #[inline]
    pub(super) fn child(&self, view: View, position: usize) -> &Node {
        debug_assert_ne!(self.height(), 0);
        let address = self.address(view, position).cast::<Node>();
        // SAFETY: as in `entry`, of nodes.
        unsafe { address.as_ref() }.expect("a slot is filled before it is named")
    }

    /// What is at a position, with its key and its word. For the writer.
    pub(super) fn item(&self, position: usize) -> (Item<'_>, u64) {
        let view = self.view();
        let low = self.low_at(view, position);
        let low = low.expect("the first of the leftmost node stays where it is");
        (Item { address: self.address(view, position), low }, self.word(view, position))
    }

    /// Puts an item at a position, if there is room; `false` if not. For the writer.
    pub(super) fn put(&self, position: usize, item: Item<'_>) -> bool {
        let permutation = self.view().permutation;
        if permutation.count() == SLOTS {
            return false;
        }
        let (permutation, slot) = permutation.insert(position);
        // Release: who reads of a slot what is there since a split sees the count of that.
        self.words[slot].store(word(item.low.key(), self.skip()), Ordering::Release);
        self.items[slot].store(item.address, Ordering::Release);
        // Release: who sees the order sees what is in the slot.
        self.permutation.store(permutation.word(), Ordering::Release);
        true
    }

    /// Leaves all from position `keep` on, one at least being kept, to `right`, which has it. For the writer.
    pub(super) fn hand_over(&self, keep: usize, right: &Node) {
        let kept = self.view().permutation.truncate(keep);
        // In this order: see above.
        self.next.store(std::ptr::from_ref(right).cast_mut(), Ordering::Release);
        self.permutation.store(kept.word(), Ordering::Release);
        let splits = self.splits.load(Ordering::Relaxed).wrapping_add(1);
        self.splits.store(splits, Ordering::Release);
    }

    /// Starts to load the node.
    #[inline]
    pub(super) fn prefetch(&self) {
        (0..size_of::<Node>() / LINE).for_each(|line| prefetch(std::ptr::from_ref(self), line));
    }

    /// Starts to load a leaf's entries, as far as the first of their versions, and the next leaf.
    pub(super) fn prefetch_items(&self, view: View) {
        for position in 0..view.count() {
            let entry = self.address(view, position);
            (0..2).for_each(|line| prefetch(entry, line));
        }
        self.next().into_iter().for_each(Node::prefetch);
    }
}

/// Starts to load a cache line, counted from where `place` is. A hint without effect on results; nothing on
/// processors other than x86-64.
#[inline]
fn prefetch<T>(place: *const T, line: usize) {
    #[cfg(all(target_arch = "x86_64", not(any(miri, loom))))]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch faults on no address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(place.cast::<i8>().wrapping_add(line * LINE)) };
    }
    #[cfg(not(all(target_arch = "x86_64", not(any(miri, loom)))))]
    let _ = (place, line);
}
