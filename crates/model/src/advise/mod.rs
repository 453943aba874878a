//! The advisor: recommends an engine and its settings for a workload.
//!
//! ```text
//! Requirements ─┬─ lsm     ─ excluded? ─ settings ─ costs ─┐
//!               ├─ silt    ─      │         │         │    ├─ minimal device time, if clearly
//!               ├─ trie    ─   reasons   options  WA, reads│  less; else the first on the left
//!               ├─ mica    ─                 memory, space │
//!               └─ skimpy  ─                               ┘
//! ```
//!
//! Each engine has a file with the derivation of its settings from the workload and the memory, and
//! with its costs. Costs are those of a store that contains all keys and has been overwritten many
//! times. Settings that are sizes can be scaled down with the workload, so that a prediction can be
//! checked by a measurement of minutes.
//!
//! The criterion is the time per operation for which the device is busy: lookups cost requests,
//! writes cost bytes. An engine must save a fifth of it to be preferred to one before it in the
//! order: `lsm` has the most features and is the best tested, and the model is not more precise
//! than that.
//!
//! The byte overheads per item are estimates from the engines' formats. `siltstone-experiments
//! repro run advice` measures the error of the predictions.
//!
//! Source: write amplification by the models of this crate (Lim, thesis, chapter 4).

mod costs;
mod design;
mod lsm;
mod mica;
mod requirements;
mod silt;
mod skimpy;
mod trie;

use serde::Serialize;

pub use costs::Costs;
pub use design::Settings;
pub use requirements::{Device, Needs, Requirements};

use crate::error::InvalidParameter;
use design::Design;

/// An engine is preferred to one before it in the order only if its device time is less than this
/// share of the other's.
const MAX_COST_RATIO: f64 = 0.8;

/// An engine that can serve the workload.
#[derive(Debug)]
pub struct Candidate {
    /// The engine's name.
    pub engine: &'static str,
    /// Recommended settings.
    pub settings: Box<dyn Settings>,
    /// Predicted costs.
    pub costs: Costs,
    /// Mean time per operation for which the device is busy, in microseconds.
    pub device_us: f64,
    /// Years until the device is worn out; `None` if the rate of operations or the device's size is
    /// unknown.
    pub lifetime_years: Option<f64>,
}

/// An engine that cannot serve the workload.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Exclusion {
    /// The engine's name.
    pub engine: &'static str,
    /// The reasons, each a clause.
    pub reasons: Vec<String>,
}

/// A recommendation.
#[derive(Debug, Default)]
pub struct Advice {
    /// Engines that can serve the workload, the recommended one first.
    pub candidates: Vec<Candidate>,
    /// Engines that cannot.
    pub ruled_out: Vec<Exclusion>,
}

/// The engines, in order of preference.
const DESIGNS: [Design; 5] =
    [lsm::DESIGN, silt::DESIGN, trie::DESIGN, mica::DESIGN, skimpy::DESIGN];

/// Engines in order of preference at equal costs.
pub fn preference_order() -> impl Iterator<Item = &'static str> {
    DESIGNS.iter().map(|design| design.engine)
}

/// Settings and costs of every engine, or why it cannot serve the workload.
///
/// # Errors
/// [`InvalidParameter`] for an invalid workload.
pub fn advise(wanted: &Requirements) -> Result<Advice, InvalidParameter> {
    wanted.check()?;
    let mut advice = Advice::default();
    for design in &DESIGNS {
        let mut reasons = design.missing(&wanted.needs);
        let fitted = if reasons.is_empty() { fit(design, wanted) } else { Err(Vec::new()) };
        match fitted {
            Ok(candidate) => advice.candidates.push(candidate),
            Err(more) => {
                reasons.extend(more);
                advice.ruled_out.push(Exclusion { engine: design.engine, reasons });
            }
        }
    }
    let times: Vec<_> = advice.candidates.iter().map(|candidate| candidate.device_us).collect();
    if let Some(best) = best(&times) {
        let chosen = advice.candidates.remove(best);
        advice.candidates.insert(0, chosen);
    }
    Ok(advice)
}

/// Index of the first time, in order of preference, that no other time clearly beats.
fn best(times: &[f64]) -> Option<usize> {
    let least = times.iter().copied().fold(f64::INFINITY, f64::min);
    times.iter().position(|time| time * MAX_COST_RATIO <= least)
}

