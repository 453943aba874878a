//! The form for Linux: anonymous memory with huge-page advice, and memory files mapped twice.

use std::io;
use std::ptr::{NonNull, null_mut};

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, mmap_anonymous, munmap};

use super::pages::{HUGE_PAGE_BYTES, SMALL_PAGE_BYTES};

/// Maps zeros, at least one byte, at the start of a page.
///
/// # Errors
/// If the system has no such memory.
pub(crate) fn map(bytes: usize) -> io::Result<NonNull<u8>> {
    let bytes = whole(bytes)?;
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: the kernel chooses the address, so nothing that is in use is mapped over.
    let base = unsafe { mmap_anonymous(null_mut(), bytes, protection, MapFlags::PRIVATE)? };
    if bytes >= HUGE_PAGE_BYTES {
        // SAFETY: just mapped; the advice changes no byte. Without it pages are smaller.
        let _ = unsafe { madvise(base, bytes, Advice::LinuxHugepage) };
    }
    NonNull::new(base.cast()).ok_or_else(|| io::ErrorKind::OutOfMemory.into())
}

/// Maps zeros twice, one after the other. `bytes` are whole pages.
///
/// # Errors
/// If the system has no such memory, or no reserved huge pages for it.
pub(crate) fn map_mirrored(bytes: usize, is_reserved: bool) -> io::Result<NonNull<u8>> {
    let twice = bytes.checked_mul(2).ok_or(io::ErrorKind::InvalidInput)?;
    let flags = match is_reserved {
        true => MemfdFlags::CLOEXEC | MemfdFlags::HUGETLB | MemfdFlags::HUGE_2MB,
        false => MemfdFlags::CLOEXEC,
    };
    let file = memfd_create(c"siltstone-mica", flags)?;
    ftruncate(&file, bytes as u64)?;
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    // First anywhere, to learn whether there are enough huge pages. A failure over reserved
    // addresses would leave a hole, where another thread may map something.
    // SAFETY: the kernel chooses the address, so nothing that is in use is mapped over.
    let probe = unsafe { mmap(null_mut(), bytes, protection, MapFlags::SHARED, &file, 0)? };
    // Then reserve addresses, aligned to huge pages, to map the file over.
    let span = twice + HUGE_PAGE_BYTES;
    // SAFETY: as above.
    let room = unsafe {
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        mmap_anonymous(null_mut(), span, ProtFlags::empty(), flags)
    };
    let mapped = room.and_then(|room| {
        let skip = room.align_offset(HUGE_PAGE_BYTES);
        // SAFETY: `span` has one huge page more than is mapped, so what lies before, the two
        // halves and what lies behind are all within the addresses just reserved, which no one
        // else uses. If a half is refused, they stay reserved forever: they may be ours no more.
        unsafe {
            let base = room.cast::<u8>().add(skip);
            let flags = MapFlags::SHARED | MapFlags::FIXED;
            mmap(base.cast(), bytes, protection, flags, &file, 0)?;
            mmap(base.add(bytes).cast(), bytes, protection, flags, &file, 0)?;
            if skip > 0 {
                munmap(room, skip)?;
            }
            munmap(base.add(twice).cast(), HUGE_PAGE_BYTES - skip)?;
            // Without the advice, pages are smaller.
            let _ = madvise(base.cast(), twice, Advice::LinuxHugepage);
            Ok(base)
        }
    });
    // SAFETY: mapped above with this length, and used by no one.
    unsafe { munmap(probe, bytes)? };
    NonNull::new(mapped?).ok_or_else(|| io::ErrorKind::OutOfMemory.into())
}

/// Unmaps memory of [`map`], or twice the bytes of [`map_mirrored`].
///
/// # Safety
/// It was mapped there with this length, and nobody uses it any more.
pub(crate) unsafe fn unmap(base: NonNull<u8>, bytes: usize) {
    let bytes = bytes.next_multiple_of(SMALL_PAGE_BYTES);
    // SAFETY: the caller guarantees it. A failure would leave it mapped, which hurts no one.
    let _ = unsafe { munmap(base.as_ptr().cast(), bytes) };
}

/// Whether memory files get transparent huge pages, always or on advice.
pub(crate) fn files_have_huge_pages() -> bool {
    let setting = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/shmem_enabled");
    let given = ["[always]", "[within_size]", "[advise]", "[force]"];
    setting.is_ok_and(|text| given.iter().any(|word| text.contains(word)))
}

fn whole(bytes: usize) -> io::Result<usize> {
    bytes
        .checked_next_multiple_of(SMALL_PAGE_BYTES)
        .ok_or_else(|| io::ErrorKind::InvalidInput.into())
}
