//! `silt-reads`: reads from storage per GET, with direct I/O.
//!
//! A table in the thesis's shape is loaded to the worst state: the maximal number of HashStores.
//! Then existing and missing keys are read at random, and read requests are counted.
//!
//! Invariant: nothing is cached: the engine has no cache, and reads bypass the page cache.
//!
//! Source: Lim, thesis (2015), section 2.4 (equation 2.6) and 2.5.1.

use std::sync::Arc;

use siltstone_bench::engines::{Storage, default_directory};
use siltstone_engine::{ManualClock, Result};
use siltstone_runtime::Env;

use super::bars::bar;
use super::silt_table::{PAPER, SiltTable, key, keys, mix, options};
use super::{Experiment, Measurement};

/// Slots per table at scale 1.
const SLOTS: f64 = 256.0;
/// GETs of each kind per key.
const GETS: f64 = 0.25;
/// HashStores of all instances just before a merge: 62 + 47 + 31 + 16, because instances merge in
/// turn.
const MAX_STORES: u64 = 150;

pub(super) struct SiltReads;

impl Experiment for SiltReads {
    fn id(&self) -> &'static str {
        "silt-reads"
    }

    fn paper(&self) -> &'static str {
        PAPER
    }

    fn figure(&self) -> &'static str {
        "equation 2.6, section 2.5.1"
    }

    fn claim(&self) -> &'static str {
        "1.01 flash reads per GET, found or not"
    }

    fn run(&self, scale: f64, progress: &mut dyn FnMut(u64, u64)) -> Result<Measurement> {
        let slots = (SLOTS * scale).max(64.0) as u64;
        let slots = slots.next_power_of_two();
        let loaded = keys(slots as f64);
        let env = Env::replayable(Arc::new(ManualClock::at(0)), 1);
        let storage = Storage::Direct(default_directory());
        let table = SiltTable::open(options(slots, &[]), storage, env)?;
        let gets = (loaded as f64 * GETS) as u64;
        let total = 2 * loaded + 2 * gets;
        table.put(0..loaded, |done| {
            progress(done, total);
            table.engine().maintain()
        })?;
        // Up to the maximal number of HashStores before a merge.
        let merges = |table: &SiltTable| table.stats().counters["merges"];
        let before = merges(&table);
        let fill = slots * 4;
        let mut next = loaded;
        while table.stats().levels[1].files < MAX_STORES && merges(&table) == before {
            table.put(next..next + fill / 8, |_| Ok(()))?;
            table.engine().maintain()?;
            next += fill / 8;
        }
        let stores = table.stats().levels[1].files as f64 / 4.0;
        let mut reads = |from: u64, span: u64| -> Result<f64> {
            let at = table.stats().io["get"].reads;
            for i in 0..gets {
                table.engine().get(&key(from + mix(i) % span))?;
                progress(2 * loaded + i, total);
            }
            Ok((table.stats().io["get"].reads - at) as f64 / gets as f64)
        };
        let (hit, miss) = (reads(0, next)?, reads(1 << 40, 1 << 30)?);
        let check = |what: &str, ours: f64| bar("silt-reads", "reads").check(what, ours);
        Ok(Measurement {
            scale: format!("{next} keys of 20 + 1000 bytes, {stores:.0} HashStores per instance"),
            checks: vec![check("reads per GET, found", hit), check("reads per GET, missing", miss)],
            plot: None,
        })
    }
}
