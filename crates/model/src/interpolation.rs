//! The primitives by interpolation, for optimisers that evaluate them thousands of times.
//!
//! Under Zipf each of Unique, its inverse and DInterval costs one or more sums over about 2,000
//! groups. On logarithmic axes the sums are smooth, so they are computed once at evenly spaced
//! points, with their first and second derivatives, and joined by quintic Hermite polynomials:
//!
//! ```text
//!  ln Unique(p) │           ___•———•———   value, slope and curvature are
//!               │       _•‾‾              exact at each •
//!               │    •‾‾
//!               └──────────────────────── ln p, a point every 1/16
//! ```
//!
//! The inverses use the same polynomials, so they invert to the last digits. Where a table would
//! not be exact enough (below one request, and for the last 0.05 % of the keys) the exact sums are
//! used. A uniform popularity needs no table: its sums have one term.
//!
//! Invariant: within 10⁻¹⁰ of the exact primitives, relatively (tested over skews and sizes).
//! Cost: 400 to 1,000 sums to build (tens of milliseconds), then two logarithms and a search per
//! evaluation.
//!
//! Compare the thesis, section 4.2.3: piecewise linear tables, which need more points.

use crate::popularity::Group;
use crate::primitives::mean_touched;
use crate::{Popularity, Workload};

/// Points per unit of ln p.
const POINTS: f64 = 16.0;
/// Sizes above this share of all keys are computed exactly: there, a tiny difference in keys is a
/// large difference in requests.
const MAX_TABULATED_SHARE: f64 = 0.9995;

/// A popularity whose primitives are interpolated.
#[derive(Debug, Clone)]
pub struct InterpolatedPopularity {
    exact: Popularity,
    /// `None` for a single group, whose exact primitives are faster.
    curves: Option<Curves>,
}

#[derive(Debug, Clone)]
struct Curves {
    /// ln Unique by ln requests.
    unique: Curve,
    /// ln of the mean density by ln interval.
    density: Curve,
}

impl InterpolatedPopularity {
    /// Tabulates `popularity`.
    pub fn new(popularity: &Popularity) -> Self {
        let groups = &popularity.groups;
        let curves = (groups.len() > 1).then(|| {
            let slowest = groups.iter().map(|group| group.rate).fold(f64::INFINITY, f64::min);
            // The rarest key has then been requested 50 times: Unique is N to the last digit.
            let last = (50.0 / slowest).ln();
            Curves {
                unique: Curve::new(last, |p| sums(groups, p, touched)),
                // The mean approaches N as 1/requests, so its table must be longer.
                density: Curve::new(last + 4.0, |p| sums(groups, p, mean_touched_with_curvature)),
            }
        });
        InterpolatedPopularity { exact: popularity.clone(), curves }
    }

    fn is_tabulated(&self, keys: f64) -> bool {
        keys <= MAX_TABULATED_SHARE * self.exact.keys()
    }
}

impl Workload for InterpolatedPopularity {
    fn keys(&self) -> f64 {
        self.exact.keys()
    }

    fn unique(&self, requests: f64) -> f64 {
        let looked_up = self.curves.as_ref().and_then(|curves| curves.unique.at(requests.ln()));
        looked_up.map_or_else(|| self.exact.unique(requests), f64::exp)
    }

    fn unique_inverse(&self, unique: f64) -> f64 {
        let curves = self.curves.as_ref().filter(|_| self.is_tabulated(unique));
        let looked_up = curves.and_then(|curves| curves.unique.inverse(unique.ln()));
        looked_up.map_or_else(|| self.exact.unique_inverse(unique), f64::exp)
    }

    fn compaction_interval(&self, size: f64) -> f64 {
        let curves = self.curves.as_ref().filter(|_| self.is_tabulated(size));
        let looked_up = curves.and_then(|curves| curves.density.inverse(size.ln()));
        looked_up.map_or_else(|| self.exact.compaction_interval(size), f64::exp)
    }
}

/// 1 − e^(−z) with its first two derivatives.
fn touched(z: f64) -> [f64; 3] {
    let missed = (-z).exp();
    [-(-z).exp_m1(), missed, -missed]
}

/// The mean of 1 − e^(−x) over x in 0..z, with its first two derivatives.
fn mean_touched_with_curvature(z: f64) -> [f64; 3] {
    let (mean, slope) = mean_touched(z);
    // From z·mean' + mean = 1 − e^(−z), differentiated once more.
    let curvature = if z < 1e-2 {
        -1.0 / 3.0 + z / 4.0 - z * z / 10.0 + z * z * z / 36.0
    } else {
        ((-z).exp() - 2.0 * slope) / z
    };
    [mean, slope, curvature]
}

/// Σ keys·f(λp) and its first two derivatives by p.
fn sums(groups: &[Group], p: f64, f: impl Fn(f64) -> [f64; 3]) -> [f64; 3] {
    let mut sums = [0.0; 3];
    for group in groups {
        let mut weight = group.keys;
        for (sum, value) in sums.iter_mut().zip(f(group.rate * p)) {
            *sum += weight * value;
            weight *= group.rate;
        }
    }
    sums
}

/// An increasing function on logarithmic axes, as value, slope and curvature at evenly spaced
/// points from ln 1 = 0.
#[derive(Debug, Clone)]
struct Curve {
    points: Vec<[f64; 3]>,
}

