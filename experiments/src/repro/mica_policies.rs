//! `mica-policies`: which eviction policy gets the most hits?
//!
//! The hit ratios of simulated caches, and of `mica` itself by its two best policies, for traces of
//! the shapes that are published: Zipf, with keys that are requested once, with popular keys that
//! change, and with scans in between. The thesis has LRU and FIFO; SIEVE and S3-FIFO are newer.
//!
//! A circular log evicts what its head reaches, so `mica` could not have SIEVE, whose hand stays in
//! the middle, without a list. Its S3-FIFO has one bit per item instead of two, and remembers only
//! the evicted keys that its index has room for.
//!
//! Invariant: all numbers are counts and reproducible; each policy sees the same requests.
//!
//! Source: `eviction_policies` names the papers; the bars are ours.

use rand::RngExt;
use siltstone_bench::generate::{Chooser, Draw, stream};
use siltstone_bench::plot::{Bars, Plot};
use siltstone_engine::Result;
use siltstone_mica::{Action, Outcome, Request, Store, Value};
use siltstone_runtime::Env;

use super::bars::bar;
use super::eviction_policies::{POLICIES, cache};
use super::mica_bench::{PAPER, options};
use super::{Experiment, Measurement};

const KEYS: f64 = 5e5;
const SKEW: f64 = 0.99;
/// The policies of `mica` that are compared.
const OF_MICA: [&str; 2] = ["clock", "s3-fifo"];
/// Bytes of a value, and of its item in the log: with smaller ones the small cache would be below
/// the minimum of the engine.
const VALUE_BYTES: usize = 1000;
const ITEM_BYTES: u64 = 1024;
/// Bytes per partition besides log and index.
const OVERHEAD: u64 = 16 << 10;
/// Items per bucket of 15 entries, as by default.
const ITEMS_PER_BUCKET: u64 = 10;
/// Requests per key.
const ROUNDS: u64 = 6;
/// Share of requests for keys that are requested only once.
const ONCE: f64 = 0.3;
/// Requests of a phase, as a share of the keys.
const PHASE: f64 = 0.5;
/// A scan of as many keys as the cache has items begins after as many requests as there are keys.
const SCANS_PER_KEYS: u64 = 1;

pub(super) struct MicaPolicies;

/// A trace, and the size of the cache as a share of the keys.
struct Trace {
    name: &'static str,
    size: f64,
    once: f64,
    phase: Option<f64>,
    scans: u64,
}

const PLAIN: Trace = Trace { name: "Zipf", size: 0.1, once: 0.0, phase: None, scans: 0 };

const TRACES: [Trace; 5] = [
    PLAIN,
    Trace { name: "Zipf, small cache", size: 0.01, ..PLAIN },
    Trace { name: "requested once", once: ONCE, ..PLAIN },
    Trace { name: "changing", phase: Some(PHASE), ..PLAIN },
    Trace { name: "scans", scans: SCANS_PER_KEYS, ..PLAIN },
];

impl Experiment for MicaPolicies {
    fn id(&self) -> &'static str {
        "mica-policies"
    }

    fn paper(&self) -> &'static str {
        PAPER
    }

    fn figure(&self) -> &'static str {
        "section 5.3.3, Circular Log"
    }

    fn claim(&self) -> &'static str {
        "hits by the clock, and by the policy s3-fifo of mica, are within 3 % of the best of FIFO, \
         LRU, clock, SIEVE and S3-FIFO"
    }

    fn cause(&self) -> Option<&'static str> {
        Some(
            "by the clock an item that is requested once stays for a whole lap of the log, as long \
             as any other; SIEVE and S3-FIFO evict it earlier. When popular keys change, S3-FIFO \
             evicts new ones that were not requested twice soon enough",
        )
    }

    fn run(&self, scale: f64, progress: &mut dyn FnMut(u64, u64)) -> Result<Measurement> {
        let keys = (KEYS * scale).max(1e4) as u32;
        let mut checks = Vec::new();
        let simulated = POLICIES.map(str::to_owned);
        let real = OF_MICA.map(|name| format!("mica {name}"));
        let mut series: Vec<(String, Vec<f64>)> =
            simulated.into_iter().chain(real).map(|name| (name, Vec::new())).collect();
        let parts = (TRACES.len() * series.len()) as u64;
        let mut done = 0;
        for trace in &TRACES {
            let requests = trace.requests(keys);
            let mut ratios = Vec::new();
            for policy in POLICIES {
                progress(done, parts);
                done += 1;
                ratios.push(hit_ratio(policy, &requests, trace.items(keys)));
            }
            let best = ratios.iter().copied().fold(0.0, f64::max);
            let clock = POLICIES.iter().position(|&name| name == "clock").map(|at| ratios[at]);
            for policy in OF_MICA {
                progress(done, parts);
                done += 1;
                ratios.push(hit_ratio_of_mica(policy, &requests, trace.items(keys))?);
            }
            let shown: Vec<String> = series
                .iter()
                .zip(&ratios)
                .map(|((name, _), ratio)| format!("{name} {ratio:.3}"))
                .collect();
            checks.push(bar("mica-policies", "clock").check(
                format!("{}, clock over the best ({})", trace.name, shown.join(", ")),
                clock.unwrap_or(f64::NAN) / best,
            ));
            checks.push(bar("mica-policies", "s3-fifo").check(
                format!("{}, s3-fifo of mica over the best of the simulated", trace.name),
                ratios.last().copied().unwrap_or(f64::NAN) / best,
            ));
            series.iter_mut().zip(ratios).for_each(|((_, all), ratio)| all.push(ratio));
        }
        progress(parts, parts);
        Ok(Measurement {
            scale: format!(
                "{keys} keys, {ROUNDS} requests per key, Zipf {SKEW}; caches of 10 % of the keys, small: \
                 1 %; {ONCE} of the requests for a key of their own; phases of {PHASE} requests per key"
            ),
            checks,
            plot: Some(Plot::Bars(Bars {
                title: "Hit ratios of eviction policies".to_owned(),
                y: "hits per request".to_owned(),
                groups: TRACES.iter().map(|trace| trace.name.to_owned()).collect(),
                series,
            })),
        })
    }
}

