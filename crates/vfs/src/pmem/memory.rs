//! Mapped bytes: a file's or anonymous ones, stored to and read in place, written back on demand.
//!
//! Stores and copying reads go word by word through atomics, so that however they meet, they are
//! torn at words and never undefined. Views (`&[u8]`) are what lookups want, and they ask more: that
//! nobody stores to what is viewed. That is the one promise a caller has to make, and the pages of a
//! [pool](super::PmemPool) are the one caller.
//!
//! ```text
//! how a range becomes durable
//!   DAX file      write back each cache line, one fence       the mapping is MAP_SYNC, so the file
//!                                                             system's own state is durable already
//!   other file    msync of the pages it lies on
//!   anonymous     it doesn't
//! ```
//!
//! Invariant: `base` is a live mapping of `mapped` bytes, aligned to pages, until the drop.
//!
//! Source: ours; on MAP_SYNC, mmap(2); on which instructions write lines back and what the fence
//! orders, Intel's "Persistent Memory Programming" guide and volume 1 of its manual, section 11.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use rustix::io::Errno;
use rustix::mm::{
    Advice, MapFlags, MsyncFlags, ProtFlags, madvise, mmap, mmap_anonymous, msync, munmap,
};

use super::lines::{self, WriteBack};
use crate::bytes::SparseBytes;

/// What `mmap` and `msync` count in; the machine's pages may be larger, never smaller.
pub(crate) const MAP_BYTES: usize = 4096;
const WORD: usize = size_of::<u64>();

/// A mapping. Freed on drop.
pub(crate) struct Memory {
    base: NonNull<u8>,
    len: usize,
    /// `len` up to a page.
    mapped: usize,
    durability: Durability,
}

enum Durability {
    CacheLines(WriteBack),
    Msync,
    Nothing,
}

// SAFETY: the mapping belongs to no thread, and all accesses through a shared `Memory` are atomic,
// but for views, whose makers answer for them.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    /// Zeros that go with the process.
    pub(crate) fn anonymous(len: usize) -> io::Result<Self> {
        let mapped = mapped_len(len)?;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the kernel chooses the address, so nothing that is in use is mapped over.
        let base = unsafe {
            mmap_anonymous(ptr::null_mut(), mapped, protection, MapFlags::PRIVATE | NO_RESERVE)?
        };
        Self::new(base.cast(), len, mapped, Durability::Nothing)
    }

    /// Anonymous memory that begins with a copy of these bytes. Costs what is not zero of them.
    pub(crate) fn holding(bytes: &SparseBytes, len: usize) -> io::Result<Self> {
        let memory = Self::anonymous(len)?;
        let mut piece = [0; MAP_BYTES];
        for start in (0..bytes.len()).step_by(MAP_BYTES) {
            let piece = &mut piece[..(bytes.len() - start).min(MAP_BYTES as u64) as usize];
            if bytes.read(start, piece) && piece.iter().any(|&byte| byte != 0) {
                memory.store(start as usize, piece);
            }
        }
        Ok(memory)
    }

    /// The first `len` bytes of a file that has as many. While it is mapped nothing else may change
    /// the file: the caller holds its lock.
    pub(crate) fn of_file(file: &File, len: usize) -> io::Result<Self> {
        if let Some(lines) = WriteBack::detect()
            && let Ok(base) = map(file, 0, len, MapFlags::SHARED_VALIDATE | MapFlags::SYNC)
        {
            return Self::new(base, len, mapped_len(len)?, Durability::CacheLines(lines));
        }
        let base = map(file, 0, len, MapFlags::SHARED)?;
        Self::new(base, len, mapped_len(len)?, Durability::Msync)
    }

    /// The first `len` bytes of a file that has as many, each page as it is there until it is stored to: what is
    /// stored is in this memory alone, and takes room there. It need not be writable.
    pub(crate) fn apart(file: &File, len: usize) -> io::Result<Self> {
        let base = map(file, 0, len, MapFlags::PRIVATE | NO_RESERVE)?;
        Self::new(base, len, mapped_len(len)?, Durability::Nothing)
    }

    /// `len` bytes of a file from `offset` on, a multiple of [`MAP_BYTES`]; the file has as many, and
    /// space for them, and is not cut short while they are mapped. Its pages are made present, so that
    /// no store waits for one; what is stored is the file's as what was written to it is, durable after a
    /// sync of the file.
    pub(crate) fn window(file: &File, offset: u64, len: usize) -> io::Result<Self> {
        let base = map(file, offset, len, MapFlags::SHARED)?;
        let memory = Self::new(base, len, mapped_len(len)?, Durability::Msync)?;
        // Kernels before 5.14 know nothing of it: pages then come as they are stored to.
        // SAFETY: in the mapping just made, and no byte of it changes.
        let _ = unsafe { madvise(base.cast(), len, Advice::LinuxPopulateWrite) };
        Ok(memory)
    }

    fn new(base: *mut u8, len: usize, mapped: usize, durability: Durability) -> io::Result<Self> {
        let base = NonNull::new(base).ok_or(Errno::FAULT)?;
        Ok(Memory { base, len, mapped, durability })
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Whether lines are written back, so that a store costs what its bytes do.
    pub(crate) fn is_persistent(&self) -> bool {
        matches!(self.durability, Durability::CacheLines(_))
    }

    /// Copies `bytes` to `offset`; panics past the end. Each word of eight bytes changes at once.
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

    /// Copies what is at `offset` to `buf`; panics past the end.
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

    /// The bytes themselves; panics past the end.
    ///
    /// # Safety
    /// Nobody stores to the range while `'a` lasts, and the memory outlives it.
    pub(crate) unsafe fn view<'a>(&self, offset: usize, len: usize) -> &'a [u8] {
        self.check(offset, len);
        // SAFETY: in the mapping, as just checked; for the rest the caller answers.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr().add(offset), len) }
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
                    let start = unsafe { self.base.as_ptr().add(range.start) };
                    write_back.lines(start, range.len());
                }
                lines::fence();
            }
            Durability::Msync => {
                for range in ranges.iter().filter(|range| !range.is_empty()) {
                    let from = range.start - range.start % MAP_BYTES;
                    let len = (range.end - from).next_multiple_of(MAP_BYTES);
                    // SAFETY: in the mapping, which ends with a page; msync changes no byte of it.
                    unsafe { msync(self.base.as_ptr().add(from).cast(), len, MsyncFlags::SYNC)? };
                }
            }
        }
        Ok(())
    }

    /// The words that a range touches.
    fn words(&self, offset: usize, len: usize) -> &[AtomicU64] {
        self.check(offset, len);
        let (from, to) = (offset / WORD, (offset + len).div_ceil(WORD));
        // SAFETY: `base` is aligned to a page and the mapping ends with one, so these words lie in
        // it, aligned; plain writes to it there are none.
        unsafe {
            std::slice::from_raw_parts(self.base.as_ptr().cast::<AtomicU64>().add(from), to - from)
        }
    }

    fn check(&self, offset: usize, len: usize) {
        let is_inside = offset.checked_add(len).is_some_and(|end| end <= self.len);
        assert!(is_inside, "{len} bytes at {offset} are not in a mapping of {}", self.len);
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: mapped by `new`'s callers with this length, and no view outlives the memory.
        // A failure would leave it mapped, which hurts nobody.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.mapped) };
    }
}

