//! `silt-stores`: how fast each kind of store is made and read.
//!
//! Three tables of the same entries, which are all in LogStores, all in HashStores, or all in
//! SortedStores; each is made by PUT, conversion or merge, and then read by one thread, with reads
//! that bypass the page cache. The thesis's drive reads 48,000 times a second; what ours does with
//! reads as long, through the same medium, is in the scale.
//!
//! Times are this machine's and waver with what else runs; what does not is the order: misses cost no
//! read where there is a filter, hits cost about one everywhere.
//!
//! Source: Lim, thesis (2015), tables 2.6 and 2.7, figure 2.11.

use std::time::Instant;

use siltstone_engine::{Env, Result};

use super::silt_table::{PAPER, SiltTable, key, mix, options};
use super::{Check, Direction, Experiment, Measured};
use crate::engines::{Medium, default_directory};

/// Slots of a table at scale 1.
const SLOTS: f64 = 4096.0;
/// LogStores or HashStores of an instance.
const STORES: u64 = 8;
/// GETs of each kind.
const GETS: u64 = 20_000;

/// What one kind of store did.
#[derive(Debug, Clone, Copy, Default)]
struct Speed {
    /// Thousand entries a second that it is made of.
    made: f64,
    hits: f64,
    misses: f64,
    reads_a_hit: f64,
}

pub(super) struct SiltStores;

impl Experiment for SiltStores {
    fn id(&self) -> &'static str {
        "silt-stores"
    }

    fn paper(&self) -> &'static str {
        PAPER
    }

    fn figure(&self) -> &'static str {
        "tables 2.6 and 2.7, figure 2.11"
    }

    fn claim(&self) -> &'static str {
        "204.6 K entries/s by PUT, 68.0 by CONVERT, 26.8 by MERGE; 45 to 47 K GETs/s that hit, 7 M that \
         miss a filter; a SortedStore answers 1.2 times as late as a LogStore"
    }

    fn run(&self, scale: f64, progress: &mut dyn FnMut(u64, u64)) -> Result<Measured> {
        let slots = ((SLOTS * scale).max(64.0) as u64).next_power_of_two();
        let entries = 4 * slots * STORES * 9 / 10;
        let log = measure("log", slots, entries)?;
        progress(1, 3);
        let hash = measure("log-hash", slots, entries)?;
        progress(2, 3);
        let sorted = measure("all", slots, entries)?;
        progress(3, 3);
        let check = |what: &str, claimed: f64, ours: f64| Check {
            what: what.to_owned(),
            claimed,
            ours,
            tolerance: 0.1,
            direction: Direction::AtLeast(claimed),
        };
        let latency = log.hits / sorted.hits;
        Ok(Measured {
            scale: format!(
                "{entries} entries of 20 + 1000 bytes; reads a hit {:.3} {:.3} {:.3}",
                log.reads_a_hit, hash.reads_a_hit, sorted.reads_a_hit
            ),
            checks: vec![
                check("LogStore by PUT, K entries/s", 204.6, log.made),
                check("HashStore by CONVERT, K entries/s", 67.96, hash.made),
                check("SortedStore by MERGE, K entries/s", 26.76, sorted.made),
                check("GET hit in LogStores, K/s", 46.79, log.hits),
                check("GET hit in HashStores, K/s", 44.93, hash.hits),
                check("GET hit in SortedStores, K/s", 46.57, sorted.hits),
                check("GET miss in LogStores, K/s", 7086.0 / STORES as f64, log.misses),
                check("GET miss in HashStores, K/s", 7264.0 / STORES as f64, hash.misses),
                check("GET miss in SortedStores, K/s", 46.61, sorted.misses),
                Check {
                    what: "SortedStore's latency, times a LogStore's".to_owned(),
                    claimed: 367.0 / 309.0,
                    ours: latency,
                    tolerance: 0.1,
                    direction: Direction::AtMost(1.5),
                },
            ],
            plot: None,
        })
    }
}

fn measure(stores: &str, slots: u64, entries: u64) -> Result<Speed> {
    let hash_stores = STORES.to_string();
    let mut options = options(slots, &[("stores", stores)]);
    if stores == "all" {
        options.insert("hash_stores".to_owned(), hash_stores);
    }
    let medium = Medium::Direct(default_directory());
    let table = SiltTable::open(options, medium, Env::system(1))?;
    let began = Instant::now();
    table.put(0..entries, |_| Ok(()))?;
    table.engine().sync()?;
    let seconds = began.elapsed().as_secs_f64();
    if stores != "log" {
        table.engine().flush()?;
        table.engine().maintain()?;
    }
    let stats = table.stats();
    let rate = |entries: &str, micros: &str| {
        1e3 * stats.counters[entries] as f64 / stats.counters[micros].max(1) as f64
    };
    let mut speed = Speed {
        made: match stores {
            "log" => entries as f64 / seconds / 1e3,
            "log-hash" => rate("converted_entries", "conversion_us"),
            _ => rate("merge_entries_out", "merge_us"),
        },
        ..Speed::default()
    };
    let timed = |base: u64, span: u64| -> Result<f64> {
        let began = Instant::now();
        for i in 0..GETS {
            table.engine().get(&key(base + mix(i) % span))?;
        }
        Ok(GETS as f64 / began.elapsed().as_secs_f64() / 1e3)
    };
    speed.hits = timed(0, entries)?;
    speed.reads_a_hit =
        (table.stats().io["get"].reads - stats.io["get"].reads) as f64 / GETS as f64;
    speed.misses = timed(1 << 40, 1 << 30)?;
    Ok(speed)
}