impl Trace {
    fn items(&self, keys: u32) -> usize {
        (f64::from(keys) * self.size) as usize
    }

    fn requests(&self, keys: u32) -> Vec<u32> {
        let total = ROUNDS * u64::from(keys);
        let phase = self.phase.map(|share| ((share * f64::from(keys)) as u64).max(1));
        let mut rng = stream(1, 0);
        let draw = Draw::Zipf { skew: SKEW };
        let mut chooser = Chooser::new(draw, keys.into(), 1, 0, 1);
        let mut requests = Vec::with_capacity(total as usize);
        let mut fresh = keys;
        for i in 0..total {
            if phase.is_some_and(|phase| i % phase == 0) {
                chooser = Chooser::new(draw, keys.into(), 1 + i, 0, 1);
            }
            if self.scans > 0 && i % (u64::from(keys) / self.scans) == 0 {
                requests.extend(0..self.items(keys) as u32);
            }
            if self.once > 0.0 && rng.random_bool(self.once) {
                requests.push(fresh);
                fresh += 1;
            } else {
                requests.push(chooser.next(&mut rng, keys.into()) as u32);
            }
        }
        requests
    }
}

/// Hits per request of a simulated cache.
fn hit_ratio(policy: &str, requests: &[u32], items: usize) -> f64 {
    let keys = requests.iter().max().map_or(0, |&max| max as usize + 1);
    let mut cache = cache(policy, items.max(2), keys);
    second_half(requests, |key| cache.request(key))
}

/// Hits per request of a store with a log for as many items, by one of the engine's policies.
fn hit_ratio_of_mica(policy: &str, requests: &[u32], items: usize) -> Result<f64> {
    let buckets = (items as u64).div_ceil(ITEMS_PER_BUCKET);
    let log = (items as u64 * ITEM_BYTES).next_multiple_of(4096);
    let memory = log + (buckets * 128).next_multiple_of(4096) + OVERHEAD;
    let text = format!(
        "mode=cache partitions=1 memory={memory} experimental.buckets={buckets} \
         eviction={policy} experimental.hash_seed=1"
    );
    let store = Store::new(&Env::system(1), options(&text)?)?;
    let (bytes, mut found) = (vec![0; VALUE_BYTES], Vec::new());
    Ok(second_half(requests, |key| {
        let key = u64::from(key).to_le_bytes();
        let get = Request { hash: store.hash(&key), key: &key, action: Action::Get };
        found.clear();
        let is_hit = store.one(&get, &mut found).outcome == Outcome::Found;
        if !is_hit {
            let put = Action::Put(Value { bytes: &bytes, ..Value::default() });
            store.one(&Request { action: put, ..get }, &mut ());
        }
        is_hit
    }))
}

/// Hits per request, of the second half of the requests.
fn second_half(requests: &[u32], mut request: impl FnMut(u32) -> bool) -> f64 {
    let (warm_up, counted) = requests.split_at(requests.len() / 2);
    warm_up.iter().for_each(|&key| _ = request(key));
    let hits = counted.iter().filter(|&&key| request(key)).count();
    hits as f64 / counted.len() as f64
}

#[cfg(test)]
mod tests {
    use super::super::run;
    use super::*;

    #[test]
    fn clock_gets_more_hits_than_fifo_on_each_trace() {
        let finding = run(&MicaPolicies, 0.05, 1, &mut |_, _| ()).unwrap();
        assert_eq!(finding.checks.len(), 2 * TRACES.len());
        for trace in &TRACES {
            let requests = trace.requests(20_000);
            let ratio = |policy| hit_ratio(policy, &requests, trace.items(20_000));
            assert!(ratio("clock") > ratio("FIFO"), "{}", trace.name);
        }
    }
}
