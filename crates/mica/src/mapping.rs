//! Memory for logs, heaps and indexes: mapped, huge pages where they are granted, as atomic words.
//!
//! ```text
//! how a region is had, in this order                            pages     end of the log
//!   mirrored   a memory file of reserved huge pages, mapped twice   2 MiB     seamless
//!   mirrored   a memory file, where the system gives such files     2 MiB     seamless
//!              transparent huge pages
//!   plain      anonymous memory, advised to be of huge pages        2 MiB *   items are not split
//!   plain      the allocator's memory, under Miri                   any       items are not split
//!   * where transparent huge pages are on; else 4 KiB
//!
//! mirrored:   address   base ........ base+n ........ base+2n
//!             file      0 ........... n | 0 ......... n
//! ```
//!
//! A mirror is worth less than huge pages are: where a memory file would have small ones only, the
//! choice falls on plain memory, unless a mirror is asked for.
//!
//! Memory is local to the NUMA node of the thread that touches it first, which is the kernel's rule:
//! a partition is filled by the core that serves it. Nothing more is done for nodes.
//!
//! All accesses go through atomic words, so however they meet they are defined. Of the two addresses of a
//! mirrored word a lap uses one only: an item is written and read from where it begins. The compiler takes
//! them for two words, so what is stored by one must not be looked for by the other without a fence between.
//!
//! Source: thesis, section 5.3.3, "Low-level memory management".

use std::io;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

#[cfg(not(miri))]
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
#[cfg(not(miri))]
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, mmap_anonymous, munmap};

/// Bytes of a word.
pub(crate) const WORD: usize = size_of::<u64>();
/// The smallest pages there are.
const SMALL_PAGE: usize = 4 << 10;
/// Huge pages of the machines that we know.
pub(crate) const HUGE_PAGE: usize = 2 << 20;

/// How the end of a log is mapped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mapping {
    /// Mirrored if that costs no huge pages.
    Auto,
    /// Mirrored; an error where it is refused.
    Mirrored,
    /// Not mirrored.
    Plain,
}

/// Words that begin with zeros. Freed on drop.
#[derive(Debug)]
pub(crate) struct Region {
    base: NonNull<AtomicU64>,
    /// Words of memory.
    words: usize,
    /// Words of addresses: twice as many in a mirrored region.
    addresses: usize,
}

// SAFETY: the mapping belongs to no thread, and everything in it is atomic.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

