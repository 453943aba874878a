//! Mapped memory, of a file or anonymous: stored to and read in place, written back on request.
//!
//! Stores and copying reads access words atomically, so that concurrent ones may tear at words but
//! are never undefined behaviour. Lookups use views (`&[u8]`) instead, whose callers must guarantee
//! that nobody stores to the viewed range. Only the pages of a [pool](super::PmemPool) use them.
//!
//! ```text
//! how a range becomes durable
//!   DAX file      write back each cache line, one fence       mapped with MAP_SYNC, so the file
//!                                                             system's metadata is durable already
//!   other file    msync of its pages
//!   copy          by its user, who writes and syncs the file      where the system maps none
//!   anonymous     never
//! ```
//!
//! Invariant: the pages are live and aligned, and have `len` bytes at least, until the drop.
//!
//! Source: Intel's "Persistent Memory Programming" guide and volume 1 of its
//! manual, section 11, on the instructions that write lines back and what the fence orders.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::lines::{self, WriteBack};
use crate::bytes::SparseBytes;
use crate::system::{MAP_BYTES, Pages};
use crate::zeros::is_zero;

const WORD: usize = size_of::<u64>();

/// A memory mapping; unmapped on drop.
pub(crate) struct Memory {
    /// `len` bytes, rounded up to a page.
    pages: Pages,
    len: usize,
    durability: Durability,
}

enum Durability {
    CacheLines(WriteBack),
    Msync,
    /// The memory is a copy of the file, which is written and synced by its user.
    Copy,
    Nothing,
}

// SAFETY: the pages belong to no thread, and all accesses through a shared `Memory` are atomic,
// except views, whose creators guarantee that nobody stores.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    /// Zeros that are freed on drop.
    pub(crate) fn anonymous(len: usize) -> io::Result<Self> {
        Ok(Self::new(Pages::anonymous(mapped_len(len)?)?, len, Durability::Nothing))
    }

    /// Anonymous memory that begins with a copy of `bytes`. Costs as much as its non-zero pages.
    pub(crate) fn with_content(bytes: &SparseBytes, len: usize) -> io::Result<Self> {
        let memory = Self::anonymous(len)?;
        let mut piece = [0; MAP_BYTES];
        for start in (0..bytes.len()).step_by(MAP_BYTES) {
            let piece = &mut piece[..(bytes.len() - start).min(MAP_BYTES as u64) as usize];
            if bytes.read(start, piece) && !is_zero(piece) {
                memory.store(start as usize, piece);
            }
        }
        Ok(memory)
    }

    /// The first `len` bytes of a file that is not shorter. The caller holds the file's lock, so
    /// that nothing else changes the file while it is mapped.
    pub(crate) fn of_file(file: &File, len: usize) -> io::Result<Self> {
        let bytes = mapped_len(len)?;
        if let Some(lines) = WriteBack::detect()
            && let Ok(pages) = Pages::persistent(file, len, bytes)
        {
            return Ok(Self::new(pages, len, Durability::CacheLines(lines)));
        }
        let durability = if Pages::ARE_OF_FILE { Durability::Msync } else { Durability::Copy };
        Ok(Self::new(Pages::of_file(file, len, bytes)?, len, durability))
    }

    /// A private (copy-on-write) mapping of the first `len` bytes of a file that is not shorter.
    /// Stored pages are in memory only. The file need not be writable. `None` if the system has
    /// none.
    pub(crate) fn private(file: &File, len: usize) -> io::Result<Option<Self>> {
        let pages = Pages::private(file, mapped_len(len)?)?;
        Ok(pages.map(|pages| Self::new(pages, len, Durability::Nothing)))
    }

    /// `len` bytes of a file from `offset` on, a multiple of [`MAP_BYTES`]. The file has these
    /// bytes with allocated space, and is not truncated while they are mapped. Populated pages are
    /// dirty, and no store to them faults until a sync has written them. Stored bytes are part of
    /// the file as if written, and durable after a sync of the file.
    #[cfg(all(target_os = "linux", not(siltstone_portable)))]
    pub(crate) fn window(
        file: &File,
        offset: u64,
        len: usize,
        is_populated: bool,
    ) -> io::Result<Self> {
        let pages = Pages::window(file, offset, mapped_len(len)?, is_populated)?;
        Ok(Self::new(pages, len, Durability::Msync))
    }

    fn new(pages: Pages, len: usize, durability: Durability) -> Self {
        Memory { pages, len, durability }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Whether cache lines are written back, so that a store costs only a copy.
    pub(crate) fn is_persistent(&self) -> bool {
        matches!(self.durability, Durability::CacheLines(_))
    }

    /// Whether the memory is a copy of its file.
    pub(crate) fn is_copy(&self) -> bool {
        matches!(self.durability, Durability::Copy)
    }

    /// Copies `bytes` to `offset`; panics past the end. Each word of eight bytes changes
    /// atomically.
    pub(crate) fn store(&self, offset: usize, bytes: &[u8]) {
        let words = self.words(offset, bytes.len());
        let (head, rest) = bytes.split_at(bytes.len().min((WORD - offset % WORD) % WORD));
        let mut words = words.iter();
        if !head.is_empty() {
            merge(words.next(), offset % WORD, head);
        }
        let (whole, tail) = rest.as_chunks::<WORD>();
        for (value, word) in whole.iter().zip(&mut words) {
            word.store(u64::from_ne_bytes(*value), Relaxed);
        }
        if !tail.is_empty() {
            merge(words.next(), 0, tail);
        }
    }

    /// Copies the bytes at `offset` to `buf`; panics past the end.
    pub(crate) fn load(&self, offset: usize, buf: &mut [u8]) {
        let mut skip = offset % WORD;
        let mut rest = buf;
        for word in self.words(offset, rest.len()) {
            let value = word.load(Relaxed).to_ne_bytes();
            let count = rest.len().min(WORD - skip);
            let (now, later) = rest.split_at_mut(count);
            now.copy_from_slice(&value[skip..skip + count]);
            (rest, skip) = (later, 0);
        }
    }

    /// The bytes in place; panics past the end.
    ///
    /// # Safety
    /// Nobody stores to the range during `'a`, and the memory outlives `'a`.
    pub(crate) unsafe fn view<'a>(&self, offset: usize, len: usize) -> &'a [u8] {
        self.check(offset, len);
        // SAFETY: in the mapping, as just checked; the caller guarantees the rest.
        unsafe { std::slice::from_raw_parts(self.pages.base().as_ptr().add(offset), len) }
    }

    /// Makes the ranges durable, with one fence for all; panics past the end.
    pub(crate) fn write_back(&self, ranges: &[Range<usize>]) -> io::Result<()> {
        for range in ranges {
            self.check(range.start, range.len());
        }
        match &self.durability {
            Durability::Nothing => {}
            Durability::CacheLines(write_back) => {
                for range in ranges {
                    // SAFETY: in the mapping, as just checked.
                    let start = unsafe { self.pages.base().as_ptr().add(range.start) };
                    write_back.lines(start, range.len());
                }
                lines::fence();
            }
            Durability::Msync | Durability::Copy => {
                for range in ranges.iter().filter(|range| !range.is_empty()) {
                    self.pages.sync(range.clone())?;
                }
            }
        }
        Ok(())
    }

    /// The words that a range overlaps.
    fn words(&self, offset: usize, len: usize) -> &[AtomicU64] {
        self.check(offset, len);
        let (from, to) = (offset / WORD, (offset + len).div_ceil(WORD));
        // SAFETY: the base is aligned to words and the pages end at one, so these words are in them
        // and aligned; there are no non-atomic writes to them.
        unsafe {
            std::slice::from_raw_parts(
                self.pages.base().as_ptr().cast::<AtomicU64>().add(from),
                to - from,
            )
        }
    }

    fn check(&self, offset: usize, len: usize) {
        let is_inside = offset.checked_add(len).is_some_and(|end| end <= self.len);
        assert!(is_inside, "{len} bytes at {offset} are not in a mapping of {}", self.len);
    }
}

