//! `leveldb-stages`: Table 4.1 of the thesis, all four columns.
//!
//! Write amplification by stage of LevelDB's design with 10^8 uniform keys: by the model and by the
//! simulator, with LevelDB's level sizes and with the optimiser's. The model runs at the thesis's
//! size. The simulator runs with keys, log, tables and levels all divided by the same number, which
//! keeps every ratio and thus nearly the write amplification: 0.6 % less at scale 1 (10^7 keys, 10
//! s), 5 % less at a tenth of it, where a table is 21 items and one key more or less matters. At
//! scale 10 and above it runs at full size, in 80 s, and matches every printed stage.
//!
//! Invariant: the optimised sizes are computed by the optimiser here, not taken from the thesis.
//!
//! Source: Lim, thesis (2015), section 4.6.3, Table 4.1.

use siltstone_bench::plot::{Bars, Plot};
use siltstone_engine::Result;
use siltstone_model::simulate::Simulation;
use siltstone_model::{Breakdown, LevelDb};

use super::bars::{Bar, bar};
use super::thesis::{ITEM_BYTES, KEYS, PAPER, Parts, optimised, popularity, standard};
use super::{Experiment, Measurement, model_error};

/// Simulated keys at scale 1.
const SIMULATED_KEYS: f64 = 1e7;

pub(super) struct LevelDbStages;

impl Experiment for LevelDbStages {
    fn id(&self) -> &'static str {
        "leveldb-stages"
    }

    fn paper(&self) -> &'static str {
        PAPER
    }

    fn figure(&self) -> &'static str {
        "table 4.1"
    }

    fn claim(&self) -> &'static str {
        "analysis 25.82, 23.67 with optimised level sizes; simulation 25.31 and 23.26"
    }

    fn run(&self, scale: f64, progress: &mut dyn FnMut(u64, u64)) -> Result<Measurement> {
        let uniform = popularity(KEYS, 0.0)?;
        let standard = standard(KEYS)?;
        let best = optimised(&standard, &uniform)?;
        let keys = (SIMULATED_KEYS * scale).min(KEYS);
        let mut parts = Parts::new(2, progress);
        let (mut analysis, mut simulation) = (Vec::new(), Vec::new());
        for (design, own_sizes) in [(&standard, false), (&best, true)] {
            analysis.push(design.write_amplification(&uniform).map_err(model_error)?);
            let shrunk = shrink(design, keys / KEYS);
            let mut simulated = Simulation::standard(shrunk, keys as u32, 0.0, ITEM_BYTES);
            simulated.table_items =
                ((simulated.table_items as f64 * keys / KEYS).round() as usize).max(8);
            if own_sizes {
                simulated.overlap_tables = None;
            }
            simulation.push(parts.next(|progress| simulated.run(progress)).map_err(model_error)?);
        }
        let columns = [
            (
                "LevelDB's sizes",
                [bar("leveldb-stages", "analysis"), bar("leveldb-stages", "simulation")],
                [bar("leveldb-stages", "analysis-sum"), bar("leveldb-stages", "simulation-sum")],
            ),
            (
                "optimised sizes",
                [
                    bar("leveldb-stages", "analysis-optimised"),
                    bar("leveldb-stages", "simulation-optimised"),
                ],
                [
                    bar("leveldb-stages", "analysis-optimised-sum"),
                    bar("leveldb-stages", "simulation-optimised-sum"),
                ],
            ),
        ];
        let stages = |bar: &'static Bar, kind: &str, column: &str, found: &Breakdown| {
            let check = |(i, (stage, ours)): (usize, &(String, f64))| {
                bar.check_one_of(i, format!("{kind}, {column}, {stage}"), *ours)
            };
            found.by_stage.iter().enumerate().map(check).collect::<Vec<_>>()
        };
        let mut checks = Vec::new();
        for (i, (column, by_stage, sums)) in columns.into_iter().enumerate() {
            checks.extend(stages(by_stage[0], "analysis", column, &analysis[i]));
            checks.push(sums[0].check(format!("analysis, {column}, sum"), analysis[i].total()));
            checks.push(sums[1].check(format!("simulation, {column}, sum"), simulation[i].total()));
            if keys == KEYS {
                checks.extend(stages(by_stage[1], "simulation", column, &simulation[i]));
            }
        }
        let bars = Bars {
            title: "LevelDB by stage, 10^8 uniform keys of 1,000 bytes".to_owned(),
            y: "write amplification".to_owned(),
            groups: analysis[0].by_stage.iter().map(|(stage, _)| stage.clone()).collect(),
            series: vec![
                ("analysis".to_owned(), values(&analysis[0])),
                ("simulation".to_owned(), values(&simulation[0])),
                ("analysis, optimised".to_owned(), values(&analysis[1])),
                ("simulation, optimised".to_owned(), values(&simulation[1])),
            ],
        };
        let scale = format!("model: 10^8 keys; simulator: {keys} keys, all sizes in proportion");
        Ok(Measurement { scale, checks, plot: Some(Plot::Bars(bars)) })
    }
}

fn shrink(design: &LevelDb, by: f64) -> LevelDb {
    LevelDb {
        log_items: design.log_items * by,
        level0_tables: design.level0_tables,
        level_items: design.level_items.iter().map(|items| items * by).collect(),
    }
}

fn values(breakdown: &Breakdown) -> Vec<f64> {
    breakdown.by_stage.iter().map(|(_, wa)| *wa).collect()
}
