//! Visitors or holders, never both: who does whole bursts, and who reads, thinks and writes.
//!
//! ```text
//! visitor   marks its slot, looks at the count of holders: none → visits, unmarks its slot
//!                                                          some → unmarks it, holds like others
//! holder    counts itself, waits until no slot is marked … counts itself out
//! ```
//!
//! A burst is atomic by itself; who reads a key, thinks and writes it must not be visited meanwhile, or it
//! loses what a burst wrote between. Holders have locks among themselves; visitors need none.
//!
//! Marking and counting are in one total order, so one of the two sees the other. A visitor has a slot of its
//! own, a cache line, so a visit costs one atomic operation on a line that nobody else wants.
//!
//! Invariant: a visitor waits for no holder; a slot is one thread's; no one becomes a holder while visiting.
//!
//! Source: ours; the same order of marks and looks as [`crate::turnstile`]'s, but for who gives way.

use crate::sync::Ordering::{Release, SeqCst};
use crate::sync::{AtomicBool, AtomicU32, in_order, pause};

/// Who is there.
#[derive(Debug)]
pub struct Visits {
    /// One for each thread that may visit.
    visitors: Box<[Slot]>,
    holders: AtomicU32,
}

/// Whether a thread visits; on a cache line that is shared with nothing else.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Slot(AtomicBool);

/// Visiting, until this is dropped.
#[derive(Debug)]
pub struct Visit<'v>(&'v Slot);

/// Being counted as a holder, until this is dropped.
#[derive(Debug)]
pub struct Holding<'v>(Option<&'v AtomicU32>);

impl Visits {
    /// Nobody yet, and slots for so many threads.
    pub fn new(threads: usize) -> Self {
        let visitors = (0..threads).map(|_| Slot::default()).collect();
        Visits { visitors, holders: AtomicU32::new(0) }
    }

    /// Begins a visit of the thread with this number, unless somebody holds.
    #[inline]
    pub fn visit(&self, thread: usize) -> Option<Visit<'_>> {
        let visit = Visit(&self.visitors[thread]);
        visit.0.0.store(true, SeqCst);
        in_order();
        (self.holders.load(SeqCst) == 0).then_some(visit)
    }

    /// Counts a holder, when nobody visits any more.
    #[inline]
    pub fn hold(&self) -> Holding<'_> {
        if self.visitors.is_empty() {
            return Holding(None);
        }
        self.holders.fetch_add(1, SeqCst);
        in_order();
        for slot in &self.visitors {
            // A visit is a burst at most.
            let mut round = 0;
            while slot.0.load(SeqCst) {
                pause(&mut round);
            }
        }
        Holding(Some(&self.holders))
    }
}

impl Drop for Visit<'_> {
    #[inline]
    fn drop(&mut self) {
        self.0.0.store(false, Release);
    }
}

impl Drop for Holding<'_> {
    #[inline]
    fn drop(&mut self) {
        if let Some(holders) = self.0 {
            holders.fetch_sub(1, Release);
        }
    }
}
