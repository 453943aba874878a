//! `leveldb-sizes`: optimal level sizes by skew.
//!
//! The optimiser's sizes for five levels of 10^8 keys, from uniform to Zipf 1.6, compared with
//! LevelDB's 10^l MiB.
//!
//! The compared growth is the mean over all steps from level 1 to the last level, which contains
//! all keys in both cases: at Zipf 1.6 the steps are 6, 9, 19 and 70, the first two below LevelDB's
//! ten and the mean well above it.
//!
//! Source: Lim, thesis (2015), section 4.6.3, figure 4.14.

use siltstone_bench::plot::{Line, Lines, Plot};
use siltstone_engine::Result;

use super::bars::{Bar, bar};
use super::thesis::{EXPONENTS, ITEM_BYTES, KEYS, PAPER, optimised, popularity, standard};
use super::{Experiment, Measurement};

const MIB: f64 = 1_048_576.0;
/// Limits of low and high skew.
const LOW: f64 = 0.6;
const HIGH: f64 = 1.4;

pub(super) struct LevelSizes;

impl Experiment for LevelSizes {
    fn id(&self) -> &'static str {
        "leveldb-sizes"
    }

    fn paper(&self) -> &'static str {
        PAPER
    }

    fn figure(&self) -> &'static str {
        "figure 4.14"
    }

    fn claim(&self) -> &'static str {
        "low skew wants larger low levels than LevelDB's; high skew smaller ones that grow faster"
    }

    fn run(&self, _scale: f64, progress: &mut dyn FnMut(u64, u64)) -> Result<Measurement> {
        let design = standard(KEYS)?;
        let fixed = &design.level_items;
        let mut found = Vec::new();
        for exponent in EXPONENTS {
            found.push((exponent, optimised(&design, &popularity(KEYS, exponent)?)?.level_items));
            progress(found.len() as u64, EXPONENTS.len() as u64);
        }
        let share =
            |bar: &'static Bar, of: &str, is_skew: fn(f64) -> bool, is: &dyn Fn(&[f64]) -> bool| {
                let among: Vec<_> =
                    found.iter().filter(|(exponent, _)| is_skew(*exponent)).collect();
                let count = among.iter().filter(|(_, sizes)| is(sizes)).count();
                bar.check(format!("share of {of}"), count as f64 / among.len() as f64)
            };
        let low = |skew: f64| skew <= LOW;
        let high = |skew: f64| skew >= HIGH;
        let checks = vec![
            share(
                bar("leveldb-sizes", "low-larger"),
                "low skews (to 0.6) with larger levels 1 and 2",
                low,
                &|sizes| sizes[0] > fixed[0] && sizes[1] > fixed[1],
            ),
            share(
                bar("leveldb-sizes", "high-smaller"),
                "high skews (from 1.4) with smaller levels 1 and 2",
                high,
                &|sizes| sizes[0] < fixed[0] && sizes[1] < fixed[1],
            ),
            share(
                bar("leveldb-sizes", "low-slower"),
                "low skews with slower growth to the last level",
                low,
                &|sizes| growth(sizes) < growth(fixed),
            ),
            share(
                bar("leveldb-sizes", "high-faster"),
                "high skews with faster growth to the last level",
                high,
                &|sizes| growth(sizes) > growth(fixed),
            ),
        ];
        let mut series = Vec::new();
        for level in 0..fixed.len() {
            let size = |items: f64| (items * ITEM_BYTES / MIB).log10();
            let points = found.iter().map(|(exponent, sizes)| (*exponent, size(sizes[level])));
            let original = EXPONENTS.map(|exponent| (exponent, size(fixed[level])));
            for (kind, points, is_reference) in
                [("optimised", points.collect(), false), ("LevelDB's", original.to_vec(), true)]
            {
                let name = format!("level {}, {kind}", level + 1);
                series.push(Line { name, points, is_reference });
            }
        }
        let lines = Lines {
            title: "Level sizes by skew, 10^8 keys of 1,000 bytes".to_owned(),
            x: "Zipf exponent".to_owned(),
            y: "MiB, as a power of ten".to_owned(),
            series,
        };
        let scale = "computed over 10^8 keys; the same at any scale".to_owned();
        Ok(Measurement { scale, checks, plot: Some(Plot::Lines(lines)) })
    }
}

/// Mean growth from level 1 to the last level, which contains all keys.
fn growth(sizes: &[f64]) -> f64 {
    (KEYS / sizes[0]).powf(1.0 / sizes.len() as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::repro::{Verdict, run};

    #[test]
    fn claim_is_confirmed() {
        let finding = run(&LevelSizes, 1.0, 1, &mut |_, _| ()).unwrap();
        assert_eq!(finding.verdict, Verdict::Confirmed, "{:?}", finding.checks);
    }
}
