//! `mica-policies`: would another eviction policy than the clock get more hits?
//!
//! The hit ratios of simulated caches, for traces of the shapes that are published: Zipf, with keys
//! that are requested once, with popular keys that change, and with scans in between. The thesis has
//! LRU and FIFO; SIEVE and S3-FIFO are newer.
//!
//! A circular log evicts what its head reaches, so `mica` could not have SIEVE, whose hand stays in
//! the middle, without a list; S3-FIFO would need two logs.
//!
//! Invariant: all numbers are counts and reproducible; each policy sees the same requests.
//!
//! Source: `eviction_policies` names the papers; the bar is ours.

use rand::RngExt;
use siltstone_bench::generate::{Chooser, Draw, stream};
use siltstone_bench::plot::{Bars, Plot};
use siltstone_engine::Result;

use super::bars::bar;
use super::eviction_policies::{POLICIES, cache};
use super::mica_bench::PAPER;
use super::{Experiment, Measurement};

const KEYS: f64 = 5e5;
const SKEW: f64 = 0.99;
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
        "by the clock, hits are within 3 % of the best of FIFO, LRU, SIEVE and S3-FIFO"
    }

    fn cause(&self) -> Option<&'static str> {
        Some(
            "by the clock an item that is requested once stays for a whole lap of the log, as long \
             as any other; SIEVE and S3-FIFO evict it earlier",
        )
    }

    fn run(&self, scale: f64, progress: &mut dyn FnMut(u64, u64)) -> Result<Measurement> {
        let keys = (KEYS * scale).max(1e4) as u32;
        let mut checks = Vec::new();
        let mut series: Vec<(String, Vec<f64>)> =
            POLICIES.iter().map(|name| ((*name).to_owned(), Vec::new())).collect();
        let parts = (TRACES.len() * POLICIES.len()) as u64;
        for (t, trace) in (0..).zip(&TRACES) {
            let requests = trace.requests(keys);
            let mut ratios = Vec::new();
            for (p, policy) in (0..).zip(POLICIES) {
                progress(t * POLICIES.len() as u64 + p, parts);
                ratios.push(hit_ratio(policy, &requests, trace.items(keys)));
            }
            let shown: Vec<String> =
                POLICIES.iter().zip(&ratios).map(|(name, it)| format!("{name} {it:.3}")).collect();
            let clock = POLICIES.iter().zip(&ratios).find(|(name, _)| **name == "clock");
            let clock = clock.map_or(f64::NAN, |(_, ratio)| *ratio);
            let best = ratios.iter().copied().fold(0.0, f64::max);
            checks.push(bar("mica-policies", "clock").check(
                format!("{}, clock over the best ({})", trace.name, shown.join(", ")),
                clock / best,
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

/// Hits per request, of the second half of the requests.
fn hit_ratio(policy: &str, requests: &[u32], items: usize) -> f64 {
    let keys = requests.iter().max().map_or(0, |&max| max as usize + 1);
    let mut cache = cache(policy, items.max(2), keys);
    let (warm_up, counted) = requests.split_at(requests.len() / 2);
    warm_up.iter().for_each(|&key| _ = cache.request(key));
    let hits = counted.iter().filter(|&&key| cache.request(key)).count();
    hits as f64 / counted.len() as f64
}

#[cfg(test)]
mod tests {
    use super::super::run;
    use super::*;

    #[test]
    fn clock_gets_more_hits_than_fifo_on_each_trace() {
        let finding = run(&MicaPolicies, 0.05, 1, &mut |_, _| ()).unwrap();
        assert_eq!(finding.checks.len(), TRACES.len());
        for trace in &TRACES {
            let requests = trace.requests(20_000);
            let ratio = |policy| hit_ratio(policy, &requests, trace.items(20_000));
            assert!(ratio("clock") > ratio("FIFO"), "{}", trace.name);
        }
    }
}