impl Advice {
    /// The engine that would be recommended if the recommended one kept the device busy for
    /// `factor` times as long as predicted.
    pub fn choice_if_wrong_by(&self, factor: f64) -> Option<&'static str> {
        let recommended = self.candidates.first()?.engine;
        let in_order = DESIGNS.iter().filter_map(|design| {
            let found = self.candidates.iter().find(|found| found.engine == design.engine)?;
            let off = if found.engine == recommended { factor } else { 1.0 };
            Some((found.engine, found.device_us * off))
        });
        let (engines, times): (Vec<_>, Vec<_>) = in_order.unzip();
        best(&times).map(|best| engines[best])
    }
}

/// Chooses the settings of an engine and predicts its costs.
///
/// # Errors
/// The reasons why it cannot serve the workload, e.g. that it needs too much memory.
fn fit(design: &Design, wanted: &Requirements) -> Result<Candidate, Vec<String>> {
    let settings = (design.fit)(wanted).map_err(|reason| vec![reason])?;
    let costs = settings.costs(wanted).map_err(|bad| vec![bad.to_string()])?;
    let mut reasons = Vec::new();
    let mut exceeds = |what: &str, needed: f64, given: Option<f64>| {
        if let Some(given) = given.filter(|given| needed > *given) {
            reasons.push(format!(
                "{what} would take {}, of {}",
                format_bytes(needed),
                format_bytes(given)
            ));
        }
    };
    exceeds("its memory", costs.memory_bytes(), wanted.memory_bytes);
    exceeds("its files", costs.space_bytes, wanted.flash_bytes);
    if !reasons.is_empty() {
        return Err(reasons);
    }
    let device_us = wanted.device_us(costs.write_amplification, costs.reads_per_lookup);
    let lifetime_years = wanted.lifetime_years(&costs);
    Ok(Candidate { engine: design.engine, settings, costs, device_us, lifetime_years })
}

