//! Byte-addressable persistent memory: mapped files with persist barriers, divided into pages.
//!
//! A [`Mapping`] is a file of fixed capacity that is stored to in place. A store is visible at once
//! and durable after a [`persist`](Mapping::persist) that covers it. Before that, each cache line
//! of 64 bytes may or may not have reached the memory, completely or in words of eight bytes:
//!
//! ```text
//!   Mapping::store ──▶ memory (mapped) ◀── Page: &[u8], no lock, no copy
//!        │                  │
//!      backing           persist: write back lines, fence          one barrier, any ranges
//!   (counts, fails,
//!    loses power)
//! ```
//!
//! A mapping has one owner, cannot be cloned and holds the lock of its file. A [`PmemPool`] takes
//! it and divides it into pages; the owner of a page may store to it. Device-specific behaviour,
//! such as counters and injected faults, is in a *backing* that the mapping calls.
//!
//! | module | content |
//! | --- | --- |
//! | `memory` | mapped memory and how it becomes durable |
//! | `lines` | the instructions that write cache lines back |
//! | `pool` | pages, a free list and claims |
//! | `page` | writable and readable pages |
//!
//! Invariant: a file has at most one `Mapping`, and its bytes change only through it.
//!
//! Source: sections 2.1 and 3.1 of the TriangleKV paper (which uses PMDK); Intel's programming
//! model for persistent memory.

use std::io::ErrorKind;
use std::ops::Range;
use std::sync::Arc;

use siltstone_engine::{Error, Purpose, Result};

use crate::bytes::SparseBytes;
use crate::names::fault;

mod lines;
mod memory;
mod page;
mod pool;

pub use page::{Page, PageMut};
pub use pool::{PageClaims, PmemPool};

pub use lines::LINE_BYTES;
pub(crate) use memory::Memory;

/// A file mapped as byte-addressable memory. Unmapped and unlocked on drop.
pub struct Mapping {
    name: String,
    // Declared before the backing, which holds the lock, so that it is unmapped first.
    memory: Arc<Memory>,
    backing: Box<dyn Backing>,
}

/// The device-specific part of a [`Mapping`]. The mapping has checked the ranges against its
/// capacity.
pub trait Backing: Send + Sync {
    /// Stores `bytes` at `offset` through [`MappedMemory::store`], or fails.
    fn store(
        &self,
        memory: &MappedMemory<'_>,
        offset: u64,
        bytes: &[u8],
        purpose: Purpose,
    ) -> Result<()>;

    /// Makes the ranges durable.
    fn persist(
        &self,
        memory: &MappedMemory<'_>,
        ranges: &[Range<u64>],
        purpose: Purpose,
    ) -> Result<()>;

    /// Records that `bytes` bytes were read in place.
    fn note_read(&self, _bytes: u64, _purpose: Purpose) {}
}

/// The memory of a [`Mapping`] during one call of its [`Backing`].
///
/// Only the bytes of the store in progress can be stored to, because other bytes may be borrowed as
/// slices.
pub struct MappedMemory<'a> {
    memory: &'a Memory,
    writable: Range<u64>,
}

impl MappedMemory<'_> {
    /// Copies `bytes` to `offset`.
    ///
    /// # Panics
    /// If a byte lies outside the range of the store in progress.
    pub fn store(&self, offset: u64, bytes: &[u8]) {
        let end = offset + bytes.len() as u64;
        assert!(self.writable.start <= offset && end <= self.writable.end, "outside of the store");
        self.memory.store(offset as usize, bytes);
    }

    pub(crate) fn is_persistent(&self) -> bool {
        self.memory.is_persistent()
    }

    pub(crate) fn is_copy(&self) -> bool {
        self.memory.is_copy()
    }

    pub(crate) fn write_back(&self, ranges: &[Range<usize>]) -> std::io::Result<()> {
        self.memory.write_back(ranges)
    }
}

/// The backing of memory without durability. Holds a resource, e.g. a lock, for the mapping.
pub(crate) struct VolatileBacking<T>(pub(crate) T);

impl<T: Send + Sync> Backing for VolatileBacking<T> {
    fn store(
        &self,
        memory: &MappedMemory<'_>,
        offset: u64,
        bytes: &[u8],
        _purpose: Purpose,
    ) -> Result<()> {
        memory.store(offset, bytes);
        Ok(())
    }

    fn persist(
        &self,
        _memory: &MappedMemory<'_>,
        _ranges: &[Range<u64>],
        _purpose: Purpose,
    ) -> Result<()> {
        Ok(())
    }
}

