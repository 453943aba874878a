//! `txn-ycsb`: transactions a second and their latency under a growing load, mapping by mapping.
//!
//! The social network's transactions run through the product's own layer over the paper's device (see
//! `skimpy_flash`), in virtual time: at each step the client that is furthest behind reads its next key or
//! commits, which moves its time by what it waits for the device. Load is the number of clients. A transaction
//! that meets a conflict is counted as aborted and not run again. The peak is the highest throughput of all
//! loads.
//!
//! Invariant: one seed, virtual time: the numbers are the same on every machine.
//!
//! Source: SkimpyFTL paper, figure 6 and section 4.2.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;
use std::time::Duration;

use siltstone::{Snapshot, Table, Transaction, TransactionOptions};
use siltstone_engine::{Durability, Error, ManualClock, Result};
use siltstone_skimpy::flash::{DeviceClock, VirtualTime};

use super::skimpy_flash::{DeviceTime, FlashTable, KEYS, LEAST_KEYS, PAPER, PARTS};
use super::txn_social::{Client, Drawn};
use super::{Check, Direction, Experiment, Measured};
use crate::plot::{Line, Lines, Plot};

/// The paper's three; the first is what the others are measured by.
const STORES: [&str; 3] = ["semel", "skimpy", "vftl"];
/// Clients at once; the device's queue has 128 places.
const LOADS: [u64; 7] = [1, 4, 16, 32, 64, 128, 256];
/// Transactions that end at each load, for each key.
const TRANSACTIONS: f64 = 0.5;
/// Of SEMEL's peak.
const PEAK: f64 = 0.85;
/// Before saturation, of all stores of the paper.
const COMMITTED: f64 = 0.96;

pub(super) struct TxnYcsb;

/// What one load did.
#[derive(Debug, Clone, Copy, Default)]
struct Point {
    per_second: f64,
    latency_us: f64,
    committed: f64,
    /// For each transaction.
    device: DeviceTime,
}

