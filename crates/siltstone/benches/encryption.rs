//! The cost of encryption, as counts: bytes on disk per row, and a workload for an instruction
//! counter.
//!
//! ```text
//! cargo bench -p siltstone --features encryption --bench encryption               bytes per row
//! valgrind --tool=callgrind BENCH run {plain|encrypted} {put|get|cached} ROWS     instructions
//! ```
//!
//! The instructions per operation are the difference of two runs with different `ROWS`, divided by
//! the difference of the rows. `get` has no block cache, so each one reads and decrypts a block.

#![allow(clippy::unwrap_used, clippy::print_stdout)]

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use siltstone::encryption::{KeyRing, Keys, MasterKey};
use siltstone::{Db, DbOptions, Table};

/// The rows that a run with `get` loads before it counts.
const LOADED: u64 = 20_000;

fn open(dir: &Path, mode: &str, cache: &str) -> (Db, Table) {
    let encryption = match mode {
        "plain" => Keys::default(),
        _ => Keys::new(Arc::new(KeyRing::new(MasterKey::new(&[7; 32]), Vec::new()))),
    };
    let db = Db::open_or_create(dir, DbOptions { encryption, ..DbOptions::default() }).unwrap();
    let options = [("cache".to_owned(), cache.to_owned())];
    let table = db.table_or_create("t", "lsm", &BTreeMap::from(options)).unwrap();
    (db, table)
}

/// Keys of 16 bytes, in random order.
fn key(i: u64) -> [u8; 16] {
    let mixed = (i + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    std::array::from_fn(|at| b'a' + (mixed >> (at % 8 * 8) & 0xf) as u8 + (at / 8) as u8)
}

fn load(table: &Table, rows: u64) {
    for i in 0..rows {
        // Values of 100 bytes that do not compress.
        let mut random = i ^ 0x5DEE_CE66;
        let value: [u8; 100] = std::array::from_fn(|_| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (random >> 56) as u8
        });
        table.put(&key(i), &value).unwrap();
    }
}

fn bytes(dir: &Path) -> u64 {
    let entries = dir.read_dir().unwrap().map(|entry| entry.unwrap());
    let bytes = entries.map(|entry| match entry.file_type().unwrap().is_dir() {
        true => bytes(&entry.path()),
        false => entry.metadata().unwrap().len(),
    });
    bytes.sum()
}

fn report() {
    for mode in ["plain", "encrypted"] {
        let scratch = tempfile::tempdir().unwrap();
        let (db, table) = open(scratch.path(), mode, "1MiB");
        let rows = 200_000;
        load(&table, rows);
        drop(table);
        db.close().unwrap();
        let in_logs = bytes(scratch.path()) as f64 / rows as f64;
        let (db, table) = open(scratch.path(), mode, "1MiB");
        table.compact_range::<&[u8]>(..).unwrap();
        drop(table);
        db.close().unwrap();
        let compacted = bytes(scratch.path()) as f64 / rows as f64;
        println!("{mode}: {in_logs:.1} bytes per row after the load, {compacted:.1} compacted");
    }
}

fn main() {
    let args: Vec<_> = std::env::args().collect();
    let Some(at) = args.iter().position(|arg| arg == "run") else { return report() };
    let (mode, workload, rows) = (&*args[at + 1], &*args[at + 2], args[at + 3].parse().unwrap());
    let scratch = tempfile::tempdir().unwrap();
    let (_db, table) = open(scratch.path(), mode, if workload == "get" { "0" } else { "64MiB" });
    if workload == "put" {
        return load(&table, rows);
    }
    load(&table, LOADED);
    table.compact_range::<&[u8]>(..).unwrap();
    if workload == "cached" {
        (0..LOADED).for_each(|i| drop(table.get(&key(i)).unwrap()));
    }
    (0..rows).for_each(|i| assert!(table.get(&key(i * 7 % LOADED)).unwrap().is_some()));
}
