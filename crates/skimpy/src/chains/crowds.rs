//! Which channels more lookups wait for than for others.
//!
//! ```text
//!   lookups of late, by lane   ▂▁▂█▂▁▂▂      crowded: the fourth
//! ```
//!
//! Under a skewed popularity a few keys draw most lookups. Where chance has put several of them on one channel, that
//! channel decides how fast all clients get on, while others stand idle. A page is where it is, but what lies in it
//! can be remapped: so who finds a key on a crowded channel charges its bucket (`Chains::charge`). A key that
//! draws the crowd alone would take it along, and stays.
//!
//! Counts are halved every so often: what counts is where the hot keys are now.
//!
//! Source: ours.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

/// Lookups for each lane that are remembered, at least. More would tell of places that the hottest keys have left.
const WINDOW: u64 = 32;

pub(super) struct Crowds {
    lanes: Vec<Lane>,
    all: AtomicU64,
}

#[derive(Default)]
struct Lane {
    lookups: AtomicU64,
    /// The bucket that the last one was in.
    last: AtomicU32,
}

impl Crowds {
    pub(super) fn new(lanes: u32) -> Self {
        let lanes = (0..lanes.max(1)).map(|_| Lane::default()).collect();
        Crowds { lanes, all: AtomicU64::new(0) }
    }

    /// Notes that a key of a bucket was found in a block: whether its lane has half as many lookups again as lanes have
    /// on average, and the last one there was another bucket's.
    pub(super) fn note(&self, block: u32, bucket: u32) -> bool {
        let count = self.lanes.len() as u64;
        let lane = &self.lanes[block as usize % self.lanes.len()];
        let is_alone = lane.last.swap(bucket, Relaxed) == bucket;
        let of = lane.lookups.fetch_add(1, Relaxed) + 1;
        let all = self.all.fetch_add(1, Relaxed) + 1;
        // What is noted meanwhile may be lost: nothing depends on a count but the pace.
        let is_due = all >= 2 * WINDOW * count;
        if is_due && self.all.compare_exchange(all, all / 2, Relaxed, Relaxed).is_ok() {
            for lane in &self.lanes {
                lane.lookups.store(lane.lookups.load(Relaxed) / 2, Relaxed);
            }
        }
        !is_alone && 2 * of * count > 3 * all && all >= WINDOW * count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The blocks of so many lookups that met a crowd, each in the bucket of its turn.
    fn crowded(crowds: &Crowds, turns: u32, block_of: impl Fn(u32) -> u32) -> Vec<u32> {
        let met = (0..turns).filter(|turn| crowds.note(block_of(*turn), *turn));
        met.map(&block_of).collect()
    }

    #[test]
    fn a_lane_is_crowded_as_long_as_it_has_half_as_many_lookups_again() {
        let crowds = Crowds::new(4);
        assert_eq!(crowded(&crowds, 1000, |turn| turn), [], "one like the other");
        // Of five lookups two are in one lane, where the mean has 1.25.
        let met = crowded(&crowds, 1000, |turn| [0, 1, 2, 3, 6][turn as usize % 5]);
        assert!(met.len() > 150 && met.iter().all(|block| block % 4 == 2), "{met:?}");
        // It is forgotten soon.
        crowded(&crowds, 4 * 256, |turn| turn);
        assert_eq!(crowded(&crowds, 1000, |turn| turn), []);
    }

    #[test]
    fn four_of_eleven_lookups_are_no_crowd_among_four_lanes() {
        let crowds = Crowds::new(4);
        let block = |turn: u32| [0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2][turn as usize % 11];
        crowded(&crowds, 200, block);
        assert_eq!(crowded(&crowds, 2000, block), []);
    }

    #[test]
    fn who_draws_a_crowd_alone_stays() {
        let crowds = Crowds::new(4);
        assert!((0..1000).all(|_| !crowds.note(3, 7)));
        // Two do not.
        assert!((0..1000).filter(|turn| crowds.note(3, turn % 2)).count() > 900);
    }

    #[test]
    fn where_there_is_one_channel_none_is_crowded_and_few_lookups_tell_nothing() {
        let one = Crowds::new(1);
        assert!((0..1000).all(|turn| !one.note(turn, turn)));
        let many = Crowds::new(16);
        let few = WINDOW as u32 * 16 - 1;
        assert!((0..few).all(|turn| !many.note(3, turn)) && many.note(3, few));
    }
}
