//! `silt-inlining`: space against reads when items of any size have slots of one size.
//!
//! The thesis's figure 2.7 is computed, and so is this: sizes from 4 B to 1 MiB follow a Zipf
//! distribution, a slot has 4 bytes of lengths and 4 of an offset, and an item that does not fit has
//! its rest elsewhere, at the cost of a second read. Beside it is what blocks of any length cost,
//! which our SortedStore has: one read, and zeros up to 64 bytes a block.
//!
//! Source: Lim, thesis (2015), section 2.3, figure 2.7.

use siltstone_engine::Result;

use super::silt_table::PAPER;
use super::{Check, Direction, Experiment, Measured};
use crate::plot::{Line, Lines, Plot};

const SMALLEST: f64 = 4.0;
const LARGEST: usize = 1 << 20;
const HEADER: f64 = 4.0;
const POINTER: f64 = 4.0;
/// The exponents of the figure.
const EXPONENTS: [f64; 5] = [1.0, 1.25, 1.5, 1.75, 2.0];

pub(super) struct SiltInlining;

/// Reads and space of slots of one size: reads a GET, and bytes stored for each of the data.
fn slots(sizes: &[(f64, f64)], slot: f64) -> (f64, f64) {
    let (mut reads, mut space, mut data) = (0.0, 0.0, 0.0);
    for &(size, share) in sizes {
        let room = slot - HEADER;
        let rest = if size <= room { 0.0 } else { size - (room - POINTER).max(0.0) };
        reads += share * if rest > 0.0 { 2.0 } else { 1.0 };
        space += share * (slot + rest);
        data += share * size;
    }
    (reads, space / data)
}

/// Sizes and how often each occurs, in steps of a twentieth.
fn zipf(exponent: f64) -> Vec<(f64, f64)> {
    let mut sizes = Vec::new();
    let (mut at, mut total) = (SMALLEST, 0.0);
    while at <= LARGEST as f64 {
        let next = (at * 1.05).max(at + 1.0).floor();
        let weight: f64 = (at as u64..next as u64).map(|size| (size as f64).powf(-exponent)).sum();
        sizes.push((at, weight));
        total += weight;
        at = next;
    }
    sizes.iter_mut().for_each(|(_, weight)| *weight /= total);
    sizes
}

impl Experiment for SiltInlining {
    fn id(&self) -> &'static str {
        "silt-inlining"
    }

    fn paper(&self) -> &'static str {
        PAPER
    }

    fn figure(&self) -> &'static str {
        "figure 2.7"
    }

    fn claim(&self) -> &'static str {
        "larger slots trade space for reads, from 2 reads down to 1; blocks of any length need neither"
    }

    fn run(&self, _scale: f64, _progress: &mut dyn FnMut(u64, u64)) -> Result<Measured> {
        let mut series = Vec::new();
        let (mut falls, mut starts) = (1.0f64, 0.0f64);
        for exponent in EXPONENTS {
            let sizes = zipf(exponent);
            let points: Vec<(f64, f64)> = (3..=20)
                .map(|log2| slots(&sizes, f64::from(1 << log2) + HEADER + POINTER))
                .map(|(reads, space)| (space, reads))
                .collect();
            let is_falling = points.windows(2).all(|pair| pair[1].1 <= pair[0].1 + 1e-9);
            falls = falls.min(f64::from(u8::from(is_falling)));
            starts = starts.max((points[points.len() - 1].1 - 1.0).abs());
            let points = points.into_iter().map(|(space, reads)| (space.log2(), reads)).collect();
            series.push(Line { name: format!("exp = {exponent}"), points, is_reference: false });
        }
        let mean = |sizes: &[(f64, f64)]| sizes.iter().map(|&(s, share)| s * share).sum::<f64>();
        // Zeros up to 64 bytes, half of that on average, and a checksum, in blocks of about 4 KiB.
        let worst = EXPONENTS.map(|e| 1.0 + (36.0 / mean(&zipf(e)).max(4096.0)));
        let block = worst.into_iter().fold(0.0, f64::max);
        let check = |what: &str, claimed: f64, ours: f64, tolerance: f64| Check {
            what: what.to_owned(),
            claimed,
            ours,
            tolerance,
            direction: Direction::None,
        };
        Ok(Measured {
            scale: "computed".to_owned(),
            checks: vec![
                check("reads never rise with the slot (1: so it is)", 1.0, falls, 0.0),
                check("reads beyond 1 with slots for the largest, plus 1", 1.0, 1.0 + starts, 1e-6),
                check("bytes a byte of data in blocks of any length", 1.0, block, 0.01),
            ],
            plot: Some(Plot::Lines(Lines {
                title: "SILT: reads and space when items are inlined".to_owned(),
                x: "log2 of the bytes stored a byte of data".to_owned(),
                y: "reads a GET".to_owned(),
                series,
            })),
        })
    }
}
