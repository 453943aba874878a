//! `skimpy-buckets`: throughput over the keys a bucket, with one put in ten operations.
//!
//! Invariant: one seed, virtual time: the numbers are the same on every machine.
//!
//! Source: SkimpyFTL paper, figure 4.

use siltstone_engine::Result;

use super::skimpy_flash::{FlashTable, KEYS, LEAST_KEYS, PAPER};
use super::{Check, Direction, Experiment, Measured};
use crate::plot::{Line, Lines, Plot};

const KEYS_A_BUCKET: [u64; 5] = [1, 5, 10, 20, 40];

pub(super) struct SkimpyBuckets;

impl Experiment for SkimpyBuckets {
    fn id(&self) -> &'static str {
        "skimpy-buckets"
    }

    fn paper(&self) -> &'static str {
        PAPER
    }

    fn figure(&self) -> &'static str {
        "figure 4"
    }

    fn claim(&self) -> &'static str {
        "throughput falls with the keys a bucket, at 10 % writes"
    }

    fn run(&self, scale: f64, progress: &mut dyn FnMut(u64, u64)) -> Result<Measured> {
        let keys = ((KEYS * scale) as u64).max(LEAST_KEYS);
        let mut points: Vec<(f64, f64)> = Vec::new();
        for (at, keys_a_bucket) in KEYS_A_BUCKET.into_iter().enumerate() {
            let rate = match throughput(keys, keys_a_bucket) {
                // That is a finding, too.
                Err(error) if error.is_disk_full() => f64::NAN,
                measured => measured?,
            };
            points.push((keys_a_bucket as f64, rate));
            progress(at as u64 + 1, KEYS_A_BUCKET.len() as u64);
        }
        let checks = points.windows(2).map(|pair| Check {
            what: format!("throughput at {} keys a bucket over that at {}", pair[1].0, pair[0].0),
            claimed: 1.0,
            ours: pair[1].1 / pair[0].1,
            tolerance: 0.0,
            direction: Direction::AtMost(1.0),
        });
        let checks = checks.collect();
        let told: Vec<_> =
            points.iter().map(|(keys, rate)| format!("{keys}: {:.0}", rate / 1e3)).collect();
        points.retain(|(_, rate)| rate.is_finite());
        let plot = Lines {
            title: "Throughput at 10 % puts".to_owned(),
            x: "keys a bucket".to_owned(),
            y: "operations a second".to_owned(),
            series: vec![Line { name: "skimpy".to_owned(), points, is_reference: false }],
        };
        let told = told.join(", ");
        let scale = format!("{keys} keys of 512 bytes; thousand a second by keys a bucket: {told}");
        Ok(Measured { scale, checks, plot: Some(Plot::Lines(plot)) })
    }
}

/// Operations a second with one put in ten, on a device that was written round.
fn throughput(keys: u64, keys_a_bucket: u64) -> Result<f64> {
    let mut table = FlashTable::open("skimpy", keys, keys_a_bucket)?;
    table.condition()?;
    table.run(10, keys / 2)?;
    Ok(table.run(10, 2 * keys)?.per_second)
}
