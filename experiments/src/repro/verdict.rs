//! From numbers to a verdict.
//!
//! ```text
//! a check:  |ours / claimed − 1| ≤ tolerance, or better than a claimed bound .. confirmed
//!           else on the claimed side of the check's direction ................. trend confirmed
//!           else .............................................................. not confirmed
//! all checks together: the worst of them
//! ```
//!
//! Invariant: a verdict is a function of the checks' numbers alone; a number that is not finite is
//! never confirmed.

use serde::{Deserialize, Serialize};

/// The verdict on a claim, best first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Verdict {
    /// Every number is within its tolerance.
    #[serde(rename = "confirmed", alias = "holds")]
    Confirmed,
    /// Every number is at least on the claimed side.
    #[serde(rename = "trend confirmed", alias = "holds in direction")]
    TrendOnly,
    /// A number is on the wrong side, or there is none.
    #[serde(rename = "not confirmed", alias = "does not hold")]
    NotConfirmed,
}

impl Verdict {
    /// The verdict on all checks.
    pub fn of(checks: &[Check]) -> Self {
        checks.iter().map(Check::verdict).max().unwrap_or(Verdict::NotConfirmed)
    }

    /// The words that are printed.
    pub fn name(self) -> &'static str {
        match self {
            Verdict::Confirmed => "confirmed",
            Verdict::TrendOnly => "trend confirmed",
            Verdict::NotConfirmed => "not confirmed",
        }
    }
}

/// One measured number and the claimed one.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Check {
    /// Name of the compared quantity.
    pub what: String,
    /// The claimed number.
    pub claimed: f64,
    /// The measured number.
    pub ours: f64,
    /// Maximal relative difference to the claimed number.
    pub tolerance: f64,
    /// Range of the measured number that confirms the trend.
    pub direction: Direction,
}

/// Range of a measured number that confirms the trend of a claim.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// At most this number.
    AtMost(f64),
    /// At least this number.
    AtLeast(f64),
    /// None: only the tolerance decides.
    None,
}

impl Check {
    /// The verdict on this check.
    pub fn verdict(&self) -> Verdict {
        let is_on_side = match self.direction {
            _ if !self.ours.is_finite() => false,
            Direction::AtMost(most) => self.ours <= most,
            Direction::AtLeast(least) => self.ours >= least,
            Direction::None => false,
        };
        // If the claim is the bound of its direction, any number beyond it confirms the claim.
        let is_bound = match self.direction {
            Direction::AtMost(most) => most <= self.claimed,
            Direction::AtLeast(least) => least >= self.claimed,
            Direction::None => false,
        };
        if (is_on_side && is_bound) || (self.ours / self.claimed - 1.0).abs() <= self.tolerance {
            Verdict::Confirmed
        } else if is_on_side {
            Verdict::TrendOnly
        } else {
            Verdict::NotConfirmed
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(ours: f64, direction: Direction) -> Check {
        Check { what: "x".to_owned(), claimed: 4.0, ours, tolerance: 0.25, direction }
    }

    #[test]
    fn check_is_judged_by_tolerance_then_by_direction() {
        let most = |ours| check(ours, Direction::AtMost(6.0)).verdict();
        let least = |ours| check(ours, Direction::AtLeast(2.0)).verdict();
        assert_eq!([3.0, 5.0].map(most), [Verdict::Confirmed; 2]);
        assert_eq!([2.9, 5.1, 6.0].map(most), [Verdict::TrendOnly; 3]);
        assert_eq!(most(6.1), Verdict::NotConfirmed);
        assert_eq!([2.0, 9.0].map(least), [Verdict::TrendOnly; 2]);
        assert_eq!(least(1.9), Verdict::NotConfirmed);
        assert_eq!(check(5.1, Direction::None).verdict(), Verdict::NotConfirmed);
        for ours in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            assert_eq!([most(ours), least(ours)], [Verdict::NotConfirmed; 2]);
        }
    }

    #[test]
    fn number_beyond_a_claimed_bound_is_confirmed() {
        assert_eq!(check(99.0, Direction::AtLeast(4.0)).verdict(), Verdict::Confirmed);
        assert_eq!(check(0.1, Direction::AtMost(4.0)).verdict(), Verdict::Confirmed);
        assert_eq!(check(5.1, Direction::AtMost(4.0)).verdict(), Verdict::NotConfirmed);
    }

    #[test]
    fn worst_check_decides() {
        let checks = |ours: &[f64]| {
            let all: Vec<_> = ours.iter().map(|o| check(*o, Direction::AtMost(6.0))).collect();
            Verdict::of(&all)
        };
        assert_eq!(checks(&[4.0, 4.1]), Verdict::Confirmed);
        assert_eq!(checks(&[4.0, 5.9]), Verdict::TrendOnly);
        assert_eq!(checks(&[9.0, 5.9, 4.0]), Verdict::NotConfirmed);
        assert_eq!(checks(&[]), Verdict::NotConfirmed);
    }

    #[test]
    fn verdict_is_serialized_by_its_name() {
        for verdict in [Verdict::Confirmed, Verdict::TrendOnly, Verdict::NotConfirmed] {
            let written = serde_json::to_value(verdict).unwrap();
            assert_eq!(written, verdict.name());
            assert_eq!(serde_json::from_value::<Verdict>(written).unwrap(), verdict);
        }
    }
}
