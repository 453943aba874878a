//! `txn-aborts`: abort rate of transactions with one version per key and with several.
//!
//! Many clients run concurrently, each one transaction after the other. Time is simulated: a read
//! takes the time of reading a page of the paper's flash, a commit that of packing and programming
//! one. The operations run on a real table, through the product's transactions:
//!
//! ```text
//!   several versions   Table::snapshot, Table::transaction: commit validates the reads
//!   one version        reads of the newest version; at the end of every transaction, also
//!                      read-only ones, a key that has changed since it was read aborts
//! ```
//!
//! Load is the number of clients. Both stores get the same transactions from the same clients.
//!
//! Invariant: the result is reproducible.
//!
//! Source: figure 1; device times from section 4, "Experimental Setup".

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use siltstone::{Snapshot, Table, Transaction};
use siltstone_bench::plot::{Line, Lines, Plot};
use siltstone_engine::{Durability, Error, ManualClock, Result};
use siltstone_runtime::Env;

use super::bars::bar;
use super::skimpy_flash::PAPER;
use super::txn_social::{Client, LoadedTable, TransactionPlan, load};
use super::{Check, Experiment, Measurement};

const KEYS: f64 = 200_000.0;
/// Finished transactions per load.
const TRANSACTIONS: f64 = 40_000.0;
/// Concurrent clients; the length of the device's queue is 128.
const LOADS: [u64; 5] = [8, 16, 32, 64, 128];
/// Microseconds per read and per commit.
const READ: u64 = 50;
const COMMIT: u64 = 1000 + 100;

pub(super) struct TxnAborts;

impl Experiment for TxnAborts {
    fn id(&self) -> &'static str {
        "txn-aborts"
    }

    fn paper(&self) -> &'static str {
        PAPER
    }

    fn figure(&self) -> &'static str {
        "figure 1"
    }

    fn claim(&self) -> &'static str {
        "several versions halve the abort rate of one, and gain more as load grows"
    }

    fn cause(&self) -> Option<&'static str> {
        Some(
            "one version is modelled more strictly than in the paper: every transaction, \
             read-only ones too, aborts if a key has changed between its read and its end",
        )
    }

    fn run(&self, scale: f64, progress: &mut dyn FnMut(u64, u64)) -> Result<Measurement> {
        let keys = (KEYS * scale).max(1000.0) as u64;
        let transactions = (TRANSACTIONS * scale).max(1000.0) as u64;
        let (mut single, mut multi) = (Vec::new(), Vec::new());
        let total = 2 * LOADS.len() as u64;
        for (turn, clients) in (0..).zip(LOADS) {
            progress(2 * turn, total);
            single.push(aborted::<OneVersion>(keys, clients, transactions)?);
            progress(2 * turn + 1, total);
            multi.push(aborted::<Versions>(keys, clients, transactions)?);
        }
        progress(total, total);
        let mut checks: Vec<Check> =
            LOADS
                .iter()
                .zip(single.iter().zip(&multi))
                .map(|(clients, (single, multi))| {
                    bar("txn-aborts", "aborts").check(format!(
                    "aborts of several versions over one, {clients} clients ({:.2} %, {:.2} %)",
                    multi * 100.0,
                    single * 100.0
                ), multi / single)
                })
                .collect();
        let avoided: Vec<f64> =
            single.iter().zip(&multi).map(|(single, multi)| single - multi).collect();
        checks.push(bar("txn-aborts", "growth").check(
            "aborts avoided at the highest load over those at the lowest",
            avoided[LOADS.len() - 1] / avoided[0],
        ));
        let line = |name: &str, rates: &[f64]| Line {
            name: name.to_owned(),
            points: LOADS.iter().zip(rates).map(|(x, y)| (*x as f64, y * 100.0)).collect(),
            is_reference: false,
        };
        Ok(Measurement {
            scale: format!(
                "{keys} keys, {transactions} transactions at each load; 90 % read-only, Zipf 0.99 \
                 and 0.75"
            ),
            checks,
            plot: Some(Plot::Lines(Lines {
                title: "Aborted transactions".to_owned(),
                x: "clients".to_owned(),
                y: "aborted, %".to_owned(),
                series: vec![line("one version", &single), line("several versions", &multi)],
            })),
        })
    }
}

/// A transaction of the simulation.
trait Open: Sized {
    fn begin(table: &Table, writes: bool) -> Result<Self>;

    fn read(&mut self, table: &Table, key: &[u8]) -> Result<()>;

    /// Writes and commits; `false` if the transaction was aborted.
    fn end(self, table: &Table, writes: Vec<(Vec<u8>, Vec<u8>)>) -> Result<bool>;
}

/// Snapshot reads, as the product does it.
enum Versions {
    Reads(Snapshot),
    Writes(Transaction),
}

