//! Buckets that records at hand are of use for.
//!
//! ```text
//!   a page at hand  │ a3 │ b7 │ c1 │ …     read for a; b, too, is due soon: it goes next, and b7 is read already
//! ```
//!
//! What is put lies by age, what is remapped goes by bucket: a page that is read for one bucket has newest versions of
//! others, which would be read again when the sweep comes to them. They are kept (`held`), as many as there is room for;
//! and the sweep takes their buckets first, out of their order, if they are due within a tenth of a round: each counts
//! by how many of its records are at hand, less what it loses by going early.
//!
//! All of it is a guess about what will have to be read, and nothing depends on it but the number of reads: a record may
//! be hidden, or was remapped since.
//!
//! Source: ours.

use std::cmp::Reverse;
use std::collections::HashMap;

use crate::held::Held;

/// The part of the log's length that a bucket may go early: that much sooner it has to go again.
const EARLY: u8 = 10;
/// What a record at hand counts for, in granules that a bucket goes early.
const RECORD: i64 = 8;

/// How many granules early a bucket may go where the log is so many long.
pub(super) fn window(length: u8) -> u8 {
    length / EARLY
}

/// Which buckets go next, the best first: of those that may go, how many granules early that would be.
pub(super) fn best(held: &Held, early: impl Fn(u32) -> Option<u8>) -> Vec<u32> {
    let mut scores: HashMap<u32, (i64, u64)> = HashMap::new();
    for (bucket, turn) in held.buckets() {
        if let Some(early) = early(bucket) {
            let (score, last) = scores.entry(bucket).or_insert((-i64::from(early), turn));
            (*score, *last) = (*score + RECORD, turn.max(*last));
        }
    }
    let mut best: Vec<_> = scores.into_iter().collect();
    // Of those that are as good, the one whose page may still be at hand.
    best.sort_unstable_by_key(|(_, of)| Reverse(*of));
    best.into_iter().map(|(bucket, _)| bucket).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A record of each of these buckets, in this order.
    fn held(buckets: &[u32]) -> Held {
        let mut held = Held::default();
        for (at, bucket) in buckets.iter().enumerate() {
            // Places tell nothing of the order.
            held.hold(100 - at as u32, 0, *bucket, b"");
        }
        held
    }

    #[test]
    fn who_has_more_at_hand_goes_first_then_who_is_due_sooner_then_who_was_seen_last() {
        let held = held(&[1, 2, 3, 4, 3, 5]);
        let early = |bucket: u32| Some([0, 2, 1, 7, 2, 2][bucket as usize]);
        assert_eq!(best(&held, early), [3, 2, 5, 4, 1]);
    }

    #[test]
    fn who_may_not_go_does_not_whatever_speaks_for_it() {
        let held = held(&[1, 2, 3, 3, 3]);
        assert_eq!(best(&held, |bucket| (bucket < 3).then_some(0)), [2, 1]);
    }

    #[test]
    fn a_tenth_of_the_log_is_how_early_a_bucket_may_go() {
        assert_eq!((window(100), window(9), window(127)), (10, 0, 12));
    }
}
