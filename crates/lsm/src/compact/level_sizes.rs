//! The target sizes of levels.
//!
//! `level_sizes=given`: those of the option `levels`. `level_sizes=model`: those with the smallest
//! predicted write amplification for the measured popularity of keys, recomputed as the store grows
//! or the popularity changes.
//!
//! ```text
//!   a full memtable    n writes of u keys  ┐                       ┌ targets of levels 1 … m−1
//!   the deepest level  N keys, bytes       ┼─ Zipf(N, s) ─ model ──┤
//!   level 0            writes per pass     ┘  with Unique(n) = u   └ m: one level more if that
//!                                                                    saves 3 %
//! ```
//!
//! A pass over level 0 moves each of its keys to level 1 once: the cursor of slices goes from the
//! first key to the last, or one compaction takes all runs. The writes between the ends of two
//! passes are counted. They do not follow from the capacity of level 0, because a log occupies it
//! until its last key has left.
//!
//! The sizes are not in the manifest. After an open the targets are the option's, or the present
//! sizes of larger levels, until the second end of a pass.
//!
//! Invariant: targets ascend, and there are fewer than in `levels`; the level after them has no
//! limit.
//!
//! Source: Lim, thesis, section 4.6 (there offline, for a known popularity).

use std::sync::Arc;

use arc_swap::ArcSwap;
use parking_lot::Mutex;

use super::level_model::{MemtableStats, predict};
use crate::options::Options;
use crate::version::Version;

/// The minimum number of writes for an estimate.
const MIN_WRITES: u64 = 32;
/// The relative change from which the targets are outdated.
const MIN_CHANGE: f64 = 0.25;

/// The target sizes of levels.
pub(crate) struct LevelSizes {
    targets: ArcSwap<Vec<u64>>,
    passes: Mutex<Passes>,
    learned: Mutex<Option<LearnedSizes>>,
}

/// The lengths of passes over level 0, in writes.
#[derive(Debug, Default)]
struct Passes {
    /// The writes flushed since the last end of a pass; `None` before the first end.
    since_end: Option<u64>,
    /// The mean of the passes, the latest with half of the weight; `None` before the first whole
    /// one.
    mean_writes: Option<f64>,
}

/// The inputs of the present targets.
#[derive(Debug, Clone, Copy, PartialEq)]
struct LearnedSizes {
    keys: f64,
    /// Distinct keys per write in a memtable.
    unique_share: f64,
    pass_writes: f64,
    skew: f64,
}

impl LevelSizes {
    pub(crate) fn new(options: &Options, version: &Version) -> Self {
        // The last level has no limit.
        let (_, upper) = options.level_bytes.split_last().unwrap_or((&0, &[]));
        let now = |level: usize| if options.sizes_by_model { version.bytes(level) } else { 0 };
        let targets = (1..).zip(upper).map(|(level, &given)| given.max(now(level))).collect();
        LevelSizes {
            targets: ArcSwap::from_pointee(targets),
            passes: Mutex::default(),
            learned: Mutex::default(),
        }
    }

    /// The targets of levels 1, 2, … in bytes. The level after them has none.
    pub(crate) fn targets(&self) -> Arc<Vec<u64>> {
        self.targets.load_full()
    }

    /// The Zipf exponent that fits the writes, once it is known.
    pub(crate) fn skew(&self) -> Option<f64> {
        self.learned.lock().map(|learned| learned.skew)
    }

    /// Counts the writes of a flushed memtable.
    pub(crate) fn record_flush(&self, stats: MemtableStats) {
        if let Some(since_end) = &mut self.passes.lock().since_end {
            *since_end += stats.writes;
        }
    }

    /// Called when a pass over level 0 ends.
    pub(crate) fn end_pass(&self) {
        self.passes.lock().end();
    }

    /// Whether the targets should be recomputed.
    pub(crate) fn is_outdated(&self, version: &Version, stats: MemtableStats) -> bool {
        let Some(deepest) = DeepestLevel::of(version) else { return false };
        let Some(pass_writes) = self.passes.lock().mean_writes else { return false };
        let has_changed = |learned: LearnedSizes| {
            let differs = |then: f64, now: f64| (now / then - 1.0).abs() > MIN_CHANGE;
            differs(learned.keys, deepest.keys)
                || differs(learned.unique_share, stats.share())
                || differs(learned.pass_writes, pass_writes)
        };
        stats.writes >= MIN_WRITES && self.learned.lock().is_none_or(has_changed)
    }

    /// Recomputes the targets. Cost: up to half a second of model evaluations.
    pub(crate) fn learn(&self, options: &Options, version: &Version, stats: MemtableStats) {
        let Some(deepest) = DeepestLevel::of(version) else { return };
        let Some(pass_writes) = self.passes.lock().mean_writes else { return };
        let max_levels = options.level_bytes.len().min(deepest.level + 1);
        let levels = deepest.level..=max_levels;
        let Some(predicted) = predict(deepest.keys, stats, pass_writes, levels) else { return };
        let (unique_share, skew) = (stats.share(), predicted.skew);
        let learned = LearnedSizes { keys: deepest.keys, unique_share, pass_writes, skew };
        *self.learned.lock() = Some(learned);
        let Some(items) = predicted.level_items else { return };
        // A level smaller than two tables leaves nothing to select.
        let mut least = 2 * options.target_file_bytes;
        let targets = items.iter().map(|items| {
            let target = ((items * deepest.entry_bytes) as u64).max(least);
            least = target + 1;
            target
        });
        self.targets.store(Arc::new(targets.collect()));
    }
}

impl Passes {
    fn end(&mut self) {
        let Some(writes) = self.since_end.replace(0).filter(|&writes| writes > 0) else { return };
        let writes = writes as f64;
        let mean = self.mean_writes.map_or(writes, |mean| f64::midpoint(mean, writes));
        self.mean_writes = Some(mean);
    }
}

/// The deepest non-empty level, which has nearly every key.
struct DeepestLevel {
    level: usize,
    keys: f64,
    entry_bytes: f64,
}

impl DeepestLevel {
    fn of(version: &Version) -> Option<Self> {
        let level = (1..=version.levels.len()).rfind(|&level| version.bytes(level) > 0)?;
        let keys: u64 = version.level(level).iter().map(|file| file.table().meta().entries).sum();
        let entry_bytes = version.bytes(level) as f64 / keys.max(1) as f64;
        Some(DeepestLevel { level, keys: keys as f64, entry_bytes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passes_are_counted_from_end_to_end() {
        let mut passes = Passes::default();
        passes.end();
        assert_eq!(passes.mean_writes, None, "its start was not seen");
        passes.end();
        assert_eq!(passes.mean_writes, None, "nothing was written");
        for (writes, mean) in [(100, 100.0), (200, 150.0), (50, 100.0)] {
            *passes.since_end.as_mut().unwrap() += writes;
            passes.end();
            assert_eq!(passes.mean_writes, Some(mean));
        }
    }
}
