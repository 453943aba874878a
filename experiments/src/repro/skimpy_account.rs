//! `skimpy-account`: the device time of an operation, by mapping and by cause.
//!
//! The runs are those of `skimpy-throughput`. Device time decides if only the device is the limit,
//! without waiting between clients and for collection. So the paper's minimal share of SEMEL's
//! throughput is required of these times, too.
//!
//! Invariant: one seed, virtual time: the numbers are the same on every machine.
//!
//! Source: SkimpyFTL paper, figure 5 and section 4.1.

use std::fmt::Write;

use siltstone_engine::Result;

use super::bars::bar;
use super::skimpy_flash::{CAUSES, DeviceTime, KEYS, MIN_KEYS, PAPER};
use super::skimpy_throughput::{MAPPINGS, MIXES, each_mix, share_of_semel};
use super::{Experiment, Measurement};

pub(super) struct SkimpyAccount;

impl Experiment for SkimpyAccount {
    fn id(&self) -> &'static str {
        "skimpy-account"
    }

    fn paper(&self) -> &'static str {
        PAPER
    }

    fn figure(&self) -> &'static str {
        "figure 5, section 4.1"
    }

    fn claim(&self) -> &'static str {
        "at least 72 % of SEMEL's throughput, by device time per operation"
    }

    fn cause(&self) -> Option<&'static str> {
        Some(
            "with puts only, collection dominates: 36.4 µs against 30.5, where the required \
             share allows 42.4. A bucket must be read to find its superseded versions (11.0 µs; \
             SEMEL's 8.2 are one read per page of the tail), and is copied completely, 0.53 \
             records per put, where SEMEL copies the records put since the last pass of the log \
             (0.3). The write buffer is sorted by the time of the next collection, 16 pages at a \
             time: sorted by age it was 16.3 µs. Records that buckets will need are cached from \
             pages read for other buckets, 320 KiB of them, and their buckets are collected \
             first, up to a tenth of a round early",
        )
    }

    fn run(&self, scale: f64, progress: &mut dyn FnMut(u64, u64)) -> Result<Measurement> {
        let keys = ((KEYS * scale) as u64).max(MIN_KEYS);
        let mut times = vec![Vec::new(); MAPPINGS.len()];
        each_mix(&MAPPINGS, keys, progress, |at, _, run| times[at].push(run.device))?;
        let check = |(mix, puts): (usize, &u32)| {
            let what = format!("SEMEL's device time over SkimpyFTL's, {puts} % puts");
            let bars = [bar("skimpy-account", "share"), bar("skimpy-account", "share-of-puts")];
            share_of_semel(bars, what, *puts, times[0][mix].sum() / times[1][mix].sum())
        };
        let scale = format!(
            "{keys} keys of 512 bytes, 128 clients; microseconds of device time per operation\n{}",
            table(&times)
        );
        let checks = MIXES.iter().enumerate().map(check).collect();
        Ok(Measurement { scale, checks, plot: None })
    }
}

/// One row per cause and one column per mix, for each mapping.
fn table(times: &[Vec<DeviceTime>]) -> String {
    let mut text = String::new();
    for (mapping, times) in MAPPINGS.iter().zip(times) {
        let mut row = |name: &str, cell: &dyn Fn(usize) -> f64| {
            let cells = (0..times.len()).map(|mix| format!("{:>7.2}", cell(mix)));
            // Writing to a string cannot fail.
            let _ = writeln!(text, "  {name:<34}{}", cells.collect::<String>());
        };
        row(&format!("{mapping}: puts, %"), &|mix| f64::from(MIXES[mix]));
        for (cause, name) in CAUSES.iter().enumerate() {
            row(name, &|mix| times[mix].micros[cause]);
        }
        row("all", &|mix| times[mix].sum());
        row("(records in a page that has eight)", &|mix| times[mix].packed);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_has_a_row_per_cause_and_a_sum() {
        let time = DeviceTime { micros: [1.5; CAUSES.len()], ..DeviceTime::default() };
        let table = table(&vec![vec![time; MIXES.len()]; MAPPINGS.len()]);
        assert_eq!(table.lines().count(), MAPPINGS.len() * (CAUSES.len() + 3));
        let all: Vec<_> = table.lines().filter(|line| line.contains("all ")).collect();
        assert!(all.len() == MAPPINGS.len() && all[0].contains("13.50"), "{table}");
    }
}