/// Memory that is never touched should cost nothing, however much is reserved.
const NO_RESERVE: MapFlags = MapFlags::NORESERVE;

fn map(file: &File, offset: u64, len: usize, flags: MapFlags) -> io::Result<*mut u8> {
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: the kernel chooses the address, so nothing that is in use is mapped over; that the
    // file changes under nobody's feet is what its lock is for, or its only writer.
    let base = unsafe { mmap(ptr::null_mut(), mapped_len(len)?, protection, flags, file, offset)? };
    Ok(base.cast())
}

fn mapped_len(len: usize) -> io::Result<usize> {
    let mapped = len.checked_next_multiple_of(MAP_BYTES).filter(|&n| n > 0 && n <= isize::MAX as _);
    mapped.ok_or_else(|| Errno::INVAL.into())
}

/// Changes some bytes of a word and leaves its other bytes to whoever changes them meanwhile.
fn merge(word: Option<&AtomicU64>, at: usize, bytes: &[u8]) {
    let change = |value: u64| {
        let mut value = value.to_ne_bytes();
        value[at..at + bytes.len()].copy_from_slice(bytes);
        Some(u64::from_ne_bytes(value))
    };
    if let Some(word) = word {
        // The closure never declines.
        let _ = word.fetch_update(Relaxed, Relaxed, change);
    }
}

#[cfg(test)]
#[allow(clippy::single_range_in_vec_init)] // A list of one range is meant.
mod tests {
    use super::*;

    /// Every alignment of both ends, against a plain vector.
    #[test]
    fn do_stores_and_loads_move_exactly_their_bytes() {
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
    fn does_a_file_hold_what_was_stored_through_its_mapping() {
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
    fn is_a_store_past_the_end_stopped() {
        Memory::anonymous(100).unwrap().store(96, &[1; 5]);
    }

    /// There is no DAX file system to test on; the instructions work on any memory.
    #[test]
    fn do_write_backs_leave_the_bytes_alone() {
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
