//! A concurrent, versioned, ordered index in memory: the memtable of an LSM engine.
//!
//! ```text
//!              [ ·  "kiwi" ]                                      nodes above others
//!               │      └──────────────┐
//!   [ "apple"  "fig" ] ─ next ─▶ [ "kiwi"  "plum" ] ─ next ─▶ ∅   leaves
//!        │        │                  │        │
//!        9 ▶ 4    5                  7        8 ▶ 3 ▶ 2           entries: a key, and its versions, newest first
//! ```
//!
//! A B-link tree: a B⁺-tree whose nodes also lead to the right, so that readers never wait. A node is four cache
//! lines, which are loaded at once, and tells most keys apart by eight bytes each without a look at the keys
//! themselves; so of the some five nodes that a search visits at 250,000 keys the caches have all but one or two, where
//! a skip list waits for some six that are not. One entry a key, with a chain of
//! versions, keeps searches short under skewed updates, and gives each key a place for its count of
//! updates, by which TRIAD tells hot keys from cold ones at a flush. Writers take turns, as those of an engine with
//! group commit do anyway. Nodes and entries live in two arenas, so that the nodes, which
//! searches walk, lie densely in the caches; all memory is freed when the tree is dropped.
//!
//! Begin reading at `node.rs`.
//!
//! Invariant: keys are unique and ascend bytewise along the leaves; nothing is ever removed.
//!
//! Source: Lehman, Yao, "Efficient locking for concurrent operations on B-trees", TODS 1981; Mao, Kohler, Morris,
//! "Cache Craftiness for Fast Multicore Key-Value Storage" (Masstree), EuroSys 2012; Balmau et al., "TRIAD", USENIX ATC
//! 2017, section 4.1 for update counts and log positions in memtable entries. Versions beside the key are ours.

mod cursor;
mod entry;
mod insert;
mod node;
mod permutation;
mod probe;
mod random;
mod spot;
mod version;

use std::sync::Arc;

pub use self::cursor::Cursor;
pub use self::entry::EntryRef;
use self::node::Node;
use self::spot::Spot;
pub use self::version::{NewVersion, Version};
use crate::arena::{Arena, ChunkPool};
use crate::sync::{AtomicPtr, AtomicUsize, Mutex, Ordering};

/// A concurrent, versioned, ordered index from byte strings to chains of versions.
///
/// A key takes about 45 bytes and its own, plus 40 bytes and the value per version.
pub struct BLinkTree {
    root: AtomicPtr<Node>,
    /// The first leaf, which stays the first.
    leftmost: AtomicPtr<Node>,
    keys: AtomicUsize,
    versions: AtomicUsize,
    nodes: Arena,
    entries: Arena,
    /// Held while inserting.
    writer: Mutex<()>,
}

impl BLinkTree {
    /// An empty tree.
    pub fn new() -> Self {
        Self::of(Arena::new(), Arena::new())
    }

    /// The same, in memory that earlier trees have left to `spares`, as far as it goes.
    pub fn with_spares(spares: &Arc<ChunkPool>) -> Self {
        let arena = || Arena::with_spares(spares.clone());
        Self::of(arena(), arena())
    }

    fn of(nodes: Arena, entries: Arena) -> Self {
        let leaf = Node::root(&nodes, None);
        Self {
            root: AtomicPtr::new(leaf),
            leftmost: AtomicPtr::new(leaf),
            keys: AtomicUsize::new(0),
            versions: AtomicUsize::new(0),
            nodes,
            entries,
            writer: Mutex::new(()),
        }
    }

    /// The newest version of a key with a sequence of at most `at`.
    ///
    /// Cost: a node for each factor of ten in keys, the upper of them in the caches, a cache miss for the key, and
    /// one per version newer than `at`.
    pub fn get(&self, key: &[u8], at: u64) -> Option<Version<'_>> {
        self.entry(key)?.version_at(at)
    }

    /// A key with all its versions.
    pub fn entry(&self, key: &[u8]) -> Option<EntryRef<'_>> {
        self.find(key)
    }

    /// All keys in ascending order; those inserted meanwhile may or may not be among them.
    pub fn iter(&self) -> impl Iterator<Item = EntryRef<'_>> {
        std::iter::successors(self.first(), |spot| spot.next()).map(|spot| spot.entry)
    }

    /// The largest key with its versions; costs a search.
    pub fn last_entry(&self) -> Option<EntryRef<'_>> {
        self.last().map(|spot: Spot<'_>| spot.entry)
    }

    /// A cursor over the keys, on none of them yet, that keeps the tree alive.
    pub fn cursor(self: &Arc<Self>) -> Cursor {
        Cursor::new(Arc::clone(self))
    }

    /// The number of keys; costs a load. A walk that begins afterwards finds as many.
    pub fn keys(&self) -> usize {
        self.keys.load(Ordering::Acquire)
    }

    /// The number of versions of all keys; costs a load.
    pub fn versions(&self) -> usize {
        self.versions.load(Ordering::Relaxed)
    }

    /// The bytes taken by nodes, keys and values; costs a few loads.
    pub fn memory_bytes(&self) -> usize {
        self.nodes.allocated_bytes() + self.entries.allocated_bytes()
    }

    fn root(&self) -> &Node {
        // SAFETY: a node of the tree's arena, written before it was made the root.
        unsafe { &*self.root.load(Ordering::Acquire) }
    }

    fn leftmost(&self) -> &Node {
        // SAFETY: a node of the tree's arena, written before the tree was there.
        unsafe { &*self.leftmost.load(Ordering::Relaxed) }
    }
}

impl Default for BLinkTree {
    fn default() -> Self {
        Self::new()
    }
}
