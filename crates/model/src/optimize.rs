//! Level sizes of minimal write amplification.
//!
//! The variables are the logarithms of the size of the first level and of each level's growth
//! factor, so sizes are positive and ascending by construction; one constraint keeps the last size
//! below the number of keys. Two formulations are minimised and the better result is used: over the
//! sizes themselves (primal), and over Unique⁻¹ of the sizes (dual), in which a skewed popularity
//! is closer to linear.
//!
//! The search is COBYLA (linear approximations, no derivatives), restarted from its own optimum
//! until that gains nothing. It uses interpolated primitives ([`InterpolatedPopularity`]); the
//! result is computed with the exact sums.
//!
//! Source: Lim, thesis, section 4.6 (there with Ipopt).

use std::cell::Cell;

use crate::error::{InvalidParameter, within};
use crate::{Breakdown, InterpolatedPopularity, LevelDb, Popularity, Workload};

/// The best level sizes found.
#[derive(Debug, Clone, PartialEq)]
pub struct Optimum {
    /// The design with these sizes.
    pub design: LevelDb,
    /// Its write amplification.
    pub write_amplification: Breakdown,
    /// Number of evaluations of the model.
    pub evaluations: u64,
}

/// Minimal growth from one level to the next, as a logarithm.
const MIN_GROWTH: f64 = 1e-3;
/// Upper limit of an optimised level, as a share of all keys. A level of that size is almost never
/// compacted: the optimum would have one level less.
const HEADROOM: f64 = 0.999;
const EVALUATIONS_PER_ROUND: usize = 3000;
const MAX_ROUNDS: usize = 12;

/// The level sizes of minimal write amplification for `levels` levels (without level 0), of which
/// the last contains every key.
///
/// # Errors
/// [`InvalidParameter`].
pub fn optimize_levels(
    popularity: &Popularity,
    log_items: f64,
    level0_tables: f64,
    levels: usize,
) -> Result<Optimum, InvalidParameter> {
    let most = popularity.keys();
    within("levels", levels as f64, 1.0, 20.0, "give 1 to 20 levels")?;
    within("log_items", log_items, 1.0, most, "give a log of 1 item to N")?;
    within("level0_tables", level0_tables, 1.0, 1e6, "give 1 table or more")?;
    let workload = InterpolatedPopularity::new(popularity);
    let search = Search { workload, log_items, level0_tables, evaluations: Cell::new(0) };
    // Start with a geometric progression from the log to the last level.
    let growth = (most / log_items).ln() / levels as f64;
    let sizes: Vec<f64> = (1..levels).map(|l| log_items * (growth * l as f64).exp()).collect();
    let forms = [search.minimize(&sizes, Form::Primal), search.minimize(&sizes, Form::Dual)];
    let costs = |sizes: &Vec<f64>| search.cost(sizes);
    let best = forms.into_iter().min_by(|a, b| costs(a).total_cmp(&costs(b))).unwrap_or(sizes);
    let design = search.design(best);
    let write_amplification = design.write_amplification(popularity)?;
    Ok(Optimum { design, write_amplification, evaluations: search.evaluations.get() })
}

#[derive(Clone, Copy, PartialEq)]
enum Form {
    Primal,
    Dual,
}

struct Search {
    workload: InterpolatedPopularity,
    log_items: f64,
    level0_tables: f64,
    evaluations: Cell<u64>,
}

impl Search {
    fn design(&self, level_items: Vec<f64>) -> LevelDb {
        LevelDb { log_items: self.log_items, level0_tables: self.level0_tables, level_items }
    }

    /// Write amplification of these sizes; `f64::MAX` for invalid ones.
    fn cost(&self, sizes: &[f64]) -> f64 {
        self.evaluations.set(self.evaluations.get() + 1);
        self.design(sizes.to_vec()).total(&self.workload).unwrap_or(f64::MAX)
    }

