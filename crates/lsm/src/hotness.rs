//! Which keys of a full memtable are hot: worth keeping in memory instead of flushing.
//!
//! A key that is updated again before the next flush need not have been written to level 0 now. How
//! likely that is follows from how often keys were updated in this memtable, without knowing the
//! workload: of the keys with `u` updates in one stretch, the mean number in the next stretch of the
//! same length is about
//!
//! ```text
//!   r(u) = (u + 1) · N(u + 1) / N(u)            N(u): keys that were updated u times
//! ```
//!
//! (Robbins' estimate for Poisson counts of unknown rates). Under a uniform load it is the same small
//! number for every `u`, so nothing is hot; under a skewed one it rises with `u`. To keep a key costs
//! writing it to the next log; it saves `gain` times as much, what flushes and compactions have cost
//! so far for each byte flushed, if the key is updated again, which happens with probability
//! 1 − e^−r(u). Keys are hot from the smallest `u` at which that pays. So where a flush writes an index
//! only and level 0 absorbs what is overwritten, little is hot. A fixed budget, as in the paper, takes
//! the keys with the most updates above the mean instead.
//!
//! Sources: TRIAD paper, section 4.1 (top keys, updated more often than the mean); Robbins, "An
//! Empirical Bayes Approach to Statistics", 1956. Choosing by what it saves is ours.

use crate::options::HotBudget;

/// Updates are counted one by one up to here, and together from here on.
const COUNTED: usize = 256;

/// What keeping a byte costs, in bytes written: itself in the next log, and a little more, because it
/// takes room that new writes would have.
const COST: f64 = 1.25;

/// How often keys were updated.
pub(crate) struct Hotness {
    /// Keys by number of updates; the last counts all that have as many or more.
    keys: Vec<u64>,
    /// What they and their newest values take, in bytes.
    bytes: Vec<u64>,
    updates: u64,
}

impl Default for Hotness {
    fn default() -> Self {
        Hotness { keys: vec![0; COUNTED + 1], bytes: vec![0; COUNTED + 1], updates: 0 }
    }
}

impl Hotness {
    /// Counts one key, which takes so many bytes with its newest value.
    pub(crate) fn count(&mut self, updates: u32, bytes: usize) {
        let at = (updates as usize).min(COUNTED);
        self.keys[at] += 1;
        self.bytes[at] += bytes as u64;
        self.updates += u64::from(updates);
    }

    /// The bytes of keys with fewer updates than `threshold`, which [`threshold`](Self::threshold) gave;
    /// without one, of all.
    pub(crate) fn bytes_below(&self, threshold: Option<u32>) -> u64 {
        let end = threshold.map_or(self.bytes.len(), |threshold| threshold as usize);
        self.bytes[..end].iter().sum()
    }

    /// The number of updates from which on a key is hot; `None`: none is. `gain`: bytes that are
    /// written for each byte flushed, from the flush to the last level.
    pub(crate) fn threshold(&self, budget: HotBudget, gain: f64) -> Option<u32> {
        let keys: u64 = self.keys.iter().sum();
        let threshold = match budget {
            HotBudget::Auto => {
                let likely = COST / gain;
                // A key must be updated with at least this probability; beyond 1 nothing pays.
                let least_rate = if likely < 1.0 { -(1.0 - likely).ln() } else { return None };
                (1..=COUNTED).find(|&updates| self.rate(updates) >= least_rate)?
            }
            HotBudget::Share(share) => {
                let above_mean = (self.updates / keys.max(1)) as usize + 1;
                let most = (share * keys as f64) as u64;
                let from = |updates: usize| self.keys[updates..].iter().sum::<u64>();
                (above_mean.min(COUNTED)..=COUNTED).find(|&updates| from(updates) <= most)?
            }
        };
        (self.keys[threshold..].iter().sum::<u64>() > 0).then_some(threshold as u32)
    }

    /// How many updates a key of so many has in the next stretch, on average.
    fn rate(&self, updates: usize) -> f64 {
        if updates >= COUNTED {
            return COUNTED as f64;
        }
        // Neighbouring counts are pooled: far up each has few keys.
        let width = updates / 4;
        let pool = |from: usize, weight: fn(usize) -> u64| -> f64 {
            let to = (from + width).min(COUNTED - 1);
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
    fn nothing_is_hot_under_a_uniform_load_over_many_keys() {
        for keys in [200_000, 300_000, 1_000_000] {
            let uniform = hotness(100_000, keys, |rng| rng.random_range(0..keys));
            let threshold = uniform.threshold(HotBudget::Auto, 2.5);
            let hot = threshold.map_or(0, |u| uniform.keys[u as usize..].iter().sum::<u64>());
            assert!(hot < 100, "{hot} of {keys} keys from {threshold:?} on");
        }
    }

    #[test]
    fn all_is_hot_where_every_key_comes_again() {
        let dense = hotness(30_000, 10_000, |rng| rng.random_range(0..10_000));
        assert_eq!(dense.threshold(HotBudget::Auto, 2.5), Some(1));
    }

    #[test]
    fn the_hot_hundredth_is_found() {
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
    fn nothing_is_kept_where_flushing_costs_less() {
        let dense = hotness(30_000, 10_000, |rng| rng.random_range(0..10_000));
        assert_eq!(dense.threshold(HotBudget::Auto, 1.1), None);
        assert!(dense.threshold(HotBudget::Auto, 1.5).is_some());
    }

    #[test]
    fn bytes_below_a_threshold_are_those_of_keys_with_fewer_updates() {
        let mut hotness = Hotness::default();
        for (updates, bytes) in [(1, 10), (2, 200), (3, 3000), (400, 40_000)] {
            hotness.count(updates, bytes);
        }
        let below = [0, 1, 2, 3, COUNTED as u32].map(|from| hotness.bytes_below(Some(from)));
        assert_eq!(below, [0, 0, 10, 210, 3210]);
        assert_eq!(hotness.bytes_below(None), 43_210);
    }

    #[test]
    fn an_empty_memtable_has_no_hot_keys() {
        assert_eq!(Hotness::default().threshold(HotBudget::Auto, 2.5), None);
        assert_eq!(Hotness::default().threshold(HotBudget::Share(0.01), 1.0), None);
    }
}
