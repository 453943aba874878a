//! The load of the experiments on LSM-trie as a whole, scaled down.
//!
//! ```text
//!   write n items over n keys ─ at each twentieth: bytes at the medium, by level
//!   settle ─ look up keys that are there ─ read requests at the medium, memory by structure
//! ```
//!
//! Tables are small instead of 32 MiB, so that the last level is reached, and grows tenfold, within
//! some hundred MB in memory. Background work runs on the writing thread whenever it is due, so a run
//! repeats itself.
//!
//! Invariant: everything is counted at the medium; nothing is fitted.
//!
//! Source: LSM-trie paper, section 3.1.

use std::sync::Arc;

use siltstone_engine::{Durability, ManualClock, Result, Stats, WriteBatch};
use siltstone_runtime::Env;

use crate::engines::{Medium, Target};
use crate::generate::{Chooser, Draw, KeySpace, ValueSize, Values, stream};

pub(super) const PAPER: &str = "Wu, Xu, Shao, Jiang, LSM-trie, 2015";
const KEY_BYTES: usize = 16;
const STEPS: u64 = 20;

/// What is loaded, into what.
#[derive(Debug, Clone, Copy)]
pub(super) struct Load {
    pub(super) items: u64,
    pub(super) value_bytes: usize,
    pub(super) table_bytes: u64,
    pub(super) levels: usize,
    pub(super) draw: Draw,
}

impl Load {
    /// So many items at scale 1, of 16 + 100 bytes, in tables of 512 KiB on three levels.
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

/// What a run saw.
pub(super) struct Run {
    /// Items written, and what was written up to then.
    pub(super) steps: Vec<(u64, Stats)>,
    /// The same at the end of each cycle: when all that was written lies at the last level.
    pub(super) cycles: Vec<(u64, Stats)>,
    /// After all is settled.
    pub(super) settled: Stats,
    /// Read requests a lookup of keys that are there.
    pub(super) reads: f64,
    /// Distinct keys.
    pub(super) keys: f64,
    /// Share of lookups that did not find what is there: 0.
    pub(super) missed: f64,
}

impl Run {
    /// Loads and reads a table of these options.
    pub(super) fn of(
        load: Load,
        options: &[(&str, &str)],
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Run> {
        let (table, levels) = (load.table_bytes.to_string(), load.levels.to_string());
        let base = [("table", table.as_str()), ("levels", levels.as_str()), ("jobs", "1")];
        let options: Vec<_> = base.iter().chain(options).copied().collect();
        Run::of_engine("trie", load, &options, progress)
    }

    /// The same of any engine, with its own options.
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
            medium: Medium::Ram,
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
        // Some of the newest are in the memtable and take no read; the paper's are all on flash.
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

    /// Bytes of tables (and clusters) written for each of the user's, from the beginning to the end.
    pub(super) fn tables_written(&self) -> f64 {
        tables_written(&Stats::default(), &self.settled)
    }

    /// Bytes resident a key, memtables (a constant) not counted.
    pub(super) fn memory(&self) -> f64 {
        let memory = self.settled.memory.iter().filter(|(name, _)| **name != "memtable");
        memory.map(|(_, bytes)| *bytes).sum::<u64>() as f64 / self.keys
    }

    /// Bytes written for each of the user's, the log included.
    pub(super) fn amplification(&self) -> f64 {
        self.settled.write_amplification().unwrap_or(f64::NAN)
    }
}

/// Bytes of tables (and clusters) written for each of the user's between two moments.
pub(super) fn tables_written(before: &Stats, after: &Stats) -> f64 {
    let written = |stats: &Stats| stats.levels.iter().map(|l| l.bytes_written).sum::<u64>();
    let user = after.user_bytes_written - before.user_bytes_written;
    (written(after) - written(before)) as f64 / user as f64
}

/// A cycle: a table in the root for each container of the last level. At its end the root is emptied, and with it
/// its children, down to the last level, where each container has one sub-level more.
struct Cycle {
    flushes: u64,
    ends: u64,
    /// Items of a flush, once known.
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

    /// Whether a cycle has ended when so many items were written; a few tables later, since the number of
    /// flushes is estimated.
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
    fn does_a_small_run_lose_nothing_and_repeat_itself() {
        let measure = || {
            let options = [("run", "2"), ("filter_memory", "0")];
            Run::of(Load::of(2e6, 0.01), &options, &mut |_, _| ())
        };
        let (one, two) = (measure().unwrap(), measure().unwrap());
        assert_eq!(one.missed, 0.0);
        assert!(one.reads > 0.0 && one.reads == two.reads);
        assert_eq!(one.amplification(), two.amplification());
    }
}
