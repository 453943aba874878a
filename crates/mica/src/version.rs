//! Per-bucket version counter (seqlock): readers do not write, and detect concurrent writers.
//!
//! ```text
//! header word   63 ........ 32 31 ........... 0
//!               next spare     version          odd: a write is in progress
//!
//! writer                                   reader
//!   version ← odd                            v ← version, until it is even     (acquire)
//!   release fence                            entries, header, key, value       (relaxed)
//!   entries, header, key, value (relaxed)    acquire fence
//!   version ← even              (release)    version is still v? otherwise retry
//! ```
//!
//! Everything in between is accessed by relaxed atomic words, so a reader may see torn data but
//! never causes undefined behaviour. If a word came from a writer, the two fences order that
//! writer's odd version before the reader's second load of the version, which then differs. If none
//! did, but the version is even and newer than some word, the first load has acquired all of it.
//!
//! An exclusive thread needs no version ([`Access::Erew`]); a single writer among readers stores it
//! ([`Access::Crew`]); several writers compete for it ([`Access::Crcw`]). The mode changes only
//! while no operation runs (see `brlock`).
//!
//! Limit: a version wraps after 2^31 writes to one bucket; a reader that is suspended for exactly a
//! multiple of that many writes does not notice.
//!
//! Source: Lim, thesis, section 5.3.3, "Supporting concurrent access"; on the fences: Boehm, "Can
//! Seqlocks Get Along with Programming Language Memory Models?", MSPC 2012.

use crate::sync::Ordering::{AcqRel, Acquire, Relaxed, Release};
use crate::sync::{AtomicU64, fence, pause};

/// Concurrency allowed within a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Exclusive read, exclusive write: one at a time.
    Erew,
    /// Concurrent read, exclusive write: readers and one writer.
    Crew,
    /// Concurrent read, concurrent write.
    Crcw,
}

impl Access {
    /// All modes with their names.
    pub const NAMED: [(&'static str, Access); 3] =
        [("erew", Access::Erew), ("crew", Access::Crew), ("crcw", Access::Crcw)];

    /// Its name.
    pub fn name(self) -> &'static str {
        Access::NAMED[self as usize].0
    }
}

const VERSION: u64 = 0xffff_ffff;

fn next(header: u64) -> u64 {
    header & !VERSION | (header + 1) & VERSION
}

/// Waits until no write is in progress; returns the header, to be passed to [`is_unchanged`].
#[inline]
pub fn begin_read(header: &AtomicU64) -> u64 {
    let mut round = 0;
    loop {
        let seen = header.load(Acquire);
        if seen & 1 == 0 {
            return seen;
        }
        pause(&mut round);
    }
}

/// Whether there was no write since [`begin_read`]. Only then is the data read since valid.
#[inline]
pub fn is_unchanged(header: &AtomicU64, seen: u64) -> bool {
    fence(Acquire);
    header.load(Relaxed) & VERSION == seen & VERSION
}

/// Begins a write. Under [`Access::Crcw`] it waits for other writers; otherwise the caller holds
/// the partition's lock.
#[inline]
pub fn begin_write(header: &AtomicU64, access: Access) {
    match access {
        Access::Erew => return,
        Access::Crew => header.store(next(header.load(Relaxed)), Relaxed),
        Access::Crcw => {
            let mut round = 0;
            while !try_lock(header) {
                pause(&mut round);
            }
        }
    }
    fence(Release);
}

/// Begins a write unless another writer is in the bucket; never waits.
#[inline]
pub fn try_begin_write(header: &AtomicU64, access: Access) -> bool {
    if access == Access::Crcw {
        let is_ours = try_lock(header);
        fence(Release);
        return is_ours;
    }
    begin_write(header, access);
    true
}

fn try_lock(header: &AtomicU64) -> bool {
    let seen = header.load(Relaxed);
    seen & 1 == 0 && header.compare_exchange(seen, next(seen), AcqRel, Relaxed).is_ok()
}

/// Ends a write.
#[inline]
pub fn end_write(header: &AtomicU64, access: Access) {
    if access != Access::Erew {
        header.store(next(header.load(Relaxed)), Release);
    }
}
