//! What to compact next: a strategy over a version.
//!
//! Leveled: level 0 is due when it has enough rows, a deeper level when its bytes exceed its
//! target; the one that is furthest over goes first. Level 0 goes down whole, because its rows
//! overlap. From a deeper level one table goes down, chosen round-robin (LevelDB) or by the least
//! bytes under it for each of its own (RocksDB's `kMinOverlappingRatio`; the thesis, section 4.7,
//! compares such choices), then grown to every table of its level that fits in without widening
//! what lies under it.
//!
//! Scans pay for level 0: each cursor placed looks into every row, so it is charged what a table's
//! worth of compaction would cost; when the charges reach the cost of compacting level 0, it is due
//! whatever its size (LevelDB's seek compaction, whose exchange rate this is: one seek costs as
//! much as compacting 16 KiB).
//!
//! This is the seam for TRIAD-DISK (wait until rows overlap enough) and for the triangle's
//! right-angle side (a cursor's stretch of all rows).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use parking_lot::Mutex;

use super::Busy;
use crate::options::{Options, Selection};
use crate::version::{TableFile, Version};

/// One look into one row costs as much as compacting this many bytes.
const SEEK_COST_BYTES: u64 = 16 << 10;

/// Chooses compactions.
pub(crate) trait Strategy: Send + Sync {
    /// The most urgent compaction that touches nothing busy; `None` if none is due.
    fn pick(&self, version: &Version, busy: &Busy) -> Option<Compaction>;

    /// Hears that a cursor was placed over `version`; `true` if that makes a compaction due.
    fn seek(&self, version: &Version) -> bool;

    /// Hears that `compaction` is about to be installed.
    fn advance(&self, compaction: &Compaction);
}

/// Tables of one level to be merged with those under them.
#[derive(Clone)]
pub(crate) struct Compaction {
    pub(crate) level: usize,
    pub(crate) target: usize,
    /// Of `level`; those of level 0 newest first.
    pub(crate) inputs: Vec<Arc<TableFile>>,
    /// Of `target`.
    pub(crate) below: Vec<Arc<TableFile>>,
    /// Of the level after `target`: a table that would overlap too many of them is ended early.
    pub(crate) grandparents: Vec<Arc<TableFile>>,
    /// Levels deeper than `target`, to know whether a deletion still has something to hide.
    pub(crate) deeper: Vec<Vec<Arc<TableFile>>>,
}

impl Compaction {
    /// Every table it reads.
    pub(crate) fn tables(&self) -> impl Iterator<Item = &Arc<TableFile>> {
        self.inputs.iter().chain(&self.below)
    }

    /// The tables only change their level: nothing lies under them and they don't overlap.
    pub(crate) fn is_move(&self) -> bool {
        let mut by_key: Vec<_> = self.inputs.iter().collect();
        by_key.sort_by(|a, b| a.smallest().cmp(b.smallest()));
        self.below.is_empty() && by_key.windows(2).all(|p| p[0].largest() < p[1].smallest())
    }

    pub(crate) fn largest_input(&self) -> &[u8] {
        self.inputs.iter().map(|table| table.largest()).max().unwrap_or_default()
    }

    /// Whether a level deeper than the target may hold `key`.
    pub(crate) fn is_deeper(&self, key: &[u8]) -> bool {
        self.deeper.iter().any(|tables| {
            let at = tables.partition_point(|table| table.largest() < key);
            tables.get(at).is_some_and(|table| table.smallest() <= key)
        })
    }
}

/// Leveled compaction.
pub(crate) struct Leveled {
    options: Options,
    /// By level: the key after which round-robin goes on.
    cursors: Mutex<Vec<Vec<u8>>>,
    /// What seeks have paid towards the next compaction of level 0, in bytes.
    seeks_paid_bytes: AtomicU64,
}

