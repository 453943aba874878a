//! Mapped memory for logs, heaps and indexes, as atomic words, with huge pages if available.
//!
//! ```text
//! kinds of regions, in order of preference                        pages     end of a log
//!   mirrored   memory file on reserved huge pages, mapped twice     2 MiB     seamless
//!   mirrored   memory file, if the system supports transparent      2 MiB     seamless
//!              huge pages for such files
//!   plain      anonymous memory with huge-page advice               2 MiB *   items are not split
//!   plain      allocator memory, under Miri                         any       items are not split
//!   * if transparent huge pages are enabled; otherwise 4 KiB
//!
//! mirrored:   address   base ........ base+n ........ base+2n
//!             file      0 ........... n | 0 ......... n
//! ```
//!
//! Huge pages are worth more than a mirror: if a memory file would have small pages only, plain
//! memory is used, unless a mirror is requested.
//!
//! Memory is local to the NUMA node of the thread that touches it first, which is the kernel's
//! rule; a partition is filled by the core that serves it. There is no other NUMA support.
//!
//! All accesses go through atomic words, so concurrent ones are defined. Of the two addresses of a
//! mirrored word, one lap uses only one: an item is written and read from its start. The compiler
//! treats them as two words, so a store to one must not be read through the other without a fence
//! between.
//!
//! Source: Lim, thesis, section 5.3.3, "Low-level memory management".

use std::io;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

#[cfg(not(miri))]
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
#[cfg(not(miri))]
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, mmap_anonymous, munmap};

/// Bytes of a word.
pub(crate) const WORD_BYTES: usize = size_of::<u64>();
/// The smallest page size.
const SMALL_PAGE_BYTES: usize = 4 << 10;
/// The huge page size on supported machines.
pub(crate) const HUGE_PAGE_BYTES: usize = 2 << 20;

/// How a log is mapped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mapping {
    /// Mirrored if that keeps huge pages.
    Auto,
    /// Mirrored, or an error.
    Mirrored,
    /// Not mirrored.
    Plain,
}

/// Zero-initialized words. Unmapped on drop.
#[derive(Debug)]
pub(crate) struct Region {
    base: NonNull<AtomicU64>,
    /// Words of memory.
    words: usize,
    /// Addressable words: twice as many in a mirrored region.
    addresses: usize,
}

// SAFETY: the mapping belongs to no thread, and everything in it is atomic.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

impl Region {
    /// Maps words once, at least one.
    ///
    /// # Errors
    /// If the system has no such memory.
    #[cfg(not(miri))]
    pub(crate) fn plain(words: usize) -> io::Result<Self> {
        let words = words.max(1);
        let bytes = bytes_of(words)?;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the kernel chooses the address, so nothing that is in use is mapped over.
        let base =
            unsafe { mmap_anonymous(std::ptr::null_mut(), bytes, protection, MapFlags::PRIVATE)? };
        let region = Region::new(base.cast(), words, false)?;
        if bytes >= HUGE_PAGE_BYTES {
            // SAFETY: just mapped; the advice changes no byte. Without it pages are smaller.
            let _ = unsafe { madvise(base, bytes, Advice::LinuxHugepage) };
        }
        Ok(region)
    }

    /// Words from the allocator, which Miri can track.
    #[cfg(miri)]
    pub(crate) fn plain(words: usize) -> io::Result<Self> {
        let all: Box<[AtomicU64]> = (0..words.max(1)).map(|_| AtomicU64::new(0)).collect();
        Region::new(Box::into_raw(all).cast(), words.max(1), false)
    }

    /// Maps a log whose end is followed by its beginning, if it consists of whole pages. With
    /// `Auto` the region is plain if a mirror would cost huge pages or is unavailable.
    ///
    /// # Errors
    /// If the system has no such memory, or a requested mirror would end within a page.
    pub(crate) fn for_log(words: usize, mapping: Mapping) -> io::Result<Self> {
        if cfg!(miri) {
            return Region::plain(words);
        }
        match mapping {
            Mapping::Plain => Region::plain(words),
            Mapping::Mirrored => {
                Region::reserved(words).or_else(|_| Region::mirrored(words, false))
            }
            Mapping::Auto => Region::reserved(words)
                .or_else(|refused| match files_have_huge_pages() {
                    true => Region::mirrored(words, false),
                    false => Err(refused),
                })
                .or_else(|_| Region::plain(words)),
        }
    }

