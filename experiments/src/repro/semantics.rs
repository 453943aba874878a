//! `semantics`: what order, durability, snapshots and transactions each cost a write.
//!
//! The same overwrites of random keys run with a promise and without it. A step is the time per
//! write with it over the time without:
//!
//! ```text
//!   step            with                                       without
//!   order           lsm on disk                                trie on disk (hashed keys)
//!   disk            lsm on disk                                lsm with its files in memory
//!   sync            lsm on disk, each write synced             lsm on disk
//!   snapshots       lsm, a snapshot held, replaced in turns    lsm on disk
//!   transactions    lsm, get and put in a transaction          lsm, get, then put
//! ```
//!
//! `mica`, which promises none of them, is printed beside the steps. Writes are single puts of one
//! thread; the time includes that of waiting for background work.
//!
//! Invariant: both sides of a step run the same operations in the same order.
//!
//! Source: the question is open in Lim, thesis, section 6.1.1: which share of the cost of complex
//! semantics is inherent.

use std::time::Instant;

use rand::RngExt;
use siltstone::{Snapshot, Table};
use siltstone_bench::engines::{OpenEngine, Storage, Target, default_directory};
use siltstone_bench::generate::{KeySpace, ValueSize, Values, stream};
use siltstone_bench::plot::{Bars, Plot};
use siltstone_engine::{Durability, Error, Result, WriteBatch};

use super::bars::bar;
use super::thesis::PAPER;
use super::{Experiment, Measurement};

const KEYS: f64 = 1e6;
const KEY_BYTES: usize = 16;
const VALUE_BYTES: usize = 100;
/// Overwrites per key.
const ROUNDS: f64 = 1.0;
/// Synced writes per key.
const SYNCED_SHARE: f64 = 0.005;
/// Writes after which the held snapshot is replaced, as a share of all.
const SNAPSHOT_SHARE: f64 = 0.01;

pub(super) struct Semantics;

/// What a store is asked for besides taking writes.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Promise {
    Nothing,
    Sync,
    Snapshots,
    /// Each write reads its key first.
    Reads,
    /// As `Reads`, in a transaction.
    Transactions,
}

impl Experiment for Semantics {
    fn id(&self) -> &'static str {
        "semantics"
    }

    fn paper(&self) -> &'static str {
        PAPER
    }

    fn figure(&self) -> &'static str {
        "section 6.1.1"
    }

    fn claim(&self) -> &'static str {
        "order, files on disk, snapshots and transactions each cost a write at most half as much again"
    }

    fn run(&self, scale: f64, progress: &mut dyn FnMut(u64, u64)) -> Result<Measurement> {
        let keys = (KEYS * scale) as u64;
        let disk = || Storage::Disk(default_directory());
        let rows = [
            ("mica", "mica", Storage::Ram, Promise::Nothing),
            ("hashed", "trie", disk(), Promise::Nothing),
            ("in memory", "lsm", Storage::Ram, Promise::Nothing),
            ("ordered", "lsm", disk(), Promise::Nothing),
            ("snapshots", "lsm", disk(), Promise::Snapshots),
            ("get and put", "lsm", disk(), Promise::Reads),
            ("transactions", "lsm", disk(), Promise::Transactions),
            ("sync", "lsm", disk(), Promise::Sync),
        ];
        let total = rows.len() as u64;
        let mut micros = Vec::new();
        for (turn, (_, engine, storage, promise)) in (0..).zip(&rows) {
            progress(turn, total);
            micros.push(micros_per_write(engine, storage.clone(), *promise, keys)?);
        }
        progress(total, total);
        let of = |name: &str| {
            let at = rows.iter().position(|(row, ..)| *row == name);
            at.map_or(f64::NAN, |at| micros[at])
        };
        let step = |name: &str, with: &str, without: &str| {
            bar("semantics", "step").check(
                format!("{name}, time per write ({:.2} over {:.2} µs)", of(with), of(without)),
                of(with) / of(without),
            )
        };
        Ok(Measurement {
            scale: format!(
                "{keys} keys of {KEY_BYTES} + {VALUE_BYTES} bytes, overwritten {ROUNDS} times; \
                 µs per write: mica {:.2}, synced {:.0}",
                of("mica"),
                of("sync")
            ),
            checks: vec![
                step("order", "ordered", "hashed"),
                step("disk", "ordered", "in memory"),
                step("snapshots", "snapshots", "ordered"),
                step("transactions", "transactions", "get and put"),
            ],
            plot: Some(Plot::Bars(Bars {
                title: "The price of promises, one thread".to_owned(),
                y: "µs per write".to_owned(),
                // A synced write takes a hundred times as long as the others.
                groups: rows[..7].iter().map(|(name, ..)| (*name).to_owned()).collect(),
                series: vec![("write".to_owned(), micros[..7].to_vec())],
            })),
        })
    }
}

