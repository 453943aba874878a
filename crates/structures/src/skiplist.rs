//! A concurrent, versioned, ordered index in memory: the memtable of an LSM engine.
//!
//! ```text
//!  head ─────────────────────▶ "kiwi" ───────────────────▶ ∅      level 1
//!  head ──▶ "apple" ─────────▶ "kiwi" ──▶ "plum" ─────────▶ ∅      level 0
//!              │                  │           │
//!              9 ▶ 4              7           8 ▶ 3 ▶ 2            versions, newest first
//! ```
//!
//! A skip list of keys, where each key has one node, and each node a chain of versions. One node a
//! key keeps searches short under skewed updates, and gives each key a place for its count of
//! updates, by which TRIAD tells hot keys from cold ones at a flush. Writers never lock (see
//! `insert.rs`), readers never wait. Nodes and values live in two arenas, so that the nodes, which
//! searches walk, lie densely in the caches; all memory is freed when the list is dropped.
//!
//! Invariant: keys are unique and ascend bytewise along level 0; nothing is ever removed.
//!
//! Source: Pugh, "Skip lists", CACM 1990; Balmau et al., "TRIAD", USENIX ATC 2017, section 4.1 for
//! update counts and log positions in memtable entries. Versions beside the key are ours.

mod cursor;
mod entry;
mod insert;
mod node;
mod version;

use std::cmp::Ordering::{Equal, Greater, Less};
use std::sync::Arc;

pub use self::cursor::Cursor;
pub use self::entry::EntryRef;
use self::node::{Last, NodeRef, Probe};
pub use self::version::{NewVersion, Version};
use crate::arena::{Arena, Spares};
use crate::sync::{AtomicUsize, Ordering};

/// The height of the highest towers: at one in four a level, enough for some 16 million keys.
#[cfg(not(loom))]
const MAX_HEIGHT: usize = 12;
/// Under loom, just enough to have a level above the lowest.
#[cfg(loom)]
const MAX_HEIGHT: usize = 2;

/// A concurrent, versioned, ordered index from byte strings to chains of versions.
///
/// An entry takes about 35 bytes and the key, plus 40 bytes and the value per version.
pub struct SkipList {
    head: NodeRef<'static>,
    /// Mixed into the hash that gives towers their height.
    seed: u64,
    /// The height of the highest tower so far.
    height: AtomicUsize,
    /// The last key inserted, where a sequential load goes on.
    last: Last,
    keys: AtomicUsize,
    versions: AtomicUsize,
    nodes: Arena,
    values: Arena,
}

/// Where a key is, or would be.
enum Place<'a> {
    /// The node of the key.
    Found(NodeRef<'a>),
    /// The key is absent, and would go between these.
    Between(NodeRef<'a>, Option<NodeRef<'a>>),
}

impl SkipList {
    /// An empty list.
    ///
    /// The seed decides which keys get high towers; one that writers of keys cannot know keeps them
    /// from degrading the list.
    pub fn new(seed: u64) -> Self {
        Self::of(seed, Arena::new(), Arena::new())
    }

    /// The same, in memory that earlier lists have left to `spares`, as far as it goes.
    pub fn with_spares(seed: u64, spares: &Arc<Spares>) -> Self {
        let arena = || Arena::with_spares(spares.clone());
        Self::of(seed, arena(), arena())
    }

    fn of(seed: u64, nodes: Arena, values: Arena) -> Self {
        let head = NodeRef::write(&nodes, &[], MAX_HEIGHT as u8, None);
        // SAFETY: used by the list only, and lent out under its lifetime; see `head`.
        let head = unsafe { head.detach() };
        Self {
            head,
            seed,
            height: AtomicUsize::new(1),
            last: Last::none(),
            keys: AtomicUsize::new(0),
            versions: AtomicUsize::new(0),
            nodes,
            values,
        }
    }