    /// Mirrored, on huge pages reserved for memory files.
    fn reserved(words: usize) -> io::Result<Self> {
        match words.is_multiple_of(HUGE_PAGE_BYTES / WORD_BYTES) {
            true => Region::mirrored(words, true),
            false => Err(io::ErrorKind::InvalidInput.into()),
        }
    }

    #[cfg(miri)]
    fn mirrored(_words: usize, _is_reserved: bool) -> io::Result<Self> {
        Err(io::ErrorKind::Unsupported.into())
    }

    #[cfg(not(miri))]
    fn mirrored(words: usize, is_reserved: bool) -> io::Result<Self> {
        let bytes = bytes_of(words)?;
        if words.checked_mul(WORD_BYTES) != Some(bytes) {
            // The last page would extend past the words, and the beginning would not follow.
            return Err(io::ErrorKind::InvalidInput.into());
        }
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
        let probe =
            unsafe { mmap(std::ptr::null_mut(), bytes, protection, MapFlags::SHARED, &file, 0)? };
        // Then reserve addresses, aligned to huge pages, to map the file over.
        let span = twice + HUGE_PAGE_BYTES;
        // SAFETY: as above.
        let room = unsafe {
            let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
            mmap_anonymous(std::ptr::null_mut(), span, ProtFlags::empty(), flags)
        };
        let mapped = room.and_then(|room| {
            let skip = room.align_offset(HUGE_PAGE_BYTES);
            // SAFETY: `span` has one huge page more than is mapped, so what lies before, the two
            // halves and what lies behind are all within the addresses just reserved, which no one
            // else uses. If a half is refused, they stay reserved forever: they may be ours no
            // more.
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
        Region::new(mapped?.cast(), words, true)
    }

    fn new(base: *mut AtomicU64, words: usize, is_mirrored: bool) -> io::Result<Self> {
        let base = NonNull::new(base).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Region { base, words, addresses: words << usize::from(is_mirrored) })
    }

    /// Whether the end is followed by the beginning.
    pub(crate) fn is_mirrored(&self) -> bool {
        self.addresses > self.words
    }

    /// Memory in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        (self.words * WORD_BYTES) as u64
    }
}

impl Deref for Region {
    type Target = [AtomicU64];

    #[inline(always)]
    fn deref(&self) -> &[AtomicU64] {
        // SAFETY: `base` is a live mapping of as many words until the drop, aligned to pages, of
        // zeros or what was stored atomically; words of a mirror are words of memory like others.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr(), self.addresses) }
    }
}

impl Drop for Region {
    #[cfg(not(miri))]
    fn drop(&mut self) {
        let bytes = (self.addresses * WORD_BYTES).next_multiple_of(SMALL_PAGE_BYTES);
        // SAFETY: mapped with this length, and no borrow outlives the region. A failure would leave
        // it mapped, which hurts no one.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), bytes) };
    }

    #[cfg(miri)]
    fn drop(&mut self) {
        let all = std::ptr::slice_from_raw_parts_mut(self.base.as_ptr(), self.words);
        // SAFETY: made by `Box::into_raw` with this length, and no borrow outlives the region.
        drop(unsafe { Box::from_raw(all) });
    }
}

/// Rounds down to whole pages: huge ones if the size is large enough.
pub(crate) fn whole_pages(words: usize) -> usize {
    let page =
        if words * WORD_BYTES >= 16 * HUGE_PAGE_BYTES { HUGE_PAGE_BYTES } else { SMALL_PAGE_BYTES };
    words - words % (page / WORD_BYTES)
}

#[cfg(not(miri))]
fn bytes_of(words: usize) -> io::Result<usize> {
    let bytes =
        words.max(1).checked_mul(WORD_BYTES).filter(|&bytes| bytes < isize::MAX as usize / 4);
    Ok(bytes.ok_or(io::ErrorKind::InvalidInput)?.next_multiple_of(SMALL_PAGE_BYTES))
}

