//! Random concurrent transactions, plain writes and snapshots over a real table; the recorded
//! histories must be strictly serializable. `SILTSTONE_ROUNDS` sets the number of runs,
//! `SILTSTONE_EDN=DIR` writes the histories for other checkers.

use std::sync::Arc;

use crate::support::open;
use siltstone::{
    Durability, Engine, Error, MergeAppend, Result, Snapshot, SystemClock, Table, Transaction,
    TransactionOptions,
};
use siltstone_testkit::serial::{self, Event, Session, Store, Witness, edn, random};
use siltstone_testkit::{Scale, TestRng};

/// The table under test.
struct TestedTable(Table);

enum Open {
    Snapshot(Snapshot),
    Transaction(Transaction),
}

impl Store for TestedTable {
    fn begin(&self, reads_only: bool) -> Result<Box<dyn Session + '_>> {
        Ok(Box::new(match reads_only {
            true => Open::Snapshot(self.0.snapshot()?),
            false => Open::Transaction(self.0.transaction()?),
        }))
    }

    fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.0.put(key, value)
    }

    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.0.get(key)
    }
}

impl Session for Open {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        match self {
            Open::Snapshot(snapshot) => snapshot.get(key),
            Open::Transaction(transaction) => transaction.get(key),
        }
    }

    fn scan(&self, start: &[u8], end: &[u8], back: bool) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        let iter = match self {
            Open::Snapshot(snapshot) => snapshot.range(start..end),
            Open::Transaction(transaction) => transaction.range(start..end),
        };
        let iter = match iter {
            Err(Error::Unsupported { .. }) => return self.get_each(start, end, back),
            other => other?,
        };
        let pair = |entry: Result<(Vec<u8>, siltstone::Entry)>| {
            entry.map(|(key, entry)| (key, entry.value))
        };
        if back { iter.rev().map(pair).collect() } else { iter.map(pair).collect() }
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        match self {
            Open::Snapshot(_) => unreachable!("a reader does not write"),
            Open::Transaction(transaction) => transaction.put(key, value),
        }
    }

    fn append(&mut self, key: &[u8], bytes: &[u8]) -> Result<bool> {
        match self {
            Open::Transaction(transaction) if transaction.table().engine().capabilities().merge => {
                transaction.merge(key, bytes).map(|()| true)
            }
            _ => Ok(false),
        }
    }

    fn commit(self: Box<Self>, durability: Durability) -> Result<()> {
        match *self {
            Open::Snapshot(_) => Ok(()),
            Open::Transaction(transaction) => transaction.commit(durability),
        }
    }
}

impl Open {
    /// A scan of an unordered table: a lookup of every possible key.
    fn get_each(&self, start: &[u8], end: &[u8], back: bool) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        let mut found = Vec::new();
        for key in random::keys().map(random::key_bytes) {
            if (start..end).contains(&key.as_slice())
                && let Some(value) = Session::get(self, &key)?
            {
                found.push((key, value));
            }
        }
        found.sort();
        if back {
            found.reverse();
        }
        Ok(found)
    }
}

type Options = &'static [(&'static str, &'static str)];

/// Option sets: everything in memory; constant flushes and compactions; a small history; no
/// history, so that every validation reads again; every version on flash, with and without history.
const OPTION_SETS: [(&str, Options, usize); 6] = [
    ("lsm", &[], 32 << 20),
    ("lsm", &[("memtable", "64KiB"), ("l0_capacity", "0")], 32 << 20),
    ("lsm", &[], 2_000),
    ("lsm", &[("memtable", "64KiB"), ("container", "0")], 0),
    ("skimpy", &[("capacity", "16MiB")], 32 << 20),
    ("skimpy", &[("capacity", "16MiB")], 0),
];

#[test]
fn concurrent_histories_are_strictly_serializable() {
    let scale = Scale::from_env();
    let (mut transactions, mut aborted, mut tracked) = (0, 0, 0);
    for case in scale.cases(scale.rounds * 5, OPTION_SETS.len() as u32) {
        let (name, options, remembered_bytes) = OPTION_SETS[case.option_set as usize];
        let limits = TransactionOptions { remembered_bytes, ..Default::default() };
        // Every second run has the engine's own concurrency and no pauses.
        let witness = (case.seed / 4 % 2 == 0)
            .then(|| Arc::new(Witness::new(open(name, options), case.seed)));
        let engine: Arc<dyn Engine> = match &witness {
            Some(witness) => witness.clone(),
            None => open(name, options),
        };
        if engine.capabilities().merge {
            engine.set_merge_operator(Some(Arc::new(MergeAppend::new(b"")))).unwrap();
        }
        let clock = Arc::new(SystemClock);
        let table = TestedTable(Table::with("t", engine, clock, &limits));
        let threads = 2 + TestRng::of(case.seed, 99).below(4);
        let mut history = random::record(&table, case.seed, threads).unwrap();
        if let Some(witness) = witness {
            history.orders = random::orders(&witness);
        } else {
            // The order of registers is unknown.
            let is_list = |e: &Event| matches!(e, Event::List(..) | Event::Append(..));
            history.transactions.iter_mut().for_each(|t| t.events.retain(is_list));
        }
        edn::write_file(&history, &format!("history-{name}-{}", case.seed)).unwrap();
        if let Err(anomaly) = serial::check(&history, true) {
            panic!("{anomaly}\n{case}");
        }
        transactions += history.transactions.len();
        let is_aborted = |t: &&serial::Transaction| t.outcome == serial::Outcome::Aborted;
        aborted += history.transactions.iter().filter(is_aborted).count();
        tracked += table.0.stats().counters["transactions_tracked_writes"];
    }
    println!("{transactions} transactions ({aborted} aborted), {tracked} plain writes among them");
    assert!(aborted > 0 && aborted < transactions * 9 / 10, "{aborted} of {transactions} aborted");
}
