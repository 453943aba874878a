//! `advice`: the error of the advisor's predictions.
//!
//! The advisor gets a grid of workloads of 10⁸ keys: uniform and Zipf 0.99, small and large items.
//! Each durable engine that it configures is measured at a small scale with proportional settings,
//! and the predictions for that scale are compared with the measurements.
//!
//! Invariant: no constant of the model is fitted to these runs.
//!
//! Compare: the thesis's models were within 3.8 % of LevelDB's write amplification (section 4.3.5).

use siltstone_bench::advice::{CHECKED_KEYS, CheckedCosts, PredictionCheck, check};
use siltstone_bench::plot::{Bars, Plot};
use siltstone_engine::Result;
use siltstone_model::Popularity;
use siltstone_model::advise::{Requirements, advise};

use super::bars::bar;
use super::{Check, Experiment, Measurement, model_error};

const KEYS: f64 = 1e8;
const SKEWS: [f64; 2] = [0.0, 0.99];
const VALUES: [f64; 2] = [100.0, 1000.0];
/// Memory for the table: sufficient for every engine, and far less than the data.
const MEMORY: f64 = 4e9;

pub(super) struct Advice;

/// One point of the grid.
struct Point {
    name: String,
    checked: PredictionCheck,
}

impl Experiment for Advice {
    fn id(&self) -> &'static str {
        "advice"
    }

    fn paper(&self) -> &'static str {
        "ours, after Lim, Resource-Efficient Data-Intensive System Designs, 2015"
    }

    fn figure(&self) -> &'static str {
        "section 4.8"
    }

    fn claim(&self) -> &'static str {
        "over a grid of workloads the advisor's write amplification and reads per lookup are within 15 % \
         of what the engines do on average, and within 40 % at worst"
    }

    fn run(&self, scale: f64, progress: &mut dyn FnMut(u64, u64)) -> Result<Measurement> {
        let mut points = Vec::new();
        let grid = SKEWS.iter().flat_map(|&skew| VALUES.map(|value| (skew, value)));
        let rounds = (SKEWS.len() * VALUES.len()) as u64;
        for (round, (skew, value)) in grid.enumerate() {
            progress(round as u64, rounds);
            let keys = Popularity::zipf(KEYS, skew).map_err(model_error)?;
            let wanted =
                Requirements { memory_bytes: Some(MEMORY), ..Requirements::new(keys, 16.0, value) };
            for candidate in advise(&wanted).map_err(model_error)?.candidates {
                let settings = &*candidate.settings;
                let max = CHECKED_KEYS * scale;
                let checked = check(candidate.engine, settings, &wanted, skew, max, &mut |_| {})?;
                let name = format!("{} {value} B, Zipf {skew}", candidate.engine);
                points.push(Point { name, checked });
            }
        }
        progress(rounds, rounds);
        Ok(Measurement {
            scale: format!(
                "{} workloads of 10^8 keys, measured with {} keys and fewer",
                points.len(),
                points.iter().map(|point| point.checked.keys).max().unwrap_or(0),
            ),
            checks: checks(&points),
            plot: Some(Plot::Bars(bars(&points))),
        })
    }
}

fn checks(points: &[Point]) -> Vec<Check> {
    let writes = errors(points, "write amplification", |figures| figures.write_amplification);
    let reads = errors(points, "reads per lookup", |figures| figures.reads_per_lookup);
    writes.into_iter().chain(reads).collect()
}

/// The mean error, and the prediction and measurement of each point.
fn errors(points: &[Point], name: &str, figure: fn(&CheckedCosts) -> f64) -> Vec<Check> {
    let both = |point: &Point| [&point.checked.predicted, &point.checked.measured].map(figure);
    let off = |point: &Point| {
        let [ours, measured] = both(point);
        (ours / measured - 1.0).abs()
    };
    let mean = bar("advice", "mean").check(
        format!("{name}, mean error"),
        points.iter().map(off).sum::<f64>() / points.len().max(1) as f64,
    );
    let of_point = |point: &Point| {
        let [claimed, ours] = both(point);
        let what = format!("{}, {name}, predicted and measured", point.name);
        bar("advice", "point").check_computed(what, claimed, ours)
    };
    [mean].into_iter().chain(points.iter().map(of_point)).collect()
}

fn bars(points: &[Point]) -> Bars {
    let of =
        |figure: fn(&PredictionCheck) -> f64| points.iter().map(|p| figure(&p.checked)).collect();
    Bars {
        title: "Write amplification, predicted and measured".to_owned(),
        y: "bytes written per byte of the user".to_owned(),
        groups: points.iter().map(|point| point.name.clone()).collect(),
        series: vec![
            ("predicted".to_owned(), of(|c| c.predicted.write_amplification)),
            ("measured".to_owned(), of(|c| c.measured.write_amplification)),
        ],
    }
}
