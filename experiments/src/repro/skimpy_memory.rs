//! `skimpy-memory`: memory of the map compared with SEMEL's, and the resulting hit rate.
//!
//! Both devices receive the same writes. SEMEL's map is counted as its versions only, 20 bytes
//! each, without the index of the newest versions; SkimpyFTL's completely: heads, times of
//! collection, and the cache.
//!
//! Under Zipf 0.99 the hit rate depends on the number of keys. So the cache alone, without a
//! device, answers the same requests twice: for the keys of the device, where it must have the hit
//! rate of the whole store, and for the paper's 20 million, whose hit rate is judged.
//!
//! Invariant: one seed, virtual time: the numbers are the same on every machine.
//!
//! Source: SkimpyFTL paper, section 4 (experimental setup).

use rand::RngExt;
use siltstone_bench::generate::{Chooser, Draw, stream};
use siltstone_engine::Result;
use siltstone_skimpy::translation_cache::{KeyId, TranslationCache};
use siltstone_structures::hash::hash64;

use super::bars::bar;
use super::skimpy_flash::{FlashTable, KEYS, MIN_KEYS, PAPER, SEED, SKEW};
use super::{Experiment, Measurement};

/// Keys of the paper's store.
const PAPER_KEYS: u64 = 20_000_000;
const KEYS_PER_BUCKET: u64 = 5;
const PERCENT_OF_PUTS: u32 = 10;
/// Requests per key before and while the hit rate of the cache alone is measured.
const WARM_UP: u64 = 3;
const MEASURED: u64 = 2;

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
            "under Zipf 0.99 the most popular tenth of 20 M keys takes 86 % of the requests (sums of \
             the distribution): no cache of a tenth answers more of independent requests",
        )
    }

    fn run(&self, scale: f64, progress: &mut dyn FnMut(u64, u64)) -> Result<Measurement> {
        let keys = ((KEYS * scale) as u64).max(MIN_KEYS);
        let mut skimpy = FlashTable::open("skimpy", keys, KEYS_PER_BUCKET)?;
        skimpy.condition()?;
        progress(1, 4);
        let run = skimpy.run(PERCENT_OF_PUTS, 2 * keys)?;
        let ours: Vec<_> = skimpy.stats().memory.into_iter().collect();
        progress(2, 4);
        let mut semel = FlashTable::open("semel", keys, KEYS_PER_BUCKET)?;
        semel.condition()?;
        semel.run(PERCENT_OF_PUTS, 2 * keys)?;
        let theirs = semel.stats().memory.get("version map").copied().unwrap_or(0);
        progress(3, 4);
        // The size of both does not depend on the number of keys.
        const OF_NO_MAP: [&str; 2] = ["write buffer", "collection cache"];
        let map = ours.iter().filter(|(name, _)| !OF_NO_MAP.contains(name));
        let sum: u64 = map.clone().map(|(_, bytes)| bytes).sum();
        let checks = vec![
            bar("skimpy-memory", "map")
                .check("memory of the map over SEMEL's", sum as f64 / theirs as f64),
            bar("skimpy-memory", "cache-alone").check(
                format!(
                    "hit rate of the cache alone, relative difference to the store's, {keys} keys"
                ),
                (hit_rate_of_cache(keys) / run.hit_rate - 1.0).abs(),
            ),
            bar("skimpy-memory", "hit-rate").check(
                format!("hit rate of the cache alone at 10 % puts, {PAPER_KEYS} keys"),
                hit_rate_of_cache(PAPER_KEYS),
            ),
        ];
        progress(4, 4);
        let a_key = |bytes: u64| bytes as f64 / keys as f64;
        let parts: Vec<_> =
            map.map(|(name, bytes)| format!("{name} {:.2}", a_key(*bytes))).collect();
        let scale = format!(
            "{keys} keys; bytes per key: {}; SEMEL's versions {:.1}; hit rate of the store {:.3}",
            parts.join(", "),
            a_key(theirs),
            run.hit_rate
        );
        Ok(Measurement { scale, checks, plot: None })
    }
}

/// The hit rate of gets of a translation cache for a tenth of `keys` keys in its steady state. The
/// cache is called as the store calls it; a location is the number of the request that wrote it.
fn hit_rate_of_cache(keys: u64) -> f64 {
    let buckets = (keys / KEYS_PER_BUCKET) as u32;
    let mut cache = TranslationCache::new(keys / 10, buckets);
    let mut chooser = Chooser::new(Draw::Zipf { skew: SKEW }, keys, SEED, 0, 1);
    let mut rng = stream(SEED, 1);
    // No record of the bucket is newer; each key was written before.
    let mut heads = vec![0; buckets as usize];
    let mut places = vec![0; keys as usize];
    let (mut gets, mut hits) = (0_u64, 0_u64);
    for request in 1..=WARM_UP * keys + MEASURED * keys {
        let key = chooser.next(&mut rng, keys);
        let hash = hash64(&key.to_le_bytes());
        let id = KeyId { bucket: (hash % u64::from(buckets)) as u32, hash, more: !hash as u32 };
        let cached = cache.get(id);
        if rng.random_range(0..100) < PERCENT_OF_PUTS {
            let head = &mut heads[id.bucket as usize];
            cache.publish(id, request as u32, *head, false);
            (*head, places[key as usize]) = (request as u32, request as u32);
        } else if request > WARM_UP * keys {
            gets += 1;
            hits += u64::from(cached.is_some());
        }
        if cached.is_none() {
            cache.put(id, places[key as usize]);
        }
    }
    hits as f64 / gets as f64
}