impl Experiment for TxnYcsb {
    fn id(&self) -> &'static str {
        "txn-ycsb"
    }

    fn paper(&self) -> &'static str {
        PAPER
    }

    fn figure(&self) -> &'static str {
        "figure 6, section 4.2"
    }

    fn claim(&self) -> &'static str {
        "85 % of SEMEL's peak, VFTL below both, and about 96 % committed before saturation"
    }

    fn run(&self, scale: f64, progress: &mut dyn FnMut(u64, u64)) -> Result<Measured> {
        let keys = ((KEYS * scale) as u64).max(LEAST_KEYS);
        let transactions = (keys as f64 * TRANSACTIONS) as u64;
        let total = (STORES.len() * LOADS.len()) as u64;
        let (mut checks, mut series, mut told) = (Vec::new(), Vec::new(), Vec::new());
        let mut peaks = Vec::new();
        for (at, store) in (0..).zip(STORES) {
            let mut flash = FlashTable::open(store, keys, 5)?;
            flash.condition()?;
            let mut points = Vec::new();
            for (load, clients) in (0..).zip(LOADS) {
                progress(at * LOADS.len() as u64 + load, total);
                points.push(measure(&flash, keys, clients, transactions)?);
            }
            let (peak, before) = peak(&points);
            peaks.push(peak.per_second);
            checks.push(Check {
                what: format!("{store}: committed before the peak"),
                claimed: COMMITTED,
                ours: before,
                tolerance: 0.0,
                direction: Direction::AtLeast(COMMITTED),
            });
            told.push(format!("{store} {:.0} ({})", peak.per_second, peak.device.told()));
            series.push(Line {
                name: store.to_owned(),
                points: points.iter().map(|p| (p.per_second / 1e3, p.latency_us)).collect(),
                is_reference: false,
            });
        }
        progress(total, total);
        let ratio = |what: &str, claimed, ours| Check {
            what: what.to_owned(),
            claimed,
            ours,
            tolerance: 0.0,
            direction: Direction::AtLeast(claimed),
        };
        checks.push(ratio("SkimpyFTL's peak over SEMEL's", PEAK, peaks[1] / peaks[0]));
        checks.push(ratio("SkimpyFTL's peak over VFTL's", 1.0, peaks[1] / peaks[2]));
        Ok(Measured {
            scale: format!(
                "{keys} keys of 512 bytes, {transactions} transactions at each load, {} to {} clients; \
                 peaks: transactions a second, with the microseconds of the device for each ({PARTS}): {}",
                LOADS[0],
                LOADS[LOADS.len() - 1],
                told.join(", ")
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

/// The load of the highest throughput, and the least share of commits up to it.
fn peak(points: &[Point]) -> (Point, f64) {
    let at =
        (0..points.len()).max_by(|a, b| points[*a].per_second.total_cmp(&points[*b].per_second));
    let at = at.unwrap_or(0);
    let committed = points[..=at].iter().map(|point| point.committed);
    (points[at], committed.fold(f64::INFINITY, f64::min))
}

/// Runs transactions by so many clients; an eighth of them bring the device into its balance, uncounted.
fn measure(flash: &FlashTable, keys: u64, clients: u64, transactions: u64) -> Result<Point> {
    // Nobody is slow: what passes is the device's time.
    let clock = Arc::new(ManualClock::at(1));
    let engine = flash.engine.clone();
    let table = Table::with("social", engine, clock, &TransactionOptions::default());
    let start = flash.time.now();
    let mut agenda = BinaryHeap::new();
    let mut workers = Vec::new();
    for number in 0..clients {
        // Other transactions than at the other loads.
        let client = Client::new(keys, clients << 8 | number)?;
        workers.push(Worker { client, doing: None, began: start });
        agenda.push(Reverse((start, number as usize)));
    }
    let ignored = transactions / 8;
    let (mut ended, mut committed, mut latency) = (0, 0, Duration::ZERO);
    let (mut from, mut end) = (start, start);
    let mut before = flash.stats();
    while ended < ignored + transactions
        && let Some(Reverse((at, number))) = agenda.pop()
    {
        flash.time.go_to(at);
        let worker = &mut workers[number];
        let outcome = worker.step(&table, &flash.time)?;
        // A client that waits for nothing still takes its turn after the others.
        let now = flash.time.now().max(at + Duration::from_nanos(1));
        agenda.push(Reverse((now, number)));
        let Some(is_committed) = outcome else { continue };
        ended += 1;
        if ended == ignored {
            from = now;
            before = flash.stats();
        }
        if ended > ignored {
            committed += u64::from(is_committed);
            latency += now - worker.began;
            end = end.max(now);
        }
    }
    flash.time.go_to(end);
    let all = transactions as f64;
    Ok(Point {
        per_second: all / end.saturating_sub(from).as_secs_f64(),
        latency_us: latency.as_secs_f64() / all * 1e6,
        committed: committed as f64 / all,
        device: DeviceTime::between(&before, &flash.stats(), transactions, end - from),
    })
}

/// What a transaction reads with.
enum Open {
    Reads(Snapshot),
    Writes(Transaction),
}

struct Worker {
    client: Client,
    /// A transaction, what was drawn for it, and how many keys it has read.
    doing: Option<(Open, Drawn, usize)>,
    began: Duration,
}

impl Worker {
    /// Reads the next key, or commits: whether the transaction did, if it ended.
    fn step(&mut self, table: &Table, time: &VirtualTime) -> Result<Option<bool>> {
        let (open, drawn, read) = match self.doing.take() {
            Some(doing) => doing,
            None => {
                self.began = time.now();
                let drawn = self.client.draw();
                let open = match drawn.writes {
                    true => Open::Writes(table.transaction()?),
                    false => Open::Reads(table.snapshot()?),
                };
                (open, drawn, 0)
            }
        };
        match (open, drawn.keys.get(read)) {
            (Open::Reads(snapshot), Some(key)) => {
                snapshot.get(key)?;
                self.go_on(Open::Reads(snapshot), drawn, read)
            }
            (Open::Writes(transaction), Some(key)) => {
                transaction.get(key)?;
                self.go_on(Open::Writes(transaction), drawn, read)
            }
            (Open::Reads(_), None) => Ok(Some(true)),
            (Open::Writes(mut transaction), None) => {
                for key in &drawn.keys {
                    transaction.put(key, &self.client.value())?;
                }
                match transaction.commit(Durability::Buffered) {
                    Ok(()) => Ok(Some(true)),
                    Err(Error::Conflict { .. }) => Ok(Some(false)),
                    Err(other) => Err(other),
                }
            }
        }
    }

    /// A transaction that only reads ends with its last read.
    fn go_on(&mut self, open: Open, drawn: Drawn, read: usize) -> Result<Option<bool>> {
        if !drawn.writes && read + 1 == drawn.keys.len() {
            return Ok(Some(true));
        }
        self.doing = Some((open, drawn, read + 1));
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_peak_is_the_highest_and_commits_count_up_to_it() {
        let point = |per_second, committed| Point { per_second, committed, ..Point::default() };
        let points = [point(1.0, 0.99), point(3.0, 0.97), point(2.0, 0.5)];
        let (peak, committed) = peak(&points);
        assert_eq!((peak.per_second, committed), (3.0, 0.97));
    }

    #[test]
    fn clients_commit_transactions_and_more_of_them_wait_for_the_device_together() {
        let flash = FlashTable::open("skimpy", LEAST_KEYS, 5).unwrap();
        let one = measure(&flash, LEAST_KEYS, 1, 200).unwrap();
        let many = measure(&flash, LEAST_KEYS, 16, 400).unwrap();
        assert_eq!(one.committed, 1.0, "alone nobody is aborted");
        assert!(many.committed > 0.5 && many.per_second > 4.0 * one.per_second, "{one:?} {many:?}");
    }
}
