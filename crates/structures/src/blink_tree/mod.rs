//! Concurrent, versioned, ordered in-memory index: the memtable of an LSM engine.
//!
//! ```text
//!              [ ·  "kiwi" ]                                      inner nodes
//!               │      └──────────────┐
//!   [ "apple"  "fig" ] ─ next ─▶ [ "kiwi"  "plum" ] ─ next ─▶ ∅   leaves
//!        │        │                  │        │
//!        9 ▶ 4    5                  7        8 ▶ 3 ▶ 2           entries: key; newest version first
//! ```
//!
//! A B-link tree: a B⁺-tree whose nodes are linked to their right siblings, so that readers never
//! wait. A node is four cache lines, which are loaded in parallel, and distinguishes most keys by
//! an 8-byte prefix without reading the keys. Of about five nodes that a search visits at 250,000
//! keys, all but one or two are in the CPU caches; a skip list has about six misses. One entry per
//! key, with a version chain, keeps searches short under skewed updates, and holds the key's update
//! count, by which TRIAD separates hot from cold keys at a flush. Writers are serialized, as group
//! commit does anyway. Nodes and entries are in separate arenas, so that nodes are dense in the
//! caches; all memory is freed when the tree is dropped.
//!
//! Start reading at `node.rs`.
//!
//! Invariant: keys are unique and ascend bytewise along the leaves; nothing is ever removed.
//!
//! Source: Lehman, Yao, "Efficient locking for concurrent operations on B-trees", TODS 1981; Mao,
//! Kohler, Morris, "Cache Craftiness for Fast Multicore Key-Value Storage" (Masstree), EuroSys
//! 2012; Balmau et al., "TRIAD", USENIX ATC 2017, section 4.1, for update counts and log positions
//! in memtable entries.

mod cursor;
mod entry;
mod insert;
mod node;
mod permutation;
mod position;
mod random;
mod search_key;
mod version;

use std::sync::Arc;

pub use self::cursor::Cursor;
pub use self::entry::EntryRef;
use self::node::Node;
use self::position::LeafPosition;
pub use self::version::{NewVersion, Version};
use crate::arena::{Arena, ChunkPool};
use crate::sync::{AtomicPtr, AtomicUsize, Mutex, Ordering};

/// A concurrent ordered map from byte strings to version chains.
///
/// Memory: per key about 45 bytes plus the key; per version 40 bytes plus the value.
pub struct BLinkTree {
    root: AtomicPtr<Node>,
    /// The first leaf, which never changes.
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

    /// An empty tree with memory from `pool`, as far as there is any.
    pub fn with_chunk_pool(pool: &Arc<ChunkPool>) -> Self {
        let arena = || Arena::with_chunk_pool(pool.clone());
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

    /// The newest version of a key with a sequence number of at most `at`.
    ///
    /// Cost: a node per factor of ten in keys, most of them cached; a cache miss for the key, and
    /// one per version newer than `at`.
    pub fn get(&self, key: &[u8], at: u64) -> Option<Version<'_>> {
        self.entry(key)?.version_at(at)
    }

    /// A key with all its versions.
    pub fn entry(&self, key: &[u8]) -> Option<EntryRef<'_>> {
        self.find(key)
    }

    /// All keys in ascending order; keys inserted during the iteration may be missing.
    pub fn iter(&self) -> impl Iterator<Item = EntryRef<'_>> {
        std::iter::successors(self.first(), |pos| pos.next()).map(|pos| pos.entry)
    }

    /// The largest key with its versions; costs a search.
    pub fn last_entry(&self) -> Option<EntryRef<'_>> {
        self.last().map(|pos: LeafPosition<'_>| pos.entry)
    }

    /// An invalid cursor, which keeps the tree alive.
    pub fn cursor(self: &Arc<Self>) -> Cursor {
        Cursor::new(Arc::clone(self))
    }

    /// The number of keys; costs a load. A later iteration finds at least as many.
    pub fn keys(&self) -> usize {
        self.keys.load(Ordering::Acquire)
    }

    /// The number of versions of all keys; costs a load.
    pub fn versions(&self) -> usize {
        self.versions.load(Ordering::Relaxed)
    }

    /// Memory of nodes, keys and values, in bytes; costs a few loads.
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
