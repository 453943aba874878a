//! `txn-ycsb`: transactions per second and their latency under increasing load, by mapping.
//!
//! The social network's transactions run through the product's transaction layer over the paper's
//! device (see `skimpy_flash`), in virtual time: at each step the client with the earliest time
//! reads its next key or commits, which advances its time by its wait for the device. Load is the
//! number of clients. A transaction with a conflict is counted as aborted and not retried. The peak
//! is the highest throughput over all loads.
//!
//! Invariant: one seed, virtual time: the numbers are the same on every machine.
//!
//! Source: SkimpyFTL paper, figure 6 and section 4.2.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;
use std::time::Duration;

use siltstone::{Snapshot, Table, Transaction, TransactionOptions};
use siltstone_bench::plot::{Line, Lines, Plot};
use siltstone_engine::{Durability, Error, ManualClock, Result};
use siltstone_skimpy::flash::{DeviceClock, VirtualTime};

use super::bars::bar;
use super::skimpy_flash::{DeviceTime, FlashTable, KEYS, MIN_KEYS, PAPER, PARTS};
use super::txn_social::{Client, TransactionPlan};
use super::{Experiment, Measurement};

/// The paper's three; the first is the reference of the others.
const STORES: [&str; 3] = ["semel", "skimpy", "vftl"];
/// Clients at once; the device's queue has 128 places.
const LOADS: [u64; 7] = [1, 4, 16, 32, 64, 128, 256];
/// Transactions that end at each load, for each key.
const TRANSACTIONS: f64 = 0.5;

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

    fn run(&self, scale: f64, progress: &mut dyn FnMut(u64, u64)) -> Result<Measurement> {
        let keys = ((KEYS * scale) as u64).max(MIN_KEYS);
        let transactions = (keys as f64 * TRANSACTIONS) as u64;
        let total = (STORES.len() * LOADS.len()) as u64;
        let (mut checks, mut series, mut details) = (Vec::new(), Vec::new(), Vec::new());
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
            checks.push(
                bar("txn-ycsb", "committed")
                    .check(format!("{store}: committed before the peak"), before),
            );
            details.push(format!("{store} {:.0} ({})", peak.per_second, peak.device.summary()));
            series.push(Line {
                name: store.to_owned(),
                points: points.iter().map(|p| (p.per_second / 1e3, p.latency_us)).collect(),
                is_reference: false,
            });
        }
        progress(total, total);
        checks.push(
            bar("txn-ycsb", "peak").check("SkimpyFTL's peak over SEMEL's", peaks[1] / peaks[0]),
        );
        checks.push(
            bar("txn-ycsb", "over-vftl").check("SkimpyFTL's peak over VFTL's", peaks[1] / peaks[2]),
        );
        Ok(Measurement {
            scale: format!(
                "{keys} keys of 512 bytes, {transactions} transactions at each load, {} to {} clients; \
                 peaks: transactions per second, with the microseconds of the device per transaction ({PARTS}): {}",
                LOADS[0],
                LOADS[LOADS.len() - 1],
                details.join(", ")
            ),
            checks,
            plot: Some(Plot::Lines(Lines {
                title: "Transactions: throughput against latency".to_owned(),
                x: "thousand transactions per second".to_owned(),
                y: "mean latency, µs".to_owned(),
                series,
            })),
        })
    }
}

/// The load of the highest throughput, and the smallest share of commits up to it.
fn peak(points: &[Point]) -> (Point, f64) {
    let at =
        (0..points.len()).max_by(|a, b| points[*a].per_second.total_cmp(&points[*b].per_second));
    let at = at.unwrap_or(0);
    let committed = points[..=at].iter().map(|point| point.committed);
    (points[at], committed.fold(f64::INFINITY, f64::min))
}