impl Region {
    /// Words that are mapped once; one at least.
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
        if bytes >= HUGE_PAGE {
            // SAFETY: just mapped; the advice changes no byte. Without it pages are smaller.
            let _ = unsafe { madvise(base, bytes, Advice::LinuxHugepage) };
        }
        Ok(region)
    }

    /// Words of the allocator, which Miri can follow.
    #[cfg(miri)]
    pub(crate) fn plain(words: usize) -> io::Result<Self> {
        let all: Box<[AtomicU64]> = (0..words.max(1)).map(|_| AtomicU64::new(0)).collect();
        Region::new(Box::into_raw(all).cast(), words.max(1), false)
    }

    /// Words whose end is followed by their beginning, if they fill pages. With `Auto` a plain
    /// region where a mirror would cost huge pages or is refused.
    ///
    /// # Errors
    /// If the system has no such memory, or a mirror that was asked for would end within a page.
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

    /// Mirrored, of huge pages that were reserved for memory files.
    fn reserved(words: usize) -> io::Result<Self> {
        match words.is_multiple_of(HUGE_PAGE / WORD) {
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
        if words.checked_mul(WORD) != Some(bytes) {
            // Behind the words the page would go on, and the beginning would not follow.
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
        // Anywhere at first, to hear whether there are so many huge pages. To be refused over
        // addresses that are taken would leave a hole, where another thread may map something.
        // SAFETY: the kernel chooses the address, so nothing that is in use is mapped over.
        let probe =
            unsafe { mmap(std::ptr::null_mut(), bytes, protection, MapFlags::SHARED, &file, 0)? };
        // Then addresses, aligned to huge pages, for the file to be mapped over.
        let span = twice + HUGE_PAGE;
        // SAFETY: as above.
        let room = unsafe {
            let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
            mmap_anonymous(std::ptr::null_mut(), span, ProtFlags::empty(), flags)
        };
        let mapped = room.and_then(|room| {
            let skip = room.align_offset(HUGE_PAGE);
            // SAFETY: `span` has one huge page more than is mapped, so what lies before, the two
            // halves and what lies behind are all within the addresses just reserved, which nobody
            // else uses. If a half is refused, they stay reserved for ever: they may be ours no more.
            unsafe {
                let base = room.cast::<u8>().add(skip);
                let flags = MapFlags::SHARED | MapFlags::FIXED;
                mmap(base.cast(), bytes, protection, flags, &file, 0)?;
                mmap(base.add(bytes).cast(), bytes, protection, flags, &file, 0)?;
                if skip > 0 {
                    munmap(room, skip)?;
                }
                munmap(base.add(twice).cast(), HUGE_PAGE - skip)?;
                // Without it pages are smaller.
                let _ = madvise(base.cast(), twice, Advice::LinuxHugepage);
                Ok(base)
            }
        });
        // SAFETY: mapped above with this length, and used by nobody.
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

    /// Bytes of memory.
    pub(crate) fn bytes(&self) -> u64 {
        (self.words * WORD) as u64
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
        let bytes = (self.addresses * WORD).next_multiple_of(SMALL_PAGE);
        // SAFETY: mapped with this length, and no borrow outlives the region. A failure would leave
        // it mapped, which hurts nobody.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), bytes) };
    }

    #[cfg(miri)]
    fn drop(&mut self) {
        let all = std::ptr::slice_from_raw_parts_mut(self.base.as_ptr(), self.words);
        // SAFETY: made by `Box::into_raw` with this length, and no borrow outlives the region.
        drop(unsafe { Box::from_raw(all) });
    }
}

/// Words rounded down to whole pages: huge ones if there are any.
pub(crate) fn whole_pages(words: usize) -> usize {
    let page = if words * WORD >= 16 * HUGE_PAGE { HUGE_PAGE } else { SMALL_PAGE };
    words - words % (page / WORD)
}

#[cfg(not(miri))]
fn bytes_of(words: usize) -> io::Result<usize> {
    let bytes = words.max(1).checked_mul(WORD).filter(|&bytes| bytes < isize::MAX as usize / 4);
    Ok(bytes.ok_or(io::ErrorKind::InvalidInput)?.next_multiple_of(SMALL_PAGE))
}

/// Whether memory files get transparent huge pages: on, or on advice.
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
    fn does_a_region_begin_with_zeros_and_hold_what_is_stored() {
        for words in [0, 1, 512, 5000] {
            let region = Region::plain(words).unwrap();
            let words = words.max(1);
            assert_eq!((region.len(), region.bytes()), (words, (words * WORD) as u64));
            assert!(region.iter().all(|word| word.load(Relaxed) == 0));
            region[words - 1].store(7, Relaxed);
            assert_eq!(region[words - 1].load(Relaxed), 7);
        }
    }

    #[test]
    #[cfg(not(miri))]
    fn does_the_end_of_a_mirror_go_on_at_its_beginning() {
        for words in [512, 3 * 512, 2 * HUGE_PAGE / WORD] {
            let region = Region::for_log(words, Mapping::Mirrored).unwrap();
            assert!(region.is_mirrored());
            assert_eq!((region.len(), region.bytes()), (2 * words, (words * WORD) as u64));
            for at in [0, 1, 511, words - 1] {
                region[at + words].store(at as u64 + 1, Relaxed);
                std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
                assert_eq!(region[at].load(Relaxed), at as u64 + 1);
            }
        }
    }

    /// The end of half a page would be followed by zeros.
    #[test]
    #[cfg(not(miri))]
    fn is_a_mirror_that_fills_no_pages_refused() {
        for words in [0, 1, 511, 513, usize::MAX / WORD, usize::MAX] {
            assert!(Region::for_log(words, Mapping::Mirrored).is_err(), "{words} words");
        }
        for words in [1, 511, 513] {
            let region = Region::for_log(words, Mapping::Auto).unwrap();
            assert!(!region.is_mirrored());
            assert_eq!((region.len(), region.bytes()), (words, (words * WORD) as u64));
        }
    }

    /// A mirror of small pages would be worth less than it costs.
    #[test]
    #[cfg(not(miri))]
    fn is_a_mirror_taken_where_it_has_huge_pages() {
        let words = 2 * HUGE_PAGE / WORD;
        let has_reserved = Region::mirrored(words, true).is_ok();
        let region = Region::for_log(words, Mapping::Auto).unwrap();
        assert_eq!(region.is_mirrored(), has_reserved || files_have_huge_pages());
        assert!(!Region::for_log(words, Mapping::Plain).unwrap().is_mirrored());
    }

    #[test]
    fn are_words_rounded_down_to_pages_that_there_are() {
        let (small, huge) = (SMALL_PAGE / WORD, HUGE_PAGE / WORD);
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
    fn are_regions_given_back() {
        // A thousand times 256 MiB of addresses twice would be more than there are pages tables for.
        for _ in 0..1000 {
            let region = Region::for_log(256 << 17, Mapping::Mirrored).unwrap();
            region[0].store(1, Relaxed);
        }
        assert!(Region::plain(usize::MAX / 16).is_err());
    }

    /// Mapping over taken addresses once left a hole when it was refused, and closing it took what
    /// another thread had mapped there.
    #[test]
    #[cfg(not(miri))]
    fn does_a_refused_mirror_take_nothing_from_other_threads() {
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
