//! `unique-keys`: number of distinct keys among a number of requests.
//!
//! Unique over requests for 10^8 keys, from uniform to Zipf 1.6; and the same counted: requests are
//! drawn from the benchmarks' generator over fewer keys, and their distinct keys are compared with
//! Unique at that size.
//!
//! Invariant: the drawn requests are independent of the formula.
//!
//! Source: Lim, thesis (2015), theorem 4.1 and figure 4.4.

use siltstone_bench::generate::{Chooser, Draw, stream};
use siltstone_bench::plot::{Line, Lines, Plot};
use siltstone_engine::Result;
use siltstone_model::Popularity;

use super::bars::bar;
use super::thesis::{EXPONENTS, KEYS, PAPER, popularity};
use super::{Experiment, Measurement};

/// End of the figure's horizontal axis, in requests.
const MAX_REQUESTS: f64 = 1e9;
const POINTS: usize = 50;

/// Number of keys in the drawn sample at scale 1, and requests per key.
const DRAWN_KEYS: f64 = 1e6;
const DRAWN_REQUESTS: [f64; 3] = [0.1, 1.0, 3.0];
/// Tolerance in standard deviations, which are at most the root of the mean; it is exceeded once in
/// 15,000 draws.
const DEVIATIONS: f64 = 4.0;

pub(super) struct UniqueKeys;

impl Experiment for UniqueKeys {
    fn id(&self) -> &'static str {
        "unique-keys"
    }

    fn paper(&self) -> &'static str {
        PAPER
    }

    fn figure(&self) -> &'static str {
        "figure 4.4"
    }

    fn claim(&self) -> &'static str {
        "distinct keys rise with requests, ever more slowly, and the more slowly the more skew"
    }

    fn run(&self, scale: f64, progress: &mut dyn FnMut(u64, u64)) -> Result<Measurement> {
        let mut curves = Vec::new();
        for exponent in EXPONENTS {
            curves.push(curve(&popularity(KEYS, exponent)?));
        }
        let keys = (DRAWN_KEYS * scale).round().clamp(1e4, KEYS);
        let mut drawn = Vec::new();
        for (turn, exponent) in EXPONENTS.into_iter().enumerate() {
            let sums = popularity(keys, exponent)?;
            for (requests, counted) in draw(keys as u64, exponent) {
                drawn.push((counted, sums.unique(requests)));
            }
            progress(turn as u64 + 1, EXPONENTS.len() as u64);
        }
        let checks = vec![
            bar("unique-keys", "curves").check(
                "share of curves that rise ever more slowly",
                share(&curves, |curve| slows_down(curve)),
            ),
            bar("unique-keys", "neighbours").check(
                "share of neighbours of which the more skewed has fewer",
                share(&curves.windows(2).collect::<Vec<_>>(), |pair| is_below(&pair[0], &pair[1])),
            ),
            bar("unique-keys", "drawn").check(
                "share of drawn counts within four standard deviations of the sums",
                share(&drawn, |(counted, sum)| (counted - sum).abs() <= DEVIATIONS * sum.sqrt()),
            ),
        ];
        let series = EXPONENTS
            .into_iter()
            .zip(curves)
            .map(|(exponent, points)| Line {
                name: format!("s = {exponent}"),
                points,
                is_reference: false,
            })
            .collect();
        let lines = Lines {
            title: "Distinct keys by requests, 10^8 keys".to_owned(),
            x: "requests".to_owned(),
            y: "distinct keys".to_owned(),
            series,
        };
        let scale = format!("sums over 10^8 keys; requests drawn over {keys} keys");
        Ok(Measurement { scale, checks, plot: Some(Plot::Lines(lines)) })
    }
}

fn curve(popularity: &Popularity) -> Vec<(f64, f64)> {
    let requests = |i: usize| MAX_REQUESTS * i as f64 / POINTS as f64;
    (0..=POINTS).map(|i| (requests(i), popularity.unique(requests(i)))).collect()
}

/// Whether a curve is increasing and concave, within rounding.
fn slows_down(curve: &[(f64, f64)]) -> bool {
    let steps: Vec<f64> = curve.windows(2).map(|pair| pair[1].1 - pair[0].1).collect();
    let rounding = 1e-12 * KEYS;
    steps.iter().all(|step| *step >= -rounding)
        && steps.windows(2).all(|pair| pair[1] <= pair[0] + rounding)
}

fn is_below(less_skewed: &[(f64, f64)], more_skewed: &[(f64, f64)]) -> bool {
    less_skewed.iter().zip(more_skewed).all(|(less, more)| more.1 <= less.1 * (1.0 + 1e-12))
}

fn share<T>(of: &[T], is: impl Fn(&T) -> bool) -> f64 {
    of.iter().filter(|item| is(item)).count() as f64 / of.len() as f64
}

/// Numbers of requests, with the number of distinct keys among them.
fn draw(keys: u64, skew: f64) -> Vec<(f64, f64)> {
    let draw = if skew == 0.0 { Draw::Uniform } else { Draw::Zipf { skew } };
    let mut chooser = Chooser::new(draw, keys, 1, 0, 1);
    let mut rng = stream(1, 0);
    let mut is_drawn = vec![false; keys as usize];
    let (mut requests, mut distinct) = (0u64, 0u64);
    DRAWN_REQUESTS
        .map(|each| {
            while (requests as f64) < each * keys as f64 {
                let key = chooser.next(&mut rng, keys) as usize;
                distinct += u64::from(!std::mem::replace(&mut is_drawn[key], true));
                requests += 1;
            }
            (requests as f64, distinct as f64)
        })
        .to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::repro::{Verdict, run};

    #[test]
    fn the_claim_holds() {
        let finding = run(&UniqueKeys, 0.1, 1, &mut |_, _| ()).unwrap();
        assert_eq!(finding.verdict, Verdict::Confirmed, "{:?}", finding.checks);
        assert!(finding.plot.is_some());
    }

    #[test]
    fn a_curve_that_speeds_up_would_be_found_out() {
        let curve = |steps: [f64; 3]| steps.into_iter().map(|y| (0.0, y)).collect::<Vec<_>>();
        assert!(slows_down(&curve([0.0, 2.0, 3.0])));
        assert!(!slows_down(&curve([0.0, 1.0, 3.0])));
        assert!(!slows_down(&curve([0.0, 2.0, 1.0])));
    }
}
