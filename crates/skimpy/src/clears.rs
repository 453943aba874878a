//! The clears of a table: the timestamps at which all keys were removed.
//!
//! ```text
//!   versions of a key   v1 ──── v2 ──── clear ──── v3 ──▶ timestamps
//!   a read                   v1     v2  │    none      v3
//! ```
//!
//! A clear is one timestamp, so it is atomic, and costs the same for any number of keys. Versions
//! before it remain on the device until collection discards them; reads before it still see them.
//! Checkpoints list the clears (`checkpoint`), and the first one that lists a clear makes it
//! durable.
//!
//! Invariant: the list has every clear above the watermark, and the newest one that is not above
//! it.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Release};

use parking_lot::Mutex;

/// The timestamps of the clears.
pub(crate) struct Clears {
    /// The newest one; 0 if there is none.
    newest: AtomicU64,
    /// Ascending.
    all: Mutex<Vec<u64>>,
}

impl Clears {
    /// With these timestamps, ascending.
    pub(crate) fn new(all: Vec<u64>) -> Self {
        let clears = Clears { newest: AtomicU64::new(0), all: Mutex::default() };
        clears.set(all);
        clears
    }

    /// Replaces all of them, ascending.
    pub(crate) fn set(&self, all: Vec<u64>) {
        let mut current = self.all.lock();
        self.newest.store(all.last().copied().unwrap_or(0), Release);
        *current = all;
    }

    /// All of them, ascending.
    pub(crate) fn all(&self) -> Vec<u64> {
        self.all.lock().clone()
    }

    /// The newest one; 0 if there is none.
    pub(crate) fn newest(&self) -> u64 {
        self.newest.load(Acquire)
    }

    /// The newest one that a read at `at` sees; 0 if there is none. Such a read sees no version up
    /// to it. Fast path: one load.
    pub(crate) fn seen_at(&self, at: u64) -> u64 {
        let newest = self.newest();
        if newest <= at {
            return newest;
        }
        let all = self.all.lock();
        let seen = all.partition_point(|clear| *clear <= at);
        seen.checked_sub(1).map_or(0, |last| all[last])
    }

    /// Adds one, which is newer than all others, and drops those that no read at or above
    /// `watermark` distinguishes. Returns the previous list.
    pub(crate) fn add(&self, clear: u64, watermark: u64) -> Vec<u64> {
        let before = self.all();
        let needed = self.seen_at(watermark);
        let kept = before.iter().copied().filter(|clear| *clear >= needed);
        self.set(kept.chain([clear]).collect());
        before
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn read_sees_the_newest_clear_that_is_not_above_it() {
        let clears = Clears::new(Vec::new());
        assert_eq!((clears.newest(), clears.seen_at(u64::MAX)), (0, 0));
        clears.set(vec![5, 9]);
        let seen = [4, 5, 8, 9, 100].map(|at| clears.seen_at(at));
        assert_eq!(seen, [0, 5, 5, 9, 9]);
    }

    #[test]
    fn clears_that_no_read_distinguishes_are_dropped() {
        let clears = Clears::new(vec![5, 9, 12]);
        assert_eq!(clears.add(20, 10), [5, 9, 12]);
        assert_eq!(clears.all(), [9, 12, 20]);
        clears.add(30, 1);
        assert_eq!(clears.all(), [9, 12, 20, 30]);
    }
}
