//! The cost of a positioned read of an open file.
//!
//! `cargo bench -p siltstone-vfs --bench read -- [reads]`; `valgrind --tool=callgrind` on the
//! binary counts its instructions. The file is in the current directory.

#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a benchmark prints its results")]

use std::time::Instant;

use siltstone_engine::Purpose;
use siltstone_vfs::{Disk, Mode, Vfs};

fn main() {
    let reads = std::env::args().filter_map(|it| it.parse().ok()).next().unwrap_or(1_000_000u64);
    let directory = tempfile::tempdir_in(".").unwrap();
    let disk = Disk::open(directory.path()).unwrap();
    disk.create("file").unwrap().write_at(0, &[7; 1 << 16], Purpose::Flush).unwrap();
    let file = disk.open("file", Mode::Read).unwrap();
    let mut buf = [0; 256];
    let began = Instant::now();
    for i in 0..reads {
        file.read_at(i * 256 % (1 << 16), &mut buf, Purpose::Get).unwrap();
    }
    println!("{:.1} ns per read", began.elapsed().as_nanos() as f64 / reads as f64);
}
