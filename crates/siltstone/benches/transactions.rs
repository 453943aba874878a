//! The cost of the transaction manager: plain writes with and without it, and commits.
//!
//! `cargo bench -p siltstone --bench transactions -- 200000` prints a table; the optional number is
//! the writes per thread. Keys are uniform over a million, so conflicts are rare. Each row is the
//! best of three interleaved rounds, so that background load affects all rows alike. The last rows
//! sync each write to the disk under the current directory.

#![allow(clippy::print_stdout, clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use siltstone::{Durability, Engine, Env, Error, Table, WriteBatch, engines};
use siltstone_testkit::TestRng;
use siltstone_vfs::{Disk, Ram, Vfs};

const KEYS: u64 = 1_000_000;
const VALUE: [u8; 100] = [7; 100];
const ROUNDS: usize = 3;

fn open(vfs: Arc<dyn Vfs>) -> Arc<dyn Engine> {
    engines::open("lsm", vfs, &Env::system(1), &BTreeMap::new()).unwrap()
}

fn key(rng: &mut TestRng) -> [u8; 16] {
    let mut key = [b'0'; 16];
    key[..8].copy_from_slice(&rng.below(KEYS).to_be_bytes());
    key
}

/// Thousands of operations per second, and the number of failed ones.
fn run(threads: u64, count: u64, work: &(dyn Fn(&mut TestRng) -> bool + Sync)) -> (f64, u64) {
    let began = Instant::now();
    let failed: u64 = std::thread::scope(|scope| {
        let work = move |thread| {
            let mut rng = TestRng::of(thread, count);
            (0..count).filter(|_| !work(&mut rng)).count() as u64
        };
        let threads: Vec<_> = (0..threads).map(|t| scope.spawn(move || work(t))).collect();
        threads.into_iter().map(|t| t.join().unwrap()).sum()
    });
    ((threads * count) as f64 / began.elapsed().as_secs_f64() / 1e3, failed)
}

fn put(engine: &dyn Engine, rng: &mut TestRng, durability: Durability) -> bool {
    engine.write(WriteBatch::new().put(&key(rng), &VALUE), durability).is_ok()
}

fn transact(table: &Table, rng: &mut TestRng, reads: bool, durability: Durability) -> bool {
    let mut transaction = table.transaction().unwrap();
    let key = key(rng);
    if reads {
        transaction.get(&key).unwrap();
    }
    transaction.put(&key, &VALUE).unwrap();
    match transaction.commit(durability) {
        Ok(()) => true,
        Err(Error::Conflict { .. }) => false,
        Err(other) => panic!("{other}"),
    }
}

type Work = Box<dyn Fn(&mut TestRng) -> bool + Sync>;

/// The rows for a fresh store.
fn rows(vfs: &dyn Fn() -> Arc<dyn Vfs>, durability: Durability) -> Vec<(&'static str, Work)> {
    let table = || Table::new("t", open(vfs()));
    let (bare, idle, tracked) = (open(vfs()), table(), table());
    let (blind, update) = (table(), table());
    let open_one = tracked.transaction().unwrap();
    vec![
        ("put, engine alone", Box::new(move |rng| put(bare.as_ref(), rng, durability))),
        (
            "put, no transaction open",
            Box::new(move |rng| put(idle.engine().as_ref(), rng, durability)),
        ),
        (
            "put, a transaction open",
            Box::new(move |rng| {
                let _held = &open_one;
                put(tracked.engine().as_ref(), rng, durability)
            }),
        ),
        ("transaction: put", Box::new(move |rng| transact(&blind, rng, false, durability))),
        ("transaction: get, put", Box::new(move |rng| transact(&update, rng, true, durability))),
    ]
}

fn table(count: u64, threads: &[u64], vfs: &dyn Fn() -> Arc<dyn Vfs>, durability: Durability) {
    for &threads in threads {
        let rows = rows(vfs, durability);
        let mut best = vec![(0.0f64, 0); rows.len()];
        for _ in 0..ROUNDS {
            for ((_, work), best) in rows.iter().zip(&mut best) {
                let (rate, failed) = run(threads, count, work.as_ref());
                *best = (best.0.max(rate), best.1 + failed);
            }
        }
        for ((name, _), (rate, failed)) in rows.iter().zip(best) {
            println!("{threads:>7} {durability:<9?} {name:<32} {rate:>9.1} {failed:>9}");
        }
    }
}

fn main() {
    let count = std::env::args().filter_map(|arg| arg.parse().ok()).next().unwrap_or(200_000);
    println!("threads durability {:<31} {:>10} {:>9}", "operation", "K/s", "conflicts");
    table(count, &[1, 2, 4], &|| Arc::new(Ram::new()), Durability::Buffered);
    let scratch = tempfile::tempdir_in(".").unwrap();
    let number = std::sync::atomic::AtomicU64::new(0);
    let disk = || -> Arc<dyn Vfs> {
        let number = number.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        Arc::new(Disk::create(scratch.path().join(number.to_string())).unwrap())
    };
    table((count / 400).max(10), &[1, 16], &disk, Durability::Synced);
}
