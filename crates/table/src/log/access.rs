//! Reads single records of a log by position, also while it is written.
//!
//! ```text
//!   log      block of 32 KiB ──────────────────────┬─ …
//!            [hdr][record][record][record][record] │
//!   chunks   └─ 4 KiB ─┴─ 4 KiB ─┴─ …                 cached like the blocks of an SSTable
//! ```
//!
//! With a block cache, a record that lies in one cached chunk is lent from there, and one that lies
//! in two is copied from both. A chunk is cached at the second read of a record in it, if the cache
//! has space left; in a full cache only at every few misses, since random reads use little of each
//! chunk. Only reads for users fill the cache. Longer records are read past it.
//!
//! Invariant: a record is compared with its checksum at each read from the file. In a cached chunk
//! it is compared when it is read first, as a block of an SSTable is when it is cached, and again
//! only if a short record beside it was read meanwhile.

use std::mem::offset_of;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

use siltstone_engine::{Error, Purpose, Result};
use siltstone_structures::prefetch;
use siltstone_vfs::{File, Mode, Vfs};

use super::format::{
    BLOCK_BYTES, FRAGMENT_HEADER_BYTES, Fragment, HEADER_BYTES, LogSum, Part, fits_fragment,
};
use super::shared::Shared;
use crate::cache::{BlockCache, CacheRef, CacheableBlock, CachedFile};

/// Bytes of a log that are cached together.
const CHUNK_BYTES: usize = 4 << 10;
/// Prefetched of a record, in cache lines.
const PREFETCHED_LINES: usize = 3;
const LINE_BYTES: usize = 64;
/// How much callers may round the length of a record up.
const MAX_ROUNDING: u64 = 64;

/// Random access to the records of a log. Thread-safe.
pub struct LogAccess {
    file: Arc<dyn File>,
    name: String,
    sum: LogSum,
    len: Length,
    cached: Option<CachedFile<Chunk>>,
}

/// The length of a log.
enum Length {
    /// No longer written to in these first bytes.
    Fixed(u64),
    /// Up to what the writer has appended.
    Growing(Arc<Shared>),
}

/// Bytes of a chunk in which one record at a time is known to match its checksum.
const SLOT_BYTES: usize = 32;

/// A cached part of a log.
struct Chunk {
    bytes: [u8; CHUNK_BYTES],
    /// By slot, the record that was last compared with its checksum and matched: where in the slot
    /// it begins, plus 1; 0: none.
    checked: [AtomicU8; CHUNK_BYTES / SLOT_BYTES],
}

impl Chunk {
    fn new(bytes: [u8; CHUNK_BYTES]) -> Self {
        Chunk { bytes, checked: [const { AtomicU8::new(0) }; CHUNK_BYTES / SLOT_BYTES] }
    }

    /// The record at `position` of the log, if all of it is in this chunk and it is not damaged.
    #[inline]
    fn record(&self, sum: &LogSum, position: u64) -> Option<&[u8]> {
        let at = position as usize % CHUNK_BYTES;
        let (rest, slot) = (&self.bytes[at..], &self.checked[at / SLOT_BYTES]);
        let this = (at % SLOT_BYTES) as u8 + 1;
        // Relaxed: the bytes do not change.
        if slot.load(Relaxed) != this {
            sum.parse_fragment(position, rest).ok()?;
            slot.store(this, Relaxed);
        }
        let (fragment, _, payload) = Fragment::decode(rest).ok()?;
        (fragment.part == Part::Full).then_some(payload)
    }
}

impl CacheableBlock for Chunk {
    fn memory_bytes(&self) -> usize {
        size_of::<Chunk>()
    }
}

/// Whether a record at `position` may lie in one chunk. `expected` is rounded up.
fn fits_chunk(position: u64, expected: u64) -> bool {
    let least = FRAGMENT_HEADER_BYTES + expected.saturating_sub(MAX_ROUNDING);
    position % CHUNK_BYTES as u64 + least <= CHUNK_BYTES as u64
}

impl LogAccess {
    /// Opens the log `name`, written with `number`.
    ///
    /// # Errors
    /// I/O errors.
    pub fn open(vfs: &dyn Vfs, name: &str, number: u64) -> Result<Self> {
        Self::from_file(vfs.open(name, Mode::Read)?, name, number)
    }

    /// A log with an active writer: a record is readable as soon as it is appended.
    pub(super) fn growing(file: Arc<dyn File>, sum: LogSum, shared: Arc<Shared>) -> Self {
        let name = shared.name.clone();
        LogAccess { file, name, sum, len: Length::Growing(shared), cached: None }
    }

    /// Reads from an open file; `name` is for messages.
    ///
    /// # Errors
    /// I/O errors.
    pub fn from_file(file: Arc<dyn File>, name: &str, number: u64) -> Result<Self> {
        let len = Length::Fixed(file.len()?);
        Ok(LogAccess { file, name: name.into(), sum: LogSum::new(number), len, cached: None })
    }

