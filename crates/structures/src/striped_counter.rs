//! A counter that many threads increment at once.
//!
//! Each thread increments one of several stripes, each on a cache line of its own, so that the line
//! stays in the cache of its CPU. Reading sums the stripes.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

const STRIPES: usize = 16;

/// A counter, relaxed: nothing may be decided by it.
///
/// Cost of an increment: about 5 ns, of reading: a load per stripe. Memory: 1 KiB.
#[derive(Debug, Default)]
pub struct StripedCounter([Stripe; STRIPES]);

#[derive(Debug, Default)]
#[repr(align(64))]
struct Stripe(AtomicU64);

thread_local! {
    /// The stripe of this thread; at first none.
    static STRIPE: Cell<usize> = const { Cell::new(usize::MAX) };
}

impl StripedCounter {
    /// Adds 1.
    #[inline]
    pub fn increment(&self) {
        self.0[stripe()].0.fetch_add(1, Relaxed);
    }

    /// The sum of all increments.
    pub fn sum(&self) -> u64 {
        self.0.iter().map(|stripe| stripe.0.load(Relaxed)).sum()
    }
}

#[inline]
fn stripe() -> usize {
    let stripe = STRIPE.get();
    if stripe < STRIPES { stripe } else { assign_stripe() }
}

/// Threads take the stripes in turn.
#[cold]
fn assign_stripe() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let stripe = NEXT.fetch_add(1, Relaxed) % STRIPES;
    STRIPE.set(stripe);
    stripe
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn increments_of_many_threads_are_all_counted() {
        let counter = StripedCounter::default();
        std::thread::scope(|scope| {
            for _ in 0..2 * STRIPES {
                scope.spawn(|| (0..100).for_each(|_| counter.increment()));
            }
        });
        assert_eq!(counter.sum(), 200 * STRIPES as u64);
    }
}
