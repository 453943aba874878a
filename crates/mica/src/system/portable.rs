//! The portable form: memory of the allocator, mapped once. Miri can track it, too.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::io;
use std::ptr::NonNull;

/// That of words. For a larger one, allocators write the zeros themselves, and touch all pages.
const ALIGN: usize = align_of::<u64>();

/// Allocates zeros, at least one byte, aligned to words.
///
/// # Errors
/// If the system has no such memory.
pub(crate) fn map(bytes: usize) -> io::Result<NonNull<u8>> {
    let layout = Layout::from_size_align(bytes, ALIGN);
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
/// It was allocated there with this length, and nobody uses it any more.
pub(crate) unsafe fn unmap(base: NonNull<u8>, bytes: usize) {
    // SAFETY: `map` has checked the size and the alignment.
    let layout = unsafe { Layout::from_size_align_unchecked(bytes, ALIGN) };
    // SAFETY: the caller guarantees it.
    unsafe { dealloc(base.as_ptr(), layout) };
}

/// There are none.
pub(crate) fn files_have_huge_pages() -> bool {
    false
}