/// Whether memory files get transparent huge pages, always or on advice.
fn files_have_huge_pages() -> bool {
    let setting = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/shmem_enabled");
    let given = ["[always]", "[within_size]", "[advise]", "[force]"];
    setting.is_ok_and(|text| given.iter().any(|word| text.contains(word)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering::Relaxed;

    #[test]
    fn region_is_zeroed_and_writable() {
        for words in [0, 1, 512, 5000] {
            let region = Region::plain(words).unwrap();
            let words = words.max(1);
            assert_eq!((region.len(), region.bytes()), (words, (words * WORD_BYTES) as u64));
            assert!(region.iter().all(|word| word.load(Relaxed) == 0));
            region[words - 1].store(7, Relaxed);
            assert_eq!(region[words - 1].load(Relaxed), 7);
        }
    }

    #[test]
    #[cfg(not(miri))]
    fn mirrored_end_continues_at_beginning() {
        for words in [512, 3 * 512, 2 * HUGE_PAGE_BYTES / WORD_BYTES] {
            let region = Region::for_log(words, Mapping::Mirrored).unwrap();
            assert!(region.is_mirrored());
            assert_eq!((region.len(), region.bytes()), (2 * words, (words * WORD_BYTES) as u64));
            for at in [0, 1, 511, words - 1] {
                region[at + words].store(at as u64 + 1, Relaxed);
                std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
                assert_eq!(region[at].load(Relaxed), at as u64 + 1);
            }
        }
    }

    /// With half a page, the end would be followed by zeros.
    #[test]
    #[cfg(not(miri))]
    fn mirror_of_partial_page_is_rejected() {
        for words in [0, 1, 511, 513, usize::MAX / WORD_BYTES, usize::MAX] {
            assert!(Region::for_log(words, Mapping::Mirrored).is_err(), "{words} words");
        }
        for words in [1, 511, 513] {
            let region = Region::for_log(words, Mapping::Auto).unwrap();
            assert!(!region.is_mirrored());
            assert_eq!((region.len(), region.bytes()), (words, (words * WORD_BYTES) as u64));
        }
    }

    /// A mirror on small pages would cost more than it saves.
    #[test]
    #[cfg(not(miri))]
    fn auto_mapping_mirrors_only_with_huge_pages() {
        let words = 2 * HUGE_PAGE_BYTES / WORD_BYTES;
        let has_reserved = Region::mirrored(words, true).is_ok();
        let region = Region::for_log(words, Mapping::Auto).unwrap();
        assert_eq!(region.is_mirrored(), has_reserved || files_have_huge_pages());
        assert!(!Region::for_log(words, Mapping::Plain).unwrap().is_mirrored());
    }

    #[test]
    fn words_are_rounded_down_to_whole_pages() {
        let (small, huge) = (SMALL_PAGE_BYTES / WORD_BYTES, HUGE_PAGE_BYTES / WORD_BYTES);
        for (words, expected) in [
            (0, 0),
            (small - 1, 0),
            (small, small),
            (huge + small + 1, huge + small),
            (16 * huge - 1, 16 * huge - small),
            (16 * huge, 16 * huge),
            (17 * huge - 1, 16 * huge),
        ] {
            assert_eq!(whole_pages(words), expected, "{words} words");
        }
    }

    #[test]
    #[cfg(not(miri))]
    fn regions_are_unmapped_on_drop() {
        // A leak of 256 MiB of addresses, twice, a thousand times would exceed the page tables.
        for _ in 0..1000 {
            let region = Region::for_log(256 << 17, Mapping::Mirrored).unwrap();
            region[0].store(1, Relaxed);
        }
        assert!(Region::plain(usize::MAX / 16).is_err());
    }

    /// Regression: a failed mapping over reserved addresses left a hole, and closing it unmapped
    /// another thread's memory.
    #[test]
    #[cfg(not(miri))]
    fn failed_mirror_unmaps_nothing_of_other_threads() {
        std::thread::scope(|scope| {
            for thread in 1..4u64 {
                scope.spawn(move || {
                    for round in 0..200 {
                        let region = Region::for_log(8 << 18, Mapping::Auto).unwrap();
                        let own = vec![thread; 40_000];
                        region[round].store(thread, Relaxed);
                        assert!(own.iter().all(|&word| word == thread));
                        assert_eq!(region[round].load(Relaxed), thread);
                    }
                });
            }
        });
    }
}
