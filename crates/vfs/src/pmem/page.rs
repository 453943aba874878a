//! A page that is written, and a page that is read.
//!
//! ```text
//!   allocate ──▶ PageMut ──freeze──▶ Page ──clone──▶ Page …
//!     (free list)   │                  │
//!                   └──── drop ────────┴── drop of the last ──▶ free list
//! ```
//!
//! A [`PageMut`] has one owner, who alone can store to it; a [`Page`] is shared and nobody can. So
//! readers take no lock, and a page goes back to the free list when the last version that names it
//! is gone: the paper's lazy deletion.
//!
//! Invariant: a page number is leased once at a time, and while a `Page` of it lives, nobody stores
//! to it. It follows from: a lease is made by the pool alone, from a number that was free; storing
//! takes a `&mut PageMut`; freezing consumes that.
//!
//! Source: ours; lazy deletion is the TriangleKV paper's, section 4.

use std::io::ErrorKind;
use std::ptr::NonNull;
use std::sync::Arc;

use siltstone_engine::{Error, Purpose, Result};

use super::pool::Shared;
use crate::names::fault;

/// A page's number, taken from the free list until the drop.
pub(super) struct Lease {
    pub(super) shared: Arc<Shared>,
    pub(super) number: u32,
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.shared.release(self.number);
    }
}

/// A page that its owner alone can store to. Dropped, it goes back to the free list.
pub struct PageMut {
    lease: Arc<Lease>,
}

/// A page that nobody stores to any more. The last clone's drop gives it back to the free list.
#[derive(Clone)]
pub struct Page {
    // Kept here so that a lookup needs one load to find the bytes, not three.
    bytes: NonNull<[u8]>,
    lease: Arc<Lease>,
}

// SAFETY: the bytes are read alone, and belong to no thread; the lease is `Send` and `Sync`.
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

    /// Stores `bytes` at `offset` of the page. What else it holds, is what its last owner left.
    ///
    /// # Errors
    /// `Io`: past the page's end; the medium's.
    pub fn store(&mut self, offset: usize, bytes: &[u8], purpose: Purpose) -> Result<()> {
        let shared = &self.lease.shared;
        if offset.checked_add(bytes.len()).is_none_or(|end| end > shared.page_bytes) {
            return Err(fault("store to a page of", shared.name(), ErrorKind::InvalidInput));
        }
        let start = self.lease.shared.offset_of(self.lease.number);
        shared.mapping.store(start + offset as u64, bytes, purpose)
    }

    /// What the page holds.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: storing takes `&mut self`, and no other handle of this page is there.
        unsafe { view(&self.lease) }
    }

    /// Gives up the right to store. Durable is what was persisted before.
    pub fn freeze(self) -> Page {
        Page::new(self.lease)
    }
}

impl Page {
    pub(super) fn new(lease: Arc<Lease>) -> Self {
        // SAFETY: a `Page` is made from a fresh lease or of a `PageMut` that is gone, so nobody can
        // store; the lease, which holds the mapping, lives as long as the pointer.
        let bytes = NonNull::from(unsafe { view(&lease) });
        Page { bytes, lease }
    }

    /// The page's number in its pool.
    pub fn number(&self) -> u32 {
        self.lease.number
    }

    /// What the page holds. Cost: none; reading is not counted, see [`note_read`](Self::note_read).
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: as in `new`; the slice borrows `self`, which holds the lease.
        unsafe { self.bytes.as_ref() }
    }

    /// Counts bytes read in place from this page's pool, at the medium if it counts.
    pub fn note_read(&self, bytes: u64, purpose: Purpose) {
        self.lease.shared.mapping.note_read(bytes, purpose);
    }

    /// The error for bytes at `offset` of this page that do not hold.
    pub fn corruption(&self, offset: usize, reason: impl Into<String>) -> Error {
        let shared = &self.lease.shared;
        let at = shared.offset_of(self.lease.number) + offset as u64;
        Error::corruption(shared.name(), at, reason)
    }
}

/// The bytes of a page.
///
/// # Safety
/// Nobody stores to the page, and the lease is kept, while `'a` lasts.
unsafe fn view<'a>(lease: &Lease) -> &'a [u8] {
    let shared = &lease.shared;
    let start = shared.offset_of(lease.number) as usize;
    // SAFETY: the lease keeps the mapping; for the rest the caller answers.
    unsafe { shared.mapping.memory().view(start, shared.page_bytes) }
}
