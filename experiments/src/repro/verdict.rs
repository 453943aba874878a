//! From numbers to a verdict.
//!
//! ```text
//! equal              |ours / claimed − 1| ≤ tolerance ............ confirmed
//!                    else on the better side of the claim ........ differs: better
//!                    else from half of the claimed effect on ..... trend confirmed
//!                    else ........................................ not confirmed
//! at least, at most  ours ≥ claimed, ours ≤ claimed .............. confirmed, else not
//! order              ours > claimed, ours < claimed .............. confirmed, else not
//! all checks together: the worst of them
//! ```
//!
//! Invariants: a verdict is a function of the checks' numbers alone. A number that is not finite is
//! never confirmed. No trend begins below half of the claimed effect.

use serde::{Deserialize, Serialize};

/// The date of these rules. A finding that was judged by other rules has another date or none.
pub const RULES: &str = "2026-11-26";

/// The verdict on a claim, best first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Verdict {
    /// Every number is within its tolerance, its bound or its order.
    #[serde(rename = "confirmed", alias = "holds")]
    Confirmed,
    /// A number is further on the better side than a two-sided claim allows.
    #[serde(rename = "differs: better")]
    Better,
    /// A number has at least half of the claimed effect.
    #[serde(rename = "trend confirmed", alias = "holds in direction")]
    TrendOnly,
    /// A number has less than half of the claimed effect, or there is none.
    #[serde(rename = "not confirmed", alias = "does not hold")]
    NotConfirmed,
}

impl Verdict {
    /// All verdicts, best first.
    pub const ALL: [Verdict; 4] =
        [Verdict::Confirmed, Verdict::Better, Verdict::TrendOnly, Verdict::NotConfirmed];

    /// The verdict on all checks.
    pub fn of<'a>(checks: impl IntoIterator<Item = &'a Check>) -> Self {
        checks.into_iter().map(Check::verdict).max().unwrap_or(Verdict::NotConfirmed)
    }

    /// The words that are printed.
    pub fn name(self) -> &'static str {
        match self {
            Verdict::Confirmed => "confirmed",
            Verdict::Better => "differs: better",
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
    /// Relation that is claimed between the two.
    pub kind: Kind,
    /// The day on which the bar was fixed or changed last. Private: only a bar makes a check.
    bar_of: &'static str,
}

/// Relation that is claimed between a measured and a claimed number.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A two-sided claim.
    Equal {
        /// Maximal relative difference to the claimed number.
        tolerance: f64,
        /// What a difference means.
        side: Side,
    },
    /// A claim that is itself a lower bound.
    AtLeast(Origin),
    /// A claim that is itself an upper bound.
    AtMost(Origin),
    /// An order: the measured number, the ratio of two, is above the claimed one, which is 1.
    Above,
    /// An order: the measured number, the ratio of two, is below the claimed one, which is 1.
    Below,
}

/// Who set a bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// The paper states the bound as one.
    Paper,
    /// A bar of this project.
    Ours,
}

/// What a difference to a two-sided claim means.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Side {
    /// Any difference refutes the claim.
    None,
    /// Less than claimed is better.
    Less,
    /// More than claimed is better.
    More,
    /// The claim is an effect relative to this number: 1 for a ratio, 0 for a share or a rate. A
    /// larger effect is better, and half of it confirms the trend.
    Effect(f64),
    /// The same with a trend that begins later than half of the effect.
    EffectFrom {
        /// The number without the effect.
        without: f64,
        /// The first number of the trend, if it is beyond half of the effect.
        from: f64,
    },
}

impl Side {
    /// The first number that confirms the trend of `claimed`, if there is such a range.
    pub fn trend(self, claimed: f64) -> Option<f64> {
        match self {
            Side::None | Side::Less | Side::More => None,
            Side::Effect(without) => Some(f64::midpoint(without, claimed)),
            Side::EffectFrom { without, from } if claimed > without => {
                Some(f64::midpoint(without, claimed).max(from))
            }
            Side::EffectFrom { without, from } => Some(f64::midpoint(without, claimed).min(from)),
        }
    }

    fn is_better(self, claimed: f64, ours: f64) -> bool {
        match self {
            Side::None => false,
            Side::Less => ours < claimed,
            Side::More => ours > claimed,
            Side::Effect(without) | Side::EffectFrom { without, .. } if claimed > without => {
                ours > claimed
            }
            Side::Effect(_) | Side::EffectFrom { .. } => ours < claimed,
        }
    }
}

impl Check {
    /// A check of a bar that is of the day `bar_of`.
    pub(super) fn of_bar(
        what: String,
        claimed: f64,
        ours: f64,
        kind: Kind,
        bar_of: &'static str,
    ) -> Self {
        Check { what, claimed, ours, kind, bar_of }
    }

