//! `txn-ycsb`: transactions a second and their latency under a growing load, store by store.
//!
//! Threads run the social network's transactions one after the other against the machine's clock, in
//! memory: at first one, then twice as many each time. A transaction that meets a conflict is counted as
//! aborted and not run again. The peak is the highest throughput of all loads.
//!
//! [`STORES`] is where a store is plugged in. What the paper compares are its three mappings over one
//! device; until those run here, what is judged is its commit rate, and peaks are told beside it.
//!
//! Source: figure 6 and section 4.2.

use std::time::Instant;

use siltstone::Table;
use siltstone_engine::{Durability, Env, Error, Result};

use super::txn_social::{Client, Drawn, PAPER, load};
use super::{Check, Direction, Experiment, Measured};
use crate::plot::{Line, Lines, Plot};

const KEYS: f64 = 200_000.0;
/// Of each thread, at each load.
const TRANSACTIONS: f64 = 20_000.0;
const THREADS: [u64; 5] = [1, 2, 4, 8, 16];
/// Before saturation, of all stores of the paper.
const COMMITTED: f64 = 0.96;

/// A store to be measured: its name, its engine, the engine's options.
struct Store {
    name: &'static str,
    engine: &'static str,
    options: &'static [(&'static str, &'static str)],
}

const STORES: [Store; 1] = [Store { name: "lsm", engine: "lsm", options: &[] }];

pub(super) struct TxnYcsb;

/// What one load did.
#[derive(Debug, Clone, Copy, Default)]
struct Point {
    per_second: f64,
    latency_us: f64,
    committed: f64,
}

impl Experiment for TxnYcsb {
    fn id(&self) -> &'static str {
        "txn-ycsb"
    }

    fn paper(&self) -> &'static str {
        PAPER
    }

    fn figure(&self) -> &'static str {
        "figure 6"
    }

    fn claim(&self) -> &'static str {
        "about 96 % of the transactions commit before saturation, whatever the store"
    }

    fn run(&self, scale: f64, progress: &mut dyn FnMut(u64, u64)) -> Result<Measured> {
        let keys = (KEYS * scale).max(1000.0) as u64;
        let transactions = (TRANSACTIONS * scale).max(100.0) as u64;
        let total = (STORES.len() * THREADS.len()) as u64;
        let (mut checks, mut series, mut told) = (Vec::new(), Vec::new(), Vec::new());
        let mut done = 0;
        for store in &STORES {
            let loaded = load(store.engine, store.options, Env::system(1), keys)?;
            let mut points = Vec::new();
            for threads in THREADS {
                progress(done, total);
                points.push(measure(&loaded.table, keys, threads, transactions)?);
                done += 1;
            }
            let (peak, before) = peak(&points);
            checks.push(Check {
                what: format!("{}: committed before the peak", store.name),
                claimed: COMMITTED,
                ours: before,
                tolerance: 0.0,
                direction: Direction::AtLeast(COMMITTED),
            });
            told.push(format!("{}: peak {peak:.0} transactions/s", store.name));
            series.push(Line {
                name: store.name.to_owned(),
                points: points.iter().map(|p| (p.per_second / 1e3, p.latency_us)).collect(),
                is_reference: false,
            });
        }
        progress(total, total);
        Ok(Measured {
            scale: format!(
                "{keys} keys, {transactions} transactions a thread, {} to {} threads; {}",
                THREADS[0],
                THREADS[THREADS.len() - 1],
                told.join("; ")
            ),
            checks,
            plot: Some(Plot::Lines(Lines {
                title: "Transactions: throughput against latency".to_owned(),
                x: "thousand transactions a second".to_owned(),
                y: "mean latency, µs".to_owned(),
                series,
            })),
        })
    }
}

/// The highest throughput, and the least share of commits up to it.
fn peak(points: &[Point]) -> (f64, f64) {
    let at =
        (0..points.len()).max_by(|a, b| points[*a].per_second.total_cmp(&points[*b].per_second));
    let at = at.unwrap_or(0);
    let committed = points[..=at].iter().map(|point| point.committed);
    (points[at].per_second, committed.fold(f64::INFINITY, f64::min))
}

fn measure(table: &Table, keys: u64, threads: u64, transactions: u64) -> Result<Point> {
    let work = |thread| -> Result<(u64, f64)> {
        // Other transactions than at the loads before.
        let mut client = Client::new(keys, threads << 8 | thread)?;
        let (mut committed, mut seconds) = (0, 0.0);
        for _ in 0..transactions {
            let drawn = client.draw();
            let began = Instant::now();
            committed += u64::from(one(table, &drawn, &mut client)?);
            seconds += began.elapsed().as_secs_f64();
        }
        Ok((committed, seconds))
    };
    let began = Instant::now();
    let done: Vec<Result<(u64, f64)>> = std::thread::scope(|scope| {
        let work = &work;
        let threads: Vec<_> = (0..threads).map(|t| scope.spawn(move || work(t))).collect();
        threads.into_iter().map(|t| t.join().expect("the thread lives")).collect()
    });
    let elapsed = began.elapsed().as_secs_f64();
    let (mut committed, mut seconds) = (0, 0.0);
    for done in done {
        let (count, spent) = done?;
        committed += count;
        seconds += spent;
    }
    let all = (threads * transactions) as f64;
    Ok(Point {
        per_second: all / elapsed,
        latency_us: seconds / all * 1e6,
        committed: committed as f64 / all,
    })
}

/// Runs a transaction; whether it was committed.
fn one(table: &Table, drawn: &Drawn, client: &mut Client) -> Result<bool> {
    if !drawn.writes {
        let snapshot = table.snapshot()?;
        for key in &drawn.keys {
            snapshot.get(key)?;
        }
        return Ok(true);
    }
    let mut transaction = table.transaction()?;
    for key in &drawn.keys {
        transaction.get(key)?;
    }
    for key in &drawn.keys {
        transaction.put(key, &client.value())?;
    }
    match transaction.commit(Durability::Buffered) {
        Ok(()) => Ok(true),
        Err(Error::Conflict { .. }) => Ok(false),
        Err(other) => Err(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_peak_is_the_highest_and_commits_count_up_to_it() {
        let point = |per_second, committed| Point { per_second, committed, latency_us: 1.0 };
        let points = [point(1.0, 0.99), point(3.0, 0.97), point(2.0, 0.5)];
        assert_eq!(peak(&points), (3.0, 0.97));
    }

    #[test]
    fn threads_commit_transactions() {
        let loaded = load("lsm", &[], Env::system(1), 1000).unwrap();
        let point = measure(&loaded.table, 1000, 2, 200).unwrap();
        assert!(point.committed > 0.5 && point.per_second > 0.0, "{point:?}");
    }
}