    fn minimize(&self, from: &[f64], form: Form) -> Vec<f64> {
        if from.is_empty() {
            return Vec::new();
        }
        let mut best = from.to_vec();
        let mut step = 0.5;
        for _ in 0..MAX_ROUNDS {
            let found = self.round(&best, form, step);
            let gained = self.cost(&best) - self.cost(&found);
            if gained > 0.0 {
                best = found;
            }
            if gained < 1e-7 {
                if step < 0.01 {
                    break;
                }
                step /= 4.0;
            }
        }
        best
    }

    /// One run of COBYLA that starts from the sizes `from`.
    fn round(&self, from: &[f64], form: Form, step: f64) -> Vec<f64> {
        let end = self.in_form(HEADROOM * self.workload.keys(), form).ln();
        let start = self.variables(from, form);
        let objective = |x: &[f64], (): &mut ()| self.cost(&self.sizes(x, form));
        let below_end = |x: &[f64], (): &mut ()| end - x.iter().sum::<f64>();
        let mut bounds = vec![(MIN_GROWTH, 50.0); start.len()];
        // A level of one item or more.
        bounds[0] = (0.0, 50.0);
        let outcome = cobyla::minimize(
            objective,
            &start,
            &bounds,
            &[below_end],
            (),
            EVALUATIONS_PER_ROUND,
            cobyla::RhoBeg::All(step),
            Some(cobyla::StopTols { ftol_rel: 1e-10, xtol_rel: 1e-9, ..Default::default() }),
        );
        let x = match outcome {
            Ok((_, x, _)) | Err((_, x, _)) => x,
        };
        self.sizes(&x, form)
    }

    fn variables(&self, sizes: &[f64], form: Form) -> Vec<f64> {
        let logs: Vec<f64> = sizes.iter().map(|&size| self.in_form(size, form).ln()).collect();
        let growths = logs.windows(2).map(|pair| pair[1] - pair[0]);
        logs.first().copied().into_iter().chain(growths).collect()
    }

    fn sizes(&self, variables: &[f64], form: Form) -> Vec<f64> {
        let mut log = 0.0;
        let sizes = variables.iter().map(|variable| {
            log += variable;
            match form {
                Form::Primal => log.exp(),
                Form::Dual => self.workload.unique(log.exp()),
            }
        });
        sizes.map(|size| size.min(HEADROOM * self.workload.keys())).collect()
    }

    fn in_form(&self, size: f64, form: Form) -> f64 {
        match form {
            Form::Primal => size,
            Form::Dual => self.workload.unique_inverse(size),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG_ITEMS: f64 = 4.0 * 1_048_576.0 / 1000.0;

    #[test]
    fn table_4_1_with_optimisation_is_reproduced() {
        let uniform = Popularity::uniform(1e8).unwrap();
        let optimum = optimize_levels(&uniform, LOG_ITEMS, 4.0, 5).unwrap();
        let total = optimum.write_amplification.total();
        assert!(total <= 23.68, "{optimum:?}");
        // No neighbouring sizes are better.
        for level in 0..4 {
            for factor in [0.95, 1.05] {
                let mut other = optimum.design.clone();
                other.level_items[level] *= factor;
                assert!(other.write_amplification(&uniform).unwrap().total() >= total - 1e-9);
            }
        }
    }

    #[test]
    fn skew_makes_the_first_level_smaller() {
        let first = |skew| {
            let popularity = Popularity::zipf(1e7, skew).unwrap();
            optimize_levels(&popularity, LOG_ITEMS, 4.0, 4).unwrap().design.level_items[0]
        };
        assert!(first(0.99) < first(0.0));
    }

    #[test]
    fn one_level_has_no_sizes_to_optimise() {
        let uniform = Popularity::uniform(1e6).unwrap();
        assert!(optimize_levels(&uniform, 1e3, 4.0, 1).unwrap().design.level_items.is_empty());
        assert_eq!(optimize_levels(&uniform, 1e3, 4.0, 0).unwrap_err().parameter, "levels");
        assert_eq!(optimize_levels(&uniform, -1.0, 4.0, 3).unwrap_err().parameter, "log_items");
    }
}
