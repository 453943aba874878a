//! `model-speed`: designs per second that the model evaluates.
//!
//! The task of an optimiser: LevelDB's write amplification for many different level sizes over 10^8
//! keys, on one core, with interpolated primitives ([`siltstone_model::InterpolatedPopularity`],
//! whose build is timed, too). Each result is compared with the exact sums.
//!
//! The thesis's figures are of a desktop of 2015; the bar of a hundred times as many excludes the
//! machine as the cause.
//!
//! Invariant: no design is evaluated twice, and every result is used.
//!
//! Source: Lim, thesis (2015), section 4.6.4.

use std::time::Instant;

use siltstone_bench::plot::{Bars, Plot};
use siltstone_engine::Result;
use siltstone_model::{InterpolatedPopularity, LevelDb, Popularity, Workload};

use super::bars::bar;
use super::thesis::{KEYS, PAPER, SKEWS, modelled, popularity, standard};
use super::{Experiment, Measurement, model_error};

/// Evaluations at scale 1: half a second of each.
const EVALUATIONS: f64 = 400_000.0;
/// Evaluations by the exact sums, each of which takes as long as 500 interpolated ones.
const EXACT: usize = 200;

pub(super) struct ModelSpeed;

impl Experiment for ModelSpeed {
    fn id(&self) -> &'static str {
        "model-speed"
    }

    fn paper(&self) -> &'static str {
        PAPER
    }

    fn figure(&self) -> &'static str {
        "section 4.6.4"
    }

    fn claim(&self) -> &'static str {
        "of 10^8 keys, 3,866 designs per second are evaluated under uniform and 107 under Zipf 0.99 \
         popularity"
    }

    fn run(&self, scale: f64, progress: &mut dyn FnMut(u64, u64)) -> Result<Measurement> {
        let count = (EVALUATIONS * scale).max(1000.0) as usize;
        // Evaluations per second in the thesis, uniform and Zipf; and how many times as many are
        // the bar.
        let thesis = bar("model-speed", "rates").numbers();
        let times = bar("model-speed", "times").claimed();
        let mut checks = Vec::new();
        let mut rates = [Vec::new(), Vec::new()];
        let mut builds = Vec::new();
        for (turn, ((name, skew), rate_of_thesis)) in SKEWS.into_iter().zip(&thesis).enumerate() {
            let exact = popularity(KEYS, skew)?;
            let begun = Instant::now();
            let tabulated = InterpolatedPopularity::new(&exact);
            builds.push(format!("{:.1} ms", begun.elapsed().as_secs_f64() * 1e3));
            let quick = rate(&tabulated, count)?;
            rates[0].push(quick);
            rates[1].push(rate(&exact, EXACT)?);
            checks.push(bar("model-speed", "part").check(
                format!("part reached of {times} times the claimed rate, {name}"),
                (quick / (times * rate_of_thesis)).min(1.0),
            ));
            checks.push(bar("model-speed", "exact").check(
                format!("interpolated over exact, furthest from 1, {name}"),
                furthest(&tabulated, &exact)?,
            ));
            progress(turn as u64 + 1, SKEWS.len() as u64);
        }
        let [quick, exact] = rates;
        let bars = Bars {
            title: "Designs evaluated per second, 10^8 keys, one core".to_owned(),
            y: "evaluations/s".to_owned(),
            groups: SKEWS.map(|(name, _)| name.to_owned()).into(),
            series: vec![
                ("thesis".to_owned(), thesis),
                ("exact".to_owned(), exact.clone()),
                ("interpolated".to_owned(), quick.clone()),
            ],
        };
        let rates = |rates: &[f64]| {
            rates.iter().map(|rate| format!("{rate:.0}")).collect::<Vec<_>>().join(" and ")
        };
        let scale = format!(
            "{count} evaluations: {} per second (uniform and Zipf), {} by exact sums; tables built in {}",
            rates(&quick),
            rates(&exact),
            builds.join(" and "),
        );
        Ok(Measurement { scale, checks, plot: Some(Plot::Bars(bars)) })
    }
}

/// Designs that differ from LevelDB's in the size of each level.
fn designs() -> Result<impl Iterator<Item = LevelDb>> {
    let standard = standard(KEYS)?;
    Ok((0..).map(move |i: u32| {
        let mut design = standard.clone();
        vary(&mut design, i);
        design
    }))
}

/// Scales the levels by factors from 0.6 to 1.4 that differ for all `i`.
fn vary(design: &mut LevelDb, i: u32) {
    let golden = 0.618_033_988_749_894_9;
    for (level, items) in design.level_items.iter_mut().enumerate() {
        let spread = (f64::from(i) + 1.0) * golden * (level as f64 + 1.0).sqrt();
        *items = 10_485.76 * 10f64.powi(level as i32) * (0.6 + 0.8 * spread.fract());
    }
}

/// Evaluations per second.
fn rate(workload: &impl Workload, count: usize) -> Result<f64> {
    let mut design = standard(KEYS)?;
    let mut sum = 0.0;
    let begun = Instant::now();
    for i in 0..count {
        vary(&mut design, i as u32);
        sum += design.total(workload).map_err(model_error)?;
    }
    let seconds = begun.elapsed().as_secs_f64();
    std::hint::black_box(sum);
    Ok(count as f64 / seconds)
}

/// The ratio of interpolated to exact results that is furthest from 1.
fn furthest(tabulated: &InterpolatedPopularity, exact: &Popularity) -> Result<f64> {
    let mut furthest: f64 = 1.0;
    for design in designs()?.take(EXACT) {
        let ratio = design.total(tabulated).map_err(model_error)? / modelled(&design, exact)?;
        if (ratio - 1.0).abs() > (furthest - 1.0).abs() {
            furthest = ratio;
        }
    }
    Ok(furthest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interpolated_and_exact_results_agree() {
        let zipf = popularity(KEYS, 0.99).unwrap();
        assert!((furthest(&InterpolatedPopularity::new(&zipf), &zipf).unwrap() - 1.0).abs() < 1e-9);
    }

    #[test]
    fn designs_are_distinct() {
        let mut sizes: Vec<_> =
            designs().unwrap().take(1000).map(|design| design.level_items[0].to_bits()).collect();
        sizes.sort_unstable();
        sizes.dedup();
        assert_eq!(sizes.len(), 1000);
    }
}
