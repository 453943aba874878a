//! The portable form: memory of the allocator, mapped once. Miri can track it, too.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::io;
use std::ptr::NonNull;

use super::SMALL_PAGE_BYTES;

/// Allocates zeros, at least one byte, at the start of a page.
///
/// # Errors
/// If the system has no such memory.
pub(crate) fn map(bytes: usize) -> io::Result<NonNull<u8>> {
    let layout = Layout::from_size_align(bytes, SMALL_PAGE_BYTES);
    let layout = layout.map_err(|_| io::ErrorKind::InvalidInput)?;
    if layout.size() == 0 {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    // SAFETY: the size is not 0.
    NonNull::new(unsafe { alloc_zeroed(layout) }).ok_or_else(|| io::ErrorKind::OutOfMemory.into())
}

/// Unsupported.
pub(crate) fn map_mirrored(_bytes: usize, _is_reserved: bool) -> io::Result<NonNull<u8>> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Frees memory of [`map`].
///
/// # Safety
/// It was allocated there with so many bytes, and nobody uses it any more.
pub(crate) unsafe fn unmap(base: NonNull<u8>, bytes: usize) {
    // SAFETY: `map` has checked the size and the alignment.
    let layout = unsafe { Layout::from_size_align_unchecked(bytes, SMALL_PAGE_BYTES) };
    // SAFETY: the caller guarantees it.
    unsafe { dealloc(base.as_ptr(), layout) };
}

/// There are none.
pub(crate) fn files_have_huge_pages() -> bool {
    false
}
