//! How many different keys a number of writes touches: Unique, its inverse, and Merge.
//!
//! Keys are kept as groups of near-equal probability. Popular ranks stand alone; farther out a
//! group spans a thousandth of its first rank, and its mean probability comes from the integral of
//! the density, so 10^8 keys cost some 15,000 terms.
//!
//! ```text
//! unique(p) = Σ 1 − (1 − f)^p        merge(u, v) = unique(unique⁻¹(u) + unique⁻¹(v))
//! ```
//!
//! Invariant: `unique` grows with p from 0 to the number of keys, and stays accurate for tiny f and
//! huge p: it is summed from `expm1` and `ln_1p`.
//!
//! Source: Lim, "Resource-Efficient Data-Intensive System Designs for High Performance and Capacity"
//! (thesis, 2015), section 4.2: theorems 4.1 and 4.3.

/// Ranks that stand alone.
const ALONE: u64 = 1000;

/// How many ranks a group spans, as a share of its first.
const SPAN: u64 = 1000;

/// How popular keys are, in groups.
#[derive(Debug, Clone)]
pub(super) struct Popularity {
    keys: f64,
    /// Keys in the group, and the mean of ln(1 − f) over them.
    groups: Vec<(f64, f64)>,
}

impl Popularity {
    /// All keys alike.
    pub(super) fn uniform(keys: u64) -> Self {
        let keys = keys as f64;
        Popularity { keys, groups: vec![(keys, (-1.0 / keys).ln_1p())] }
    }

    /// The key of rank r in proportion to 1/r^skew.
    pub(super) fn zipf(keys: u64, skew: f64) -> Self {
        let mut weights = Vec::new();
        let mut first = 1u64;
        while first <= keys {
            let count =
                if first <= ALONE { 1 } else { (first / SPAN).max(1).min(keys - first + 1) };
            let weight = match count {
                1 => (first as f64).powf(-skew),
                _ => mean_weight(first as f64 - 0.5, (first + count) as f64 - 0.5, skew),
            };
            weights.push((count as f64, weight));
            first += count;
        }
        let sum: f64 = weights.iter().map(|(count, weight)| count * weight).sum();
        let groups = weights.into_iter().map(|(count, w)| (count, (-w / sum).ln_1p())).collect();
        Popularity { keys: keys as f64, groups }
    }

    /// How many different keys `writes` writes touch.
    pub(super) fn unique(&self, writes: f64) -> f64 {
        self.groups.iter().map(|(count, ln_miss)| -count * (writes * ln_miss).exp_m1()).sum()
    }

    /// How many writes touch so many different keys.
    pub(super) fn unique_inverse(&self, unique: f64) -> f64 {
        if unique >= self.keys {
            return f64::INFINITY;
        }
        if unique <= 0.0 {
            return 0.0;
        }
        bisect(unique, |writes| self.unique(writes))
    }

    /// How many keys a table has that is merged from tables of `one` and `two` keys.
    pub(super) fn merge(&self, one: f64, two: f64) -> f64 {
        let writes = self.unique_inverse(one) + self.unique_inverse(two);
        if writes.is_finite() { self.unique(writes) } else { self.keys }
    }
}

/// The mean of x^−skew between two numbers.
fn mean_weight(from: f64, to: f64, skew: f64) -> f64 {
    // (to^(1−s) − from^(1−s)) / (1−s), which at s = 1 is the logarithm; `exp_m1` keeps what a
    // difference of powers near each other would lose.
    let power = 1.0 - skew;
    let logarithm = (to / from).ln();
    let integral = match (power * logarithm).abs() < 1e-12 {
        true => logarithm,
        false => (power * logarithm).exp_m1() / power,
    };
    from.powf(power) * integral / (to - from)
}

/// Where a growing function that starts at or below `target` reaches it.
pub(super) fn bisect(target: f64, f: impl Fn(f64) -> f64) -> f64 {
    let (mut low, mut high) = (0.0f64, 1.0f64);
    while f(high) < target && high < f64::MAX / 4.0 {
        (low, high) = (high, high * 2.0);
    }
    // Each step halves the interval: 60 leave a relative error below that of the sums.
    for _ in 0..60 {
        let middle = (low + high) / 2.0;
        if f(middle) < target { low = middle } else { high = middle }
    }
    (low + high) / 2.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_give_what_the_sum_over_all_keys_gives() {
        let keys = 100_000u64;
        for skew in [0.0, 0.5, 0.99, 1.0, 1.5] {
            let weights: Vec<_> = (1..=keys).map(|rank| (rank as f64).powf(-skew)).collect();
            let sum: f64 = weights.iter().sum();
            let popularity = Popularity::zipf(keys, skew);
            for writes in [1.0, 1e3, 1e5, 1e7] {
                let missed = |w: &f64| -(writes * (-w / sum).ln_1p()).exp_m1();
                let exact: f64 = weights.iter().map(missed).sum();
                let ours = popularity.unique(writes);
                assert!((ours / exact - 1.0).abs() < 1e-6, "{skew} {writes}: {ours} {exact}");
            }
        }
    }

    #[test]
    fn the_inverse_undoes_unique() {
        for popularity in [Popularity::uniform(1000), Popularity::zipf(100_000, 0.99)] {
            for writes in [1.0, 10.0, 500.0, 3000.0] {
                let back = popularity.unique_inverse(popularity.unique(writes));
                assert!((back / writes - 1.0).abs() < 1e-6, "{back} for {writes}");
            }
            assert_eq!(popularity.unique_inverse(popularity.keys), f64::INFINITY);
            assert_eq!(popularity.unique_inverse(0.0), 0.0);
        }
    }

    #[test]
    fn merging_uniform_tables_has_a_closed_form() {
        // A key is in neither of two tables with probability (1 − u/N)(1 − v/N).
        let popularity = Popularity::uniform(1000);
        assert!((popularity.merge(300.0, 500.0) - 650.0).abs() < 1e-6);
        assert_eq!(popularity.merge(1000.0, 5.0), 1000.0);
    }
}