    /// The newest version of a key with a sequence of at most `at`.
    ///
    /// Expected cost: about `2 log₂ keys` nodes visited, the top half of them in the caches, and a
    /// cache miss per version newer than `at`.
    pub fn get(&self, key: &[u8], at: u64) -> Option<Version<'_>> {
        self.entry(key)?.version_at(at)
    }

    /// A key with all its versions.
    pub fn entry(&self, key: &[u8]) -> Option<EntryRef<'_>> {
        match self.search(&Probe::new(key), false, |_, _, _| ()) {
            Place::Found(node) => Some(EntryRef::new(node)),
            Place::Between(..) => None,
        }
    }

    /// All keys in ascending order; those inserted meanwhile may or may not be among them.
    pub fn iter(&self) -> impl Iterator<Item = EntryRef<'_>> {
        std::iter::successors(self.head().next(0), |node| node.next(0)).map(EntryRef::new)
    }

    /// The largest key with its versions; costs a search.
    pub fn last_entry(&self) -> Option<EntryRef<'_>> {
        self.last().map(EntryRef::new)
    }

    /// A cursor over the keys, on none of them yet, that keeps the list alive.
    pub fn cursor(self: &Arc<Self>) -> Cursor {
        Cursor::new(Arc::clone(self))
    }

    /// The number of keys; costs a load.
    pub fn keys(&self) -> usize {
        self.keys.load(Ordering::Relaxed)
    }

    /// The number of versions of all keys; costs a load.
    pub fn versions(&self) -> usize {
        self.versions.load(Ordering::Relaxed)
    }

    /// The bytes taken by keys, values and links; costs a few loads.
    pub fn memory_bytes(&self) -> usize {
        self.nodes.allocated_bytes() + self.values.allocated_bytes()
    }

    /// The node before all keys.
    fn head(&self) -> NodeRef<'_> {
        self.head
    }

    /// Finds the place of a key, telling `visit` the neighbours on each level, top to bottom.
    ///
    /// A `strict` search treats an equal key as a greater one: it always ends `Between`, with the
    /// predecessor less than the key and the successor not.
    #[inline]
    fn search<'a>(
        &'a self,
        probe: &Probe<'_>,
        strict: bool,
        mut visit: impl FnMut(usize, NodeRef<'a>, Option<NodeRef<'a>>),
    ) -> Place<'a> {
        let mut pred = self.head();
        // The successor one level up: known to be greater, so not to be compared again.
        let mut bound = None;
        // Relaxed: a lower height than the list has by now only makes the way longer.
        for level in (0..self.height.load(Ordering::Relaxed)).rev() {
            let succ = loop {
                let next = pred.next(level);
                let Some(node) = next.filter(|_| next != bound) else { break next };
                // The comparison below mostly waits for memory; where the search may go down next
                // is loaded meanwhile. Worth a tenth to a third of an insertion at 500 000 keys.
                if level > 0 {
                    pred.prefetch_next(level - 1);
                }
                match node.compare(probe) {
                    Less => pred = node,
                    Equal if !strict => return Place::Found(node),
                    Equal | Greater => break next,
                }
            };
            visit(level, pred, succ);
            bound = succ;
        }
        Place::Between(pred, bound)
    }

    /// The first key of at least the one searched for.
    fn first_from(&self, key: &[u8]) -> Option<NodeRef<'_>> {
        match self.search(&Probe::new(key), false, |_, _, _| ()) {
            Place::Found(node) => Some(node),
            Place::Between(_, succ) => succ,
        }
    }

    /// The last key of at most the one searched for, or below it if `strict`.
    fn last_to(&self, key: &[u8], strict: bool) -> Option<NodeRef<'_>> {
        match self.search(&Probe::new(key), strict, |_, _, _| ()) {
            Place::Found(node) => Some(node),
            Place::Between(pred, _) => self.unless_head(pred),
        }
    }

    /// The last of all keys.
    fn last(&self) -> Option<NodeRef<'_>> {
        let mut node = self.head();
        for level in (0..self.height.load(Ordering::Relaxed)).rev() {
            while let Some(next) = node.next(level) {
                node = next;
            }
        }
        self.unless_head(node)
    }

    fn unless_head<'a>(&'a self, node: NodeRef<'a>) -> Option<NodeRef<'a>> {
        (node != self.head()).then_some(node)
    }
}
