//! Speed of reads from memory: gets, misses, seeks and scans on a settled table.
//!
//! ```text
//! cargo run --release -p siltstone-lsm --example reads -- DIR [keys=4000000] [cache=1GiB]
//!                                          [seconds=3] [only=get,miss,seek,scan] [OPTION=VALUE]…
//! ```
//!
//! Loads `keys` keys of 16 bytes with values of 100 bytes in random order into DIR, unless they are
//! there already, waits for background work, and reads every key once to fill the cache. Then each
//! operation runs with one and with two threads. With `ops=N` each thread runs N operations, not
//! for a time, and `warm=16` reads only every 16th key before: to count instructions and cache
//! misses of the function `operation` with a profiler. Other pairs are options of the table:
//! `memtable=1MiB l0_capacity=64MiB` gives a level 0 of many runs.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a benchmark may panic and print")]

use std::collections::BTreeMap;
use std::hint::black_box;
use std::ops::Bound;
use std::sync::Arc;
use std::time::{Duration, Instant};

use siltstone_engine::{Durability, Engine, KeyRange, WriteBatch};
use siltstone_lsm::{Lsm, Options};
use siltstone_runtime::Env;
use siltstone_vfs::{Disk, MeteredVfs};

const SCAN_LENGTH: usize = 100;

fn key(i: u64) -> [u8; 16] {
    let mut key = [b'0'; 16];
    key[..8].copy_from_slice(&i.to_be_bytes());
    key
}

fn next_random(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    state.wrapping_mul(0x2545_f491_4f6c_dd1d)
}

fn load(table: &Lsm, keys: u64) {
    let (mut value, mut random) = ([0; 100], 1);
    let mut order: Vec<u32> = (0..keys as u32).collect();
    for i in (1..order.len()).rev() {
        order.swap(i, (next_random(&mut random) % (i as u64 + 1)) as usize);
    }
    let mut batch = WriteBatch::new();
    for i in order {
        for chunk in value[..48].chunks_mut(8) {
            chunk.copy_from_slice(&next_random(&mut random).to_le_bytes());
        }
        batch.clear();
        batch.put(&key(u64::from(i)), &value);
        table.write(&batch, Durability::Buffered).unwrap();
    }
    table.maintain().unwrap();
}

#[inline(never)]
fn operation(table: &Lsm, name: &str, i: u64) {
    let key = key(i);
    match name {
        "get" => drop(black_box(table.get(&key).unwrap().unwrap())),
        "miss" => {
            let absent = [&key[..], b"0"].concat();
            assert!(black_box(table.get(&absent).unwrap()).is_none());
        }
        _ => {
            let start = Bound::Included(key.to_vec());
            let range = KeyRange { start, end: Bound::Unbounded };
            let mut cursor = table.range(range, None).unwrap();
            let mut is_valid = cursor.first().unwrap();
            let nexts = if name == "scan" { SCAN_LENGTH - 1 } else { 0 };
            for _ in 0..nexts {
                black_box(cursor.value());
                is_valid = cursor.next().unwrap();
                if !is_valid {
                    break;
                }
            }
            if is_valid {
                black_box(cursor.value());
            }
        }
    }
}

/// Nanoseconds that this thread has been on a CPU.
fn cpu_ns() -> u64 {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    stat.split(' ').next().and_then(|ns| ns.parse().ok()).unwrap_or(0)
}

/// When a thread ends.
#[derive(Clone, Copy)]
struct Limit {
    time: Duration,
    operations: u64,
}

/// Operations per second of all threads together, and per second of one CPU.
fn measure(table: &Lsm, name: &str, keys: u64, threads: u64, limit: Limit) -> (f64, f64) {
    let run = |thread: u64| {
        let mut random = 0x9e37_79b9 * (thread + 1);
        let (began, cpu_before, mut done) = (Instant::now(), cpu_ns(), 0);
        while began.elapsed() < limit.time && done < limit.operations {
            for _ in 0..100 {
                operation(table, name, next_random(&mut random) % keys);
            }
            done += 100;
        }
        let done = done as f64;
        (done / began.elapsed().as_secs_f64(), done / ((cpu_ns() - cpu_before) as f64 / 1e9))
    };
    let speeds: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|thread| scope.spawn(move || run(thread))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let sum = |of: fn(&(f64, f64)) -> f64| speeds.iter().map(of).sum::<f64>();
    (sum(|speed| speed.0), sum(|speed| speed.1) / threads as f64)
}

fn main() {
    let mut args = std::env::args().skip(1);
    let directory = args.next().expect("usage: reads DIR [key=value]…");
    let given: Vec<String> = args.collect();
    let value = |name: &str, default: &str| {
        let mut pairs = given.iter().filter_map(|arg| arg.split_once('='));
        pairs.find(|(given, _)| *given == name).map_or(default, |(_, value)| value).to_owned()
    };
    let keys: u64 = value("keys", "4000000").parse().unwrap();
    let limit = match value("ops", "").parse() {
        Ok(operations) => Limit { time: Duration::MAX, operations },
        Err(_) => {
            let time = Duration::from_secs_f64(value("seconds", "3").parse().unwrap());
            Limit { time, operations: u64::MAX }
        }
    };
    let mut options = BTreeMap::from([("cache".to_owned(), "1GiB".to_owned())]);
    let own = ["keys", "seconds", "ops", "only", "threads", "stats", "warm"];
    let pairs = given.iter().filter_map(|arg| arg.split_once('='));
    let others = pairs.filter(|(name, _)| !own.contains(name));
    options.extend(others.map(|(name, value)| (name.to_owned(), value.to_owned())));
    std::fs::create_dir_all(&directory).unwrap();
    let vfs = Arc::new(MeteredVfs::new(Arc::new(Disk::open(&directory).unwrap())));
    let table = Lsm::open(vfs, Env::system(2), Options::from_map(&options).unwrap()).unwrap();
    if table.get(&key(0)).unwrap().is_none() {
        load(&table, keys);
    }
    let step = value("warm", "1").parse().unwrap();
    (0..keys).step_by(step).for_each(|i| drop(black_box(table.get(&key(i)).unwrap())));
    table.maintain().unwrap();
    let only = value("only", "get,miss,seek,scan");
    for name in only.split(',') {
        for threads in value("threads", "1,2").split(',') {
            let threads = threads.parse().unwrap();
            let (speed, per_cpu) = measure(&table, name, keys, threads, limit);
            let (speed, per_cpu) = (speed / 1e3, per_cpu / 1e3);
            println!("{name:5} {threads} threads {speed:8.0} k/s {per_cpu:8.0} k/s per CPU");
        }
    }
    if value("stats", "no") == "yes" {
        println!("{:#?}", table.stats());
    }
    table.close().unwrap();
}
