//! Selects the hot keys of a full memtable: those worth retaining instead of flushing.
//!
//! A flush of a key is wasted if the key is updated again before the next flush. The probability
//! follows from the update counts in this memtable, without knowledge of the workload. Of the keys
//! with `u` updates, the expected number of updates in the next period of the same length is
//!
//! ```text
//!   r(u) = (u + 1) · N(u + 1) / N(u)            N(u): number of keys that were updated u times
//! ```
//!
//! (Robbins' estimate for Poisson counts of unknown rates). Under a uniform load it is the same
//! small number for every `u`, so no key is hot; under a skewed load it rises with `u`. Retaining a
//! key costs one more append to the log. It saves `gain` times the bytes (the measured write
//! amplification of flush and compaction) if the key is updated again, which has the probability 1
//! − e^−r(u). Keys are hot from the smallest `u` for which that pays. So few keys are hot where a
//! flush writes only an index and level 0 absorbs overwrites. With a fixed budget, as in the paper,
//! the keys with the most updates above the mean are hot.
//!
//! Sources: TRIAD paper, section 4.1 (top keys, updated more often than the mean); Robbins, "An
//! Empirical Bayes Approach to Statistics", 1956.

use crate::options::HotBudget;

/// Keys with this many updates or more share one counter.
const MAX_COUNTED_UPDATES: usize = 256;

/// The cost of retaining a byte, in bytes written: the append to the next log, and a surcharge for
/// the memtable space that new writes lose.
const RETENTION_COST: f64 = 1.25;

/// A histogram of the update counts of keys.
pub(crate) struct Hotness {
    /// The number of keys by update count; the last element counts all keys with more.
    keys: Vec<u64>,
    /// The bytes of these keys with their newest values.
    bytes: Vec<u64>,
    updates: u64,
}

impl Default for Hotness {
    fn default() -> Self {
        Hotness {
            keys: vec![0; MAX_COUNTED_UPDATES + 1],
            bytes: vec![0; MAX_COUNTED_UPDATES + 1],
            updates: 0,
        }
    }
}

impl Hotness {
    /// Counts one key, which takes `bytes` with its newest value.
    pub(crate) fn count(&mut self, updates: u32, bytes: usize) {
        let at = (updates as usize).min(MAX_COUNTED_UPDATES);
        self.keys[at] += 1;
        self.bytes[at] += bytes as u64;
        self.updates += u64::from(updates);
    }

    /// The bytes of keys with fewer updates than `threshold`, a result of
    /// [`threshold`](Self::threshold); of all keys if it is `None`.
    pub(crate) fn bytes_below(&self, threshold: Option<u32>) -> u64 {
        let end = threshold.map_or(self.bytes.len(), |threshold| threshold as usize);
        self.bytes[..end].iter().sum()
    }

    /// The minimum number of updates of a hot key; `None`: no key is hot. `gain`: bytes written per
    /// byte flushed, from the flush to the last level.
    pub(crate) fn threshold(&self, budget: HotBudget, gain: f64) -> Option<u32> {
        let keys: u64 = self.keys.iter().sum();
        let threshold = match budget {
            HotBudget::Auto => {
                let min_probability = RETENTION_COST / gain;
                // The minimum probability of another update; above 1 retention never pays.
                let min_rate = if min_probability < 1.0 {
                    -(1.0 - min_probability).ln()
                } else {
                    return None;
                };
                (1..=MAX_COUNTED_UPDATES).find(|&updates| self.rate(updates) >= min_rate)?
            }
            HotBudget::Share(share) => {
                let above_mean = (self.updates / keys.max(1)) as usize + 1;
                let max_keys = (share * keys as f64) as u64;
                let from = |updates: usize| self.keys[updates..].iter().sum::<u64>();
                (above_mean.min(MAX_COUNTED_UPDATES)..=MAX_COUNTED_UPDATES)
                    .find(|&updates| from(updates) <= max_keys)?
            }
        };
        (self.keys[threshold..].iter().sum::<u64>() > 0).then_some(threshold as u32)
    }

