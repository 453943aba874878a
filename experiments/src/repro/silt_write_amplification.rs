//! `silt-write-amplification`: bytes written, compared with equation 2.4.
//!
//! A table of N entries receives uniform overwrites from the end of one round of merges (one per
//! instance) to the end of another, so that whole rounds are measured. Bytes written to storage are
//! compared with the bytes of keys and values. d is the number of entries that merges really took
//! from HashStores. Merges sort in memory here; the thesis sorts on another drive, which equation
//! 2.4 does not count either.
//!
//! Source: Lim, thesis (2015), section 2.4, equation 2.4.

use std::sync::Arc;

use siltstone_bench::engines::Storage;
use siltstone_engine::{ManualClock, Result};
use siltstone_runtime::Env;

use super::bars::bar;
use super::silt_table::{INSTANCES, LOAD, PAPER, SiltTable, keys, mix, options};
use super::{Experiment, Measurement};

/// Slots per table at scale 1.
const SLOTS: f64 = 512.0;
/// Measured rounds of merges.
const ROUNDS: u64 = 2;

pub(super) struct SiltWriteAmplification;

impl Experiment for SiltWriteAmplification {
    fn id(&self) -> &'static str {
        "silt-write-amplification"
    }

    fn paper(&self) -> &'static str {
        PAPER
    }

    fn figure(&self) -> &'static str {
        "equation 2.4"
    }

    fn claim(&self) -> &'static str {
        "WA = 2.075 + N / (d P): 5.4 for 100 M keys, 4 instances, 7.5 M entries per merge"
    }

    fn run(&self, scale: f64, progress: &mut dyn FnMut(u64, u64)) -> Result<Measurement> {
        let slots = ((SLOTS * scale).max(64.0) as u64).next_power_of_two();
        let n = keys(slots as f64);
        let env = Env::replayable(Arc::new(ManualClock::at(0)), 1);
        let table = SiltTable::open(options(slots, &[]), Storage::Ram, env)?;
        let total = n * 2;
        table.put(0..n, |done| {
            progress(done, total);
            Ok(())
        })?;
        let mut updates = 0;
        // Overwrites until the end of the given number of further rounds of merges.
        let mut rounds = |count: u64| -> Result<()> {
            for _ in 0..count {
                let before = table.stats().counters["merges"];
                while table.stats().counters["merges"] < before + INSTANCES as u64 {
                    table.put((0..slots / 2).map(|i| mix(updates + i) % n), |_| Ok(()))?;
                    updates += slots / 2;
                    table.engine().maintain()?;
                    progress(n + updates.min(n), total);
                }
            }
            Ok(())
        };
        rounds(1)?;
        let before = table.stats();
        rounds(ROUNDS)?;
        let after = table.stats();
        let converted = after.counters["converted_entries"] - before.counters["converted_entries"];
        let user = after.user_bytes_written - before.user_bytes_written;
        let written = after.media_bytes_written() - before.media_bytes_written();
        let merges = after.counters["merges"] - before.counters["merges"];
        let d = converted as f64 / merges as f64;
        let claimed = 1.0 + 1.0 / LOAD + n as f64 / (d * INSTANCES);
        Ok(Measurement {
            scale: format!("{n} keys of 20 + 1000 bytes, {d:.0} entries per merge of an instance"),
            checks: vec![bar("silt-write-amplification", "total").check_computed(
                "write amplification",
                claimed,
                written as f64 / user as f64,
            )],
            plot: None,
        })
    }
}