fn micros_per_write(engine: &str, storage: Storage, promise: Promise, keys: u64) -> Result<f64> {
    let target = Target {
        engine: engine.to_owned(),
        options: match engine {
            // Room for all items: it would evict otherwise.
            "mica" => [("memory".to_owned(), (keys * 512).max(64 << 20).to_string())].into(),
            _ => Default::default(),
        },
        storage,
        keep: false,
        background_threads: 2,
    };
    let opened = target.open(1)?;
    let mut client = Client::new(&opened, keys)?;
    client.load()?;
    let share = if promise == Promise::Sync { SYNCED_SHARE } else { ROUNDS };
    let writes = ((keys as f64 * share) as u64).max(1);
    let began = Instant::now();
    client.overwrite(promise, writes)?;
    Ok(began.elapsed().as_secs_f64() * 1e6 / writes as f64)
}

struct Client {
    table: Table,
    space: KeySpace,
    keys: u64,
    values: Values,
    rng: siltstone_bench::generate::Rng,
    key: Vec<u8>,
}

impl Client {
    fn new(opened: &OpenEngine, keys: u64) -> Result<Self> {
        let table = Table::new("semantics", opened.engine.clone());
        let space = KeySpace::new(KEY_BYTES, keys)?;
        let mut rng = stream(1, 0);
        let values = Values::new(ValueSize::Fixed(VALUE_BYTES), 0.5, &mut rng);
        Ok(Client { table, space, keys, values, rng, key: Vec::new() })
    }

    /// Writes each key once, and runs all due background work.
    fn load(&mut self) -> Result<()> {
        let mut batch = WriteBatch::new();
        for n in 0..self.keys {
            self.space.write(n, &mut self.key);
            batch.put(&self.key, self.values.next(&mut self.rng));
            if n % 100 == 99 || n + 1 == self.keys {
                self.table.write(&batch, Durability::Buffered)?;
                batch.clear();
            }
        }
        self.table.engine().flush()?;
        self.table.engine().maintain()
    }

    fn overwrite(&mut self, promise: Promise, writes: u64) -> Result<()> {
        let replaced_every = ((writes as f64 * SNAPSHOT_SHARE) as u64).max(1);
        let mut held: Option<Snapshot> = None;
        for n in 0..writes {
            if promise == Promise::Snapshots && n % replaced_every == 0 {
                held = Some(self.table.snapshot()?);
            }
            let number = self.rng.random_range(0..self.keys);
            self.space.write(number, &mut self.key);
            let value = self.values.next(&mut self.rng);
            let durability = match promise {
                Promise::Sync => Durability::Synced,
                _ => Durability::Buffered,
            };
            let key = &self.key;
            let found = match promise {
                Promise::Transactions => self.table.transact(|transaction| {
                    let found = transaction.get(key)?.is_some();
                    transaction.put(key, value)?;
                    Ok(found)
                })?,
                _ => {
                    let found = promise != Promise::Reads || self.table.get(key)?.is_some();
                    self.table.write(WriteBatch::new().put(key, value), durability)?;
                    found
                }
            };
            if !found {
                return Err(Error::Invalid(format!("key {number} is missing")));
            }
        }
        drop(held);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::run;
    use super::*;

    #[test]
    fn every_step_has_a_finite_price() {
        let finding = run(&Semantics, 0.01, 1, &mut |_, _| ()).unwrap();
        assert_eq!(finding.checks.len(), 4);
        assert!(finding.checks.iter().all(|check| check.ours.is_finite() && check.ours > 0.0));
    }
}
