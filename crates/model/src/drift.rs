//! A load that changes: every `phase` requests the popularities are given to other keys.
//!
//! Let T(p) = Unique(p) / N be the share of keys that p requests of one phase touch, the same in
//! every phase. Which keys they are is independent from phase to phase, so the shares of keys that
//! are missed multiply. A window of p = m·P + r requests, with r < P, begins at a random moment of a
//! phase of P requests:
//!
//! ```text
//!                     u            P              P-u'
//!   ────────┼──────[─────┼──────────────────┼────────]───────┼──────
//!    phase         └───────── window of p requests ──┘
//!
//!   missed(p) = 1/P · ( (1 − T(P))ᵐ   · ∫₀ʳ (1 − T(u))·(1 − T(r − u)) du
//!                     + (1 − T(P))ᵐ⁻¹ · ∫ᵣᴾ (1 − T(u))·(1 − T(P + r − u)) du )
//!   Unique(p) = N · (1 − missed(p))
//! ```
//!
//! Without a whole phase in between (m = 0) the second integral is (P − r)·(1 − T(r)): the window
//! lies in one phase. The sums are arranged so that small shares keep their digits.
//!
//! Cost: about a hundred interpolated evaluations of T per Unique; a hundred times that per step of
//! `compaction_interval`. Exact to about 10⁻⁴.
//!
//! The primitives of the thesis are those of one phase (section 4.8 leaves changing loads open).

use crate::error::{InvalidParameter, within};
use crate::root_finding::solve;
use crate::{InterpolatedPopularity, Popularity, Workload};

/// Points of a numerical integration.
const POINTS: u32 = 48;

/// A workload whose popular keys change.
#[derive(Debug, Clone)]
pub struct Drift {
    phase: InterpolatedPopularity,
    /// Requests of a phase.
    requests: f64,
}

impl Drift {
    /// The popularity of every phase, and the number of requests after which it is given to other
    /// keys.
    ///
    /// # Errors
    /// [`InvalidParameter`] unless a phase has from 1 to 10¹⁵ requests.
    pub fn new(popularity: &Popularity, requests: f64) -> Result<Self, InvalidParameter> {
        within("phase", requests, 1.0, 1e15, "give a phase of 1 request to 10^15")?;
        Ok(Drift { phase: InterpolatedPopularity::new(popularity), requests })
    }

    /// The share of the keys that are touched by `requests` requests of one phase.
    fn touched_in_phase(&self, requests: f64) -> f64 {
        self.phase.unique(requests) / self.phase.keys()
    }

    /// ∫ 1 − (1 − T(u))·(1 − T(sum − u)) du over u from `low` to `high`.
    fn touched_by_two(&self, low: f64, high: f64, sum: f64) -> f64 {
        integral(low, high, |u| {
            let (first, second) = (self.touched_in_phase(u), self.touched_in_phase(sum - u));
            first + second - first * second
        })
    }
}

impl Workload for Drift {
    fn keys(&self) -> f64 {
        self.phase.keys()
    }

    fn unique(&self, requests: f64) -> f64 {
        if !requests.is_finite() {
            return self.keys();
        }
        let phase = self.requests;
        let whole = (requests / phase).floor();
        let rest = requests - whole * phase;
        let ends_meet = self.touched_by_two(0.0, rest, rest);
        let touched = if whole == 0.0 {
            (ends_meet + (phase - rest) * self.touched_in_phase(rest)) / phase
        } else {
            // 1 − (1 − T(P))ⁿ
            let log_missed = (-self.touched_in_phase(phase)).ln_1p();
            let by_whole = |phases: f64| -(phases * log_missed).exp_m1();
            let (more, fewer) = (by_whole(whole), by_whole(whole - 1.0));
            let apart = self.touched_by_two(rest, phase, phase + rest);
            let certain = more * rest + fewer * (phase - rest);
            (certain + (1.0 - more) * ends_meet + (1.0 - fewer) * apart) / phase
        };
        self.keys() * touched.min(1.0)
    }

    fn unique_inverse(&self, unique: f64) -> f64 {
        if unique >= self.keys() {
            return f64::INFINITY;
        }
        solve(unique, unique, |requests| {
            let value = self.unique(requests);
            let step = requests * 1e-4;
            (value, (self.unique(requests + step) - value) / step)
        })
    }

    fn compaction_interval(&self, size: f64) -> f64 {
        if size >= self.keys() {
            return f64::INFINITY;
        }
        solve(size, 2.0 * size, |interval| {
            let mean = integral(0.0, 1.0, |x| self.unique(interval * x));
            // From interval · mean = ∫ Unique over 0..interval.
            (mean, (self.unique(interval) - mean) / interval)
        })
    }
}

/// ∫ f over `low` to `high`, with points close together at both ends, where Unique changes most.
fn integral(low: f64, high: f64, f: impl Fn(f64) -> f64) -> f64 {
    let width = high - low;
    if width <= 0.0 {
        return 0.0;
    }
    let at = |point: u32| {
        let s = (f64::from(point) + 0.5) / f64::from(POINTS);
        let (u, weight) = (s * s * (3.0 - 2.0 * s), 6.0 * s * (1.0 - s));
        weight * f(low + width * u)
    };
    (0..POINTS).map(at).sum::<f64>() * width / f64::from(POINTS)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_near(ours: f64, exact: f64) -> bool {
        (ours / exact - 1.0).abs() < 1e-3
    }

    #[test]
    fn uniform_popularity_does_not_drift() {
        let uniform = Popularity::uniform(1e5).unwrap();
        let drift = Drift::new(&uniform, 3e4).unwrap();
        for requests in [10.0, 1e4, 2.9e4, 3.1e4, 1e5, 4e5] {
            let (ours, exact) = (drift.unique(requests), uniform.unique(requests));
            assert!(is_near(ours, exact), "{requests}: {ours} {exact}");
        }
        for size in [100.0, 1e4, 5e4] {
            assert!(is_near(drift.unique_inverse(size), uniform.unique_inverse(size)));
            assert!(is_near(drift.compaction_interval(size), uniform.compaction_interval(size)));
        }
    }

    #[test]
    fn drift_lies_between_no_drift_and_uniform_requests() {
        let (zipf, uniform) =
            (Popularity::zipf(1e5, 0.99).unwrap(), Popularity::uniform(1e5).unwrap());
        let fast = Drift::new(&zipf, 1.0).unwrap();
        assert!(is_near(fast.unique(5e4), uniform.unique(5e4)));
        let slow = Drift::new(&zipf, 1e12).unwrap();
        assert!(is_near(slow.unique(5e4), zipf.unique(5e4)));
        let mut before = uniform.unique(5e4) * 1.001;
        for phase in [1e2, 1e3, 1e4, 1e5, 1e6] {
            let unique = Drift::new(&zipf, phase).unwrap().unique(5e4);
            assert!(unique < before, "phases of {phase}");
            before = unique;
        }
        assert!(before > zipf.unique(5e4) * 0.999);
    }

    #[test]
    fn inverses_invert() {
        let drift = Drift::new(&Popularity::zipf(1e5, 0.99).unwrap(), 2e4).unwrap();
        for size in [50.0, 3e3, 4e4] {
            assert!(is_near(drift.unique(drift.unique_inverse(size)), size));
        }
        assert_eq!(drift.unique_inverse(1e5), f64::INFINITY);
        assert_eq!(
            Drift::new(&Popularity::uniform(10.0).unwrap(), 0.0).unwrap_err().parameter,
            "phase"
        );
    }
}
