//! The load of the experiments on LSM-trie as a whole, scaled down.
//!
//! ```text
//!   write n items over n keys ─ at each twentieth: bytes written to storage, by level
//!   settle ─ look up existing keys ─ read requests to storage, memory by structure
//! ```
//!
//! Tables are small instead of 32 MiB, so that the last level is reached, and grows tenfold, within
//! a few hundred MB of memory. Background work runs on the writing thread whenever it is due, so a
//! run is reproducible.
//!
//! Invariant: all numbers are counts at the storage interface; nothing is fitted.
//!
//! Source: LSM-trie paper, section 3.1.

use std::sync::Arc;

use siltstone_bench::engines::{Storage, Target};
use siltstone_bench::generate::{Chooser, Draw, KeySpace, ValueSize, Values, stream};
use siltstone_engine::{Durability, ManualClock, Result, Stats, WriteBatch};
use siltstone_runtime::Env;

pub(super) const PAPER: &str = "Wu, Xu, Shao, Jiang, LSM-trie, 2015";
const KEY_BYTES: usize = 16;
const STEPS: u64 = 20;

/// A load and the shape of the table.
#[derive(Debug, Clone, Copy)]
pub(super) struct Load {
    pub(super) items: u64,
    pub(super) value_bytes: usize,
    pub(super) table_bytes: u64,
    pub(super) levels: usize,
    pub(super) draw: Draw,
}

impl Load {
    /// The number of items at scale 1, of 16 + 100 bytes, in tables of 512 KiB on three levels.
    pub(super) fn of(items: f64, scale: f64) -> Self {
        let items = (items * scale) as u64;
        let (value_bytes, table_bytes, draw) = (100, 512 << 10, Draw::Uniform);
        Load { items, value_bytes, table_bytes, levels: 3, draw }
    }

    pub(super) fn words(&self) -> String {
        format!(
            "{} writes of 16 + {} bytes, tables of {} KiB, {} levels, in memory",
            self.items,
            self.value_bytes,
            self.table_bytes >> 10,
            self.levels
        )
    }
}

/// Measurements of a run.
pub(super) struct Run {
    /// Items written, with the statistics at that time.
    pub(super) steps: Vec<(u64, Stats)>,
    /// The same at the end of each cycle, when all data is in the last level.
    pub(super) cycles: Vec<(u64, Stats)>,
    /// Statistics after all background work.
    pub(super) settled: Stats,
    /// Read requests per lookup of existing keys.
    pub(super) reads: f64,
    /// Number of distinct keys.
    pub(super) keys: f64,
    /// Share of lookups that missed an existing key; must be 0.
    pub(super) missed: f64,
}

