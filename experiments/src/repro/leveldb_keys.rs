//! `leveldb-keys`: the model against the simulator and against the worst case, by number of keys.
//!
//! LevelDB's own sizes over 10^6 to 10^9 keys. The model and the worst case are computed for all of
//! them; the simulator runs where the scale allows (10^6 and 3.3·10^6 keys in seconds at scale 1,
//! 10^8 at 31, and 3.3·10^8, where the thesis found its largest difference, at 100).
//!
//! The largest difference is at the same point as the thesis's: 3.9 % at 3.3·10^8 uniform keys
//! (thesis: 3.8 %). Up to 10^8 keys it is 3.0 %. The fill in key order is part of the cause: a
//! shuffled fill reduces the difference at 3.3·10^6 keys from 2.2 % to 0.2 %.
//!
//! The lower end of the thesis's range of 1.8 to 3.6 is met. At the upper end ours is 3.86, at 10^6
//! keys under Zipf, and falls to 3.63 at 10^9. The text does not say which key counts its range
//! covers, nor whether the last level's merge counts its input from above (without it, ours is 1.77
//! to 3.70).
//!
//! Invariant: simulator and model have the same design; neither was fitted to the other.
//!
//! Source: Lim, thesis (2015), section 4.3.5, figure 4.10.

use siltstone_bench::plot::{Line, Lines, Plot};
use siltstone_engine::Result;

use super::bars::bar;
use super::thesis::{
    KEY_COUNTS, KEYS_AXIS, PAPER, Parts, SKEWS, modelled, on_keys_axis, popularity, simulated,
    simulated_counts, standard,
};
use super::{Experiment, Measurement, model_error};

/// Number of keys with the thesis's largest difference between model and measurement.
const FURTHEST_KEYS: f64 = 3.3e8;

pub(super) struct LevelDbKeys;

impl Experiment for LevelDbKeys {
    fn id(&self) -> &'static str {
        "leveldb-keys"
    }

    fn paper(&self) -> &'static str {
        PAPER
    }

    fn figure(&self) -> &'static str {
        "figure 4.10"
    }

    fn claim(&self) -> &'static str {
        "the model is at most 3.8 % from what is measured; worst-case analysis is 1.8 to 3.6 times \
         too high"
    }

    fn run(&self, scale: f64, progress: &mut dyn FnMut(u64, u64)) -> Result<Measurement> {
        let counts = simulated_counts(scale);
        let mut parts = Parts::new(SKEWS.len() * counts.len(), progress);
        let (mut series, mut checks) = (Vec::new(), Vec::new());
        let (mut too_high, mut worst_line) = (Vec::new(), Vec::new());
        for (name, skew) in SKEWS {
            let (mut model, mut worst) = (Vec::new(), Vec::new());
            for keys in KEY_COUNTS {
                let design = standard(keys)?;
                model.push((on_keys_axis(keys), modelled(&design, &popularity(keys, skew)?)?));
                worst.push((
                    on_keys_axis(keys),
                    design.worst_case(keys).map_err(model_error)?.total(),
                ));
            }
            too_high.extend(worst.iter().zip(&model).map(|(worst, model)| worst.1 / model.1));
            let mut simulation = Vec::new();
            for &keys in &counts {
                let design = standard(keys)?;
                let run = |progress: &mut dyn FnMut(u64, u64)| {
                    simulated(&design, (keys, skew), false, progress)
                };
                let measured = parts.next(run)?.total();
                let predicted = modelled(&design, &popularity(keys, skew)?)?;
                // The thesis gives the difference at one point; elsewhere it must not be larger.
                let is_furthest = keys == FURTHEST_KEYS && skew == 0.0;
                let bar = match is_furthest {
                    true => bar("leveldb-keys", "model-furthest"),
                    false => bar("leveldb-keys", "model"),
                };
                checks.push(bar.check(
                    format!("model over simulator, {name}, {keys:.1e} keys"),
                    predicted / measured,
                ));
                simulation.push((on_keys_axis(keys), measured));
            }
            for (kind, points, is_reference) in
                [("model", model, false), ("simulator", simulation, true)]
            {
                series.push(Line { name: format!("{name}, {kind}"), points, is_reference });
            }
            worst_line = worst;
        }
        // Last, so that each model has the colour of its simulator.
        let name = "worst-case analysis".to_owned();
        series.push(Line { name, points: worst_line, is_reference: false });
        let min = too_high.iter().copied().fold(f64::INFINITY, f64::min);
        let largest = too_high.iter().copied().fold(0.0, f64::max);
        checks.push(
            bar("leveldb-keys", "worst-minimum").check("worst case over model, minimum", min),
        );
        checks.push(
            bar("leveldb-keys", "worst-maximum").check("worst case over model, maximum", largest),
        );
        let lines = Lines {
            title: "LevelDB by keys, items of 1,000 bytes".to_owned(),
            x: KEYS_AXIS.to_owned(),
            y: "write amplification".to_owned(),
            series,
        };
        let max = counts.last().copied().unwrap_or_default();
        let scale = format!("model: 10^6 to 10^9 keys; simulator: to {max:.1e} keys");
        Ok(Measurement { scale, checks, plot: Some(Plot::Lines(lines)) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::repro::{Verdict, run};

    #[test]
    fn claim_is_confirmed_over_a_million_keys() {
        let mut last = (0, 0);
        let finding = run(&LevelDbKeys, 0.5, 1, &mut |done, total| last = (done, total)).unwrap();
        let ranges = &finding.checks[finding.checks.len() - 2..];
        assert!(ranges.iter().all(|check| check.verdict() == Verdict::Confirmed), "{ranges:?}");
        assert_eq!(last.0, last.1);
    }
}
