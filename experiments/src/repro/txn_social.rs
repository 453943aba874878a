//! Shared parts of the transactional experiments: the social network's transactions, and a table
//! for them.
//!
//! ```text
//!   90 %  read-only     1 to 10 keys, Zipf 0.99
//!   10 %  read, write   1 to 5 keys,  Zipf 0.75     each is read and then written
//! ```
//!
//! The popular users are the same for both: keys that are read most are written most. Values
//! contain a number that is unique to the write.
//!
//! Source: Misra et al., "Multi-version Indexing in Flash-based Key-Value Stores", section 4.

use std::collections::BTreeMap;
use std::sync::Arc;

use rand::RngExt;
use siltstone::{Table, TransactionOptions};
use siltstone_bench::engines::{OpenEngine, Storage, Target};
use siltstone_bench::generate::{Chooser, Draw, KeySpace, Rng, stream};
use siltstone_engine::{Durability, Result, SystemClock, WriteBatch};
use siltstone_runtime::Env;

use super::skimpy_flash::VALUE_BYTES;

const READ_ONLY: f64 = 0.9;
const READ_SKEW: f64 = 0.99;
const WRITE_SKEW: f64 = 0.75;
const MAX_READ: u64 = 10;
const MAX_WRITTEN: u64 = 5;
/// Bytes per key; key and value are a record of the paper without its header.
const KEY: usize = 16;
/// Seed of the popularity of keys, the same for all clients.
const POPULAR: u64 = 5;

/// A drawn transaction.
pub(super) struct TransactionPlan {
    pub(super) writes: bool,
    /// The drawn keys, with repetitions.
    pub(super) keys: Vec<Vec<u8>>,
}

/// Draws the transactions of one client.
pub(super) struct Client {
    rng: Rng,
    read: Chooser,
    written: Chooser,
    space: KeySpace,
    keys: u64,
    /// Counter of unique values.
    number: u64,
}

impl Client {
    pub(super) fn new(keys: u64, client: u64) -> Result<Self> {
        let chooser = |skew| Chooser::new(Draw::Zipf { skew }, keys, POPULAR, client, 1);
        Ok(Client {
            rng: stream(11, client),
            read: chooser(READ_SKEW),
            written: chooser(WRITE_SKEW),
            space: KeySpace::new(KEY, keys)?,
            keys,
            number: client << 40,
        })
    }

    pub(super) fn draw(&mut self) -> TransactionPlan {
        let writes = !self.rng.random_bool(READ_ONLY);
        let max = if writes { MAX_WRITTEN } else { MAX_READ };
        let chooser = if writes { &mut self.written } else { &mut self.read };
        let count = self.rng.random_range(1..=max);
        let keys = (0..count).map(|_| {
            let mut key = Vec::new();
            self.space.write(chooser.next(&mut self.rng, self.keys), &mut key);
            key
        });
        TransactionPlan { writes, keys: keys.collect() }
    }

    /// A unique value.
    pub(super) fn value(&mut self) -> Vec<u8> {
        self.number += 1;
        value(self.number)
    }

    /// A random pause below `max`.
    pub(super) fn pause(&mut self, max: u64) -> u64 {
        self.rng.random_range(0..max)
    }
}

fn value(number: u64) -> Vec<u8> {
    let mut value = number.to_le_bytes().to_vec();
    value.resize(VALUE_BYTES, b'.');
    value
}

/// A table that contains every key.
pub(super) struct LoadedTable {
    pub(super) table: Table,
    _opened: OpenEngine,
}

/// Creates a table of an engine in memory and fills it.
pub(super) fn load(
    engine: &str,
    options: &[(&str, &str)],
    env: Env,
    keys: u64,
) -> Result<LoadedTable> {
    let options = options.iter().map(|(name, value)| (name.to_string(), value.to_string()));
    let target = Target {
        engine: engine.to_owned(),
        options: options.collect::<BTreeMap<_, _>>(),
        storage: Storage::Ram,
        keep: false,
        background_threads: 1,
    };
    let opened = target.open_in(env)?;
    let limits = TransactionOptions::default();
    let table = Table::with("social", opened.engine.clone(), Arc::new(SystemClock), &limits);
    let space = KeySpace::new(KEY, keys)?;
    let (mut batch, mut key) = (WriteBatch::new(), Vec::new());
    for number in 0..keys {
        space.write(number, &mut key);
        batch.put(&key, &value(u64::MAX - number));
        if batch.len() == 1000 || number + 1 == keys {
            table.write(&batch, Durability::Buffered)?;
            batch.clear();
        }
    }
    table.flush()?;
    table.maintain()?;
    Ok(LoadedTable { table, _opened: opened })
}
