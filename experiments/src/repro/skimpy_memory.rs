//! `skimpy-memory`: memory of the map compared with SEMEL's, and the resulting hit rate.
//!
//! Both devices receive the same writes. SEMEL's map is counted as its versions only, 20 bytes
//! each, without the index of the newest versions; SkimpyFTL's completely: heads, times of
//! collection, and the cache.
//!
//! Invariant: one seed, virtual time: the numbers are the same on every machine.
//!
//! Source: SkimpyFTL paper, section 4 (experimental setup).

use siltstone_engine::Result;

use super::bars::bar;
use super::skimpy_flash::{FlashTable, KEYS, MIN_KEYS, PAPER};
use super::{Experiment, Measurement};

pub(super) struct SkimpyMemory;

impl Experiment for SkimpyMemory {
    fn id(&self) -> &'static str {
        "skimpy-memory"
    }

    fn paper(&self) -> &'static str {
        PAPER
    }

    fn figure(&self) -> &'static str {
        "section 4, experimental setup"
    }

    fn claim(&self) -> &'static str {
        "about 5 % of SEMEL's memory with five keys per bucket and a cache of a tenth of the keys, whose \
         hit rate is about 90 %"
    }

    fn cause(&self) -> Option<&'static str> {
        Some(
            "fewer keys: under Zipf 0.99 the most popular tenth takes 78 % of the requests for \
             40,000 keys, and 86 % for the paper's 20 M (sums of the distribution)",
        )
    }

    fn run(&self, scale: f64, progress: &mut dyn FnMut(u64, u64)) -> Result<Measurement> {
        let keys = ((KEYS * scale) as u64).max(MIN_KEYS);
        let mut skimpy = FlashTable::open("skimpy", keys, 5)?;
        skimpy.condition()?;
        progress(1, 3);
        let run = skimpy.run(10, 2 * keys)?;
        let ours: Vec<_> = skimpy.stats().memory.into_iter().collect();
        progress(2, 3);
        let mut semel = FlashTable::open("semel", keys, 5)?;
        semel.condition()?;
        semel.run(10, 2 * keys)?;
        let theirs = semel.stats().memory.get("version map").copied().unwrap_or(0);
        progress(3, 3);
        // The size of both does not depend on the number of keys.
        const OF_NO_MAP: [&str; 2] = ["write buffer", "collection cache"];
        let map = ours.iter().filter(|(name, _)| !OF_NO_MAP.contains(name));
        let sum: u64 = map.clone().map(|(_, bytes)| bytes).sum();
        let checks = vec![
            bar("skimpy-memory", "map")
                .check("memory of the map over SEMEL's", sum as f64 / theirs as f64),
            bar("skimpy-memory", "hit-rate")
                .check("hit rate of the translation cache at 10 % puts", run.hit_rate),
        ];
        let a_key = |bytes: u64| bytes as f64 / keys as f64;
        let parts: Vec<_> =
            map.map(|(name, bytes)| format!("{name} {:.2}", a_key(*bytes))).collect();
        let scale = format!(
            "{keys} keys; bytes per key: {}; SEMEL's versions {:.1}",
            parts.join(", "),
            a_key(theirs)
        );
        Ok(Measurement { scale, checks, plot: None })
    }
}
