//! `zipf-merge`: size of the merge of two skewed tables.
//!
//! The thesis computes Merge(10^7, 9·10^7) over 10^8 keys at skew 0.99 and finds little more than
//! the larger table, because popular keys are in both. Two of our results must agree with it: the
//! same sums, and an experiment in which keys are drawn until each of two sets has the given size,
//! and their union is counted.
//!
//! Invariant: the drawn sets come from the benchmarks' generator, not from the formula that they
//! are compared with.
//!
//! Source: Lim, thesis (2015), section 4.2.4.

use siltstone_bench::generate::{Chooser, Draw, Rng, stream};
use siltstone_bench::plot::{Bars, Plot};
use siltstone_engine::Result;

use siltstone_model::Popularity;

use super::bars::bar;
use super::{Experiment, Measurement, model_error};

const SKEW: f64 = 0.99;

/// The thesis's size.
const KEYS: u64 = 100_000_000;
const ONE: f64 = 1e7;
const TWO: f64 = 9e7;

/// Keys of the drawn sets at scale 1, for a run of seconds.
const DRAWN_KEYS: f64 = 300_000.0;

pub(super) struct ZipfMerge;

impl Experiment for ZipfMerge {
    fn id(&self) -> &'static str {
        "zipf-merge"
    }

    fn paper(&self) -> &'static str {
        "Lim, Resource-Efficient Data-Intensive System Designs, 2015"
    }

    fn figure(&self) -> &'static str {
        "section 4.2.4, Merge"
    }

    fn claim(&self) -> &'static str {
        "of 10^8 keys at Zipf 0.99, tables of 10^7 and 9·10^7 keys merge into 9.03·10^7, not 10^8"
    }

    fn run(&self, scale: f64, progress: &mut dyn FnMut(u64, u64)) -> Result<Measurement> {
        let popularity = |keys: u64| Popularity::zipf(keys as f64, SKEW).map_err(model_error);
        let computed = popularity(KEYS)?.merge(ONE, TWO);
        let keys = (DRAWN_KEYS * scale).round().max(100.0) as u64;
        let share = |of: f64| of / KEYS as f64;
        let size = |of: f64| (keys as f64 * share(of)).round() as u64;
        let drawn = KeySetSampler::new(keys).merged([size(ONE), size(TWO)], progress);
        let expected = popularity(keys)?.merge(size(ONE) as f64, size(TWO) as f64);
        let worst = share(ONE + TWO);
        let checks = vec![
            bar("zipf-merge", "sums").check("Merge(10^7, 9·10^7) by the sums", computed),
            bar("zipf-merge", "drawn").check_computed(
                "union of drawn sets against the sums at their size, as a share of keys",
                expected / keys as f64,
                drawn as f64 / keys as f64,
            ),
        ];
        let bars = Bars {
            title: "Size of a merged table, Zipf 0.99".to_owned(),
            y: "share of all keys".to_owned(),
            groups: ["worst case", "thesis", "our sums", "our drawn sets"]
                .map(str::to_owned)
                .into(),
            series: vec![(
                "Merge(0.1, 0.9)".to_owned(),
                vec![
                    worst,
                    share(bar("zipf-merge", "sums").claimed()),
                    share(computed),
                    drawn as f64 / keys as f64,
                ],
            )],
        };
        let scale = format!("sums over {KEYS} keys; sets drawn from {keys} keys");
        Ok(Measurement { scale, checks, plot: Some(Plot::Bars(bars)) })
    }
}

/// Draws sets of keys.
struct KeySetSampler {
    keys: u64,
    chooser: Chooser,
    rng: Rng,
}

impl KeySetSampler {
    fn new(keys: u64) -> Self {
        let chooser = Chooser::new(Draw::Zipf { skew: SKEW }, keys, 1, 0, 1);
        KeySetSampler { keys, chooser, rng: stream(1, 0) }
    }

    /// Draws two sets of these sizes and counts their union.
    fn merged(&mut self, sizes: [u64; 2], progress: &mut dyn FnMut(u64, u64)) -> u64 {
        let mut union = vec![false; self.keys as usize];
        let mut before = 0;
        for size in sizes {
            let mut set = vec![false; self.keys as usize];
            let mut count = 0;
            while count < size {
                let key = self.chooser.next(&mut self.rng, self.keys) as usize;
                if !std::mem::replace(&mut set[key], true) {
                    union[key] = true;
                    count += 1;
                    if count % 4096 == 0 {
                        progress(before + count, sizes.iter().sum());
                    }
                }
            }
            before += size;
        }
        union.into_iter().filter(|is_in| *is_in).count() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::repro::{Verdict, run};

    #[test]
    fn the_claim_holds_by_sums_and_by_draws() {
        let mut updates = 0;
        let finding = run(&ZipfMerge, 0.2, 1, &mut |done, _| updates = done).unwrap();
        assert_eq!(finding.verdict, Verdict::Confirmed, "{:?}", finding.checks);
        assert!(updates > 0);
        assert!(finding.plot.is_some());
    }

    #[test]
    fn sets_that_are_uniform_would_be_found_out() {
        // The claim is about skew: without skew, these tables merge into 0.91 of all keys.
        let uniform = Popularity::uniform(1000.0).unwrap().merge(100.0, 900.0) / 1000.0;
        assert!((uniform - 0.91).abs() < 1e-6);
        let check = bar("zipf-merge", "sums").check("uniform", uniform * KEYS as f64);
        assert_eq!(check.verdict(), Verdict::NotConfirmed);
    }
}