fn mapped_len(len: usize) -> io::Result<usize> {
    let mapped = len.checked_next_multiple_of(MAP_BYTES).filter(|&n| n > 0 && n <= isize::MAX as _);
    mapped.ok_or_else(|| io::ErrorKind::InvalidInput.into())
}

/// Changes some bytes of a word; concurrent changes of its other bytes are kept.
fn merge(word: Option<&AtomicU64>, at: usize, bytes: &[u8]) {
    let change = |value: u64| {
        let mut value = value.to_ne_bytes();
        value[at..at + bytes.len()].copy_from_slice(bytes);
        Some(u64::from_ne_bytes(value))
    };
    if let Some(word) = word {
        // The closure never returns `None`.
        let _ = word.fetch_update(Relaxed, Relaxed, change);
    }
}

#[cfg(test)]
#[allow(clippy::single_range_in_vec_init)] // A list of one range is meant.
mod tests {
    use super::*;

    /// Every alignment of both ends, compared with a vector.
    #[test]
    fn stores_and_loads_move_exactly_their_bytes() {
        let memory = Memory::anonymous(100).unwrap();
        let mut plain = vec![0; 100];
        let mut value = 0u8;
        for from in 0..20 {
            for len in 0..30 {
                let bytes: Vec<u8> = (0..len).map(|i| value.wrapping_add(i)).collect();
                value = value.wrapping_add(37);
                memory.store(from, &bytes);
                plain[from..from + len as usize].copy_from_slice(&bytes);
                let mut back = vec![0; len as usize];
                memory.load(from, &mut back);
                assert_eq!(back, bytes);
            }
        }
        // SAFETY: nobody stores any more.
        assert_eq!(unsafe { memory.view(0, 100) }, plain);
        memory.write_back(&[0..1, 64..100]).unwrap();
    }

    #[test]
    #[cfg(all(target_os = "linux", not(siltstone_portable)))]
    fn file_contains_what_was_stored_through_its_mapping() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(10_000).unwrap();
        let memory = Memory::of_file(&file, 10_000).unwrap();
        memory.store(9_995, b"ends!");
        memory.write_back(&[9_990..10_000, 3..3]).unwrap();
        let mut back = [0; 5];
        std::os::unix::fs::FileExt::read_exact_at(&file, &mut back, 9_995).unwrap();
        assert_eq!(&back, b"ends!");
    }

    #[test]
    #[should_panic(expected = "not in a mapping")]
    fn store_past_the_end_panics() {
        Memory::anonymous(100).unwrap().store(96, &[1; 5]);
    }

    /// There is no DAX file system to test on, but the instructions work on any memory.
    #[test]
    fn write_back_does_not_change_bytes() {
        let Some(lines) = WriteBack::detect() else { return };
        let mut memory = Memory::anonymous(4096).unwrap();
        memory.durability = Durability::CacheLines(lines);
        memory.store(60, &[7; 200]);
        memory.write_back(&[60..260, 0..0, 4095..4096]).unwrap();
        let mut back = [0; 200];
        memory.load(60, &mut back);
        assert_eq!(back, [7; 200]);
    }
}
