//! The time to the first key behind many deleted ones.
//!
//! `cargo bench -p siltstone --bench first_after_deletions -- [keys]`. A table of `lsm` in the
//! current directory has a million keys (by default); all but the last ten are deleted, one by one
//! or as a range. The first walk begins at once, or (`compacted`) after the compaction that the
//! tombstones cause. One row per walk to the first key: its time, and how many tombstones it passed.
//! Between two walks the background work ends.

#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a benchmark prints its results")]

use std::time::Instant;

use siltstone::{Db, DbOptions, Table};

const KEPT: u64 = 10;
const WALKS: u64 = 4;

fn counter(table: &Table, name: &str) -> u64 {
    table.stats().counters.get(name).copied().unwrap_or_default()
}

fn main() {
    let keys: u64 = std::env::args().filter_map(|it| it.parse().ok()).next().unwrap_or(1_000_000);
    let scratch = tempfile::tempdir_in(".").unwrap();
    let db = Db::open_or_create(scratch.path().join("store"), DbOptions::default()).unwrap();
    for name in ["one_by_one", "one_by_one_compacted", "as_a_range"] {
        let table = db.table_or_create(name, "lsm", &Default::default()).unwrap();
        (0..keys).for_each(|key| table.put(&key.to_be_bytes(), &[7; 100]).unwrap());
        table.engine().maintain().unwrap();
        let last = keys - KEPT;
        match name {
            "as_a_range" => table.delete_range(..last.to_be_bytes()).unwrap(),
            _ => (0..last).for_each(|key| table.delete(&key.to_be_bytes()).unwrap()),
        }
        table.flush().unwrap();
        if name == "one_by_one_compacted" {
            table.engine().maintain().unwrap();
        }
        for walk in 1..=WALKS {
            let before = counter(&table, "tombstones_passed");
            let began = Instant::now();
            let first = table.first().unwrap().unwrap();
            let time = began.elapsed();
            assert_eq!(first.0, last.to_be_bytes());
            let passed = counter(&table, "tombstones_passed") - before;
            println!(
                "deleted {name}: walk {walk} {:.3} ms, {passed} moves over tombstones",
                time.as_secs_f64() * 1e3
            );
            table.engine().maintain().unwrap();
        }
    }
}
