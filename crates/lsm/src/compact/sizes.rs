//! How large each level should be.
//!
//! `level_sizes=given`: as the option `levels` says. `level_sizes=model`: so that the analytic model
//! predicts least write amplification for the popularity of keys that was measured, and adjusted as
//! the store grows or the popularity changes.
//!
//! ```text
//!   a full memtable    n writes of u keys  ┐                       ┌ targets of levels 1 … m−1
//!   the deepest level  N keys, bytes       ┼─ Zipf(N, s) ─ model ──┤
//!   level 0            requests a turn     ┘  with Unique(n) = u   └ m: one more than there are, if
//!                                                                    that saves 3 %
//! ```
//!
//! Before the popularity is known no level is compacted just for its size. The sizes are not in the
//! manifest: they are learnt anew after each opening, from the first full memtable.
//!
//! Invariant: targets ascend, and there are fewer than `levels` has; the level behind them takes what
//! comes.
//!
//! Source: thesis, section 4.6 (there offline, for a popularity that is known).

use std::sync::Arc;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use siltstone_model::{Popularity, Workload, optimize::optimize_levels};

use crate::options::Options;
use crate::version::{Row, Version};

/// A level more must save this share of all that is written.
const WORTH_A_LEVEL: f64 = 0.03;
/// The steepest Zipf that is told from others.
const MOST_SKEW: f64 = 1.5;
/// Fewer writes tell nothing.
const LEAST_WRITES: u64 = 32;
/// What has changed by less is as it was.
const CHANGED: f64 = 0.25;

/// What a memtable tells of the popularity of keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Seen {
    /// Operations.
    pub(crate) writes: u64,
    /// Keys that they were for.
    pub(crate) keys: u64,
}

/// The target sizes of levels.
pub(crate) struct LevelSizes {
    targets: ArcSwap<Vec<u64>>,
    learnt: Mutex<Option<Learnt>>,
}

/// What the targets were computed for.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Learnt {
    keys: f64,
    /// Keys for each write of a memtable.
    unique_share: f64,
    skew: f64,
}

impl LevelSizes {
    pub(crate) fn new(options: &Options, version: &Version) -> Self {
        // The last level takes what comes.
        let (_, upper) = options.level_bytes.split_last().unwrap_or((&0, &[]));
        let now = |level: usize| if options.sizes_by_model { version.bytes(level) } else { 0 };
        let targets = (1..).zip(upper).map(|(level, &given)| given.max(now(level))).collect();
        LevelSizes { targets: ArcSwap::from_pointee(targets), learnt: Mutex::default() }
    }

    /// The targets of levels 1, 2, …, in bytes. The level behind them has none.
    pub(crate) fn targets(&self) -> Arc<Vec<u64>> {
        self.targets.load_full()
    }

    /// The skew of the Zipf distribution that writes look like, once that is known.
    pub(crate) fn skew(&self) -> Option<f64> {
        self.learnt.lock().map(|learnt| learnt.skew)
    }

    /// Whether the targets should be computed anew.
    pub(crate) fn is_outdated(&self, version: &Version, seen: Seen) -> bool {
        let Some(deepest) = Deepest::of(version) else { return false };
        let has_moved = |learnt: Learnt| {
            let moved = |then: f64, now: f64| (now / then - 1.0).abs() > CHANGED;
            moved(learnt.keys, deepest.keys) || moved(learnt.unique_share, seen.share())
        };
        seen.writes >= LEAST_WRITES && self.learnt.lock().is_none_or(has_moved)
    }

