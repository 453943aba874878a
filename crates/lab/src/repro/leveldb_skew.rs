//! `leveldb-skew`: how skew lowers LevelDB's write amplification, which worst-case analysis misses.
//!
//! The model over Zipf exponents from 0 to 1.2 beside the asymptotic analysis, which is the same for
//! all of them.
//!
//! Invariant: both lines come from the same code, once with a popularity and once without.
//!
//! Source: Lim, thesis (2015), figures 4.9 and 4.10.

use siltstone_engine::Result;
use siltstone_model::{LevelDb, Popularity};

use super::{Check, Direction, Experiment, Measured, refused};
use crate::plot::{Line, Lines, Plot};

const KEYS: f64 = 1e8;
const ITEM_BYTES: f64 = 1000.0;
const LEVELS: usize = 5;

pub(super) struct LevelDbSkew;

impl Experiment for LevelDbSkew {
    fn id(&self) -> &'static str {
        "leveldb-skew"
    }

    fn paper(&self) -> &'static str {
        "Lim, Resource-Efficient Data-Intensive System Designs, 2015"
    }

    fn figure(&self) -> &'static str {
        "figures 4.9 and 4.10"
    }

    fn claim(&self) -> &'static str {
        "worst-case analysis gives one write amplification whatever the skew, 1.8 to 3.6 times too high"
    }

    fn run(&self, _scale: f64, progress: &mut dyn FnMut(u64, u64)) -> Result<Measured> {
        let design = LevelDb::standard(KEYS, ITEM_BYTES, LEVELS).map_err(refused)?;
        let worst = design.worst_case(KEYS).map_err(refused)?.total();
        let mut model = Vec::new();
        for step in 0..=12u64 {
            let skew = step as f64 / 10.0;
            let popularity = Popularity::zipf(KEYS, skew).map_err(refused)?;
            let wa = design.write_amplification(&popularity).map_err(refused)?.total();
            model.push((skew, wa));
            progress(step, 12);
        }
        let zipf = Popularity::zipf(KEYS, 0.99).map_err(refused)?;
        let skewed = design.write_amplification(&zipf).map_err(refused)?.total();
        let check = |what: &str, claimed, ours, tolerance, direction| Check {
            what: what.to_owned(),
            claimed,
            ours,
            tolerance,
            direction,
        };
        // The claim's range is over sizes and both popularities: its ends are met, not exceeded.
        let above_one = Direction::AtLeast(1.0);
        let checks = vec![
            check("write amplification, uniform", 25.82, model[0].1, 0.001, Direction::None),
            check("worst case too high, uniform", 1.8, worst / model[0].1, 0.1, above_one),
            check("worst case too high, Zipf 0.99", 3.6, worst / skewed, 0.2, above_one),
            check(
                "WA never rises with skew",
                1.0,
                f64::from(u8::from(falls(&model))),
                0.0,
                Direction::None,
            ),
        ];
        let line =
            |name: &str, points, is_reference| Line { name: name.to_owned(), points, is_reference };
        let flat = model.iter().map(|&(skew, _)| (skew, worst)).collect();
        let lines = Lines {
            title: "LevelDB under skew, 10^8 keys of 1,000 bytes".to_owned(),
            x: "Zipf exponent".to_owned(),
            y: "write amplification".to_owned(),
            series: vec![line("model", model, false), line("worst-case analysis", flat, true)],
        };
        let scale = "computed over 10^8 keys; the same at any scale".to_owned();
        Ok(Measured { scale, checks, plot: Some(Plot::Lines(lines)) })
    }
}

fn falls(points: &[(f64, f64)]) -> bool {
    points.windows(2).all(|pair| pair[1].1 <= pair[0].1)
}