impl Run {
    /// Loads and reads per table of these options.
    pub(super) fn of(
        load: Load,
        options: &[(&str, &str)],
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Run> {
        let (table, levels) = (load.table_bytes.to_string(), load.levels.to_string());
        let base = [
            ("htable_size", table.as_str()),
            ("levels", levels.as_str()),
            ("max_compactions", "1"),
        ];
        let options: Vec<_> = base.iter().chain(options).copied().collect();
        Run::of_engine("trie", load, &options, progress)
    }

    /// Loads and reads a table of any engine, with its own options.
    pub(super) fn of_engine(
        engine: &str,
        load: Load,
        options: &[(&str, &str)],
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Run> {
        let Load { items, value_bytes, table_bytes, draw, .. } = load;
        let own = |&(name, value): &(&str, &str)| (name.to_owned(), value.to_owned());
        let target = Target {
            engine: engine.to_owned(),
            options: options.iter().map(own).collect(),
            storage: Storage::Ram,
            keep: false,
            background_threads: 1,
        };
        let env = Env::replayable(Arc::new(ManualClock::at(0)), 1);
        let opened = target.open_in(env)?;
        let engine = &*opened.engine;
        let space = KeySpace::new(KEY_BYTES, items)?;
        let mut rng = stream(1, 0);
        let mut values = Values::new(ValueSize::Fixed(value_bytes), 0.0, &mut rng);
        let mut chooser = Chooser::new(draw, items, 1, 0, 1);
        let mut written = vec![false; items as usize];
        let (mut key, mut batch) = (Vec::new(), WriteBatch::new());
        let (mut steps, mut cycles, mut cycle) = (Vec::new(), Vec::new(), Cycle::of(load));
        let stride = (table_bytes / (KEY_BYTES + value_bytes) as u64 / 4).max(1);
        for i in 1..=items {
            let n = chooser.next(&mut rng, items);
            written[n as usize] = true;
            space.write(n, &mut key);
            batch.clear();
            batch.put(&key, values.next(&mut rng));
            engine.write(&batch, Durability::Buffered)?;
            if i % stride == 0 {
                engine.maintain()?;
                progress(i, items);
            }
            if i % (items / STEPS).max(1) == 0 {
                steps.push((i, engine.stats()));
                cycle.learn(i, &engine.stats());
            }
            if cycle.ends_at(i) {
                engine.maintain()?;
                cycles.push((i, engine.stats()));
            }
        }
        engine.maintain()?;
        let settled = engine.stats();
        let present: Vec<u64> = (0..).zip(&written).filter(|(_, w)| **w).map(|(n, _)| n).collect();
        let lookups = present.len().min(200_000);
        let mut missed = 0;
        for at in 0..lookups {
            space.write(present[at * 7919 % present.len()], &mut key);
            missed += u64::from(engine.get(&key)?.is_none());
        }
        let after = engine.stats();
        // Some of the newest keys are in the memtable and take no read; the paper's are all on
        // flash.
        let requests = after.io["get"].reads - settled.io["get"].reads;
        Ok(Run {
            steps,
            cycles,
            settled,
            reads: requests as f64 / lookups as f64,
            keys: present.len() as f64,
            missed: missed as f64 / lookups as f64,
        })
    }

    /// Bytes of tables (and clusters) written in total per byte that the user wrote.
    pub(super) fn tables_written(&self) -> f64 {
        tables_written(&Stats::default(), &self.settled)
    }

    /// Bytes of memory per key, without memtables, whose size is constant.
    pub(super) fn memory(&self) -> f64 {
        let memory = self.settled.memory.iter().filter(|(name, _)| **name != "memtable");
        memory.map(|(_, bytes)| *bytes).sum::<u64>() as f64 / self.keys
    }

    /// Bytes written per byte that the user wrote, including the log.
    pub(super) fn amplification(&self) -> f64 {
        self.settled.write_amplification().unwrap_or(f64::NAN)
    }
}

/// Bytes of tables (and clusters) written between two times per byte that the user wrote.
pub(super) fn tables_written(before: &Stats, after: &Stats) -> f64 {
    let written = |stats: &Stats| stats.levels.iter().map(|l| l.bytes_written).sum::<u64>();
    let user = after.user_bytes_written - before.user_bytes_written;
    (written(after) - written(before)) as f64 / user as f64
}

/// A cycle: one root table per container of the last level. At its end the root and all levels
/// above the last are empty, and each container of the last level has one more sub-level.
struct Cycle {
    flushes: u64,
    ends: u64,
    /// Items per flush, once known.
    items: Option<f64>,
}

impl Cycle {
    fn of(load: Load) -> Self {
        Cycle { flushes: 8u64.pow(load.levels as u32 - 1), ends: 0, items: None }
    }

    fn learn(&mut self, items: u64, stats: &Stats) {
        let flushes = stats.counters.get("flushes").copied().filter(|&flushes| flushes > 0);
        self.items = self.items.or(flushes.map(|flushes| items as f64 / flushes as f64));
    }

    /// Whether a cycle has ended after `items` writes; delayed by a few tables, because the number
    /// of flushes is estimated.
    fn ends_at(&mut self, items: u64) -> bool {
        let Some(of_flush) = self.items else { return false };
        let next = ((self.ends + 1) * self.flushes + 3) as f64 * of_flush;
        let has_ended = items as f64 >= next;
        self.ends += u64::from(has_ended);
        has_ended
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_run_is_complete_and_reproducible() {
        let measure = || {
            let options = [("dense_run_at", "2"), ("filter_memory", "0")];
            Run::of(Load::of(2e6, 0.01), &options, &mut |_, _| ())
        };
        let (one, two) = (measure().unwrap(), measure().unwrap());
        assert_eq!(one.missed, 0.0);
        assert!(one.reads > 0.0 && one.reads == two.reads);
        assert_eq!(one.amplification(), two.amplification());
    }
}
