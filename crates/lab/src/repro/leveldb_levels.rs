//! `leveldb-levels`: fewer levels at the same write amplification, by choosing their sizes.
//!
//! For each number of levels: LevelDB's sizes with the growth factor that fits, and the optimiser's,
//! under a uniform and a skewed popularity.
//!
//! Invariant: both lines are the same model; only the sizes differ.
//!
//! Source: Lim, thesis (2015), section 4.6.3, figures 4.12 and 4.15.

use siltstone_engine::Result;
use siltstone_model::optimize::optimize_levels;
use siltstone_model::{LevelDb, Popularity};

use super::{Check, Direction, Experiment, Measured, refused};
use crate::plot::{Line, Lines, Plot};

const KEYS: f64 = 1e8;
const ITEM_BYTES: f64 = 1000.0;
const LOG_BYTES: f64 = 4.0 * 1_048_576.0;
const LEVEL_1_BYTES: f64 = 10.0 * 1_048_576.0;
const LEVEL_0_TABLES: f64 = 4.0;
const LEVELS: std::ops::RangeInclusive<usize> = 2..=8;

pub(super) struct LevelDbLevels;

impl Experiment for LevelDbLevels {
    fn id(&self) -> &'static str {
        "leveldb-levels"
    }

    fn paper(&self) -> &'static str {
        "Lim, Resource-Efficient Data-Intensive System Designs, 2015"
    }

    fn figure(&self) -> &'static str {
        "figures 4.12 and 4.15"
    }

    fn claim(&self) -> &'static str {
        "optimised level sizes write up to 9.4 % less, and save almost a whole level: 3 levels cost \
         little more than 4 did"
    }

    fn run(&self, _scale: f64, progress: &mut dyn FnMut(u64, u64)) -> Result<Measured> {
        let mut series = Vec::new();
        let mut uniform = Vec::new();
        for (turn, (name, skew)) in [("uniform", 0.0), ("Zipf 0.99", 0.99)].into_iter().enumerate()
        {
            let popularity = Popularity::zipf(KEYS, skew).map_err(refused)?;
            let (mut fixed, mut optimised) = (Vec::new(), Vec::new());
            for levels in LEVELS {
                let before = geometric(levels).write_amplification(&popularity).map_err(refused)?;
                let log_items = LOG_BYTES / ITEM_BYTES;
                let found = optimize_levels(&popularity, log_items, LEVEL_0_TABLES, levels);
                let after = found.map_err(refused)?.write_amplification.total();
                fixed.push((levels as f64, before.total()));
                optimised.push((levels as f64, after));
                let count = LEVELS.count() as u64;
                progress(turn as u64 * count + (levels - LEVELS.start()) as u64 + 1, 2 * count);
            }
            if skew == 0.0 {
                uniform = fixed.iter().map(|p| p.1).zip(optimised.iter().map(|p| p.1)).collect();
            }
            for (kind, points, is_reference) in
                [("optimised", optimised, false), ("fixed growth", fixed, true)]
            {
                series.push(Line { name: format!("{name}, {kind}"), points, is_reference });
            }
        }
        let at = |levels: usize| uniform[levels - LEVELS.start()];
        // LevelDB's own sizes, as in figure 4.12.
        let standard = LevelDb::standard(KEYS, ITEM_BYTES, 5).map_err(refused)?;
        let standard = standard
            .write_amplification(&Popularity::uniform(KEYS).map_err(refused)?)
            .map_err(refused)?;
        let checks = vec![
            Check {
                what: "saved by optimised sizes, five levels, uniform".to_owned(),
                // Table 4.1: from 25.82 to 23.67.
                claimed: 1.0 - 23.67 / 25.82,
                ours: 1.0 - at(5).1 / standard.total(),
                tolerance: 0.02,
                direction: Direction::AtLeast(0.0),
            },
            Check {
                what: "3 optimised levels against 4 of fixed growth".to_owned(),
                claimed: 1.0,
                ours: at(3).1 / at(4).0,
                tolerance: 0.1,
                direction: Direction::AtMost(at(3).0 / at(4).0),
            },
        ];
        let lines = Lines {
            title: "Write amplification by number of levels, 10^8 keys".to_owned(),
            x: "levels (level 0 not counted)".to_owned(),
            y: "write amplification".to_owned(),
            series,
        };
        let scale = "computed over 10^8 keys; the same at any scale".to_owned();
        Ok(Measured { scale, checks, plot: Some(Plot::Lines(lines)) })
    }
}

/// LevelDB's sizes with another growth factor: from 10 MiB in level 1 to all keys in the last.
fn geometric(levels: usize) -> LevelDb {
    let first = LEVEL_1_BYTES / ITEM_BYTES;
    let growth = (KEYS / first).powf(1.0 / (levels - 1) as f64);
    LevelDb {
        log_items: LOG_BYTES / ITEM_BYTES,
        level0_tables: LEVEL_0_TABLES,
        level_items: (0..levels as i32 - 1).map(|l| first * growth.powi(l)).collect(),
    }
}