    /// Computes the targets anew. Cost: up to half a second of model evaluations.
    pub(crate) fn learn(&self, options: &Options, version: &Version, seen: Seen) {
        let Some(deepest) = Deepest::of(version) else { return };
        let Some((popularity, skew)) = fit(deepest.keys, seen) else { return };
        let unique_share = seen.share();
        *self.learnt.lock() = Some(Learnt { keys: deepest.keys, unique_share, skew });
        let row = seen.writes as f64;
        // Rows lie half a turn on average; what they hold is 60 % of the container by then.
        let rows_a_turn = match options.container(version.bytes_below()) {
            0 => options.level0.compact_at as f64,
            bytes => {
                2.0 * super::level0::BEGIN_AT * bytes as f64 / row_bytes(version, &deepest, seen)
            }
        };
        let rows_a_turn = rows_a_turn.max(1.0);
        let most = options.level_bytes.len().min(deepest.level + 1);
        let designs = (deepest.level..=most)
            .filter_map(|levels| optimize_levels(&popularity, row, rows_a_turn, levels).ok());
        let mut best: Option<(f64, Vec<f64>)> = None;
        for design in designs {
            let cost = design.write_amplification.total();
            let is_better = |&(least, _): &(f64, Vec<f64>)| cost < least * (1.0 - WORTH_A_LEVEL);
            if best.as_ref().is_none_or(is_better) {
                best = Some((cost, design.design.level_items));
            }
        }
        let Some((_, items)) = best else { return };
        // A level of less than two tables has nothing to choose from.
        let mut least = 2 * options.table_bytes;
        let targets = items.iter().map(|items| {
            let target = ((items * deepest.entry_bytes) as u64).max(least);
            least = target + 1;
            target
        });
        self.targets.store(Arc::new(targets.collect()));
    }
}

impl Seen {
    fn share(self) -> f64 {
        self.keys as f64 / self.writes.max(1) as f64
    }
}

/// The deepest level that holds anything, which holds nearly every key.
struct Deepest {
    level: usize,
    keys: f64,
    entry_bytes: f64,
}

impl Deepest {
    fn of(version: &Version) -> Option<Self> {
        let level = (1..=version.levels.len()).rfind(|&level| version.bytes(level) > 0)?;
        let keys: u64 = version.level(level).iter().map(|file| file.table().meta().entries).sum();
        let entry_bytes = version.bytes(level) as f64 / keys.max(1) as f64;
        Some(Deepest { level, keys: keys as f64, entry_bytes })
    }
}

/// What a row takes of the container.
fn row_bytes(version: &Version, deepest: &Deepest, seen: Seen) -> f64 {
    let held: u64 = version.level0.iter().map(Row::held_bytes).sum();
    let entries: u64 = version.level0.iter().map(Row::entries).sum();
    let entry = if entries > 0 { held as f64 / entries as f64 } else { deepest.entry_bytes };
    (entry * seen.keys as f64).max(1.0)
}

/// The Zipf distribution over `keys` keys of which so many writes touch so many keys.
fn fit(keys: f64, seen: Seen) -> Option<(Popularity, f64)> {
    let unique = |skew: f64| {
        let popularity = Popularity::zipf(keys, skew).ok()?;
        Some((Workload::unique(&popularity, seen.writes as f64), popularity))
    };
    let (flattest, steepest) = (unique(0.0)?, unique(MOST_SKEW)?);
    if seen.keys as f64 >= flattest.0 {
        return Some((flattest.1, 0.0));
    }
    if seen.keys as f64 <= steepest.0 {
        return Some((steepest.1, MOST_SKEW));
    }
    let (mut low, mut high) = (0.0, MOST_SKEW);
    // A hundredth is finer than what is measured.
    while high - low > 0.01 {
        let middle = (low + high) / 2.0;
        if unique(middle)?.0 > seen.keys as f64 { low = middle } else { high = middle }
    }
    Some((unique(low)?.1, low))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_the_skew_found_that_made_the_writes() {
        for skew in [0.3, 0.8, 0.99, 1.2] {
            let popularity = Popularity::zipf(1e6, skew).unwrap();
            let keys = Workload::unique(&popularity, 1e5) as u64;
            let (_, found) = fit(1e6, Seen { writes: 100_000, keys }).unwrap();
            assert!((found - skew).abs() < 0.02, "{found} for {skew}");
        }
        let all_new = Seen { writes: 1000, keys: 1000 };
        assert_eq!(fit(1e6, all_new).unwrap().1, 0.0);
        assert_eq!(fit(1e6, Seen { writes: 1000, keys: 3 }).unwrap().1, MOST_SKEW);
        assert!(fit(1.0, all_new).is_none());
    }
}
