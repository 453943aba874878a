//! From numbers to a verdict.
//!
//! ```text
//! a check:  |ours / claimed − 1| ≤ tolerance ........ holds
//!           or better than a claimed bound ........... holds
//!           else ours lies where its direction says .. holds in direction
//!           else ..................................... does not hold
//! all checks together: the worst of them
//! ```
//!
//! Invariant: a verdict is a function of the checks' numbers alone; a number that is not finite
//! never holds.
//!
//! Source: ours.

use serde::{Deserialize, Serialize};

/// What the numbers say, best first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Verdict {
    /// Every number is within its tolerance.
    #[serde(rename = "holds")]
    Holds,
    /// Every number is at least on the side that the claim is about.
    #[serde(rename = "holds in direction")]
    HoldsInDirection,
    /// A number is not, or there is none.
    #[serde(rename = "does not hold")]
    DoesNotHold,
}

impl Verdict {
    /// The verdict on all checks.
    pub fn of(checks: &[Check]) -> Self {
        checks.iter().map(Check::verdict).max().unwrap_or(Verdict::DoesNotHold)
    }

    /// In words.
    pub fn name(self) -> &'static str {
        match self {
            Verdict::Holds => "holds",
            Verdict::HoldsInDirection => "holds in direction",
            Verdict::DoesNotHold => "does not hold",
        }
    }
}

/// One number of ours against one of the claim's.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Check {
    /// What is compared.
    pub what: String,
    /// The claim's number.
    pub claimed: f64,
    /// Ours.
    pub ours: f64,
    /// How far ours may be from it, as a share of the claim's.
    pub tolerance: f64,
    /// Where ours must be for the claim to hold in direction.
    pub direction: Direction,
}

/// On which side of which number a claim holds in direction.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// Not above this.
    AtMost(f64),
    /// Not below this.
    AtLeast(f64),
    /// Nowhere: the number alone counts.
    None,
}

impl Check {
    /// The verdict on this number.
    pub fn verdict(&self) -> Verdict {
        let is_on_side = match self.direction {
            _ if !self.ours.is_finite() => false,
            Direction::AtMost(most) => self.ours <= most,
            Direction::AtLeast(least) => self.ours >= least,
            Direction::None => false,
        };
        // A claim that is itself the bound of its direction holds for whatever is beyond it.
        let is_bound = match self.direction {
            Direction::AtMost(most) => most <= self.claimed,
            Direction::AtLeast(least) => least >= self.claimed,
            Direction::None => false,
        };
        if (is_on_side && is_bound) || (self.ours / self.claimed - 1.0).abs() <= self.tolerance {
            Verdict::Holds
        } else if is_on_side {
            Verdict::HoldsInDirection
        } else {
            Verdict::DoesNotHold
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
    fn a_number_is_judged_by_its_tolerance_and_then_by_its_side() {
        let most = |ours| check(ours, Direction::AtMost(6.0)).verdict();
        let least = |ours| check(ours, Direction::AtLeast(2.0)).verdict();
        assert_eq!([3.0, 5.0].map(most), [Verdict::Holds; 2]);
        assert_eq!([2.9, 5.1, 6.0].map(most), [Verdict::HoldsInDirection; 3]);
        assert_eq!(most(6.1), Verdict::DoesNotHold);
        assert_eq!([2.0, 9.0].map(least), [Verdict::HoldsInDirection; 2]);
        assert_eq!(least(1.9), Verdict::DoesNotHold);
        assert_eq!(check(5.1, Direction::None).verdict(), Verdict::DoesNotHold);
        for ours in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            assert_eq!([most(ours), least(ours)], [Verdict::DoesNotHold; 2]);
        }
    }

    #[test]
    fn a_bound_that_is_beaten_holds() {
        assert_eq!(check(99.0, Direction::AtLeast(4.0)).verdict(), Verdict::Holds);
        assert_eq!(check(0.1, Direction::AtMost(4.0)).verdict(), Verdict::Holds);
        assert_eq!(check(5.1, Direction::AtMost(4.0)).verdict(), Verdict::DoesNotHold);
    }

    #[test]
    fn the_worst_check_decides() {
        let checks = |ours: &[f64]| {
            let all: Vec<_> = ours.iter().map(|o| check(*o, Direction::AtMost(6.0))).collect();
            Verdict::of(&all)
        };
        assert_eq!(checks(&[4.0, 4.1]), Verdict::Holds);
        assert_eq!(checks(&[4.0, 5.9]), Verdict::HoldsInDirection);
        assert_eq!(checks(&[9.0, 5.9, 4.0]), Verdict::DoesNotHold);
        assert_eq!(checks(&[]), Verdict::DoesNotHold);
    }

    #[test]
    fn a_verdict_is_written_as_it_is_called() {
        for verdict in [Verdict::Holds, Verdict::HoldsInDirection, Verdict::DoesNotHold] {
            let written = serde_json::to_value(verdict).unwrap();
            assert_eq!(written, verdict.name());
            assert_eq!(serde_json::from_value::<Verdict>(written).unwrap(), verdict);
        }
    }
}