impl Leveled {
    /// Goes on where the manifest says the last compactions ended.
    pub(crate) fn new(options: &Options, recovered: &[(usize, Vec<u8>)]) -> Self {
        let mut cursors = Vec::new();
        for (level, key) in recovered {
            cursors.resize(cursors.len().max(level + 1), Vec::new());
            cursors[*level].clone_from(key);
        }
        Leveled {
            options: options.clone(),
            cursors: Mutex::new(cursors),
            seeks_paid_bytes: AtomicU64::new(0),
        }
    }

    /// How far a level is over what it may hold; 1 and more is due.
    fn score(&self, version: &Version, level: usize) -> f64 {
        if level == 0 {
            let rows = version.level0.len() as f64 / self.options.level0.compact_at as f64;
            return if self.have_seeks_paid(version) { rows.max(1.0) } else { rows };
        }
        // The last level takes what comes.
        let target = self.options.level_bytes.get(level - 1).filter(|_| level < self.levels());
        target.map_or(0.0, |&target| version.bytes(level) as f64 / target as f64)
    }

    /// Whether seeks have paid for what a compaction of level 0 would read.
    fn have_seeks_paid(&self, version: &Version) -> bool {
        let cost = version.bytes(0) + version.levels.first().map_or(0, |_| version.bytes(1));
        version.level0.len() > 1 && self.seeks_paid_bytes.load(Relaxed) >= cost
    }

    fn levels(&self) -> usize {
        self.options.level_bytes.len()
    }

    fn pick_level0(&self, version: &Version, busy: &Busy) -> Option<Compaction> {
        if busy.level0 || version.level0.is_empty() {
            return None;
        }
        let inputs: Vec<_> = version.level0.iter().map(|row| row.file().clone()).collect();
        let compaction = complete(version, 0, inputs);
        compaction.below.iter().all(|table| !busy.has(table.number())).then_some(compaction)
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
                let free = (0..tables.len()).filter(|&at| is_free(&tables[at]));
                free.min_by(|&a, &b| overlap(&tables[a]).total_cmp(&overlap(&tables[b])))
            }
        }?;
        let compaction = complete(version, level, vec![tables[seed].clone()]);
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
        let grown = complete(version, compaction.level, inputs);
        let bytes: u64 = grown.tables().map(|table| table.bytes()).sum();
        let is_as_wide = grown.below.len() == compaction.below.len();
        if is_as_wide && bytes <= limit { grown } else { compaction }
    }
}

impl Strategy for Leveled {
    fn pick(&self, version: &Version, busy: &Busy) -> Option<Compaction> {
        let mut due: Vec<(f64, usize)> = (0..=version.levels.len())
            .map(|level| (self.score(version, level), level))
            .filter(|&(score, _)| score >= 1.0)
            .collect();
        due.sort_by(|a, b| b.0.total_cmp(&a.0));
        due.into_iter().find_map(|(_, level)| match level {
            0 => self.pick_level0(version, busy),
            _ => self.pick_table(version, level, busy),
        })
    }

    fn seek(&self, version: &Version) -> bool {
        let rows = version.level0.len() as u64;
        if rows < 2 {
            return false;
        }
        self.seeks_paid_bytes.fetch_add(rows * SEEK_COST_BYTES, Relaxed);
        self.have_seeks_paid(version)
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

/// A compaction of `inputs` with all that lies under them.
fn complete(version: &Version, level: usize, inputs: Vec<Arc<TableFile>>) -> Compaction {
    let under = |level: usize, tables: &[&Arc<TableFile>]| {
        let smallest = tables.iter().map(|table| table.smallest()).min().unwrap_or_default();
        let largest = tables.iter().map(|table| table.largest()).max().unwrap_or_default();
        match level <= version.levels.len() {
            true => version.overlapping(level, smallest, largest).to_vec(),
            false => Vec::new(),
        }
    };
    let below = under(level + 1, &inputs.iter().collect::<Vec<_>>());
    // What lies below reaches further than the inputs, and its deletions hide deeper entries too.
    let all: Vec<_> = inputs.iter().chain(&below).collect();
    let grandparents = under(level + 2, &all);
    let deeper = (level + 2..=version.levels.len()).map(|level| under(level, &all)).collect();
    Compaction { level, target: level + 1, below, grandparents, deeper, inputs }
}
