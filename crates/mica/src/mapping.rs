//! Mapped memory for logs, heaps and indexes, as atomic words, with huge pages if available.
//!
//! ```text
//! kinds of regions, in order of preference                        pages     end of a log
//!   mirrored   memory file on reserved huge pages, mapped twice     2 MiB     seamless
//!   mirrored   memory file, if the system supports transparent      2 MiB     seamless
//!              huge pages for such files
//!   plain      anonymous memory with huge-page advice               2 MiB *   items are not split
//!   plain      allocator memory, in the portable form (`system`)    any       items are not split
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

pub(crate) use crate::system::HUGE_PAGE_BYTES;
use crate::system::{SMALL_PAGE_BYTES, files_have_huge_pages, map, map_mirrored, unmap};

/// Bytes of a word.
pub(crate) const WORD_BYTES: usize = size_of::<u64>();

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
    pub(crate) fn plain(words: usize) -> io::Result<Self> {
        let words = words.max(1);
        bytes_of(words).and_then(map).map(|base| Region::new(base, words, false))
    }

    /// Maps a log whose end is followed by its beginning, if it consists of whole pages. With
    /// `Auto` the region is plain if a mirror would cost huge pages or is unavailable.
    ///
    /// # Errors
    /// If the system has no such memory, or a requested mirror would end within a page.
    pub(crate) fn for_log(words: usize, mapping: Mapping) -> io::Result<Self> {
        match mapping {
            _ if cfg!(miri) => Region::plain(words),
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

    fn mirrored(words: usize, is_reserved: bool) -> io::Result<Self> {
        let bytes = bytes_of(words)?;
        if !bytes.is_multiple_of(SMALL_PAGE_BYTES) || words == 0 {
            // The last page would extend past the words, and the beginning would not follow.
            return Err(io::ErrorKind::InvalidInput.into());
        }
        Ok(Region::new(map_mirrored(bytes, is_reserved)?, words, true))
    }

    fn new(base: NonNull<u8>, words: usize, is_mirrored: bool) -> Self {
        Region { base: base.cast(), words, addresses: words << usize::from(is_mirrored) }
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
        // SAFETY: `base` is a live mapping of as many words until the drop, aligned to words, of
        // zeros or what was stored atomically; words of a mirror are words of memory like others.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr(), self.addresses) }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: mapped with this length, and no borrow outlives the region.
        unsafe { unmap(self.base.cast(), self.addresses * WORD_BYTES) };
    }
}

/// Rounds down to whole pages: huge ones if the size is large enough.
pub(crate) fn whole_pages(words: usize) -> usize {
    let page =
        if words * WORD_BYTES >= 16 * HUGE_PAGE_BYTES { HUGE_PAGE_BYTES } else { SMALL_PAGE_BYTES };
    words - words % (page / WORD_BYTES)
}

fn bytes_of(words: usize) -> io::Result<usize> {
    let bytes = words.checked_mul(WORD_BYTES).filter(|&bytes| bytes < isize::MAX as usize / 4);
    bytes.ok_or_else(|| io::ErrorKind::InvalidInput.into())
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
    #[cfg(all(target_os = "linux", not(any(miri, siltstone_portable))))]
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
    #[cfg(all(target_os = "linux", not(any(miri, siltstone_portable))))]
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
    #[cfg(all(target_os = "linux", not(any(miri, siltstone_portable))))]
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
    #[cfg(all(target_os = "linux", not(any(miri, siltstone_portable))))]
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
    #[cfg(all(target_os = "linux", not(any(miri, siltstone_portable))))]
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
