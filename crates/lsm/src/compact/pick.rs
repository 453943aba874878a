//! What to compact next: a strategy over a version.
//!
//! Leveled: level 0 is due by a policy of its own (`level0`), a deeper level when its bytes exceed
//! its target (`sizes`); the one that is furthest over goes first. From a deeper level one table goes
//! down, chosen round-robin (LevelDB) or by the least bytes under it for each of its own (RocksDB's
//! `kMinOverlappingRatio`; the thesis, section 4.7, compares such choices), then grown to every table
//! of its level that fits in without widening what lies under it.
//!
//! What a turning cursor over level 0 comes to next is rewritten next, and what it has just passed was just
//! rewritten: of tables of level 1 with about as much under them the ones ahead of it go down.
//!
//! Scans pay for level 0: for each row that a cursor is placed in, it is charged what a table's
//! worth of compaction would cost; when the charges reach the cost of compacting level 0, it is due
//! whatever its size (LevelDB's seek compaction, whose exchange rate this is: one seek costs as
//! much as compacting 16 KiB).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use parking_lot::Mutex;

use super::level0::Level0;
use super::{Busy, Compaction, LevelSizes, complete};
use crate::options::{Options, Selection};
use crate::version::{TableFile, Version};

/// A look into a row costs as much as compacting this many bytes.
const LOOK_COST_BYTES: u64 = 16 << 10;
/// To ask its filters whether it is worth one costs as much as this many.
const PASS_COST_BYTES: u64 = LOOK_COST_BYTES / 8;

/// What a whole turn of the cursor over level 0 counts against a table of level 1, in bytes under it for each
/// of its own. The table that stays is rewritten once a turn, but so is what comes in its place. Measured with
/// values of 1 KiB: a first load writes a tenth less with 0.25 than with 0, one over a full level 2 about the
/// same up to 1 and more with 3; an overwrite after a first load a twentieth more.
const TURN_WEIGHT: f64 = 0.25;

/// Chooses compactions.
pub(crate) trait Strategy: Send + Sync {
    /// The most urgent compaction that touches nothing busy; `None` if none is due.
    fn pick(&self, version: &Version, busy: &Busy) -> Option<Compaction>;

    /// Hears that a cursor was placed in so many rows of `version`, or passed them by; `true` if it is the one that makes
    /// a compaction due.
    fn look(&self, version: &Version, placed: u64, passed: u64) -> bool;

    /// From 0 (write on) to 1 (stop): how much writers are to wait for level 0.
    fn pressure(&self, version: &Version) -> f64;

    /// Hears that `compaction` is about to be installed.
    fn advance(&self, compaction: &Compaction);
}

/// Leveled compaction.
pub(crate) struct Leveled {
    options: Options,
    level0: Level0,
    sizes: Arc<LevelSizes>,
    /// By level: the key after which round-robin goes on.
    cursors: Mutex<Vec<Vec<u8>>>,
    /// What seeks have paid towards the next compaction of level 0, in bytes.
    seeks_paid_bytes: AtomicU64,
}

impl Leveled {
    /// Goes on where the manifest says the last compactions ended.
    pub(crate) fn new(
        options: &Options,
        sizes: Arc<LevelSizes>,
        recovered: &[(usize, Vec<u8>)],
    ) -> Self {
        let mut cursors = Vec::new();
        for (level, key) in recovered {
            cursors.resize(cursors.len().max(level + 1), Vec::new());
            cursors[*level].clone_from(key);
        }
        Leveled {
            options: options.clone(),
            level0: Level0::new(options),
            sizes,
            cursors: Mutex::new(cursors),
            seeks_paid_bytes: AtomicU64::new(0),
        }
    }

    /// How far a level is over what it may hold; 1 and more is due.
    fn score(&self, version: &Version, level: usize) -> f64 {
        if level == 0 {
            let score = self.level0.score(version);
            return if self.have_seeks_paid(version) { score.max(1.0) } else { score };
        }
        let targets = self.sizes.targets();
        let grown = || self.options.least_level_1(version.bytes_below());
        let least = if level == 1 { grown() } else { 0 };
        let target = targets.get(level - 1);
        target.map_or(0.0, |&target| version.bytes(level) as f64 / target.max(least) as f64)
    }

    /// Whether seeks have paid for what a compaction of level 0 would read.
    fn have_seeks_paid(&self, version: &Version) -> bool {
        let paid = self.seeks_paid_bytes.load(Relaxed);
        version.level0.len() > 1 && paid >= seek_target(version)
    }

