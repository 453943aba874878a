//! Unique, its inverse, Merge, and DInterval.
//!
//! With (1 − f)^p = e^(−λp), λ = −ln(1 − f):
//!
//! ```text
//! Unique(p)    = Σ keys·(1 − e^(−λp))                 distinct keys among p requests
//! mean of Unique(D·x) over x in [0, 1]
//!              = Σ keys·(1 − (1 − e^(−λD)) / (λD))    size of a level whose keys were compacted
//!                                                     at evenly spread times up to D requests ago
//! ```
//!
//! Both are sums of increasing, concave functions of closed form, stable for tiny λ and huge p;
//! their inverses are found by bracketed Newton steps. Cost: one exponential per group.
//!
//! Source: Lim, thesis, theorems 4.1, 4.3 and 4.4, lemmas 4.2 and 4.5.

use crate::Popularity;
use crate::root_finding::{MAX_STEPS, solve};

impl Popularity {
    /// Number of distinct keys among `requests` requests. Unique(∞) is the number of keys.
    pub fn unique(&self, requests: f64) -> f64 {
        if requests == f64::INFINITY {
            return self.keys();
        }
        self.groups.iter().map(|g| -g.keys * (-g.rate * requests).exp_m1()).sum()
    }

    /// Share of requests whose key is not among the `requests` before it: the slope of Unique.
    pub fn first_time_share(&self, requests: f64) -> f64 {
        self.share_of_requests(|rate| (-rate * requests).exp())
    }

    /// Number of requests until `unique` distinct keys were requested; ∞ for all keys.
    pub fn unique_inverse(&self, unique: f64) -> f64 {
        if unique >= self.keys() {
            return f64::INFINITY;
        }
        if let [group] = self.groups[..] {
            return -(-unique / group.keys).ln_1p() / group.rate;
        }
        // At least as many requests as distinct keys: start there.
        solve(unique, unique, |requests| {
            let mut sums = (0.0, 0.0);
            for g in &self.groups {
                let missed = (-g.rate * requests).exp();
                sums.0 -= g.keys * (-g.rate * requests).exp_m1();
                sums.1 += g.keys * g.rate * missed;
            }
            sums
        })
    }

    /// Size of the merge of two tables with `u` and `v` distinct keys.
    pub fn merge(&self, u: f64, v: f64) -> f64 {
        self.unique(self.unique_inverse(u) + self.unique_inverse(v))
    }

    /// Number of requests between two compactions of one key, in a level of `size` distinct keys
    /// that is compacted round-robin; ∞ if the level holds all keys.
    pub fn compaction_interval(&self, size: f64) -> f64 {
        if size >= self.keys() {
            return f64::INFINITY;
        }
        if let [group] = self.groups[..] {
            return mean_touched_inverse(size / group.keys) / group.rate;
        }
        // Without repeated keys the level would be half full on average.
        solve(size, 2.0 * size, |interval| {
            let mut sums = (0.0, 0.0);
            for g in &self.groups {
                let (mean, slope) = mean_touched(g.rate * interval);
                sums.0 += g.keys * mean;
                sums.1 += g.keys * g.rate * slope;
            }
            sums
        })
    }
}

/// 1 − (1 − e^(−z))/z, and its derivative by z.
pub(crate) fn mean_touched(z: f64) -> (f64, f64) {
    if z < 1e-2 {
        // The first terms of the series, exact to 10⁻¹³: the formula would suffer cancellation.
        let mean = z * (0.5 - z * (1.0 / 6.0 - z * (1.0 / 24.0 - z * (1.0 / 120.0 - z / 720.0))));
        let slope = 0.5 - z * (1.0 / 3.0 - z * (1.0 / 8.0 - z * (1.0 / 30.0 - z / 144.0)));
        return (mean, slope);
    }
    let missed_less_one = (-z).exp_m1();
    let touched = -missed_less_one / z;
    (1.0 - touched, (touched - 1.0 - missed_less_one) / z)
}

