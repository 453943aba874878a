//! Soak test: after long use a store still returns correct data and uses no more resources than at
//! its start.
//!
//! A store on disk has one table per engine, with one thread each: puts, batches, deletions,
//! lookups, scans, snapshots held for a while, transactions, flushes. Every result is compared
//! with a map's. After each of 16 rounds all tables are closed, reopened and checked; resident
//! memory, open files, threads and disk space are recorded. Those of the last rounds must not
//! exceed those of the fourth, within a tolerance for allocators and garbage collection.
//!
//! It runs for 3 seconds by default. `SILTSTONE_SOAK_SECONDS=3600 cargo test --release -p
//! siltstone --test soak -- --nocapture` runs for an hour, `SILTSTONE_SOAK_TABLES=silt,trie` on
//! these engines.

#![allow(clippy::unwrap_used, clippy::print_stdout)]

use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::time::{Duration, Instant};

use siltstone::{Db, DbOptions, Durability, Snapshot, Table, WriteBatch};
use siltstone_testkit::TestRng;

/// Tables: engine and options, small, so that background jobs have much to do.
const TABLES: [(&str, &[(&str, &str)]); 5] = [
    (
        "lsm",
        &[
            ("memtable", "256KiB"),
            ("l0_capacity", "4MiB"),
            ("target_file_size", "256KiB"),
            ("cache", "1MiB"),
        ],
    ),
    ("trie", &[("htable_size", "64KiB")]),
    ("silt", &[("log_store_slots", "1024"), ("merge_trigger", "8"), ("sort_memory", "4MiB")]),
    ("skimpy", &[("capacity", "64MiB")]),
    ("mica", &[("mode", "store"), ("memory", "64MiB"), ("expected_item_bytes", "400")]),
];
const KEYS: u64 = 10_000;
const ROUNDS: usize = 16;
/// The round whose resources the last ones' are compared with: caches and buffers are full by then.
const WARM_ROUND: usize = 3;

/// The seed of each key's value.
type ExpectedSeeds = BTreeMap<u64, u64>;

/// Resources of the process and the store.
#[derive(Debug, Clone, Copy)]
struct Usage {
    resident: u64,
    files: usize,
    threads: usize,
    on_disk: u64,
}

#[test]
fn store_uses_no_more_resources_after_long_use_and_returns_correct_data() {
    let seconds = std::env::var("SILTSTONE_SOAK_SECONDS").map_or(3.0, |text| text.parse().unwrap());
    let round = Duration::from_secs_f64(seconds / ROUNDS as f64);
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path().join("store");
    let only = std::env::var("SILTSTONE_SOAK_TABLES").ok();
    let is_soaked =
        |engine: &str| only.as_ref().is_none_or(|only| only.split(',').any(|it| it == engine));
    assert!(TABLES.iter().any(|table| is_soaked(table.0)), "SILTSTONE_SOAK_TABLES names no engine");
    let mut expected: [ExpectedSeeds; TABLES.len()] = Default::default();
    let mut rng: [TestRng; TABLES.len()] = std::array::from_fn(|t| TestRng::of(1, t as u64));
    let (mut operations, mut usage) = (0, Vec::new());
    for r in 0..ROUNDS {
        let db = Db::open_or_create(&dir, DbOptions::default()).unwrap();
        std::thread::scope(|scope| {
            let each = TABLES.iter().zip(&mut expected).zip(&mut rng);
            let each = each.filter(|((table, _), _)| is_soaked(table.0));
            let running: Vec<_> = each
                .map(|(((engine, options), expected), rng)| {
                    let options = options.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned()));
                    let table = db.table_or_create(engine, engine, &options.collect()).unwrap();
                    scope.spawn(move || soak(&table, expected, rng, round))
                })
                .collect();
            operations += running.into_iter().map(|thread| thread.join().unwrap()).sum::<u64>();
        });
        usage.push(Usage::now(&dir));
        if r % 5 == 4 {
            for (engine, _) in TABLES.iter().filter(|it| it.0 != "mica" && is_soaked(it.0)) {
                let report = db.table(engine).unwrap().verify(&mut |_, _| {}).unwrap();
                assert!(report.damage.is_empty(), "{engine}: {report:?}");
            }
        }
        db.close().unwrap();
    }
    println!("{operations} operations in {ROUNDS} rounds, {seconds} s without reopenings");
    for (round, usage) in usage.iter().enumerate() {
        println!("round {round:>2}: {usage:?}");
    }
    let (warm, last) = (usage[WARM_ROUND], &usage[ROUNDS - 4..]);
    let min = |of: fn(&Usage) -> u64| last.iter().map(of).min().unwrap();
    let resident = min(|usage| usage.resident);
    assert!(resident <= warm.resident + warm.resident / 4 + (32 << 20), "memory has grown");
    assert!(min(|usage| usage.files as u64) <= 2 * warm.files as u64 + 32, "files stay open");
    assert!(min(|usage| usage.threads as u64) <= warm.threads as u64, "threads stay");
    assert!(min(|usage| usage.on_disk) <= 2 * warm.on_disk + (64 << 20), "space is not released");
}

