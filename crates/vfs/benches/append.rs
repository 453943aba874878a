//! Appends to a growing file of a disk, stored to mapped pages and written: percentiles side by side.
//!
//! `cargo bench -p siltstone-vfs --bench append -- [appends]`, in a directory below the present one. An
//! append is made every microsecond or so, as a table's writer does.

#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a benchmark speaks on standard output"
)]

use std::time::{Duration, Instant};

use siltstone_engine::Purpose;
use siltstone_vfs::{Disk, DiskOptions, Vfs};

fn main() {
    let appends = std::env::args().filter_map(|it| it.parse().ok()).next().unwrap_or(2_000_000);
    for bytes in [132, 400, 1060] {
        for (name, stores_appends) in [("written", false), ("stored", true)] {
            let directory = tempfile::tempdir_in(".").unwrap();
            let options = DiskOptions { stores_appends, ..DiskOptions::default() };
            let disk = Disk::open(directory.path()).unwrap().with_options(options);
            let mut took = measure(&disk, bytes, appends / (bytes / 100) as u64);
            took.sort_unstable();
            let at = |share: f64| took[(took.len() as f64 * share) as usize].as_secs_f64() * 1e6;
            println!(
                "{bytes} bytes, {name}: p50 {:.2}, p99 {:.2}, p99.9 {:.2}, p99.99 {:.1} us",
                at(0.5),
                at(0.99),
                at(0.999),
                at(0.9999)
            );
        }
    }
}

fn measure(disk: &Disk, bytes: usize, appends: u64) -> Vec<Duration> {
    let file = disk.create_append("log").unwrap();
    let record = vec![7; bytes];
    let append = |i: u64| {
        let began = Instant::now();
        file.write_at(i * bytes as u64, &record, Purpose::Log).unwrap();
        let took = began.elapsed();
        while began.elapsed() < took + Duration::from_micros(1) {
            std::hint::spin_loop();
        }
        took
    };
    (0..appends).map(append).collect()
}