/// Bytes as text, e.g. `1.5 GiB`.
fn format_bytes(bytes: f64) -> String {
    const UNITS: [&str; 6] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let unit = (bytes.max(1.0).log2() / 10.0).floor().clamp(0.0, 5.0) as usize;
    let number = bytes / 1024f64.powi(unit as i32);
    format!("{number:.*} {}", usize::from(unit > 0), UNITS[unit])
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::design::size;
    use super::*;
    use crate::Popularity;

    fn wanted(keys: f64, skew: f64) -> Requirements {
        Requirements::new(Popularity::zipf(keys, skew).unwrap(), 16.0, 100.0)
    }

    fn names(advice: &Advice) -> Vec<&'static str> {
        advice.candidates.iter().map(|candidate| candidate.engine).collect()
    }

    #[test]
    fn unmet_needs_exclude_engines_with_reasons() {
        let mut w = wanted(1e7, 0.0);
        w.needs.order = true;
        let advice = advise(&w).unwrap();
        assert_eq!(names(&advice), ["lsm"]);
        assert_eq!(advice.ruled_out.len(), 4);
        assert!(advice.ruled_out.iter().all(|out| out.reasons[0].contains("order")));
        w.needs = Needs { durability: false, ..Needs::default() };
        assert!(names(&advise(&w).unwrap()).contains(&"mica"));
        w.needs = Needs { versions: true, ..Needs::default() };
        let mut with_versions = names(&advise(&w).unwrap());
        with_versions.sort_unstable();
        assert_eq!(with_versions, ["lsm", "skimpy"]);
    }

    #[test]
    fn history_selects_skimpy_and_adds_space() {
        let mut w = wanted(1e6, 0.0);
        w.needs.history = Some(Duration::from_secs(3600));
        let advice = advise(&w).unwrap();
        assert!(advice.candidates.is_empty());
        let skimpy = advice.ruled_out.iter().find(|out| out.engine == "skimpy").unwrap();
        assert!(skimpy.reasons[0].contains("operations per second"), "{skimpy:?}");
        // A thousand operations per second, half of them writes: 1.8 M versions in an hour.
        w.ops_per_second = Some(1000.0);
        let advice = advise(&w).unwrap();
        assert_eq!(names(&advice), ["skimpy"]);
        let with = &advice.candidates[0];
        assert!(with.settings.options().contains(&("retention", "3600s".to_owned())));
        w.needs.history = None;
        let advice = advise(&w).unwrap();
        let without = advice.candidates.iter().find(|it| it.engine == "skimpy").unwrap();
        let ratio = with.costs.space_bytes / without.costs.space_bytes;
        assert!((2.7..2.9).contains(&ratio), "{ratio}");
    }

    #[test]
    fn memory_limit_excludes_engines() {
        let mut w = wanted(1e9, 0.0);
        w.memory_bytes = Some(1e9);
        let advice = advise(&w).unwrap();
        assert_eq!(names(&advice)[0], "silt", "{advice:?}");
        let lsm = advice.ruled_out.iter().find(|out| out.engine == "lsm").unwrap();
        assert!(lsm.reasons[0].contains("memory"), "{lsm:?}");
        w.flash_bytes = Some(1e9);
        let advice = advise(&w).unwrap();
        assert!(advice.candidates.is_empty());
        assert!(advice.ruled_out.iter().all(|out| !out.reasons.is_empty()));
    }

    #[test]
    fn choice_changes_if_the_prediction_is_far_off() {
        // The first in the order is recommended, so another must beat it clearly.
        let w = Requirements { reads: 0.1, ..wanted(1e7, 0.99) };
        let advice = advise(&w).unwrap();
        let [first, others @ ..] = &advice.candidates[..] else { panic!("{advice:?}") };
        assert_eq!(first.engine, "lsm", "{advice:?}");
        let second = others.iter().min_by(|a, b| a.device_us.total_cmp(&b.device_us)).unwrap();
        assert_eq!(advice.choice_if_wrong_by(1.0), Some(first.engine));
        let lead = second.device_us / first.device_us / MAX_COST_RATIO;
        assert_eq!(advice.choice_if_wrong_by(0.99 * lead), Some(first.engine), "{advice:?}");
        assert_ne!(advice.choice_if_wrong_by(100.0), Some(first.engine), "{advice:?}");
        assert_eq!(Advice::default().choice_if_wrong_by(1.0), None);
    }

    #[test]
    fn mica_wins_without_durability() {
        let mut w = wanted(1e6, 0.99);
        w.needs.durability = false;
        w.memory_bytes = Some(1e9);
        assert_eq!(names(&advise(&w).unwrap())[0], "mica");
    }

    #[test]
    fn costs_are_finite_and_scale_with_the_workload() {
        for keys in [1e4, 1e6, 1e8, 1e10] {
            for skew in [0.0, 0.7, 0.99, 1.3] {
                for value in [10.0, 100.0, 4000.0] {
                    let mut w =
                        Requirements::new(Popularity::zipf(keys, skew).unwrap(), 16.0, value);
                    w.needs.durability = false;
                    for candidate in advise(&w).unwrap().candidates {
                        let share = (1e6 / keys).clamp(0.01, 1.0);
                        let part = w.scaled(Popularity::zipf(keys * share, skew).unwrap());
                        let small = candidate.settings.scaled(share).costs(&part).unwrap();
                        for costs in [&candidate.costs, &small] {
                            let all = [
                                costs.write_amplification,
                                costs.reads_per_lookup,
                                costs.memory_bytes(),
                                costs.space_bytes,
                            ];
                            let is_valid = all.iter().all(|cost| cost.is_finite() && *cost >= 0.0);
                            assert!(
                                is_valid,
                                "{} {keys} {skew} {value}: {costs:?}",
                                candidate.engine
                            );
                        }
                        if skew == 0.0 && candidate.engine != "mica" {
                            let (large, small) =
                                (candidate.costs.write_amplification, small.write_amplification);
                            let ratio = small / large;
                            assert!(
                                (0.7..1.4).contains(&ratio),
                                "{}: {small} {large}",
                                candidate.engine
                            );
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn bytes_are_formatted_with_binary_units() {
        assert_eq!(format_bytes(0.0), "0 B");
        assert_eq!(format_bytes(1536.0), "1.5 KiB");
        assert_eq!([size(1536.0), size(1024.0), size(0.0)], ["1536B", "1KiB", "0GiB"]);
        assert_eq!(format_bytes(3.0 * f64::from(1 << 30)), "3.0 GiB");
    }
}
