//! Opportunistic collection: prefers buckets whose records are already in memory.
//!
//! ```text
//!   a page that was read │ a3 │ b7 │ c1 │ …     for a; if b is due soon, it is next: b7 is cached
//! ```
//!
//! Writes are packed by age and relocated by bucket, so a page read for one bucket has the newest
//! versions of others, which would be read again for them. Such records are cached
//! (`record_cache`), and the sweep takes their buckets out of order if they are due within a tenth
//! of the log. A bucket's score is the number of its cached records, less a penalty for being
//! early.
//!
//! All of this only affects the number of reads: a cached record may be hidden, or relocated since.

use std::cmp::Reverse;
use std::collections::HashMap;

use crate::record_cache::RecordCache;

/// A bucket may be early by one tenth of the log's length, because it is due again that much
/// sooner.
const EARLY_DIVISOR: u8 = 10;
/// The score of a cached record, in granules that a bucket may be early.
const RECORD_SCORE: i64 = 8;

/// The number of granules that a bucket may be early in a log of `length` granules.
pub(super) fn window(length: u8) -> u8 {
    length / EARLY_DIVISOR
}

/// The buckets with cached records, the best score first. `early`: the number of granules that a
/// bucket would be early, or `None` if it must not be taken.
pub(super) fn candidates(cache: &RecordCache, early: impl Fn(u32) -> Option<u8>) -> Vec<u32> {
    let mut scores: HashMap<u32, (i64, u64)> = HashMap::new();
    for (bucket, turn) in cache.buckets() {
        if let Some(early) = early(bucket) {
            let (score, last) = scores.entry(bucket).or_insert((-i64::from(early), turn));
            (*score, *last) = (*score + RECORD_SCORE, turn.max(*last));
        }
    }
    let mut best: Vec<_> = scores.into_iter().collect();
    // Among equal scores, the one whose page may still be cached.
    best.sort_unstable_by_key(|(_, of)| Reverse(*of));
    best.into_iter().map(|(bucket, _)| bucket).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A cached record for each of these buckets, in this order.
    fn cache_of(buckets: &[u32]) -> RecordCache {
        let mut cache = RecordCache::default();
        for (at, bucket) in buckets.iter().enumerate() {
            // Locations in descending order, so that they do not imply the order.
            cache.insert(100 - at as u32, 0, *bucket, b"");
        }
        cache
    }

    #[test]
    fn candidates_are_ordered_by_cached_records_then_due_time_then_recency() {
        let cache = cache_of(&[1, 2, 3, 4, 3, 5]);
        let early = |bucket: u32| Some([0, 2, 1, 7, 2, 2][bucket as usize]);
        assert_eq!(candidates(&cache, early), [3, 2, 5, 4, 1]);
    }

    #[test]
    fn bucket_that_is_too_early_is_no_candidate() {
        let cache = cache_of(&[1, 2, 3, 3, 3]);
        assert_eq!(candidates(&cache, |bucket| (bucket < 3).then_some(0)), [2, 1]);
    }

    #[test]
    fn window_is_a_tenth_of_the_log() {
        assert_eq!((window(100), window(9), window(127)), (10, 0, 12));
    }
}
