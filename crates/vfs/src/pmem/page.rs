//! Writable and readable pages of a pool.
//!
//! ```text
//!   allocate ──▶ PageMut ──freeze──▶ Page ──clone──▶ Page …
//!     (free list)   │                  │
//!                   └──── drop ────────┴── drop of the last ──▶ free list
//! ```
//!
//! A [`PageMut`] has one owner, which alone can store to it; a [`Page`] is shared and immutable. So
//! readers need no lock, and a page is freed when the last version that refers to it is dropped
//! (lazy deletion).
//!
//! Invariant: a page number is leased once at a time, and nobody stores to a page while a `Page` of
//! it exists. This holds because only the pool creates leases, from free numbers; storing takes a
//! `&mut PageMut`; and freezing consumes the `PageMut`.
//!
//! Source: TriangleKV paper, section 4 (lazy deletion).

use std::io::ErrorKind;
use std::ptr::NonNull;
use std::sync::Arc;

use siltstone_engine::{Error, Purpose, Result};

use super::pool::Shared;
use crate::names::fault;

/// A page number, allocated until the drop.
pub(super) struct Lease {
    pub(super) shared: Arc<Shared>,
    pub(super) number: u32,
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.shared.release(self.number);
    }
}

/// A page that only its owner can store to. Dropping it frees the page.
pub struct PageMut {
    lease: Arc<Lease>,
}

/// An immutable page. Dropping the last clone frees the page.
#[derive(Clone)]
pub struct Page {
    // Stored here so that a lookup needs one load to find the bytes, not three.
    bytes: NonNull<[u8]>,
    lease: Arc<Lease>,
}

// SAFETY: the bytes are only read, and belong to no thread; the lease is `Send` and `Sync`.
unsafe impl Send for Page {}
// SAFETY: as above.
unsafe impl Sync for Page {}

impl PageMut {
    pub(super) fn new(lease: Lease) -> Self {
        PageMut { lease: Arc::new(lease) }
    }

    /// The page's number in its pool.
    pub fn number(&self) -> u32 {
        self.lease.number
    }

    /// Stores `bytes` at `offset` of the page. The other bytes are those of its last owner.
    ///
    /// # Errors
    /// `Io`: past the end of the page, or a failed store.
    pub fn store(&mut self, offset: usize, bytes: &[u8], purpose: Purpose) -> Result<()> {
        let shared = &self.lease.shared;
        if offset.checked_add(bytes.len()).is_none_or(|end| end > shared.page_bytes) {
            return Err(fault("store to a page of", shared.name(), ErrorKind::InvalidInput));
        }
        let start = self.lease.shared.offset_of(self.lease.number);
        shared.mapping.store(start + offset as u64, bytes, purpose)
    }

    /// The bytes of the page.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: storing takes `&mut self`, and there is no other handle of this page.
        unsafe { view(&self.lease) }
    }

    /// Makes the page immutable. Only persisted bytes are durable.
    pub fn freeze(self) -> Page {
        Page::new(self.lease)
    }
}

impl Page {
    pub(super) fn new(lease: Arc<Lease>) -> Self {
        // SAFETY: a `Page` is created from a new lease or a consumed `PageMut`, so nobody can
        // store; the lease, which holds the mapping, lives as long as the pointer.
        let bytes = NonNull::from(unsafe { view(&lease) });
        Page { bytes, lease }
    }

    /// The page's number in its pool.
    pub fn number(&self) -> u32 {
        self.lease.number
    }

    /// The bytes of the page. Free; reads are counted only by [`note_read`](Self::note_read).
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: as in `new`; the slice borrows `self`, which holds the lease.
        unsafe { self.bytes.as_ref() }
    }

    /// Counts bytes that were read in place, if the backing counts.
    pub fn note_read(&self, bytes: u64, purpose: Purpose) {
        self.lease.shared.mapping.note_read(bytes, purpose);
    }

    /// The error for damaged bytes at `offset` of this page.
    pub fn corruption(&self, offset: usize, reason: impl Into<String>) -> Error {
        let shared = &self.lease.shared;
        let at = shared.offset_of(self.lease.number) + offset as u64;
        Error::corruption(shared.name(), at, reason)
    }
}

/// The bytes of a page.
///
/// # Safety
/// Nobody stores to the page, and the lease is kept, during `'a`.
unsafe fn view<'a>(lease: &Lease) -> &'a [u8] {
    let shared = &lease.shared;
    let start = shared.offset_of(lease.number) as usize;
    // SAFETY: the lease keeps the mapping; the caller guarantees the rest.
    unsafe { shared.mapping.memory().view(start, shared.page_bytes) }
}