    /// The expected number of updates in the next period of a key with `updates` in this one.
    fn rate(&self, updates: usize) -> f64 {
        if updates >= MAX_COUNTED_UPDATES {
            return MAX_COUNTED_UPDATES as f64;
        }
        // Neighbouring counts are pooled, because few keys have large counts.
        let width = updates / 4;
        let pool = |from: usize, weight: fn(usize) -> u64| -> f64 {
            let to = (from + width).min(MAX_COUNTED_UPDATES - 1);
            (from..=to).map(|u| self.keys[u] * weight(u)).sum::<u64>() as f64
        };
        let here = pool(updates, |_| 1);
        if here > 0.0 { pool(updates + 1, |u| u as u64) / here } else { 0.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::rngs::StdRng;
    use rand::{RngExt, SeedableRng};

    /// Counts of `writes` updates over keys drawn by `draw`.
    fn hotness(writes: usize, keys: usize, mut draw: impl FnMut(&mut StdRng) -> usize) -> Hotness {
        let mut rng = StdRng::seed_from_u64(7);
        let mut counts = vec![0u32; keys];
        (0..writes).for_each(|_| counts[draw(&mut rng)] += 1);
        let mut hotness = Hotness::default();
        counts.into_iter().filter(|&n| n > 0).for_each(|n| hotness.count(n, 1));
        hotness
    }

    #[test]
    fn uniform_load_over_many_keys_has_no_hot_keys() {
        for keys in [200_000, 300_000, 1_000_000] {
            let uniform = hotness(100_000, keys, |rng| rng.random_range(0..keys));
            let threshold = uniform.threshold(HotBudget::Auto, 2.5);
            let hot = threshold.map_or(0, |u| uniform.keys[u as usize..].iter().sum::<u64>());
            assert!(hot < 100, "{hot} of {keys} keys from {threshold:?} on");
        }
    }

    #[test]
    fn all_keys_are_hot_when_every_key_is_updated_again() {
        let dense = hotness(30_000, 10_000, |rng| rng.random_range(0..10_000));
        assert_eq!(dense.threshold(HotBudget::Auto, 2.5), Some(1));
    }

    #[test]
    fn hottest_percent_of_keys_is_found() {
        // 1 % of 100,000 keys take 99 % of 50,000 writes: about 50 each.
        let skewed = hotness(50_000, 100_000, |rng| {
            if rng.random_range(0..100) == 0 {
                rng.random_range(1000..100_000)
            } else {
                rng.random_range(0..1000)
            }
        });
        let threshold = skewed.threshold(HotBudget::Auto, 2.5).unwrap();
        let hot: u64 = skewed.keys[threshold as usize..].iter().sum();
        assert!((950..=1010).contains(&hot), "{hot} from {threshold} on");
        let tenth = skewed.threshold(HotBudget::Share(0.5), 1.0).unwrap();
        let hot: u64 = skewed.keys[tenth as usize..].iter().sum();
        assert!(hot <= 750 && tenth > 25, "{hot} from {tenth} on");
    }

    #[test]
    fn no_key_is_hot_when_flushing_costs_less() {
        let dense = hotness(30_000, 10_000, |rng| rng.random_range(0..10_000));
        assert_eq!(dense.threshold(HotBudget::Auto, 1.1), None);
        assert!(dense.threshold(HotBudget::Auto, 1.5).is_some());
    }

    #[test]
    fn bytes_below_threshold_are_those_of_keys_with_fewer_updates() {
        let mut hotness = Hotness::default();
        for (updates, bytes) in [(1, 10), (2, 200), (3, 3000), (400, 40_000)] {
            hotness.count(updates, bytes);
        }
        let below =
            [0, 1, 2, 3, MAX_COUNTED_UPDATES as u32].map(|from| hotness.bytes_below(Some(from)));
        assert_eq!(below, [0, 0, 10, 210, 3210]);
        assert_eq!(hotness.bytes_below(None), 43_210);
    }

    #[test]
    fn empty_memtable_has_no_hot_keys() {
        assert_eq!(Hotness::default().threshold(HotBudget::Auto, 2.5), None);
        assert_eq!(Hotness::default().threshold(HotBudget::Share(0.01), 1.0), None);
    }
}
