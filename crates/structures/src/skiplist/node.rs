//! The node of one key: tower, key and the anchor of its versions in one piece of arena memory.
//!
//! ```text
//!                                        ▼ NodeRef
//!  [chain│updates][link h-1 … link 1│link 0][length│height][key bytes, zero-padded to 8…]
//!   cold: 16 bytes  8 bytes a level          8 bytes        a search reads from here leftwards
//! ```
//!
//! A search reads a link and the first 8 bytes of a key per node it visits. Both lie within 24
//! bytes around the node's address, so that a visit mostly costs one cache line; the 8 bytes,
//! taken as a big-endian number, order keys like their bytes do and settle most comparisons.
//! Nodes average `35 + key` bytes.
//!
//! Invariant: a node is written in full before any link leads to it; later only its atomics change.
//!
//! Source: Pugh, "Skip lists: a probabilistic alternative to balanced trees", CACM 1990. Towers that
//! grow downwards from the key follow RocksDB's InlineSkipList; the prefix in the search line is ours.

use std::cmp::Ordering::{self, Equal};
use std::marker::PhantomData;
use std::ptr::{self, NonNull};
use std::slice;

use super::version::{Chain, RecordRef};
use crate::arena::{ALIGN, Arena};
use crate::sync::{self, AtomicPtr, AtomicU32, Published};

/// A link of a tower.
type Link = AtomicPtr<Fixed>;

/// What searches skip; at the start of a node's memory.
struct Cold {
    chain: Chain,
    updates: AtomicU32,
}

/// What a [`NodeRef`] points to; the tower lies before it, the key after it.
struct Fixed {
    length: Published<u32>,
    height: Published<u8>,
}

/// The bytes from a node's address to its key.
const KEY: usize = size_of::<Fixed>().next_multiple_of(ALIGN);
/// The bytes of a key that a search compares as a number; shorter keys are padded with zeros.
const PREFIX: usize = size_of::<u64>();

const _: () = assert!(align_of::<Cold>() <= ALIGN && size_of::<Cold>().is_multiple_of(ALIGN));
const _: () = assert!(align_of::<Link>() <= ALIGN && size_of::<Link>().is_multiple_of(ALIGN));
const _: () = assert!(align_of::<Fixed>() <= ALIGN);

/// A key to search for, with what each comparison needs of it.
pub(super) struct Probe<'k> {
    key: &'k [u8],
    prefix: u64,
}

impl<'k> Probe<'k> {
    /// Prepares a key.
    #[inline]
    pub(super) fn new(key: &'k [u8]) -> Self {
        let mut prefix = [0; PREFIX];
        let length = key.len().min(PREFIX);
        prefix[..length].copy_from_slice(&key[..length]);
        Self { key, prefix: u64::from_be_bytes(prefix) }
    }
}

/// A node, and the arena's promise to keep it for `'a`.
#[derive(Clone, Copy)]
pub(super) struct NodeRef<'a> {
    fixed: NonNull<Fixed>,
    arena: PhantomData<&'a Arena>,
}

// SAFETY: a node is written before it is shared; afterwards only its atomics change.
unsafe impl Send for NodeRef<'_> {}
// SAFETY: as for `Send`.
unsafe impl Sync for NodeRef<'_> {}

impl PartialEq for NodeRef<'_> {
    /// Whether both are the same node.
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        self.fixed == other.fixed
    }
}

impl<'a> NodeRef<'a> {
    /// Writes a node without successors into the arena; no first version makes it a list's head.
    ///
    /// # Panics
    ///
    /// If the key has 4 GiB or more.
    pub(super) fn write(
        arena: &'a Arena,
        key: &[u8],
        height: u8,
        first: Option<RecordRef<'_>>,
    ) -> Self {
        let length = u32::try_from(key.len()).expect("keys are below 4 GiB");
        let tower = usize::from(height) * size_of::<Link>();
        let bytes = size_of::<Cold>() + tower + KEY + key.len().max(PREFIX);
        let start = arena.allocate(bytes);
        let cold =
            Cold { chain: first.map_or_else(Chain::empty, Chain::new), updates: AtomicU32::new(1) };
        // SAFETY: the arena gave `bytes` bytes to us alone, aligned to `ALIGN`, of which each part
        // is a multiple; the parts written here are those that `bytes` adds up.
        let fixed = unsafe {
            start.cast().write(cold);
            let links = start.add(size_of::<Cold>()).cast::<Link>();
            for level in 0..usize::from(height) {
                links.add(level).write(AtomicPtr::new(ptr::null_mut()));
            }
            let fixed = links.add(usize::from(height)).cast::<Fixed>();
            fixed.write(Fixed { length: Published::new(length), height: Published::new(height) });
            let place = fixed.cast::<u8>().add(KEY);
            place.cast::<u64>().write(0);
            place.copy_from_nonoverlapping(NonNull::from(key).cast(), key.len());
            fixed
        };
        Self { fixed, arena: PhantomData }
    }

