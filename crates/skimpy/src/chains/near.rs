//! Buckets that pages at hand are of use for.
//!
//! ```text
//!   a page at hand  │ a3 │ b7 │ c1 │ …     read for a; b, too, is due soon: it goes next, and b7 is read already
//! ```
//!
//! What is put lies by age, what is remapped goes by bucket: a page that is read for one bucket has newest versions of
//! others, which would be read again when the sweep comes to them. So it takes those first, out of their order, if
//! they are due within a tenth of a round: each counts by how many pages at hand it is seen in, less what it
//! loses by going early. Pages that a bucket under way was chosen for are kept until it is remapped.
//!
//! All of it is a guess about what will have to be read, and nothing depends on it but the number of reads: a page may
//! be seen with a version that is hidden, or was remapped since.
//!
//! Source: ours.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};

/// The part of the log's length that a bucket may go early: that much sooner it has to go again.
const EARLY: u8 = 10;
/// What a page at hand counts for, in granules that a bucket goes early.
const PAGE: i64 = 8;

/// How many granules early a bucket may go where the log is so many long.
pub(super) fn window(length: u8) -> u8 {
    length / EARLY
}

/// Which buckets have versions in which pages.
#[derive(Default)]
pub(super) struct Near {
    /// A bucket and a page, those seen last at the end.
    seen: Vec<(u32, u32)>,
}

impl Near {
    /// A page at hand has a version that its bucket seems to need.
    pub(super) fn see(&mut self, bucket: u32, page: u32) {
        self.seen.push((bucket, page));
    }

    /// Forgets pages that are not at hand any more.
    pub(super) fn retain(&mut self, is_kept: impl Fn(u32) -> bool) {
        self.seen.retain(|(_, page)| is_kept(*page));
    }

    /// Which buckets go next, the best first: of those that may go, how many granules early that would be.
    pub(super) fn best(&self, early: impl Fn(u32) -> Option<u8>) -> Vec<u32> {
        let mut scores: HashMap<u32, (i64, usize)> = HashMap::new();
        for (turn, (bucket, _)) in self.seen.iter().enumerate() {
            if let Some(early) = early(*bucket) {
                let (score, last) = scores.entry(*bucket).or_insert((-i64::from(early), turn));
                (*score, *last) = (*score + PAGE, turn);
            }
        }
        let mut best: Vec<_> = scores.into_iter().collect();
        // Of those that are as good, the one whose page will be at hand longest.
        best.sort_unstable_by_key(|(_, of)| Reverse(*of));
        best.into_iter().map(|(bucket, _)| bucket).collect()
    }

    /// The pages that these buckets were seen in.
    pub(super) fn pages_of(&self, buckets: &HashSet<u32>) -> HashSet<u32> {
        let seen = self.seen.iter().filter(|(bucket, _)| buckets.contains(bucket));
        seen.map(|(_, page)| *page).collect()
    }

    /// Bytes of memory that it takes.
    pub(super) fn memory_bytes(&self) -> u64 {
        (self.seen.capacity() * size_of::<(u32, u32)>()) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(seen: &[(u32, u32)]) -> Near {
        Near { seen: seen.to_vec() }
    }

    #[test]
    fn who_is_seen_oftener_goes_first_then_who_is_due_sooner_then_who_was_seen_last() {
        let near = near(&[(1, 10), (2, 10), (3, 10), (4, 11), (3, 11), (5, 11)]);
        let early = |bucket: u32| Some([0, 2, 1, 7, 2, 2][bucket as usize]);
        assert_eq!(near.best(early), [3, 2, 5, 4, 1]);
    }

    #[test]
    fn who_may_not_go_does_not_whatever_speaks_for_it() {
        let near = near(&[(1, 10), (2, 10), (3, 10), (3, 11), (3, 12)]);
        assert_eq!(near.best(|bucket| (bucket < 3).then_some(0)), [2, 1]);
    }

    #[test]
    fn pages_that_left_are_forgotten_and_those_of_a_bucket_are_told() {
        let mut near = near(&[(1, 10), (1, 11), (2, 11), (2, 12)]);
        assert_eq!(near.pages_of(&[1].into()), [10, 11].into());
        near.retain(|page| page != 11);
        near.see(3, 13);
        assert_eq!(near.pages_of(&[1, 3].into()), [10, 13].into());
        assert_eq!(near.best(|_| Some(0)), [3, 2, 1]);
    }
}