impl Mapping {
    pub(crate) fn new(name: String, memory: Arc<Memory>, backing: Box<dyn Backing>) -> Self {
        Mapping { name, memory, backing }
    }

    /// A mapping of anonymous memory: `capacity_bytes` bytes that begin with a copy of `content`.
    ///
    /// # Errors
    /// `Io`: the system has no memory of that size.
    pub fn anonymous(
        name: String,
        content: &SparseBytes,
        capacity_bytes: u64,
        backing: Box<dyn Backing>,
    ) -> Result<Self> {
        let len = usize::try_from(capacity_bytes).map_err(|_| ErrorKind::OutOfMemory.into());
        let memory = len.and_then(|len| Memory::with_content(content, len));
        let memory = memory.map_err(|error| Error::io("map", &*name, &error))?;
        Ok(Mapping::new(name, Arc::new(memory), backing))
    }

    /// The same mapping with another backing around its own.
    pub(crate) fn wrap(self, wrap: impl FnOnce(Box<dyn Backing>) -> Box<dyn Backing>) -> Self {
        Mapping { backing: wrap(self.backing), ..self }
    }

    /// The file's name in messages.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The capacity in bytes.
    pub fn capacity_bytes(&self) -> u64 {
        self.memory.len() as u64
    }

    /// Stores `bytes` at `offset`; visible at once, durable after a [`persist`](Self::persist) that
    /// covers them. Costs a copy; if the file is not on persistent memory, a write to the file.
    ///
    /// # Errors
    /// `Io`: past the end (nothing is stored), or a failed store, after which the range may hold
    /// any mix of old and new words.
    pub fn store(&self, offset: u64, bytes: &[u8], purpose: Purpose) -> Result<()> {
        self.check("store to", offset, bytes.len() as u64)?;
        let writable = offset..offset + bytes.len() as u64;
        let memory = MappedMemory { memory: &self.memory, writable };
        self.backing.store(&memory, offset, bytes, purpose)
    }

    /// Makes the ranges durable: writes back their cache lines, and waits once for all. Costs about
    /// a nanosecond per byte on persistent memory; for other files, an `msync` per range.
    ///
    /// # Errors
    /// `Io`: past the end, or a failed persist, after which the state of the ranges is unknown. A
    /// later success does not change that.
    pub fn persist(&self, ranges: &[Range<u64>], purpose: Purpose) -> Result<()> {
        for range in ranges {
            self.check("persist", range.start, range.end.saturating_sub(range.start))?;
        }
        let memory = MappedMemory { memory: &self.memory, writable: 0..0 };
        self.backing.persist(&memory, ranges, purpose)
    }

    /// Fills `buf` from `offset`, and counts the read.
    ///
    /// # Errors
    /// `Io` of kind `UnexpectedEof`: past the end.
    pub fn read(&self, offset: u64, buf: &mut [u8], purpose: Purpose) -> Result<()> {
        if self.check("read", offset, buf.len() as u64).is_err() {
            return Err(fault("read", &*self.name, ErrorKind::UnexpectedEof));
        }
        self.memory.load(offset as usize, buf);
        self.backing.note_read(buf.len() as u64, purpose);
        Ok(())
    }

    pub(crate) fn memory(&self) -> &Arc<Memory> {
        &self.memory
    }

    pub(crate) fn note_read(&self, bytes: u64, purpose: Purpose) {
        self.backing.note_read(bytes, purpose);
    }

    fn check(&self, operation: &'static str, offset: u64, len: u64) -> Result<()> {
        match offset.checked_add(len) {
            Some(end) if end <= self.capacity_bytes() => Ok(()),
            _ => Err(fault(operation, &*self.name, ErrorKind::InvalidInput)),
        }
    }
}

/// The error for a file that is longer than the requested capacity.
pub fn too_long(name: &str, len: u64, bytes: u64) -> Error {
    let reason =
        format!("it has {len} bytes, more than the capacity of {bytes}: map it with {len}");
    Error::Refused { path: name.to_owned(), reason }
}

/// Converts checked ranges to memory offsets.
pub(crate) fn narrow(ranges: &[Range<u64>]) -> Vec<Range<usize>> {
    ranges.iter().map(|range| range.start as usize..range.end as usize).collect()
}

/// The number of cache lines of some ranges; a line in two ranges counts twice.
pub(crate) fn lines_of(ranges: &[Range<u64>]) -> u64 {
    let lines = |range: &Range<u64>| match range.is_empty() {
        true => 0,
        false => range.end.div_ceil(LINE_BYTES) - range.start / LINE_BYTES,
    };
    ranges.iter().map(lines).sum()
}
