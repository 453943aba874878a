//! `ect-knobs`: the trade-off between size and time by the two parameters of an entropy-coded trie.
//!
//! The keys per bucket (g) and the largest subtrie with a Huffman code (hmax) vary, each with the
//! other fixed. The thesis's text gives one point and the trends: fewer keys per bucket cost bits
//! and save time; hmax has little effect beyond a moderate value. Sizes are counted; times are
//! compared within the run.
//!
//! Ours differs for small hmax: larger numbers are coded in exponential Golomb of a suitable order
//! instead of Elias gamma, which loses less.
//!
//! Invariant: all points use the same keys.
//!
//! Source: Lim, thesis (2015), section 3.3.5, figures 3.10 and 3.11.

use siltstone_bench::plot::{Line, Lines, Plot};
use siltstone_engine::Result;
use siltstone_structures::ect::{EctOptions, HashKey};

use super::bars::bar;
use super::{Check, Experiment, Measurement, hashes};

const KEYS: f64 = 2_000_000.0;
/// Wide steps, so that times differ by more than noise.
const BUCKETS: [u32; 4] = [16, 64, 256, 1_024];
const HMAX: [u32; 5] = [1, 4, 8, 16, 64];

pub(super) struct EctKnobs;

/// A value of a parameter, with its costs.
#[derive(Clone, Copy)]
struct Point {
    knob: u32,
    bits: f64,
    nanoseconds: f64,
}

impl Point {
    fn measure(hashes: &[HashKey], knob: u32, options: EctOptions) -> Result<Self> {
        let built = hashes::build(hashes, &options)?;
        Ok(Self { knob, bits: built.bits(), nanoseconds: built.lookup_nanoseconds(hashes) })
    }
}

impl Experiment for EctKnobs {
    fn id(&self) -> &'static str {
        "ect-knobs"
    }

    fn paper(&self) -> &'static str {
        "Lim, Resource-Efficient Data-Intensive System Designs, 2015"
    }

    fn figure(&self) -> &'static str {
        "figures 3.10 and 3.11"
    }

    fn claim(&self) -> &'static str {
        "2.5 bits per key at g = 256, more bits and faster lookups below; diminishing returns of hmax, \
         8 to 64 being small as well as fast"
    }

    fn run(&self, scale: f64, progress: &mut dyn FnMut(u64, u64)) -> Result<Measurement> {
        let keys = (KEYS * scale).round().max(10_000.0) as u64;
        let hashes = hashes::sorted(keys);
        let total = (BUCKETS.len() + HMAX.len()) as u64;
        let default = EctOptions::default();
        let (mut by_g, mut by_hmax) = (Vec::new(), Vec::new());
        for keys_per_bucket in BUCKETS {
            let options = EctOptions { keys_per_bucket, ..default };
            by_g.push(Point::measure(&hashes, keys_per_bucket, options)?);
            progress(by_g.len() as u64, total);
        }
        for hmax in HMAX {
            by_hmax.push(Point::measure(&hashes, hmax, EctOptions { hmax, ..default })?);
            progress((by_g.len() + by_hmax.len()) as u64, total);
        }
        let checks = checks(&by_g, &by_hmax);
        let line = |name: &str, points: &[Point], is_reference| Line {
            name: name.to_owned(),
            points: points.iter().map(|point| (point.nanoseconds / 1e3, point.bits)).collect(),
            is_reference,
        };
        let lines = Lines {
            title: "Size against time of lookups of entropy-coded tries".to_owned(),
            x: "microseconds per lookup".to_owned(),
            y: "bits per key".to_owned(),
            series: vec![line("g from 16 to 1024", &by_g, false)],
        };
        Ok(Measurement { scale: format!("{keys} keys"), checks, plot: Some(Plot::Lines(lines)) })
    }
}

fn checks(by_g: &[Point], by_hmax: &[Point]) -> Vec<Check> {
    let share_of_steps = |points: &[Point], condition: fn(Point, Point) -> bool| {
        let steps = points.windows(2).filter(|pair| condition(pair[0], pair[1])).count();
        steps as f64 / (points.len() - 1) as f64
    };
    let at = |points: &[Point], knob| {
        points.iter().find(|point| point.knob == knob).map_or(f64::NAN, |point| point.bits)
    };
    let saved = (at(by_hmax, 1) - at(by_hmax, 8)) / (at(by_hmax, 1) - at(by_hmax, 64));
    vec![
        bar("ect-knobs", "bits").check("bits per key at g = 256", at(by_g, 256)),
        bar("ect-knobs", "bits-by-g").check(
            "share of steps from g = 16 to 1024 that save bits",
            share_of_steps(by_g, |one, next| next.bits < one.bits),
        ),
        bar("ect-knobs", "time-by-g").check(
            "share of steps from g = 16 to 1024 that slow lookups",
            share_of_steps(by_g, |one, next| next.nanoseconds > one.nanoseconds),
        ),
        bar("ect-knobs", "bits-by-hmax").check(
            "share of steps from hmax = 1 to 64 that save bits",
            share_of_steps(by_hmax, |one, next| next.bits < one.bits),
        ),
        bar("ect-knobs", "hmax-8")
            .check("share of what hmax = 64 saves over 1 that 8 saves", saved),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::repro::{Verdict, run};

    #[test]
    fn size_trends_are_confirmed_at_a_small_scale() {
        let finding = run(&EctKnobs, 0.05, 1, &mut |_, _| ()).unwrap();
        // Times are not tested.
        let counted = finding.checks.iter().filter(|check| !check.what.contains("slow"));
        let worst = counted.map(Check::verdict).max();
        assert!(worst <= Some(Verdict::TrendOnly), "{:?}", finding.checks);
        assert!(finding.plot.is_some());
    }
}