    /// The same node without a lifetime, for holders that keep the arena alive themselves.
    ///
    /// # Safety
    ///
    /// The result must not be used once the arena is dropped.
    pub(super) unsafe fn detach(self) -> NodeRef<'static> {
        NodeRef { fixed: self.fixed, arena: PhantomData }
    }

    /// The key.
    #[inline]
    pub(super) fn key(self) -> &'a [u8] {
        let length = self.fixed().length.get() as usize;
        // SAFETY: `write` put `length` bytes of key here, and nobody changes them.
        unsafe { slice::from_raw_parts(self.fixed.cast::<u8>().add(KEY).as_ptr(), length) }
    }

    /// How this node's key compares with the one searched for.
    #[inline]
    pub(super) fn compare(self, probe: &Probe<'_>) -> Ordering {
        // SAFETY: `write` put at least 8 bytes here, padding included.
        let prefix = unsafe { self.fixed.cast::<u8>().add(KEY).cast::<[u8; PREFIX]>().read() };
        // Where padded prefixes differ, the keys differ there too, or one ends there, which the
        // zeros order rightly. Equal prefixes say nothing: a short key may end in real zeros.
        match u64::from_be_bytes(prefix).cmp(&probe.prefix) {
            Equal => self.key().cmp(probe.key),
            unequal => unequal,
        }
    }

    /// The node after this one on a level.
    ///
    /// # Panics
    ///
    /// If the node is not on that level.
    #[inline]
    pub(super) fn next(self, level: usize) -> Option<NodeRef<'a>> {
        let fixed = NonNull::new(self.link(level).load(sync::Ordering::Acquire))?;
        Some(NodeRef { fixed, arena: PhantomData })
    }

    /// Starts to load the node after this one on a level, which a search may compare next.
    ///
    /// A hint without effect on results; nothing on processors other than x86-64.
    #[inline]
    pub(super) fn prefetch_next(self, level: usize) {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            // Relaxed: the node is not read here.
            let next = self.link(level).load(sync::Ordering::Relaxed);
            // SAFETY: a prefetch faults on no address, null included.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(next.cast()) };
        }
        #[cfg(not(all(target_arch = "x86_64", not(miri))))]
        let _ = level;
    }

    /// Sets the node after this one on a level that no other thread has reached yet.
    ///
    /// # Safety
    ///
    /// `next` is a node of the same arena.
    pub(super) unsafe fn set_next(self, level: usize, next: Option<NodeRef<'_>>) {
        // Relaxed: publishing this node on the level publishes the link as well.
        self.link(level).store(Self::address(next), sync::Ordering::Relaxed);
    }

    /// Puts `new` between this node and `next` on a level, unless something else came after this
    /// node meanwhile.
    ///
    /// # Safety
    ///
    /// `new` is a node of the same arena, with `next` set on the level, and belongs between.
    pub(super) unsafe fn try_link(
        self,
        level: usize,
        next: Option<NodeRef<'_>>,
        new: NodeRef<'_>,
    ) -> bool {
        self.link(level)
            .compare_exchange(
                Self::address(next),
                new.fixed.as_ptr(),
                sync::Ordering::Release,
                sync::Ordering::Relaxed,
            )
            .is_ok()
    }

    /// Adds a version and counts the update.
    ///
    /// # Safety
    ///
    /// The record is in no chain yet, and its arena outlives this node.
    pub(super) unsafe fn add(self, record: RecordRef<'_>) {
        // SAFETY: passed on to the caller.
        unsafe { self.chain().link(record) };
        self.cold().updates.fetch_add(1, sync::Ordering::Relaxed);
    }

    /// The versions of the key.
    #[inline]
    pub(super) fn chain(self) -> &'a Chain {
        &self.cold().chain
    }

    /// How often the key was inserted, the first time included.
    #[inline]
    pub(super) fn updates(self) -> u32 {
        self.cold().updates.load(sync::Ordering::Relaxed)
    }

    #[inline]
    fn address(node: Option<NodeRef<'_>>) -> *mut Fixed {
        node.map_or(ptr::null_mut(), |node| node.fixed.as_ptr())
    }

    #[inline]
    fn fixed(self) -> &'a Fixed {
        // SAFETY: written before this reference to it was made, and kept for `'a`.
        unsafe { self.fixed.as_ref() }
    }

    #[inline]
    fn link(self, level: usize) -> &'a Link {
        assert!(level < usize::from(self.fixed().height.get()), "no level {level} here");
        // SAFETY: `write` put `height` links right before the fixed part, level 0 last.
        unsafe { self.fixed.cast::<Link>().sub(level + 1).as_ref() }
    }

    #[inline]
    fn cold(self) -> &'a Cold {
        let height = usize::from(self.fixed().height.get());
        // SAFETY: `write` put the cold part right before the `height` links.
        unsafe { self.fixed.cast::<Link>().sub(height).cast::<Cold>().sub(1).as_ref() }
    }
}

/// A hint at a node, which threads overwrite at will.
pub(super) struct Last(AtomicPtr<Fixed>);

impl Last {
    /// A hint at nothing.
    pub(super) fn none() -> Self {
        Self(AtomicPtr::new(ptr::null_mut()))
    }

    /// The node hinted at, acquiring what was written to it before the hint.
    #[inline]
    pub(super) fn load(&self) -> Option<NodeRef<'_>> {
        let fixed = NonNull::new(self.0.load(sync::Ordering::Acquire))?;
        Some(NodeRef { fixed, arena: PhantomData })
    }

    /// Hints at a node.
    ///
    /// # Safety
    ///
    /// The node's arena outlives this hint.
    #[inline]
    pub(super) unsafe fn store(&self, node: NodeRef<'_>) {
        // Release: readers reach the node without having followed a link to it.
        self.0.store(node.fixed.as_ptr(), sync::Ordering::Release);
    }
}
