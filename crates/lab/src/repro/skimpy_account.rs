//! `skimpy-account`: what the device's time of an operation goes into, mapping by mapping, cause by cause.
//!
//! The runs are those of `skimpy-throughput`. What a device takes for an operation is what decides when the device
//! alone is the limit: who waits for whom, and what is collected in front of whom, is out of it. So the paper's
//! least share of SEMEL's throughput is asked of these times, too.
//!
//! Invariant: one seed, virtual time: the numbers are the same on every machine.
//!
//! Source: SkimpyFTL paper, figure 5 and section 4.1.

use std::fmt::Write;

use siltstone_engine::Result;

use super::skimpy_flash::{CAUSES, DeviceTime, KEYS, LEAST_KEYS, PAPER};
use super::skimpy_throughput::{LEAST, MAPPINGS, MIXES, each_mix};
use super::{Check, Direction, Experiment, Measured};

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
        "72 % of SEMEL's throughput at least, by the time that the device works for an operation"
    }

    fn cause(&self) -> Option<&'static str> {
        Some(
            "with puts alone collection decides, 36.4 µs against 30.5, where the share asks for at most 42.4: a bucket has to be read \
             to find out what in it is hidden (11.0 µs; SEMEL's 8.2 are each page of the tail once), and is copied whole, 0.53 \
             records a put, where SEMEL leaves what was put since the log last went round (0.3). What is put is sorted by when \
             that will be, 16 pages at a time: by age it was 16.3 µs. Records that buckets will need are kept from pages \
             that were read for others, 320 KiB of them, and their buckets go first, up to a tenth of a round early",
        )
    }

    fn run(&self, scale: f64, progress: &mut dyn FnMut(u64, u64)) -> Result<Measured> {
        let keys = ((KEYS * scale) as u64).max(LEAST_KEYS);
        let mut times = vec![Vec::new(); MAPPINGS.len()];
        each_mix(&MAPPINGS, keys, progress, |at, _, run| times[at].push(run.device))?;
        let check = |(mix, puts): (usize, &u32)| Check {
            what: format!("SEMEL's time of the device over SkimpyFTL's, {puts} % puts"),
            claimed: LEAST,
            ours: times[0][mix].sum() / times[1][mix].sum(),
            tolerance: 0.0,
            direction: Direction::AtLeast(LEAST),
        };
        let scale = format!(
            "{keys} keys of 512 bytes, 128 clients; microseconds of the device for an operation\n{}",
            table(&times)
        );
        let checks = MIXES.iter().enumerate().map(check).collect();
        Ok(Measured { scale, checks, plot: None })
    }
}

/// A row a cause, a column a mix, mapping by mapping.
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
    fn a_table_has_a_row_for_each_cause_and_their_sum() {
        let time = DeviceTime { micros: [1.5; CAUSES.len()], ..DeviceTime::default() };
        let table = table(&vec![vec![time; MIXES.len()]; MAPPINGS.len()]);
        assert_eq!(table.lines().count(), MAPPINGS.len() * (CAUSES.len() + 3));
        let all: Vec<_> = table.lines().filter(|line| line.contains("all ")).collect();
        assert!(all.len() == MAPPINGS.len() && all[0].contains("13.50"), "{table}");
    }
}
