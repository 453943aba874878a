//! `skimpy-buckets`: throughput by keys per bucket, with one put in ten operations.
//!
//! Invariant: one seed, virtual time: the numbers are the same on every machine.
//!
//! Source: SkimpyFTL paper, figure 4.

use siltstone_bench::plot::{Line, Lines, Plot};
use siltstone_engine::Result;

use super::bars::bar;
use super::skimpy_flash::{FlashTable, KEYS, MIN_KEYS, PAPER};
use super::{Experiment, Measurement};

const KEYS_PER_BUCKET: [u64; 5] = [1, 5, 10, 20, 40];

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
        "throughput falls with the keys per bucket, at 10 % writes"
    }

    fn run(&self, scale: f64, progress: &mut dyn FnMut(u64, u64)) -> Result<Measurement> {
        let keys = ((KEYS * scale) as u64).max(MIN_KEYS);
        let mut points: Vec<(f64, f64)> = Vec::new();
        for (at, keys_per_bucket) in KEYS_PER_BUCKET.into_iter().enumerate() {
            let rate = match throughput(keys, keys_per_bucket) {
                // A failure to open is a result, too.
                Err(error) if error.is_disk_full() => f64::NAN,
                measured => measured?,
            };
            points.push((keys_per_bucket as f64, rate));
            progress(at as u64 + 1, KEYS_PER_BUCKET.len() as u64);
        }
        let checks = points.windows(2).map(|pair| {
            bar("skimpy-buckets", "falls").check(
                format!("throughput at {} keys per bucket over that at {}", pair[1].0, pair[0].0),
                pair[1].1 / pair[0].1,
            )
        });
        let checks = checks.collect();
        let details: Vec<_> =
            points.iter().map(|(keys, rate)| format!("{keys}: {:.0}", rate / 1e3)).collect();
        points.retain(|(_, rate)| rate.is_finite());
        let plot = Lines {
            title: "Throughput at 10 % puts".to_owned(),
            x: "keys per bucket".to_owned(),
            y: "operations per second".to_owned(),
            series: vec![Line { name: "skimpy".to_owned(), points, is_reference: false }],
        };
        let details = details.join(", ");
        let scale =
            format!("{keys} keys of 512 bytes; thousand per second by keys per bucket: {details}");
        Ok(Measurement { scale, checks, plot: Some(Plot::Lines(plot)) })
    }
}

/// Operations per second with one put in ten, on a conditioned device.
fn throughput(keys: u64, keys_per_bucket: u64) -> Result<f64> {
    let mut table = FlashTable::open("skimpy", keys, keys_per_bucket)?;
    table.condition()?;
    table.run(10, keys / 2)?;
    Ok(table.run(10, 2 * keys)?.per_second)
}