/// The z at which [`mean_touched`] is `mean`, for `mean` from 0 to below 1.
fn mean_touched_inverse(mean: f64) -> f64 {
    // Two terms of the inverse series, or the limit for large z.
    let mut z = if mean < 0.5 { mean * (2.0 + mean * 4.0 / 3.0) } else { 1.0 / (1.0 - mean) };
    // The function is concave, so Newton's steps stay on one side after the first.
    for _ in 0..MAX_STEPS {
        let (value, slope) = mean_touched(z);
        let next = z - (value - mean) / slope;
        if (next - z).abs() <= 1e-14 * z || !next.is_finite() {
            break;
        }
        z = next;
    }
    z
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn merge_matches_the_thesis_example() {
        // Section 4.2.4: Merge(10^7, 9·10^7) ≈ 9.03·10^7 at N = 10^8, s = 0.99.
        let zipf = Popularity::zipf(1e8, 0.99).unwrap();
        let merged = zipf.merge(1e7, 9e7);
        assert!((merged / 9.03e7 - 1.0).abs() < 0.002, "{merged}");
    }

    #[test]
    fn compaction_interval_matches_the_thesis_example() {
        // Section 4.3.3: size 10 Mi of 10^8 keys, uniform: 2.26·10^7 against 1.11·10^7.
        let uniform = Popularity::uniform(1e8).unwrap();
        let size = 10.0 * 1024.0 * 1024.0;
        assert!((uniform.compaction_interval(size) / 2.26e7 - 1.0).abs() < 0.01);
        assert!((uniform.unique_inverse(size) / 1.11e7 - 1.0).abs() < 0.01);
    }

    #[test]
    fn groups_agree_with_single_keys() {
        let (keys, skew) = (20_000, 0.99);
        let total: f64 = (1..=keys).map(|i| f64::powf(f64::from(i), -skew)).sum();
        let exact = |p: f64| -> f64 {
            let missed = |i: i32| (1.0 - f64::powf(f64::from(i), -skew) / total).powf(p);
            (1..=keys).map(|i| 1.0 - missed(i)).sum()
        };
        let grouped = Popularity::zipf(f64::from(keys), skew).unwrap();
        for p in [1.0, 100.0, 1e4, 1e6] {
            assert!((grouped.unique(p) / exact(p) - 1.0).abs() < 1e-5, "{p}");
        }
    }

    proptest! {
        #[test]
        fn inverses_invert(keys in 2.0f64..1e9, skew in 0.0f64..2.0, part in 0.0001f64..0.9999) {
            let popularity = Popularity::zipf(keys, skew).unwrap();
            let unique = part * popularity.keys();
            let requests = popularity.unique_inverse(unique);
            prop_assert!((popularity.unique(requests) / unique - 1.0).abs() < 1e-9);
            let interval = popularity.compaction_interval(unique);
            // The mean of Unique over the times since a key's last compaction.
            let groups = popularity.groups.iter();
            let density: f64 = groups.map(|g| g.keys * mean_touched(g.rate * interval).0).sum();
            prop_assert!((density / unique - 1.0).abs() < 1e-9);
            prop_assert!(interval >= requests);
        }

        #[test]
        fn merge_is_symmetric_and_bounded(
            keys in 100.0f64..1e8, skew in 0.0f64..1.5, a in 0.01f64..0.99, b in 0.01f64..0.99,
        ) {
            let popularity = Popularity::zipf(keys, skew).unwrap();
            let (u, v) = (a * popularity.keys(), b * popularity.keys());
            let merged = popularity.merge(u, v);
            prop_assert!((merged / popularity.merge(v, u) - 1.0).abs() < 1e-9);
            prop_assert!(merged >= u.max(v) * (1.0 - 1e-9));
            prop_assert!(merged <= (u + v).min(popularity.keys()) * (1.0 + 1e-9));
        }
    }
}
