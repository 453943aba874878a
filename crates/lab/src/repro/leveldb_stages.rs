//! `leveldb-stages`: Table 4.1 of the thesis, all four columns.
//!
//! Write amplification by stage of LevelDB's design with 10^8 uniform keys: by the model and by the
//! simulator, with LevelDB's level sizes and with the optimiser's. The model runs at the thesis's
//! size. The simulator runs with keys, log, tables and levels all divided by the same number, which
//! leaves every ratio, and so the write amplification, as it is; at scale 100 it runs whole.
//!
//! Invariant: the optimised sizes are found here, by the optimiser, not taken from the thesis.
//!
//! Source: Lim, thesis (2015), section 4.6.3, Table 4.1.

use siltstone_engine::Result;
use siltstone_model::optimize::optimize_levels;
use siltstone_model::simulate::Simulation;
use siltstone_model::{Breakdown, LevelDb, Popularity};

use super::{Check, Direction, Experiment, Measured, refused};
use crate::plot::{Bars, Plot};

const KEYS: f64 = 1e8;
const ITEM_BYTES: f64 = 1000.0;
/// Simulated keys at scale 1.
const SIMULATED_KEYS: f64 = 1e6;

/// Table 4.1: no optimisation, optimised; analysis, then simulation.
const ANALYSIS: [f64; 7] = [1.00, 1.00, 1.62, 4.77, 6.22, 6.32, 4.89];
const ANALYSIS_TOTALS: [f64; 2] = [25.82, 23.67];
const SIMULATION_TOTALS: [f64; 2] = [25.31, 23.26];

pub(super) struct LevelDbStages;

impl Experiment for LevelDbStages {
    fn id(&self) -> &'static str {
        "leveldb-stages"
    }

    fn paper(&self) -> &'static str {
        "Lim, Resource-Efficient Data-Intensive System Designs, 2015"
    }

    fn figure(&self) -> &'static str {
        "table 4.1"
    }

    fn claim(&self) -> &'static str {
        "analysis 25.82, 23.67 with optimised level sizes; simulation 25.31 and 23.26"
    }

    fn run(&self, scale: f64, progress: &mut dyn FnMut(u64, u64)) -> Result<Measured> {
        let uniform = Popularity::uniform(KEYS).map_err(refused)?;
        let standard = LevelDb::standard(KEYS, ITEM_BYTES, 5).map_err(refused)?;
        let optimum = optimize_levels(&uniform, standard.log_items, standard.level0_tables, 5)
            .map_err(refused)?;
        let designs = [standard, optimum.design];
        let keys = (SIMULATED_KEYS * scale).min(KEYS);
        let (mut analysis, mut simulation) = (Vec::new(), Vec::new());
        for (i, design) in designs.iter().enumerate() {
            analysis.push(design.write_amplification(&uniform).map_err(refused)?);
            let shrunk = shrink(design, keys / KEYS);
            let mut simulated = Simulation::standard(shrunk, keys as u32, 0.0, ITEM_BYTES);
            simulated.table_items = ((simulated.table_items as f64 * keys / KEYS) as usize).max(8);
            let run = simulated.run(|done, total| progress(done + i as u64 * total, 2 * total));
            simulation.push(run.map_err(refused)?);
        }
        let check = |what: String, claimed: f64, ours: f64, tolerance: f64, most: f64| Check {
            what,
            claimed,
            ours,
            tolerance,
            direction: Direction::AtMost(most),
        };
        let mut checks: Vec<Check> = analysis[0]
            .by_stage
            .iter()
            .zip(ANALYSIS)
            .map(|((stage, ours), claimed)| {
                check(format!("analysis, {stage}"), claimed, *ours, 0.02 / claimed, claimed)
            })
            .collect();
        for (i, column) in ["LevelDB's sizes", "optimised sizes"].into_iter().enumerate() {
            let (claimed, ours) = (ANALYSIS_TOTALS[i], analysis[i].total());
            checks.push(check(
                format!("analysis, {column}"),
                claimed,
                ours,
                0.02 / claimed,
                claimed,
            ));
            let (claimed, ours) = (SIMULATION_TOTALS[i], simulation[i].total());
            checks.push(check(format!("simulation, {column}"), claimed, ours, 0.02, claimed));
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
        Ok(Measured { scale, checks, plot: Some(Plot::Bars(bars)) })
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