impl Curve {
    /// `f` is a function of requests with its first two derivatives; `last` is ln requests at the
    /// end of the table.
    fn new(last: f64, f: impl Fn(f64) -> [f64; 3]) -> Self {
        let count = (last * POINTS).ceil() as usize + 1;
        let point = |i: usize| {
            let p = (i as f64 / POINTS).exp();
            let [value, slope, curvature] = f(p);
            // To logarithmic axes, then scaled to the distance between two points.
            let first = p * slope / value;
            let second = first + p * p * curvature / value - first * first;
            [value.ln(), first / POINTS, second / (POINTS * POINTS)]
        };
        Curve { points: (0..count).map(point).collect() }
    }

    /// The value at `x`; `None` outside the table.
    fn at(&self, x: f64) -> Option<f64> {
        let cell = (x * POINTS).floor();
        if !(0.0..(self.points.len() - 1) as f64).contains(&cell) {
            return None;
        }
        let polynomial = self.polynomial(cell as usize);
        Some(value_and_slope(&polynomial, x * POINTS - cell).0)
    }

    /// The position at which the curve reaches `y`; `None` outside the table.
    fn inverse(&self, y: f64) -> Option<f64> {
        let cell = self.points.partition_point(|point| point[0] <= y).checked_sub(1)?;
        let (low, high) = (self.points[cell][0], self.points.get(cell + 1)?[0]);
        let polynomial = self.polynomial(cell);
        let mut t = (y - low) / (high - low);
        for _ in 0..8 {
            let (value, slope) = value_and_slope(&polynomial, t);
            let step = (value - y) / slope;
            t = (t - step).clamp(0.0, 1.0);
            if step.abs() < 1e-15 {
                break;
            }
        }
        Some((cell as f64 + t) / POINTS)
    }

    /// The polynomial over t in 0..1 that has the values, slopes and curvatures of both ends.
    fn polynomial(&self, cell: usize) -> [f64; 6] {
        let ([a, a1, a2], [b, b1, b2]) = (self.points[cell], self.points[cell + 1]);
        let rise = b - a;
        [
            a,
            a1,
            a2 / 2.0,
            10.0 * rise - 6.0 * a1 - 4.0 * b1 - 1.5 * a2 + 0.5 * b2,
            -15.0 * rise + 8.0 * a1 + 7.0 * b1 + 1.5 * a2 - b2,
            6.0 * rise - 3.0 * (a1 + b1) - 0.5 * (a2 - b2),
        ]
    }
}

fn value_and_slope(c: &[f64; 6], t: f64) -> (f64, f64) {
    let value = c.iter().rev().fold(0.0, |sum, c| sum * t + c);
    let slope = (1..6).rev().fold(0.0, |sum, i| sum * t + i as f64 * c[i]);
    (value, slope)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The error bound of the module's documentation.
    const BOUND: f64 = 1e-10;

    fn difference(ours: f64, exact: f64) -> f64 {
        if ours == exact { 0.0 } else { (ours / exact - 1.0).abs() }
    }

    #[test]
    fn tables_agree_with_exact_sums() {
        for (keys, skew) in
            [(100.0, 0.99), (1e4, 2.0), (1e6, 0.1), (1e8, 0.5), (1e8, 0.99), (1e8, 1.6), (1e9, 1.2)]
        {
            let exact = Popularity::zipf(keys, skew).unwrap();
            let tabulated = InterpolatedPopularity::new(&exact);
            for step in 0..400 {
                let p = f64::powf(10.0, f64::from(step) / 20.0 - 2.0);
                let off = difference(tabulated.unique(p), exact.unique(p));
                assert!(off < BOUND, "Unique({p}) of {keys} keys, skew {skew}: {off:e} off");
            }
            for step in 1..200 {
                // From a millionth of the keys up to all but a millionth.
                let share = f64::from(step) / 200.0;
                let logit = f64::powf(10.0, 12.0 * share - 6.0);
                let size = keys * logit / (1.0 + logit);
                // Near all keys, requests as a function of keys are so steep that the sums
                // themselves differ by more than the bound when keys change by one unit in the last
                // place.
                let bound = BOUND / (1.0 - size / keys).min(0.1);
                for (name, ours, theirs) in [
                    ("Unique⁻¹", tabulated.unique_inverse(size), exact.unique_inverse(size)),
                    (
                        "DInterval",
                        tabulated.compaction_interval(size),
                        exact.compaction_interval(size),
                    ),
                ] {
                    let off = difference(ours, theirs);
                    assert!(off < bound, "{name}({size}) of {keys}, skew {skew}: {off:e} off");
                }
            }
        }
    }

    #[test]
    fn all_keys_take_infinitely_many_requests() {
        for popularity in [Popularity::uniform(1e6).unwrap(), Popularity::zipf(1e6, 0.99).unwrap()]
        {
            let tabulated = InterpolatedPopularity::new(&popularity);
            assert_eq!(tabulated.unique_inverse(1e6), f64::INFINITY);
            assert_eq!(tabulated.compaction_interval(1e6), f64::INFINITY);
            assert_eq!(tabulated.unique(f64::INFINITY), 1e6);
        }
    }

    proptest! {
        #[test]
        fn merge_agrees_with_exact_sums(
            keys in 100.0f64..1e8, skew in 0.0f64..1.6, a in 0.001f64..0.999, b in 0.001f64..0.999,
        ) {
            let exact = Popularity::zipf(keys, skew).unwrap();
            let tabulated = InterpolatedPopularity::new(&exact);
            let (u, v) = (a * exact.keys(), b * exact.keys());
            prop_assert!(difference(tabulated.merge(u, v), exact.merge(u, v)) < BOUND);
        }
    }
}