/// Runs transactions of `clients` clients, after a warm-up of an eighth as many that bring the
/// device into its steady state.
fn measure(flash: &FlashTable, keys: u64, clients: u64, transactions: u64) -> Result<Point> {
    // Only the device takes time.
    let clock = Arc::new(ManualClock::at(1));
    let engine = flash.engine.clone();
    let table = Table::with("social", engine, clock, &TransactionOptions::default());
    let start = flash.time.now();
    let mut agenda = BinaryHeap::new();
    let mut workers = Vec::new();
    for number in 0..clients {
        // Transactions differ between loads.
        let client = Client::new(keys, clients << 8 | number)?;
        workers.push(Worker { client, current: None, began: start });
        agenda.push(Reverse((start, number as usize)));
    }
    let ignored = transactions / 8;
    let (mut ended, mut committed, mut latency) = (0, 0, Duration::ZERO);
    let (mut from, mut end) = (start, start);
    let mut before = flash.stats();
    while ended < ignored + transactions
        && let Some(Reverse((at, number))) = agenda.pop()
    {
        flash.time.set(at);
        let worker = &mut workers[number];
        let outcome = worker.step(&table, &flash.time)?;
        // A client without a wait still runs after the others.
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
    flash.time.set(end);
    let all = transactions as f64;
    Ok(Point {
        per_second: all / end.saturating_sub(from).as_secs_f64(),
        latency_us: latency.as_secs_f64() / all * 1e6,
        committed: committed as f64 / all,
        device: DeviceTime::between(&before, &flash.stats(), transactions, end - from),
    })
}

/// A running transaction.
enum Open {
    Reads(Snapshot),
    Writes(Transaction),
}

struct Worker {
    client: Client,
    /// The running transaction, its plan, and the number of keys that it has read.
    current: Option<(Open, TransactionPlan, usize)>,
    began: Duration,
}

impl Worker {
    /// Reads the next key, or commits; for a finished transaction returns whether it was committed.
    fn step(&mut self, table: &Table, time: &VirtualTime) -> Result<Option<bool>> {
        let (open, plan, read) = match self.current.take() {
            Some(current) => current,
            None => {
                self.began = time.now();
                let plan = self.client.draw();
                let open = match plan.writes {
                    true => Open::Writes(table.transaction()?),
                    false => Open::Reads(table.snapshot()?),
                };
                (open, plan, 0)
            }
        };
        match (open, plan.keys.get(read)) {
            (Open::Reads(snapshot), Some(key)) => {
                snapshot.get(key)?;
                self.advance(Open::Reads(snapshot), plan, read)
            }
            (Open::Writes(transaction), Some(key)) => {
                transaction.get(key)?;
                self.advance(Open::Writes(transaction), plan, read)
            }
            (Open::Reads(_), None) => Ok(Some(true)),
            (Open::Writes(mut transaction), None) => {
                for key in &plan.keys {
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

    /// A read-only transaction ends with its last read.
    fn advance(&mut self, open: Open, plan: TransactionPlan, read: usize) -> Result<Option<bool>> {
        if !plan.writes && read + 1 == plan.keys.len() {
            return Ok(Some(true));
        }
        self.current = Some((open, plan, read + 1));
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peak_is_the_highest_throughput() {
        let point = |per_second, committed| Point { per_second, committed, ..Point::default() };
        let points = [point(1.0, 0.99), point(3.0, 0.97), point(2.0, 0.5)];
        let (peak, committed) = peak(&points);
        assert_eq!((peak.per_second, committed), (3.0, 0.97));
    }

    #[test]
    fn throughput_grows_with_clients() {
        let flash = FlashTable::open("skimpy", MIN_KEYS, 5).unwrap();
        let one = measure(&flash, MIN_KEYS, 1, 200).unwrap();
        let many = measure(&flash, MIN_KEYS, 16, 400).unwrap();
        assert_eq!(one.committed, 1.0, "a single client is never aborted");
        assert!(many.committed > 0.5 && many.per_second > 4.0 * one.per_second, "{one:?} {many:?}");
    }
}
