//! `cuckoo-load`: maximal load and false-positive rate of a partial-key cuckoo table.
//!
//! Tables of a LogStore's size are filled with random keys until an insertion fails, for several
//! seeds; then absent keys are looked up.
//!
//! The claimed probability of a match is that of 8 tags of 15 bits in a full table. Ours are at
//! their maximal load, so a few of the 8 slots are empty.
//!
//! Invariant: all numbers are counts and reproducible.
//!
//! Source: Lim, thesis (2015), sections 2.2.1 (load) and 2.2.2 (false positives).

use siltstone_engine::Result;
use siltstone_structures::cuckoo::CuckooTable;
use siltstone_structures::hash::hash64_seeded;

use super::bars::bar;
use super::{Experiment, Measurement};

/// Slots in a LogStore's table.
const SLOTS: u32 = 1 << 17;
const SEEDS: f64 = 20.0;
/// Absent keys per table: 5,000 false positives among all at scale 1, for an error of 1.4 %.
const QUERIES: u64 = 1 << 20;

pub(super) struct CuckooLoad;

impl Experiment for CuckooLoad {
    fn id(&self) -> &'static str {
        "cuckoo-load"
    }

    fn paper(&self) -> &'static str {
        "Lim, Resource-Efficient Data-Intensive System Designs, 2015"
    }

    fn figure(&self) -> &'static str {
        "sections 2.2.1 and 2.2.2"
    }

    fn claim(&self) -> &'static str {
        "a table of 4-way buckets takes 93 % of its slots before an insertion fails, and a full one \
         matches absent keys at 2^-12"
    }

    fn run(&self, scale: f64, progress: &mut dyn FnMut(u64, u64)) -> Result<Measurement> {
        let seeds = (SEEDS * scale).round().max(2.0) as u64;
        let (mut load, mut positives) = (0.0, 0);
        for seed in 1..=seeds {
            let hash = |key: u64| hash64_seeded(&key.to_le_bytes(), seed);
            let mut table = CuckooTable::<15>::with_slots(SLOTS);
            let inserted =
                (0..SLOTS).take_while(|&key| table.insert(hash(key.into()), key).is_ok());
            let inserted = u64::from(inserted.count() as u32);
            load += table.load();
            let absent = (inserted + 1..).take(QUERIES as usize);
            positives += absent.filter(|&key| table.candidates(hash(key)).count() > 0).count();
            progress(seed, seeds);
        }
        let rate = positives as f64 / (seeds * QUERIES) as f64;
        let checks = vec![
            bar("cuckoo-load", "load")
                .check("load at the first failed insertion, mean over seeds", load / seeds as f64),
            bar("cuckoo-load", "false-positives").check(
                "false positives at that load, over 8 / 2^15",
                rate * f64::from(1 << 15) / 8.0,
            ),
        ];
        let scale = format!("{seeds} tables of {SLOTS} slots, {QUERIES} absent keys each");
        Ok(Measurement { scale, checks, plot: None })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::repro::{Verdict, run};

    #[test]
    fn two_tables_reach_the_claimed_load() {
        let finding = run(&CuckooLoad, 0.1, 1, &mut |_, _| ()).unwrap();
        assert_eq!(finding.verdict, Verdict::Better, "{:?}", finding.checks);
    }
}