/// Works on a table for a while; returns the number of operations.
fn soak(table: &Table, expected: &mut ExpectedSeeds, rng: &mut TestRng, time: Duration) -> u64 {
    let capabilities = table.engine().capabilities();
    if !capabilities.durable {
        expected.clear();
    }
    let began = Instant::now();
    let mut snapshots: VecDeque<(Snapshot, ExpectedSeeds)> = VecDeque::new();
    check_all(table, expected);
    let mut operations = 0;
    while began.elapsed() < time {
        operations += 1;
        match rng.below(1000) {
            0..400 => write(table, expected, rng),
            400..960 => {
                let n = rng.below(KEYS);
                let found = table.get(&key(n)).unwrap();
                assert_eq!(found, expected.get(&n).map(|seed| value(*seed)), "key {n}");
            }
            960..990 if capabilities.ordered => scan(table, expected, rng),
            990..998 if capabilities.versioned => transact(table, expected, rng),
            998 if capabilities.versioned => {
                // At most two: each has a copy of the map.
                if snapshots.len() == 2 {
                    let (snapshot, then) = snapshots.pop_front().unwrap();
                    for _ in 0..200 {
                        let n = rng.below(KEYS);
                        let found = snapshot.get(&key(n)).unwrap();
                        assert_eq!(found, then.get(&n).map(|seed| value(*seed)), "key {n}, then");
                    }
                }
                snapshots.push_back((table.snapshot().unwrap(), expected.clone()));
            }
            999 if rng.one_in(20) => table.flush().unwrap(),
            _ => {}
        }
    }
    drop(snapshots);
    check_all(table, expected);
    operations
}

/// One batch of puts and deletions, mostly of one key.
fn write(table: &Table, expected: &mut ExpectedSeeds, rng: &mut TestRng) {
    let mut batch = WriteBatch::new();
    let count = if rng.one_in(8) { 12 } else { 1 };
    for _ in 0..count {
        // A quarter of the keys gets three quarters of the writes.
        let keys = if rng.one_in(4) { KEYS } else { KEYS / 4 };
        let n = rng.below(keys);
        if rng.one_in(6) {
            batch.delete(&key(n));
            expected.remove(&n);
        } else {
            let seed = rng.draw();
            batch.put(&key(n), &value(seed));
            expected.insert(n, seed);
        }
    }
    let durability = if rng.one_in(500) { Durability::Synced } else { Durability::Buffered };
    table.write(&batch, durability).unwrap();
}

/// Some keys in order, from a random one on.
fn scan(table: &Table, expected: &ExpectedSeeds, rng: &mut TestRng) {
    let from = rng.below(KEYS);
    let entries = table.range(key(from)..).unwrap().take(30);
    let found: Vec<_> = entries.map(|entry| entry.unwrap()).map(|(k, e)| (k, e.value)).collect();
    let wanted: Vec<_> =
        expected.range(from..).take(30).map(|(n, seed)| (key(*n).to_vec(), value(*seed))).collect();
    assert!(found == wanted, "a scan from {from}");
}

/// Moves one key's value to another. There is no other writer, so it succeeds at once.
fn transact(table: &Table, expected: &mut ExpectedSeeds, rng: &mut TestRng) {
    let (from, to) = (rng.below(KEYS), rng.below(KEYS));
    table
        .transact(|tx| {
            let moved = tx.get(&key(from))?;
            tx.delete(&key(from))?;
            match moved {
                Some(moved) => tx.put(&key(to), &moved),
                None => tx.delete(&key(to)),
            }
        })
        .unwrap();
    match expected.remove(&from) {
        Some(seed) => _ = expected.insert(to, seed),
        None => _ = expected.remove(&to),
    }
}

fn check_all(table: &Table, expected: &ExpectedSeeds) {
    for n in 0..KEYS {
        let found = table.get(&key(n)).unwrap();
        assert!(found == expected.get(&n).map(|seed| value(*seed)), "{}: key {n}", table.name());
    }
}

fn key(n: u64) -> [u8; 12] {
    let mut key = *b"key-\0\0\0\0\0\0\0\0";
    key[4..].copy_from_slice(&n.to_be_bytes());
    key
}

/// 8 to 400 bytes determined by their seed.
fn value(seed: u64) -> Vec<u8> {
    let mut rng = TestRng::new(seed);
    let len = 8 + rng.index(393);
    rng.bytes(len)
}

impl Usage {
    fn now(dir: &Path) -> Self {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let number = |name: &str| {
            let line = status.lines().find(|line| line.starts_with(name));
            line.and_then(|line| line.split_whitespace().nth(1)?.parse().ok()).unwrap_or(0u64)
        };
        Usage {
            resident: number("VmRSS:") << 10,
            files: std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count),
            threads: number("Threads:") as usize,
            on_disk: bytes_below(dir),
        }
    }
}

/// Allocated bytes, since files may have holes.
fn bytes_below(dir: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let entries = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap());
    let size = |entry: std::fs::DirEntry| match entry.metadata() {
        Ok(metadata) if metadata.is_dir() => bytes_below(&entry.path()),
        Ok(metadata) => 512 * metadata.blocks(),
        // Removed meanwhile.
        Err(_) => 0,
    };
    entries.map(size).sum()
}
