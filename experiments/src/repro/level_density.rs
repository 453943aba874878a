//! `level-density`: the density of a level that is compacted round-robin.
//!
//! Density as a function of the distance from the key compacted last, for level 4 of 10 Mi items of
//! 10^8 keys: directly behind that key almost no key is in the level, and the densest region is
//! compacted next. The area under each curve must be the level's size, and the interval between two
//! compactions of one key the thesis's number.
//!
//! Invariant: the area is summed from the plotted points, not from the formula that gave the
//! interval.
//!
//! Source: Lim, thesis (2015), theorem 4.4, lemma 4.5, figure 4.7.

use siltstone_bench::plot::{Line, Lines, Plot};
use siltstone_engine::Result;

use super::bars::bar;
use super::thesis::{KEYS, PAPER, SKEWS, popularity};
use super::{Experiment, Measurement};

/// Items of level 4.
const SIZE: f64 = 10.0 * 1_048_576.0;
/// Number of intervals, even for Simpson's rule.
const STEPS: usize = 400;

pub(super) struct LevelDensity;

impl Experiment for LevelDensity {
    fn id(&self) -> &'static str {
        "level-density"
    }

    fn paper(&self) -> &'static str {
        PAPER
    }

    fn figure(&self) -> &'static str {
        "figure 4.7"
    }

    fn claim(&self) -> &'static str {
        "a level of 10 Mi of 10^8 uniform keys turns over in 2.26·10^7 requests, twice the 1.11·10^7 \
         that fill it; skew bends the density, and the area under it stays the level's size"
    }

    fn run(&self, _scale: f64, progress: &mut dyn FnMut(u64, u64)) -> Result<Measurement> {
        let uniform = popularity(KEYS, 0.0)?;
        let (interval, fill) = (uniform.compaction_interval(SIZE), uniform.unique_inverse(SIZE));
        let mut checks = vec![
            bar("level-density", "interval")
                .check("requests between compactions of a key, uniform", interval),
            bar("level-density", "fill").check("requests that fill the level, uniform", fill),
        ];
        let mut series = Vec::new();
        for (turn, (name, skew)) in SKEWS.into_iter().enumerate() {
            let popularity = popularity(KEYS, skew)?;
            let interval = popularity.compaction_interval(SIZE);
            let density = |i: usize| {
                let part = i as f64 / STEPS as f64;
                (part * KEYS, popularity.unique(interval * part) / KEYS)
            };
            let points: Vec<(f64, f64)> = (0..=STEPS).map(density).collect();
            checks.push(bar("level-density", "area").check(
                format!("area under the density over the level's size, {name}"),
                area(&points) / SIZE,
            ));
            series.push(Line { name: name.to_owned(), points, is_reference: false });
            progress(turn as u64 + 1, SKEWS.len() as u64);
        }
        let lines = Lines {
            title: "Density of level 4, 10 Mi items of 10^8 keys".to_owned(),
            x: "distance from the key compacted last (keys)".to_owned(),
            y: "probability that a key is in the level".to_owned(),
            series,
        };
        let scale = "computed over 10^8 keys; the same at any scale".to_owned();
        Ok(Measurement { scale, checks, plot: Some(Plot::Lines(lines)) })
    }
}

/// The area under evenly spaced points by Simpson's rule.
fn area(points: &[(f64, f64)]) -> f64 {
    let parts = points.windows(3).step_by(2);
    parts.map(|p| (p[2].0 - p[0].0) / 6.0 * (p[0].1 + 4.0 * p[1].1 + p[2].1)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::repro::{Verdict, run};

    #[test]
    fn claim_is_confirmed() {
        let finding = run(&LevelDensity, 1.0, 1, &mut |_, _| ()).unwrap();
        assert_eq!(finding.verdict, Verdict::Confirmed, "{:?}", finding.checks);
    }

    #[test]
    fn area_of_a_parabola_is_exact() {
        let parabola: Vec<_> = (0..=4).map(|x| (f64::from(x), f64::from(x * x))).collect();
        assert!((area(&parabola) - 64.0 / 3.0).abs() < 1e-12);
    }
}
