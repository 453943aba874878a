//! The cost of gets of hot keys when a store has more files than it may keep open.
//!
//! `cargo bench -p siltstone --bench open_files -- [gets]`. The store has several hundred files in
//! the current directory; its block cache is small, so that most gets read a file (from the page
//! cache). 99 % of the gets are of keys in 32 tables of 300, the others of any key.
//! One row per budget: the median of five rounds, which are interleaved.

#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a benchmark prints its results")]

use std::time::Instant;

use siltstone::{Db, DbOptions, Table};
use siltstone_testkit::TestRng;

const TABLES: u64 = 300;
const HOT_TABLES: u64 = 32;
const KEYS: u64 = 2000;
const BUDGETS: [usize; 3] = [1 << 20, 256, 64];
const ROUNDS: u64 = 5;

fn key(number: u64) -> [u8; 8] {
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()
}

fn main() {
    let gets = std::env::args().filter_map(|it| it.parse().ok()).next().unwrap_or(200_000);
    let scratch = tempfile::tempdir_in(".").unwrap();
    let dir = scratch.path().join("store");
    let db = Db::open_or_create(&dir, DbOptions::default()).unwrap();
    let small = [("memtable", "1MiB")].map(|(name, value)| (name.into(), value.into())).into();
    for number in 0..TABLES {
        let table = db.table_or_create(&number.to_string(), "lsm", &small).unwrap();
        (0..KEYS).for_each(|n| table.put(&key(n), &[7; 100]).unwrap());
        table.flush().unwrap();
        table.engine().maintain().unwrap();
    }
    db.close().unwrap();
    let mut nanos = [(); BUDGETS.len()].map(|()| Vec::new());
    for round in 0..ROUNDS {
        for (budget, nanos) in BUDGETS.iter().zip(&mut nanos) {
            let options =
                DbOptions { max_open_files: *budget, cache_bytes: Some(0), ..DbOptions::default() };
            let db = Db::open(&dir, options).unwrap();
            let open = |number: u64| db.table(&number.to_string()).unwrap();
            let tables: Vec<Table> = (0..TABLES).map(open).collect();
            let mut rng = TestRng::of(round, 1);
            let mut get = |count: u64| {
                for _ in 0..count {
                    let tables_drawn = if rng.below(100) < 99 { HOT_TABLES } else { TABLES };
                    let table = &tables[rng.below(tables_drawn) as usize];
                    assert!(table.get(&key(rng.below(KEYS))).unwrap().is_some());
                }
            };
            get(gets / 4);
            let before = db.vfs().open_files().unwrap();
            let began = Instant::now();
            get(gets);
            nanos.push(began.elapsed().as_nanos() as u64 / gets);
            let after = db.vfs().open_files().unwrap();
            println!(
                "budget {budget}: {} ns per get, {} open, {} opened again",
                nanos[nanos.len() - 1],
                after.open,
                after.reopens - before.reopens
            );
            db.close().unwrap();
        }
    }
    for (budget, mut nanos) in BUDGETS.iter().zip(nanos) {
        nanos.sort_unstable();
        println!("budget {budget}: median {} ns per get", nanos[nanos.len() / 2]);
    }
}
