//! `workload-variations`: the model with deletions, with items of several sizes, and under a load that
//! changes.
//!
//! The primitives of the thesis are for puts of items of one size with a fixed popularity. Ours
//! extend them ([`Deletions`], [`Popularity::with_item_sizes`], [`Drift`]). Each extension is judged
//! twice: by the event simulator, and by the `lsm` engine, which is configured as in
//! `lsm-write-amplification`. What the model says without the extension stands beside.
//!
//! Invariant: no constant is fitted; the requests per memtable of `lsm` are counted, as there.
//!
//! Source: the question is open in Lim, thesis (2015), section 4.8.

use siltstone_bench::plot::{Bars, Plot};
use siltstone_engine::Result;
use siltstone_model::simulate::{Simulation, Variation};
use siltstone_model::{Deletions, Drift, InvalidParameter, LevelDb, Popularity, Workload};

use super::bars::bar;
use super::lsm_write_amplification::{ITEM_BYTES, KEY_BYTES, Requests, Tree};
use super::thesis::PAPER;
use super::{Experiment, Measurement, model_error};

/// Keys of the simulator at scale 1.
const SIMULATED_KEYS: f64 = 1e6;
/// Share of deletions.
const DELETES: f64 = 0.3;
/// The popular tenth of the keys has small items, and then large ones.
const SMALL_FIRST: [(f64, f64); 2] = [(0.1, 200.0), (0.9, 2000.0)];
const LARGE_FIRST: [(f64, f64); 2] = [(0.1, 2000.0), (0.9, 200.0)];
/// Requests of a phase, as a share of the keys.
const PHASE: f64 = 0.1;
const SKEW: f64 = 0.99;

pub(super) struct WorkloadVariations;

/// A workload that the primitives of the thesis do not describe.
struct Case {
    name: &'static str,
    skew: f64,
    deletes: f64,
    item_sizes: &'static [(f64, f64)],
    /// As a share of the keys.
    phase: Option<f64>,
}

const PLAIN: Case = Case { name: "", skew: SKEW, deletes: 0.0, item_sizes: &[], phase: None };

const CASES: [Case; 5] = [
    Case { name: "deletions", skew: 0.0, deletes: DELETES, ..PLAIN },
    Case { name: "deletions, Zipf", deletes: DELETES, ..PLAIN },
    Case { name: "popular items small", item_sizes: &SMALL_FIRST, ..PLAIN },
    Case { name: "popular items large", item_sizes: &LARGE_FIRST, ..PLAIN },
    Case { name: "changing load", phase: Some(PHASE), ..PLAIN },
];

impl Experiment for WorkloadVariations {
    fn id(&self) -> &'static str {
        "workload-variations"
    }

    fn paper(&self) -> &'static str {
        PAPER
    }

    fn figure(&self) -> &'static str {
        "section 4.8"
    }

    fn claim(&self) -> &'static str {
        "with deletions, items of several sizes and a changing load the model is within 3.8 % of the \
         simulator, and within 10 % of lsm"
    }

    fn run(&self, scale: f64, progress: &mut dyn FnMut(u64, u64)) -> Result<Measurement> {
        let tree = Tree::of(scale);
        let keys = (SIMULATED_KEYS * scale).max(1e5);
        let mut checks = Vec::new();
        let mut series = ["model", "simulator", "model for lsm", "lsm"].map(|_| Vec::new());
        let parts = 2 * CASES.len() as u64;
        for (done, case) in (0..).zip(&CASES) {
            progress(2 * done, parts);
            let (simulated, design) = case.simulate(keys)?;
            let model = case.model(&design, keys).map_err(model_error)?;
            let plain = plain_model(&design, keys, case.skew).map_err(model_error)?;
            checks.push(bar("workload-variations", "simulator").check_computed(
                format!("{}, simulator (plain model {plain:.2})", case.name),
                model,
                simulated,
            ));
            progress(2 * done + 1, parts);
            let keys = tree.keys as f64;
            let requests = Requests { skew: case.skew, variation: case.variation(keys) };
            let (measured, memtable_items) = tree.measure(&requests, &mut |_, _| ())?;
            let design = tree.design(memtable_items, case.mean_size(keys).map_err(model_error)?);
            let of_lsm = case.model(&design, keys).map_err(model_error)?;
            let plain = plain_model(&design, keys, case.skew).map_err(model_error)?;
            checks.push(bar("workload-variations", "lsm").check_computed(
                format!("{}, lsm (plain model {plain:.2})", case.name),
                of_lsm,
                measured.total,
            ));
            for (all, value) in series.iter_mut().zip([model, simulated, of_lsm, measured.total]) {
                all.push(value);
            }
        }
        progress(parts, parts);
        let names = ["model", "simulator", "model for lsm", "lsm"].map(str::to_owned);
        Ok(Measurement {
            scale: format!(
                "{keys} keys in the simulator, {} in lsm, of {ITEM_BYTES} bytes; {DELETES} of the \
                 requests delete; sizes of 200 and 2,000 bytes; phases of {PHASE} requests per key",
                tree.keys
            ),
            checks,
            plot: Some(Plot::Bars(Bars {
                title: "Write amplification beyond the primitives of the thesis".to_owned(),
                y: "bytes written per byte of the user".to_owned(),
                groups: CASES.iter().map(|case| case.name.to_owned()).collect(),
                series: names.into_iter().zip(series).collect(),
            })),
        })
    }
}

