//! Latency percentiles of appends to a file on disk: copied into a mapping, and written.
//!
//! `cargo bench -p siltstone-vfs --bench append -- [appends]`. The file is in the current
//! directory. There is about one append per microsecond, like from the writer of a table.

#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a benchmark prints its results")]

use std::time::{Duration, Instant};

use siltstone_engine::Purpose;
use siltstone_vfs::{Disk, DiskOptions, Vfs};

fn main() {
    let appends = std::env::args().filter_map(|it| it.parse().ok()).next().unwrap_or(2_000_000);
    for bytes in [132, 400, 1060] {
        for (name, map_appends) in [("written", false), ("mapped", true)] {
            let directory = tempfile::tempdir_in(".").unwrap();
            let options = DiskOptions { map_appends, ..DiskOptions::default() };
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
