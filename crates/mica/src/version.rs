//! The version counter of a bucket: reads without a store, writes that readers notice.
//!
//! ```text
//! header word   63 ........ 32 31 ........... 0
//!               next spare     version          odd: somebody writes
//!
//! writer                                   reader
//!   version ← odd                            v ← version, until it is even     (acquire)
//!   release fence                            entries, header, key, value       (relaxed)
//!   entries, header, key, value (relaxed)    acquire fence
//!   version ← even              (release)    version is still v? else from the beginning
//! ```
//!
//! Everything between is read and written by relaxed atomic words, so what a reader gets meanwhile
//! may be torn but is never undefined. If a word came from a writer, the two fences order that
//! writer's odd version before the reader's last look, which then differs. If none did, but the
//! version is even and newer than some word, the first look has acquired all of it.
//!
//! Who is alone needs none of it ([`Access::Erew`]); one writer among readers stores the version
//! ([`Access::Crew`]); several compete for it ([`Access::Crcw`]). The mode changes only while nobody
//! is inside (see `turnstile`).
//!
//! A version wraps after 2^31 writes to one bucket; a reader that sleeps through exactly so many
//! and finds the same one is not caught.
//!
//! Source: thesis, section 5.3.3, "Supporting concurrent access"; on the fences: Boehm, "Can
//! Seqlocks Get Along with Programming Language Memory Models?", MSPC 2012.

use crate::sync::Ordering::{AcqRel, Acquire, Relaxed, Release};
use crate::sync::{AtomicU64, fence, pause};

/// Who may do what at once in a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Exclusive read, exclusive write: one at a time.
    Erew,
    /// Concurrent read, exclusive write: readers beside one writer.
    Crew,
    /// Concurrent read, concurrent write.
    Crcw,
}

impl Access {
    /// All, by their names.
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

/// Waits until nobody writes; what the reader then sees, to be given to [`is_still`].
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

/// Whether nobody has written since [`begin_read`]: only then does what was read since hold.
#[inline]
pub fn is_still(header: &AtomicU64, seen: u64) -> bool {
    fence(Acquire);
    header.load(Relaxed) & VERSION == seen & VERSION
}

/// Begins a write. Under [`Access::Crcw`] waits for other writers; else the caller holds the
/// partition's lock.
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

/// Begins a write unless another writer is in the bucket, for who must not wait.
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
