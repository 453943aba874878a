//! An entry of the tree: key, update count and version chain, allocated with its first version.
//!
//! ```text
//!   ▼ EntryRef
//!   [newest version│updates│length][key, padded][first version, see `version.rs`: 40 bytes│value…]
//!    8 bytes        4       4
//! ```
//!
//! An [`EntryRef`] is a copyable reference into the arena. While a writer inserts, versions are
//! added and the count increases; nothing else changes.
//!
//! Invariant: an entry is written completely, with its first version, before it is published; later
//! only its atomics change.

use std::marker::PhantomData;
use std::ptr::NonNull;
use std::slice;

use super::version::{Chain, NewVersion, RecordRef, Version};
use crate::arena::{ALIGN, Arena};
use crate::sync::{AtomicU32, Ordering, PublishedCell};

/// The fixed part of an entry, followed by the key.
struct EntryHeader {
    chain: Chain,
    updates: AtomicU32,
    length: PublishedCell<u32>,
}

const _: () =
    assert!(align_of::<EntryHeader>() <= ALIGN && size_of::<EntryHeader>().is_multiple_of(ALIGN));

/// An entry: a key with its versions, in an arena that lives for `'a`.
#[derive(Clone, Copy)]
pub struct EntryRef<'a> {
    fixed: NonNull<EntryHeader>,
    arena: PhantomData<&'a Arena>,
}

// SAFETY: an entry is written before it is shared; afterwards only its atomics change.
unsafe impl Send for EntryRef<'_> {}
// SAFETY: as for `Send`.
unsafe impl Sync for EntryRef<'_> {}

impl<'a> EntryRef<'a> {
    /// Allocates an entry with its first version.
    ///
    /// # Panics
    ///
    /// If the key or the value has 4 GiB or more.
    pub(super) fn write(arena: &'a Arena, key: &[u8], first: &NewVersion<'_>) -> Self {
        let length = u32::try_from(key.len()).expect("keys are below 4 GiB");
        let padded = key.len().next_multiple_of(ALIGN);
        let place = arena.allocate(size_of::<EntryHeader>() + padded + RecordRef::bytes(first));
        // SAFETY: the arena gave these bytes to us alone, aligned to `ALIGN`, of which each part is
        // a multiple; the parts written here are those that were added up.
        let fixed = unsafe {
            let fixed = place.cast::<EntryHeader>();
            let bytes = fixed.add(1).cast::<u8>();
            bytes.copy_from_nonoverlapping(NonNull::from(key).cast(), key.len());
            let record = RecordRef::write_at(bytes.add(padded), first);
            let (chain, updates) = (Chain::new(record), AtomicU32::new(1));
            fixed.write(EntryHeader { chain, updates, length: PublishedCell::new(length) });
            fixed
        };
        Self { fixed, arena: PhantomData }
    }

    /// The entry's address.
    pub(super) fn address(self) -> *mut u8 {
        self.fixed.cast().as_ptr()
    }

    /// The entry at an address; `None` for null.
    ///
    /// # Safety
    ///
    /// The address is null or came from [`address`](Self::address), was acquired by the reader, and
    /// the arena lives for `'a`.
    #[inline]
    pub(super) unsafe fn at(address: *mut u8) -> Option<Self> {
        Some(Self { fixed: NonNull::new(address.cast())?, arena: PhantomData })
    }

    /// The same entry without a lifetime, for holders that keep the arena alive themselves.
    ///
    /// # Safety
    ///
    /// The result must not be used once the arena is dropped.
    pub(super) unsafe fn detach(self) -> EntryRef<'static> {
        EntryRef { fixed: self.fixed, arena: PhantomData }
    }

    /// Adds a version and counts the update; one thread at a time.
    ///
    /// # Safety
    ///
    /// The arena is that of this entry.
    pub(super) unsafe fn add(self, arena: &Arena, version: &NewVersion<'_>) {
        let record = RecordRef::write(arena, version);
        // SAFETY: the record is new, and its arena is ours.
        unsafe { self.fixed().chain.link(record) };
        let updates = self.updates().wrapping_add(1);
        self.fixed().updates.store(updates, Ordering::Relaxed);
    }

    /// The key.
    #[inline]
    pub fn key(&self) -> &'a [u8] {
        let length = self.fixed().length.get() as usize;
        // SAFETY: `write` put `length` bytes of key here, and no one changes them.
        unsafe { slice::from_raw_parts(self.fixed.add(1).cast().as_ptr(), length) }
    }

    /// How often the key was inserted, modulo 2³².
    pub fn updates(&self) -> u32 {
        self.fixed().updates.load(Ordering::Relaxed)
    }

    /// The version with the highest sequence number; costs a cache miss, unless it is the first.
    pub fn newest(&self) -> Version<'a> {
        self.fixed().chain.newest()
    }

    /// The newest version with a sequence number of at most `at`; costs a cache miss per version
    /// visited.
    pub fn version_at(&self, at: u64) -> Option<Version<'a>> {
        self.fixed().chain.at(at)
    }

    /// All versions, newest first.
    pub fn versions(&self) -> impl Iterator<Item = Version<'a>> + use<'a> {
        std::iter::successors(Some(self.newest()), Version::older)
    }

    #[inline]
    fn fixed(self) -> &'a EntryHeader {
        // SAFETY: written before this reference to it was made, and kept for `'a`.
        unsafe { self.fixed.as_ref() }
    }
}