    /// Opens the first `bytes` bytes of the log `name`, which are no longer written to. The file
    /// may have a preallocated tail behind them, and lose it at any time: it is never read.
    ///
    /// # Errors
    /// `Corruption` if the file is shorter; I/O errors.
    pub fn open_prefix(vfs: &dyn Vfs, name: &str, number: u64, bytes: u64) -> Result<Self> {
        let access = Self::open(vfs, name, number)?;
        let file_bytes = access.file_bytes();
        if file_bytes < bytes {
            let reason = format!("this log has {file_bytes} bytes, and {bytes} of it are in use");
            return Err(Error::corruption(name, file_bytes, reason));
        }
        Ok(LogAccess { len: Length::Fixed(bytes), ..access })
    }

    /// The same with a cache. The log must no longer be written to.
    #[must_use]
    pub fn with_cache(mut self, cache: &Arc<BlockCache>) -> Self {
        let chunks = usize::try_from(self.file_bytes() / CHUNK_BYTES as u64).unwrap_or(0);
        self.cached = Some(CachedFile::new(cache.clone(), chunks));
        self
    }

    pub(super) fn file(&self) -> &dyn File {
        self.file.as_ref()
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn sum(&self) -> &LogSum {
        &self.sum
    }

    /// The readable length, in bytes.
    pub fn file_bytes(&self) -> u64 {
        match &self.len {
            Length::Fixed(len) => *len,
            Length::Growing(shared) => shared.written(),
        }
    }

    /// Passes the record at `position`, of about `expected` bytes, to `visit`. Cost: no copy if the
    /// record is in one cached chunk or one fragment, one copy if it is in two cached chunks, else
    /// that of [`read`](Self::read).
    ///
    /// # Errors
    /// As [`read`](Self::read).
    #[inline]
    pub fn visit<R>(
        &self,
        position: u64,
        expected: u64,
        purpose: Purpose,
        visit: impl FnOnce(&[u8]) -> R,
    ) -> Result<R> {
        if fits_chunk(position, expected)
            && let Some(chunk) = self.chunk(position, purpose)?
            && let Some(record) = chunk.record(&self.sum, position)
        {
            return Ok(visit(record));
        }
        let (mut buffer, mut record) = (Vec::new(), Vec::new());
        let whole = FRAGMENT_HEADER_BYTES + expected;
        let (part, payload) = self.fragment(position, whole, &mut buffer, purpose)?;
        if part == Part::Full {
            return Ok(visit(&buffer[payload]));
        }
        self.read_from((part, payload), position, expected, &mut buffer, &mut record, purpose)?;
        Ok(visit(&record))
    }

    /// Passes the record at `position`, of about `expected` bytes, to `visit`, if it is undamaged
    /// and in one cached chunk. Otherwise use [`visit`](Self::visit).
    #[inline]
    pub fn visit_cached<R>(
        &self,
        position: u64,
        expected: u64,
        visit: impl FnOnce(&[u8]) -> Option<R>,
    ) -> Option<R> {
        let cached = self.cached.as_ref()?;
        let i = (position / CHUNK_BYTES as u64) as usize;
        if !fits_chunk(position, expected) || i >= cached.blocks() {
            return None;
        }
        let chunk = cached.get_cached(i)?;
        visit(chunk.record(&self.sum, position)?)
    }

    /// Prefetches the start of the record at `position` into the CPU caches, if it is cached.
    #[inline]
    pub fn prefetch(&self, position: u64) {
        let i = (position / CHUNK_BYTES as u64) as usize;
        let Some(cached) = &self.cached else { return };
        let chunk = cached.address(i);
        if !chunk.is_null() {
            let at = position as usize % CHUNK_BYTES;
            let place = |offset: usize| prefetch(chunk.wrapping_byte_add(offset));
            let start = offset_of!(Chunk, bytes) + at;
            (0..PREFETCHED_LINES).for_each(|line| place(start + line * LINE_BYTES));
            place(offset_of!(Chunk, checked) + at / SLOT_BYTES);
        }
    }

    /// Starts reading the record at `position`, of about `expected` bytes, unless it is cached.
    pub fn begin_read(&self, position: u64, expected: u64) {
        if self.visit_cached(position, expected, |_| Some(())).is_none() {
            self.file.begin_read(position, FRAGMENT_HEADER_BYTES + expected);
        }
    }

    /// Replaces `out` with the record at `position`, of about `expected` bytes. Cost: one read
    /// request of that size (two if it was too small), then one for each further block.
    ///
    /// # Errors
    /// `Corruption` if there is no valid record at `position`; I/O errors.
    pub fn read(
        &self,
        position: u64,
        expected: u64,
        out: &mut Vec<u8>,
        purpose: Purpose,
    ) -> Result<()> {
        let mut buffer = Vec::new();
        let whole = FRAGMENT_HEADER_BYTES + expected;
        let first = self.fragment(position, whole, &mut buffer, purpose)?;
        out.clear();
        self.read_from(first, position, expected, &mut buffer, out, purpose)
    }

    /// Appends the record at `position` to the empty `out`; `first` is its first fragment, which is
    /// in `buffer`.
    fn read_from(
        &self,
        first: (Part, Range<usize>),
        position: u64,
        expected: u64,
        buffer: &mut Vec<u8>,
        out: &mut Vec<u8>,
        purpose: Purpose,
    ) -> Result<()> {
        let (mut at, mut is_first) = (position, true);
        let (mut part, mut payload) = first;
        loop {
            match (part, is_first) {
                (Part::Full, true) | (Part::First, true) | (Part::Middle | Part::Last, false) => {}
                _ => return Err(Error::corruption(&self.name, at, "no record starts here")),
            }
            out.extend_from_slice(&buffer[payload]);
            if matches!(part, Part::Full | Part::Last) {
                return Ok(());
            }
            at = (at / BLOCK_BYTES + 1) * BLOCK_BYTES + HEADER_BYTES;
            is_first = false;
            let left = FRAGMENT_HEADER_BYTES + expected.saturating_sub(out.len() as u64);
            (part, payload) = self.fragment(at, left, buffer, purpose)?;
        }
    }

    /// Reads the fragment at `at`, of about `expected` bytes, into `buffer`; returns its part, and
    /// where its payload is in `buffer`.
    fn fragment(
        &self,
        at: u64,
        expected: u64,
        buffer: &mut Vec<u8>,
        purpose: Purpose,
    ) -> Result<(Part, Range<usize>)> {
        let (in_block, len) = (at % BLOCK_BYTES, self.file_bytes());
        if in_block < HEADER_BYTES || !fits_fragment(in_block) || at >= len {
            return Err(Error::corruption(&self.name, at, "no record can start here"));
        }
        let most = (BLOCK_BYTES - in_block).min(len - at);
        let mut have = most.min(expected.max(FRAGMENT_HEADER_BYTES));
        buffer.resize(have as usize, 0);
        self.fill(at, buffer, purpose)?;
        if let [_, _, _, _, a, b, _, ..] = buffer[..] {
            let whole = (FRAGMENT_HEADER_BYTES + u64::from(u16::from_le_bytes([a, b]))).min(most);
            if whole > have {
                buffer.resize(whole as usize, 0);
                self.fill(at + have, &mut buffer[have as usize..], purpose)?;
                have = whole;
            }
        }
        let fragment = self
            .sum
            .parse_fragment(at, &buffer[..have as usize])
            .map_err(|reason| Error::corruption(&self.name, at, reason))?;
        let payload = FRAGMENT_HEADER_BYTES as usize;
        Ok((fragment.part, payload..payload + fragment.len))
    }

    /// Fills `buffer` with the bytes from `at` on: from two chunks, as far as they are cached or to
    /// be cached, if it crosses the boundary between them. Callers have asked for the chunk of what
    /// lies in one.
    fn fill(&self, at: u64, buffer: &mut [u8], purpose: Purpose) -> Result<()> {
        let mut done = 0;
        let in_chunk = at as usize % CHUNK_BYTES;
        if in_chunk + buffer.len() > CHUNK_BYTES && buffer.len() <= CHUNK_BYTES {
            while done < buffer.len()
                && let Some(chunk) = self.chunk(at + done as u64, purpose)?
            {
                let rest = &chunk.bytes[(in_chunk + done) % CHUNK_BYTES..];
                let part = rest.len().min(buffer.len() - done);
                buffer[done..done + part].copy_from_slice(&rest[..part]);
                done += part;
            }
        }
        match &mut buffer[done..] {
            [] => Ok(()),
            rest => self.file.read_lossy_at(at + done as u64, rest, purpose),
        }
    }

    /// The chunk with the byte at `position`, if it is cached or to be cached.
    #[inline]
    fn chunk(&self, position: u64, purpose: Purpose) -> Result<Option<CacheRef<Chunk>>> {
        let Some(cached) = &self.cached else { return Ok(None) };
        let i = (position / CHUNK_BYTES as u64) as usize;
        if i >= cached.blocks() {
            return Ok(None);
        }
        match cached.get(i) {
            Some(chunk) => Ok(Some(chunk)),
            None => self.read_chunk(cached, i, purpose),
        }
    }

    #[cold]
    fn read_chunk(
        &self,
        cached: &CachedFile<Chunk>,
        i: usize,
        purpose: Purpose,
    ) -> Result<Option<CacheRef<Chunk>>> {
        let is_for_user = matches!(purpose, Purpose::Get | Purpose::Scan);
        if !is_for_user || !cached.admits(i, size_of::<Chunk>()) {
            return Ok(None);
        }
        let mut bytes = [0; CHUNK_BYTES];
        self.file.read_lossy_at((i * CHUNK_BYTES) as u64, &mut bytes, purpose)?;
        let chunk = Arc::new(Chunk::new(bytes));
        cached.insert(i, chunk.clone());
        Ok(Some(chunk.into()))
    }
}