impl Open for Versions {
    fn begin(table: &Table, writes: bool) -> Result<Self> {
        Ok(match writes {
            true => Versions::Writes(table.transaction()?),
            false => Versions::Reads(table.snapshot()?),
        })
    }

    fn read(&mut self, _table: &Table, key: &[u8]) -> Result<()> {
        match self {
            Versions::Reads(snapshot) => snapshot.get(key).map(drop),
            Versions::Writes(transaction) => transaction.get(key).map(drop),
        }
    }

    fn end(self, _table: &Table, writes: Vec<(Vec<u8>, Vec<u8>)>) -> Result<bool> {
        let Versions::Writes(mut transaction) = self else { return Ok(true) };
        for (key, value) in &writes {
            transaction.put(key, value)?;
        }
        is_committed(transaction.commit(Durability::Buffered))
    }
}

/// Reads of the newest version, validated by reading again.
#[derive(Default)]
struct OneVersion {
    read_set: Vec<(Vec<u8>, Option<Vec<u8>>)>,
}

impl Open for OneVersion {
    fn begin(_table: &Table, _writes: bool) -> Result<Self> {
        Ok(OneVersion::default())
    }

    fn read(&mut self, table: &Table, key: &[u8]) -> Result<()> {
        self.read_set.push((key.to_vec(), table.get(key)?));
        Ok(())
    }

    fn end(self, table: &Table, writes: Vec<(Vec<u8>, Vec<u8>)>) -> Result<bool> {
        for (key, value) in &self.read_set {
            if table.get(key)? != *value {
                return Ok(false);
            }
        }
        for (key, value) in &writes {
            table.put(key, value)?;
        }
        Ok(true)
    }
}

fn is_committed(outcome: Result<()>) -> Result<bool> {
    match outcome {
        Ok(()) => Ok(true),
        Err(Error::Conflict { .. }) => Ok(false),
        Err(other) => Err(other),
    }
}

/// Share of aborted transactions with a number of concurrent clients.
fn aborted<T: Open>(keys: u64, clients: u64, transactions: u64) -> Result<f64> {
    let env = Env::replayable(Arc::new(ManualClock::at(1)), 1);
    let LoadedTable { table, .. } = &load("lsm", &[], env, keys)?;
    let mut workers = Vec::new();
    // The next event of each client, ordered by time.
    let mut agenda = BinaryHeap::new();
    for number in 0..clients {
        let mut client = Client::new(keys, number)?;
        agenda.push(Reverse((client.pause(COMMIT), number as usize)));
        workers.push(Worker::<T> { client, current: None });
    }
    let (mut ended, mut aborted) = (0, 0);
    while ended < transactions
        && let Some(Reverse((now, number))) = agenda.pop()
    {
        let (wait, outcome) = workers[number].step(table)?;
        ended += u64::from(outcome.is_some());
        aborted += u64::from(outcome == Some(false));
        agenda.push(Reverse((now + wait, number)));
    }
    Ok(aborted as f64 / ended as f64)
}

struct Worker<T> {
    client: Client,
    /// The running transaction, its plan, and the number of keys that it has read.
    current: Option<(T, TransactionPlan, usize)>,
}

impl<T: Open> Worker<T> {
    /// Runs the next operation. Returns the duration of the one after it, and for a finished
    /// transaction whether it was committed.
    fn step(&mut self, table: &Table) -> Result<(u64, Option<bool>)> {
        let Some((mut open, plan, read)) = self.current.take() else {
            let plan = self.client.draw();
            self.current = Some((T::begin(table, plan.writes)?, plan, 0));
            return Ok((READ, None));
        };
        if let Some(key) = plan.keys.get(read) {
            open.read(table, key)?;
            let is_last = read + 1 == plan.keys.len();
            let wait = match (is_last, plan.writes) {
                (false, _) => READ,
                (true, true) => COMMIT,
                (true, false) => 0,
            };
            self.current = Some((open, plan, read + 1));
            return Ok((wait, None));
        }
        let written = if plan.writes { plan.keys } else { Vec::new() };
        let writes = written.into_iter().map(|key| (key, self.client.value())).collect();
        let is_committed = open.end(table, writes)?;
        // Desynchronises clients that start together.
        Ok((self.client.pause(READ), Some(is_committed)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_versions_reduce_aborts() {
        let single = aborted::<OneVersion>(1000, 32, 1000).unwrap();
        let multi = aborted::<Versions>(1000, 32, 1000).unwrap();
        assert!(multi < single, "{multi} {single}");
        assert_eq!(aborted::<Versions>(1000, 32, 1000).unwrap(), multi);
        // A single client is never aborted.
        assert_eq!(aborted::<OneVersion>(1000, 1, 500).unwrap(), 0.0);
        assert_eq!(aborted::<Versions>(1000, 1, 500).unwrap(), 0.0);
    }
}