    /// The day on which the bar was fixed or changed last.
    pub fn dated(&self) -> &'static str {
        self.bar_of
    }

    /// The verdict on this check.
    pub fn verdict(&self) -> Verdict {
        let Check { claimed, ours, .. } = *self;
        if !ours.is_finite() || !claimed.is_finite() {
            return Verdict::NotConfirmed;
        }
        let confirmed = |holds| if holds { Verdict::Confirmed } else { Verdict::NotConfirmed };
        match self.kind {
            Kind::AtLeast(_) => confirmed(ours >= claimed),
            Kind::AtMost(_) => confirmed(ours <= claimed),
            Kind::Above => confirmed(ours > claimed),
            Kind::Below => confirmed(ours < claimed),
            Kind::Equal { tolerance, side } => {
                let is_of_trend =
                    |from: f64| (from.min(claimed)..=from.max(claimed)).contains(&ours);
                if (ours / claimed - 1.0).abs() <= tolerance {
                    Verdict::Confirmed
                } else if side.is_better(claimed, ours) {
                    Verdict::Better
                } else if side.trend(claimed).is_some_and(is_of_trend) {
                    Verdict::TrendOnly
                } else {
                    Verdict::NotConfirmed
                }
            }
        }
    }

    /// Whether the check is a bar of this project instead of a claim of a paper.
    pub fn is_our_bar(&self) -> bool {
        matches!(self.kind, Kind::AtLeast(Origin::Ours) | Kind::AtMost(Origin::Ours))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(ours: f64, kind: Kind) -> Check {
        Check::of_bar("x".to_owned(), 4.0, ours, kind, "2026-11-21")
    }

    fn equal(ours: f64, side: Side) -> Verdict {
        check(ours, Kind::Equal { tolerance: 0.25, side }).verdict()
    }

    #[test]
    fn two_sided_claim_is_judged_on_both_sides() {
        for side in [Side::None, Side::Less, Side::More, Side::Effect(1.0), Side::Effect(7.0)] {
            assert_eq!([3.0, 4.0, 5.0].map(|ours| equal(ours, side)), [Verdict::Confirmed; 3]);
        }
        assert_eq!([2.9, 5.1].map(|ours| equal(ours, Side::None)), [Verdict::NotConfirmed; 2]);
        assert_eq!(
            [2.9, 5.1].map(|ours| equal(ours, Side::Less)),
            [Verdict::Better, Verdict::NotConfirmed]
        );
        assert_eq!(
            [2.9, 5.1].map(|ours| equal(ours, Side::More)),
            [Verdict::NotConfirmed, Verdict::Better]
        );
    }

    #[test]
    fn trend_begins_at_half_of_the_effect_or_later() {
        let rise = |ours| equal(ours, Side::Effect(1.0));
        assert_eq!(
            [2.49, 2.5, 2.9].map(rise),
            [Verdict::NotConfirmed, Verdict::TrendOnly, Verdict::TrendOnly]
        );
        assert_eq!([5.1, 99.0].map(rise), [Verdict::Better; 2]);
        let fall = |ours| equal(ours, Side::Effect(8.0));
        assert_eq!(
            [6.1, 6.0, 5.1].map(fall),
            [Verdict::NotConfirmed, Verdict::TrendOnly, Verdict::TrendOnly]
        );
        assert_eq!(fall(1.0), Verdict::Better);
        let from = |from| Side::EffectFrom { without: 1.0, from }.trend(4.0);
        assert_eq!([1.5, 2.8].map(from), [Some(2.5), Some(2.8)]);
        let from = |from| Side::EffectFrom { without: 8.0, from }.trend(4.0);
        assert_eq!([7.0, 5.5].map(from), [Some(6.0), Some(5.5)]);
    }

    #[test]
    fn bound_includes_its_number_and_order_does_not() {
        let of =
            |kind| [3.9, 4.0, 4.1].map(|ours| check(ours, kind).verdict() == Verdict::Confirmed);
        for origin in [Origin::Paper, Origin::Ours] {
            assert_eq!(of(Kind::AtLeast(origin)), [false, true, true]);
            assert_eq!(of(Kind::AtMost(origin)), [true, true, false]);
        }
        assert_eq!(of(Kind::Above), [false, false, true]);
        assert_eq!(of(Kind::Below), [true, false, false]);
    }

    #[test]
    fn number_that_is_not_finite_is_never_confirmed() {
        let equal = Kind::Equal { tolerance: f64::INFINITY, side: Side::Effect(1.0) };
        let bounds = [Kind::AtLeast(Origin::Ours), Kind::AtMost(Origin::Paper)];
        for kind in bounds.into_iter().chain([equal, Kind::Above, Kind::Below]) {
            for ours in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
                assert_eq!(check(ours, kind).verdict(), Verdict::NotConfirmed);
            }
        }
    }

    #[test]
    fn worst_check_decides() {
        let kind = Kind::Equal { tolerance: 0.25, side: Side::Effect(1.0) };
        let checks = |ours: &[f64]| {
            let all: Vec<_> = ours.iter().map(|o| check(*o, kind)).collect();
            Verdict::of(&all)
        };
        assert_eq!(checks(&[4.0, 4.1]), Verdict::Confirmed);
        assert_eq!(checks(&[4.0, 9.0]), Verdict::Better);
        assert_eq!(checks(&[9.0, 2.6]), Verdict::TrendOnly);
        assert_eq!(checks(&[9.0, 2.6, 1.0]), Verdict::NotConfirmed);
        assert_eq!(checks(&[]), Verdict::NotConfirmed);
    }

    #[test]
    fn verdict_is_serialized_by_its_name_and_read_by_older_ones() {
        for verdict in Verdict::ALL {
            let written = serde_json::to_value(verdict).unwrap();
            assert_eq!(written, verdict.name());
            assert_eq!(serde_json::from_value::<Verdict>(written).unwrap(), verdict);
        }
        let read = |name: &str| serde_json::from_value::<Verdict>(name.into()).unwrap();
        assert_eq!(
            ["holds", "holds in direction", "does not hold"].map(read),
            [Verdict::Confirmed, Verdict::TrendOnly, Verdict::NotConfirmed]
        );
    }
}
