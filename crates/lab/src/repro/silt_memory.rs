//! `silt-memory`: memory an entry, at its most, while half of the entries are inserted.
//!
//! As in the thesis, a table of N/2 entries takes N/2 more, all new, and memory by structure is
//! sampled with every batch: LogStores (two while one is converted), filters of HashStores, indexes of
//! SortedStores. Once with every entry told apart by the trie, as in the thesis, and once with blocks
//! of 4 KiB. What a merge takes while it runs, its sort buffer and the index being built, is not in
//! the stores and not in this number, as it is not in equation 2.7.
//!
//! Source: Lim, thesis (2015), section 2.5.1 (memory overhead) and equation 2.7.

use std::sync::Arc;

use siltstone_engine::{Env, ManualClock, Result};

use super::silt_table::{PAPER, SiltTable, keys, options};
use super::{Check, Direction, Experiment, Measured};
use crate::engines::Medium;

/// Slots of a table at scale 1.
const SLOTS: f64 = 1024.0;

pub(super) struct SiltMemory;

impl Experiment for SiltMemory {
    fn id(&self) -> &'static str {
        "silt-memory"
    }

    fn paper(&self) -> &'static str {
        PAPER
    }

    fn figure(&self) -> &'static str {
        "section 2.5.1, memory overhead"
    }

    fn claim(&self) -> &'static str {
        "at most 0.69 bytes of memory an entry while 50 M entries are inserted into 50 M"
    }

    fn run(&self, scale: f64, progress: &mut dyn FnMut(u64, u64)) -> Result<Measured> {
        let slots = ((SLOTS * scale).max(64.0) as u64).next_power_of_two();
        let total = keys(slots as f64);
        let (mut checks, mut parts) = (Vec::new(), Vec::new());
        for (at, (name, block)) in
            [("every entry told apart", "1"), ("blocks of 4 KiB", "4KiB")].into_iter().enumerate()
        {
            let peak = peak(&[("block", block)], slots, total, &mut |done| {
                progress(at as u64 * total + done, 2 * total);
            })?;
            let share = |&(structure, bytes): &(&str, u64)| {
                format!("{structure} {:.3}", bytes as f64 / total as f64)
            };
            parts.push(format!(
                "{name}: {}",
                peak.1.iter().map(share).collect::<Vec<_>>().join(", ")
            ));
            checks.push(Check {
                what: format!("{name}: bytes of memory an entry, at most"),
                claimed: 0.69,
                ours: peak.0 as f64 / total as f64,
                tolerance: 0.01,
                direction: Direction::AtMost(0.69),
            });
        }
        let parts = parts.join("; ");
        let scale = format!("{total} entries of 20 + 1000 bytes, half of them inserted; {parts}");
        Ok(Measured { scale, checks, plot: None })
    }
}

/// The most memory while the second half of the entries is inserted, and what it was made of.
pub(super) fn peak(
    more: &[(&str, &str)],
    slots: u64,
    total: u64,
    progress: &mut dyn FnMut(u64),
) -> Result<(u64, Vec<(&'static str, u64)>)> {
    let env = Env::replayable(Arc::new(ManualClock::at(0)), 1);
    let table = SiltTable::open(options(slots, more), Medium::Ram, env)?;
    table.put(0..total / 2, |done| {
        progress(done);
        table.engine().maintain()
    })?;
    let mut most = (0, Vec::new());
    table.put(total / 2..total, |done| {
        progress(total / 2 + done);
        let stats = table.stats();
        let memory = stats.memory_bytes();
        if memory > most.0 {
            most = (memory, stats.memory.into_iter().collect());
        }
        table.engine().maintain()
    })?;
    Ok(most)
}