    fn pick_table(&self, version: &Version, level: usize, busy: &Busy) -> Option<Compaction> {
        let tables = version.level(level);
        let is_free = |table: &Arc<TableFile>| {
            let below = version.overlapping(level + 1, table.smallest(), table.largest());
            !busy.has(table.number()) && below.iter().all(|below| !busy.has(below.number()))
        };
        let seed = match self.options.selection {
            Selection::RoundRobin => {
                let cursors = self.cursors.lock();
                let after = cursors.get(level).map_or(&[][..], Vec::as_slice);
                let start = tables.partition_point(|table| table.largest() <= after);
                (start..tables.len()).chain(0..start).find(|&at| is_free(&tables[at]))
            }
            Selection::LeastOverlap => {
                let overlap = |table: &TableFile| {
                    let below = version.overlapping(level + 1, table.smallest(), table.largest());
                    let under: u64 = below.iter().map(|below| below.bytes()).sum();
                    under as f64 / table.bytes().max(1) as f64
                };
                // Where the cursor over level 0 comes next.
                let next = tables.partition_point(|table| table.largest() < &*version.cursor);
                let turn = |at: usize| {
                    let ahead = (at + tables.len() - next) % tables.len();
                    ahead as f64 / tables.len() as f64
                };
                let is_under_sides = level == 1 && self.level0.is_container();
                let weight = if is_under_sides { TURN_WEIGHT } else { 0.0 };
                let cost = |at: usize| overlap(&tables[at]) + weight * turn(at);
                let free = (0..tables.len()).filter(|&at| is_free(&tables[at]));
                free.min_by(|&a, &b| cost(a).total_cmp(&cost(b)))
            }
        }?;
        let compaction = complete(version, level, Vec::new(), vec![tables[seed].clone()], None);
        Some(self.grow(version, busy, compaction))
    }

    /// Takes every further table of the level that fits over the same tables below: they go down
    /// without rewriting anything more.
    fn grow(&self, version: &Version, busy: &Busy, compaction: Compaction) -> Compaction {
        let (Some(first), Some(last)) = (compaction.below.first(), compaction.below.last()) else {
            return compaction;
        };
        let seed = &compaction.inputs[0];
        let smallest = seed.smallest().min(first.smallest());
        let largest = seed.largest().max(last.largest());
        let fits = |table: &&Arc<TableFile>| {
            table.smallest() >= smallest && table.largest() <= largest && !busy.has(table.number())
        };
        let wide = version.overlapping(compaction.level, smallest, largest);
        let inputs: Vec<_> = wide.iter().filter(fits).cloned().collect();
        // A compaction that grows without bound would hold its level up for long.
        let limit = 25 * self.options.table_bytes;
        let grown = complete(version, compaction.level, Vec::new(), inputs, None);
        let bytes: u64 = grown.tables().map(|table| table.bytes()).sum();
        let is_as_wide = grown.below.len() == compaction.below.len();
        if is_as_wide && bytes <= limit { grown } else { compaction }
    }
}

/// What a compaction of level 0 would read.
fn seek_target(version: &Version) -> u64 {
    version.bytes(0) + version.levels.first().map_or(0, |_| version.bytes(1))
}

impl Strategy for Leveled {
    fn pick(&self, version: &Version, busy: &Busy) -> Option<Compaction> {
        let mut due: Vec<(f64, usize)> = (0..=version.levels.len())
            .map(|level| (self.score(version, level), level))
            .filter(|&(score, _)| score >= 1.0)
            .collect();
        due.sort_by(|a, b| b.0.total_cmp(&a.0));
        due.into_iter().find_map(|(_, level)| match level {
            0 => self.level0.pick(version, busy),
            _ => self.pick_table(version, level, busy),
        })
    }

    fn look(&self, version: &Version, placed: u64, passed: u64) -> bool {
        if version.level0.len() < 2 {
            return false;
        }
        let paid = placed * LOOK_COST_BYTES + passed * PASS_COST_BYTES;
        let before = self.seeks_paid_bytes.fetch_add(paid, Relaxed);
        // Once: whoever comes later finds it queued, running, or waiting for what will queue it.
        let target = seek_target(version);
        before < target && before + paid >= target
    }

    fn pressure(&self, version: &Version) -> f64 {
        self.level0.pressure(version)
    }

    fn advance(&self, compaction: &Compaction) {
        if compaction.level == 0 {
            self.seeks_paid_bytes.store(0, Relaxed);
        }
        let mut cursors = self.cursors.lock();
        let levels = cursors.len().max(compaction.level + 1);
        cursors.resize(levels, Vec::new());
        cursors[compaction.level] = compaction.largest_input().to_vec();
    }
}
