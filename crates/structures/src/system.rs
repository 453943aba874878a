//! What the operating system offers to structures in memory, each with a portable form that does
//! nothing (on other systems than Linux, and with `--cfg siltstone_portable`).

use std::ptr::NonNull;

/// Advises the system to back `bytes` bytes with huge pages.
///
/// # Safety
/// They are one whole allocation, which lives until the call returns.
#[cfg(all(target_os = "linux", not(any(siltstone_portable, loom, miri))))]
pub(crate) unsafe fn advise_huge_pages(start: NonNull<u8>, bytes: usize) {
    use rustix::mm::{Advice, madvise};
    // SAFETY: the caller has the memory, and the advice leaves its bytes alone. If it is refused,
    // small pages are used.
    let _ = unsafe { madvise(start.as_ptr().cast(), bytes, Advice::LinuxHugepage) };
}

/// Does nothing.
///
/// # Safety
/// None is needed.
#[cfg(not(all(target_os = "linux", not(any(siltstone_portable, loom, miri)))))]
pub(crate) unsafe fn advise_huge_pages(_start: NonNull<u8>, _bytes: usize) {}