impl Case {
    fn variation(&self, keys: f64) -> Variation {
        Variation {
            deletes: self.deletes,
            tombstone_size: KEY_BYTES as f64 / ITEM_BYTES as f64,
            item_sizes: self.item_sizes.to_vec(),
            phase: self.phase.map(|share| (share * keys) as u64),
        }
    }

    /// The popularity of the bytes that are put, and their mean size.
    fn puts(&self, keys: f64) -> Result<(Popularity, f64), InvalidParameter> {
        let popularity = Popularity::zipf(keys, self.skew)?;
        if self.item_sizes.is_empty() {
            return Ok((popularity, ITEM_BYTES as f64));
        }
        let sized = popularity.with_item_sizes(self.item_sizes)?;
        let bytes: f64 = self.item_sizes.iter().map(|(share, size)| share * size).sum();
        let mean = bytes * keys / sized.keys();
        Ok((sized, mean))
    }

    /// The mean size of a written item in bytes.
    fn mean_size(&self, keys: f64) -> Result<f64, InvalidParameter> {
        let (_, put) = self.puts(keys)?;
        Ok(put * (1.0 - self.deletes) + self.deletes * KEY_BYTES as f64)
    }

    /// Write amplification by the extended primitives.
    fn model(&self, design: &LevelDb, keys: f64) -> Result<f64, InvalidParameter> {
        let (puts, size) = self.puts(keys)?;
        let tombstone = KEY_BYTES as f64 / size;
        match self.phase {
            None => total(design, &Deletions::new(puts, self.deletes, tombstone)?),
            Some(share) => {
                let drift = Drift::new(&puts, (share * keys).floor())?;
                total(design, &Deletions::new(drift, self.deletes, tombstone)?)
            }
        }
    }

    /// Write amplification by the simulator, and its design.
    fn simulate(&self, keys: f64) -> Result<(f64, LevelDb)> {
        let mean = self.mean_size(keys).map_err(model_error)?;
        // In items of the mean size: fewer or more than there are keys.
        let (puts, _) = self.puts(keys).map_err(model_error)?;
        let most = puts.keys().min(keys);
        let design = LevelDb::standard(most, mean, 10).map_err(model_error)?;
        let simulation = Simulation {
            variation: self.variation(keys),
            ..Simulation::standard(design.clone(), keys as u32, self.skew, mean)
        };
        let simulated = simulation.run(|_, _| ()).map_err(model_error)?;
        Ok((simulated.total(), design))
    }
}

/// Write amplification by the primitives of the thesis.
fn plain_model(design: &LevelDb, keys: f64, skew: f64) -> Result<f64, InvalidParameter> {
    total(design, &Popularity::zipf(keys, skew)?)
}

/// Write amplification in a design whose levels are sized in items of the mean written size: one
/// with room for all keys is the last.
fn total(design: &LevelDb, workload: &impl Workload) -> Result<f64, InvalidParameter> {
    let mut design = design.clone();
    design.level_items.retain(|&items| items < workload.keys());
    design.total(workload)
}

#[cfg(test)]
mod tests {
    use super::super::run;
    use super::*;

    #[test]
    fn extensions_are_nearer_to_the_simulator_than_the_plain_model() {
        let finding = run(&WorkloadVariations, 0.1, 1, &mut |_, _| ()).unwrap();
        assert_eq!(finding.checks.len(), 2 * CASES.len());
        let simulated = finding.checks.iter().filter(|check| check.what.contains("simulator"));
        for check in simulated {
            assert!((check.ours / check.claimed - 1.0).abs() < 0.1, "{check:?}");
        }
    }
}
