//! `leveldb-skew`: LevelDB's write amplification by skew, which worst-case analysis ignores.
//!
//! The model over Zipf exponents from 0 to 1.6, compared with the worst-case analysis, which is the
//! same for all of them.
//!
//! Source: Lim, thesis (2015), section 4.3.4, figure 4.9.

use siltstone_bench::plot::{Line, Lines, Plot};
use siltstone_engine::Result;

use super::bars::bar;
use super::thesis::{EXPONENTS, KEYS, PAPER, modelled, popularity, standard};
use super::{Experiment, Measurement, model_error};

pub(super) struct LevelDbSkew;

impl Experiment for LevelDbSkew {
    fn id(&self) -> &'static str {
        "leveldb-skew"
    }

    fn paper(&self) -> &'static str {
        PAPER
    }

    fn figure(&self) -> &'static str {
        "figure 4.9"
    }

    fn claim(&self) -> &'static str {
        "write amplification falls with skew; worst-case analysis gives one figure for all, higher"
    }

    fn run(&self, _scale: f64, progress: &mut dyn FnMut(u64, u64)) -> Result<Measurement> {
        let design = standard(KEYS)?;
        let worst = design.worst_case(KEYS).map_err(model_error)?.total();
        let mut model = Vec::new();
        for exponent in EXPONENTS {
            model.push((exponent, modelled(&design, &popularity(KEYS, exponent)?)?));
            progress(model.len() as u64, EXPONENTS.len() as u64);
        }
        let checks = vec![
            bar("leveldb-skew", "uniform").check("write amplification, uniform", model[0].1),
            bar("leveldb-skew", "falls").check(
                "share of steps in skew at which it falls",
                model.windows(2).filter(|pair| pair[1].1 < pair[0].1).count() as f64
                    / (model.len() - 1) as f64,
            ),
            bar("leveldb-skew", "worst-case").check(
                "share of skews at which the worst case is higher",
                model.iter().filter(|(_, wa)| *wa < worst).count() as f64 / model.len() as f64,
            ),
        ];
        let line =
            |name: &str, points, is_reference| Line { name: name.to_owned(), points, is_reference };
        let flat = model.iter().map(|&(exponent, _)| (exponent, worst)).collect();
        let lines = Lines {
            title: "LevelDB under skew, 10^8 keys of 1,000 bytes".to_owned(),
            x: "Zipf exponent".to_owned(),
            y: "write amplification".to_owned(),
            series: vec![line("model", model, false), line("worst-case analysis", flat, true)],
        };
        let scale = "computed over 10^8 keys; the same at any scale".to_owned();
        Ok(Measurement { scale, checks, plot: Some(Plot::Lines(lines)) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::repro::{Verdict, run};

    #[test]
    fn claim_is_confirmed() {
        let finding = run(&LevelDbSkew, 1.0, 1, &mut |_, _| ()).unwrap();
        assert_eq!(finding.verdict, Verdict::Confirmed, "{:?}", finding.checks);
    }
}
