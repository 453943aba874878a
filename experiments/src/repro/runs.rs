//! Several runs of an experiment as one list of checks.
//!
//! Invariant: the number that is judged is the median of the runs; a run without a finite number
//! makes the median not a number, which is never confirmed.

use serde::Serialize;

use super::{Check, Verdict};

/// Number of runs unless another is given.
pub const RUNS: usize = 5;

/// The runs of one check.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Spread {
    /// The smallest measured number.
    pub smallest: f64,
    /// The largest measured number.
    pub largest: f64,
    /// The share of runs in which the check was confirmed.
    pub held: f64,
}

/// The medians of the checks of all runs, each with its spread; `None` if there is no run, or two
/// runs have different checks.
pub(super) fn medians(runs: &[Vec<Check>]) -> Option<(Vec<Check>, Vec<Spread>)> {
    let first = runs.first()?;
    if runs.iter().any(|run| run.len() != first.len()) {
        return None;
    }
    Some((0..first.len()).map(|at| of_check(runs.iter().map(|run| &run[at]))).unzip())
}

fn of_check<'a>(runs: impl Iterator<Item = &'a Check> + Clone) -> (Check, Spread) {
    let ours: Vec<f64> = runs.clone().map(|check| check.ours).collect();
    let confirmed = runs.clone().filter(|check| check.verdict() == Verdict::Confirmed).count();
    let mut all = runs.clone();
    let mut middle = all.next().cloned().unwrap_or_else(|| unreachable!("there is a run"));
    middle.ours = median(&ours);
    // Some claims are computed from the run.
    middle.claimed = median(&runs.map(|check| check.claimed).collect::<Vec<_>>());
    let spread = Spread {
        smallest: ours.iter().copied().fold(f64::INFINITY, f64::min),
        largest: ours.iter().copied().fold(f64::NEG_INFINITY, f64::max),
        held: confirmed as f64 / ours.len() as f64,
    };
    (middle, spread)
}

fn median(numbers: &[f64]) -> f64 {
    if numbers.iter().any(|number| !number.is_finite()) {
        return f64::NAN;
    }
    let mut sorted = numbers.to_vec();
    sorted.sort_by(f64::total_cmp);
    f64::midpoint(sorted[(sorted.len() - 1) / 2], sorted[sorted.len() / 2])
}

#[cfg(test)]
mod tests {
    use super::super::{Kind, Origin};
    use super::*;

    fn run(ours: f64) -> Vec<Check> {
        let kind = Kind::AtLeast(Origin::Paper);
        vec![Check::of_bar("x".to_owned(), 2.0, ours, kind, "2026-11-21")]
    }

    #[test]
    fn median_and_spread_are_of_all_runs() {
        let (checks, spread) = medians(&[1.0, 9.0, 3.0, 2.0, 1.5].map(run)).unwrap();
        assert_eq!(checks[0].ours, 2.0);
        assert_eq!(spread, [Spread { smallest: 1.0, largest: 9.0, held: 0.6 }]);
        assert_eq!(medians(&[1.0, 2.0].map(run)).unwrap().0[0].ours, 1.5);
    }

    #[test]
    fn run_without_a_number_leaves_no_median() {
        let (checks, spread) = medians(&[3.0, f64::NAN, 4.0].map(run)).unwrap();
        assert_eq!(checks[0].verdict(), Verdict::NotConfirmed);
        assert_eq!(spread[0].held, 2.0 / 3.0);
        assert!(medians(&[]).is_none() && medians(&[run(1.0), vec![]]).is_none());
    }
}
