//! The model behind the target sizes of levels, with the feature `model`.
//!
//! The popularity of keys is the Zipf distribution that fits the numbers of writes and of distinct
//! keys of a memtable. For it the analytic model finds the level sizes with the smallest write
//! amplification, by number of levels.

use std::ops::RangeInclusive;

/// The numbers of operations and keys of a memtable: a sample of the popularity of keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MemtableStats {
    /// The number of operations.
    pub(crate) writes: u64,
    /// The number of distinct keys.
    pub(crate) keys: u64,
}

impl MemtableStats {
    /// Distinct keys per operation.
    pub(super) fn share(self) -> f64 {
        self.keys as f64 / self.writes.max(1) as f64
    }
}

/// What the model predicts.
pub(super) struct Prediction {
    /// The Zipf exponent that fits the writes.
    pub(super) skew: f64,
    /// The best sizes of levels in items; `None` if the model has none.
    pub(super) level_items: Option<Vec<f64>>,
}

/// Without the feature `model`: nothing.
#[cfg(not(feature = "model"))]
pub(super) fn predict(
    _keys: f64,
    _stats: MemtableStats,
    _pass_writes: f64,
    _levels: RangeInclusive<usize>,
) -> Option<Prediction> {
    None
}

#[cfg(feature = "model")]
pub(super) use present::predict;

#[cfg(feature = "model")]
mod present {
    use siltstone_model::{Popularity, Workload, optimize::optimize_levels};

    use super::{MemtableStats, Prediction, RangeInclusive};

    /// Another level must save at least this share of all writes.
    const MIN_LEVEL_SAVING: f64 = 0.03;
    /// The largest Zipf exponent that is distinguished.
    const MAX_SKEW: f64 = 1.5;

    /// The best sizes for `keys` keys and passes over level 0 of `pass_writes` writes, in one of
    /// these numbers of levels. Cost: up to half a second.
    pub(in super::super) fn predict(
        keys: f64,
        stats: MemtableStats,
        pass_writes: f64,
        levels: RangeInclusive<usize>,
    ) -> Option<Prediction> {
        let (popularity, skew) = fit(keys, stats)?;
        let run = stats.writes as f64;
        let runs_per_pass = (pass_writes / run).max(1.0);
        let designs = levels
            .filter_map(|levels| optimize_levels(&popularity, run, runs_per_pass, levels).ok());
        let mut best: Option<(f64, Vec<f64>)> = None;
        for design in designs {
            let cost = design.write_amplification.total();
            let is_better = |&(least, _): &(f64, Vec<f64>)| cost < least * (1.0 - MIN_LEVEL_SAVING);
            if best.as_ref().is_none_or(is_better) {
                best = Some((cost, design.design.level_items));
            }
        }
        Some(Prediction { skew, level_items: best.map(|(_, items)| items) })
    }

    /// The Zipf distribution over `keys` keys that fits the numbers of writes and distinct keys.
    fn fit(keys: f64, stats: MemtableStats) -> Option<(Popularity, f64)> {
        let unique = |skew: f64| {
            let popularity = Popularity::zipf(keys, skew).ok()?;
            Some((Workload::unique(&popularity, stats.writes as f64), popularity))
        };
        let (flattest, steepest) = (unique(0.0)?, unique(MAX_SKEW)?);
        if stats.keys as f64 >= flattest.0 {
            return Some((flattest.1, 0.0));
        }
        if stats.keys as f64 <= steepest.0 {
            return Some((steepest.1, MAX_SKEW));
        }
        let (mut low, mut high) = (0.0, MAX_SKEW);
        // Finer than the measurement.
        while high - low > 0.01 {
            let middle = (low + high) / 2.0;
            if unique(middle)?.0 > stats.keys as f64 { low = middle } else { high = middle }
        }
        Some((unique(low)?.1, low))
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn skew_of_generated_writes_is_estimated() {
            for skew in [0.3, 0.8, 0.99, 1.2] {
                let popularity = Popularity::zipf(1e6, skew).unwrap();
                let keys = Workload::unique(&popularity, 1e5) as u64;
                let (_, found) = fit(1e6, MemtableStats { writes: 100_000, keys }).unwrap();
                assert!((found - skew).abs() < 0.02, "{found} for {skew}");
            }
            let all_new = MemtableStats { writes: 1000, keys: 1000 };
            assert_eq!(fit(1e6, all_new).unwrap().1, 0.0);
            assert_eq!(fit(1e6, MemtableStats { writes: 1000, keys: 3 }).unwrap().1, MAX_SKEW);
            assert!(fit(1.0, all_new).is_none());
        }
    }
}
