//! What the transactional experiments share: the social network's transactions, and a table to run
//! them over.
//!
//! ```text
//!   90 %  only read     1 to 10 keys, Zipf 0.99
//!   10 %  read, write   1 to 5 keys,  Zipf 0.75     each is read and then written
//! ```
//!
//! The popular users are the same for both: what is read most is what is written most. Values carry a
//! number that no two writes share.
//!
//! Source: Misra et al., "Multi-version Indexing in Flash-based Key-Value Stores", section 4.

use std::collections::BTreeMap;
use std::sync::Arc;

use rand::RngExt;
use siltstone::{Table, TransactionOptions};
use siltstone_engine::{Durability, Result, SystemClock, WriteBatch};
use siltstone_runtime::Env;

use super::skimpy_flash::VALUE_BYTES;
use crate::engines::{Medium, Opened, Target};
use crate::generate::{Chooser, Draw, KeySpace, Rng, stream};

const READ_ONLY: f64 = 0.9;
const READ_SKEW: f64 = 0.99;
const WRITE_SKEW: f64 = 0.75;
const MOST_READ: u64 = 10;
const MOST_WRITTEN: u64 = 5;
/// Bytes of a key; with a value a record of the paper's, less its header.
const KEY: usize = 16;
/// Which keys are popular is the same for everyone.
const POPULAR: u64 = 5;

/// A transaction that was drawn.
pub(super) struct Drawn {
    pub(super) writes: bool,
    /// The keys, as often as they were drawn.
    pub(super) keys: Vec<Vec<u8>>,
}

/// Draws the transactions of one client.
pub(super) struct Client {
    rng: Rng,
    read: Chooser,
    written: Chooser,
    space: KeySpace,
    keys: u64,
    /// Makes values that no one else writes.
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

    pub(super) fn draw(&mut self) -> Drawn {
        let writes = !self.rng.random_bool(READ_ONLY);
        let most = if writes { MOST_WRITTEN } else { MOST_READ };
        let chooser = if writes { &mut self.written } else { &mut self.read };
        let count = self.rng.random_range(1..=most);
        let keys = (0..count).map(|_| {
            let mut key = Vec::new();
            self.space.write(chooser.next(&mut self.rng, self.keys), &mut key);
            key
        });
        Drawn { writes, keys: keys.collect() }
    }

    /// A value of its own.
    pub(super) fn value(&mut self) -> Vec<u8> {
        self.number += 1;
        value(self.number)
    }

    /// A pause below `most`.
    pub(super) fn pause(&mut self, most: u64) -> u64 {
        self.rng.random_range(0..most)
    }
}

fn value(number: u64) -> Vec<u8> {
    let mut value = number.to_le_bytes().to_vec();
    value.resize(VALUE_BYTES, b'.');
    value
}

/// A table with every key in it; its files go with it.
pub(super) struct Loaded {
    pub(super) table: Table,
    _opened: Opened,
}

/// Makes a table on an engine by name, in memory, and fills it.
pub(super) fn load(engine: &str, options: &[(&str, &str)], env: Env, keys: u64) -> Result<Loaded> {
    let options = options.iter().map(|(name, value)| (name.to_string(), value.to_string()));
    let target = Target {
        engine: engine.to_owned(),
        options: options.collect::<BTreeMap<_, _>>(),
        medium: Medium::Ram,
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
    Ok(Loaded { table, _opened: opened })
}
