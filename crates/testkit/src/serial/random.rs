//! Random concurrent transactions, recorded.
//!
//! ```text
//!   keys        a few lists and registers: a new set every 48 transactions of a thread, so that
//!               there are always missing keys
//!   transaction 1 to 5 of: read a list, append to one, scan lists, read or write a register;
//!               half of the appends do not read the list, if the store has such
//!   a third     read-only, at a snapshot
//!   plain       a put of a register outside of any transaction; a get of one
//! ```
//!
//! An element is eight bytes, a list the concatenation of its elements.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use siltstone_engine::{Durability, Error, Result};

use super::{Event, History, Key, Outcome, Transaction, Version, Witness};
use crate::TestRng;

const LISTS: u64 = 5;
const REGISTERS: u64 = 3;
/// The number of keys per set; lists come first.
const KEYS_PER_SET: u64 = LISTS + REGISTERS;
/// Transactions of a thread per set of keys.
const TRANSACTIONS_PER_SET: u64 = 48;
/// The number of transactions that each thread runs.
pub const TRANSACTIONS: u64 = 150;

/// A store with transactions.
pub trait Store: Sync {
    /// Begins a transaction; one that will only read if `reads_only`.
    ///
    /// # Errors
    /// The store's.
    fn begin(&self, reads_only: bool) -> Result<Box<dyn Session + '_>>;

    /// Writes outside of any transaction.
    ///
    /// # Errors
    /// The store's.
    fn put(&self, key: &[u8], value: &[u8]) -> Result<()>;

    /// Reads outside of any transaction.
    ///
    /// # Errors
    /// The store's.
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>>;
}

/// An open transaction.
pub trait Session {
    /// The value of a key.
    ///
    /// # Errors
    /// The store's.
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>>;

    /// The entries from `start` on, before `end`; from the last to the first if `back`.
    ///
    /// # Errors
    /// The store's.
    fn scan(&self, start: &[u8], end: &[u8], back: bool) -> Result<Vec<(Vec<u8>, Vec<u8>)>>;

    /// Writes.
    ///
    /// # Errors
    /// The store's.
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()>;

    /// Appends to the value of a key without reading it; returns whether the store can do that.
    ///
    /// # Errors
    /// The store's.
    fn append(&mut self, _key: &[u8], _bytes: &[u8]) -> Result<bool> {
        Ok(false)
    }

    /// Commits.
    ///
    /// # Errors
    /// The store's; one that [is retryable](Error::is_retryable) says that nothing was applied.
    fn commit(self: Box<Self>, durability: Durability) -> Result<()>;
}

/// Runs `threads` threads with [`TRANSACTIONS`] transactions each, and one more that reads
/// everything at the end. The orders of registers are left empty.
///
/// # Errors
/// Any error of the store except conflicts.
pub fn record(store: &dyn Store, seed: u64, threads: u64) -> Result<History> {
    let clock = AtomicU64::new(0);
    let versions = AtomicU64::new(1);
    let worker = |process| Worker {
        store,
        clock: &clock,
        versions: &versions,
        process,
        rng: TestRng::of(seed, process),
    };
    let done: Vec<Result<Vec<Transaction>>> = std::thread::scope(|scope| {
        let work = |process| {
            let mut worker = worker(process);
            (0..TRANSACTIONS)
                .map(|number| worker.transaction(number / TRANSACTIONS_PER_SET))
                .collect()
        };
        let threads: Vec<_> = (0..threads).map(|t| scope.spawn(move || work(t))).collect();
        threads.into_iter().map(|t| t.join().expect("the thread does not panic")).collect()
    });
    let mut history = History::default();
    for done in done {
        history.transactions.extend(done?);
    }
    history.transactions.push(worker(threads).read_everything()?);
    Ok(history)
}

/// Every key that transactions may use.
pub fn keys() -> std::ops::Range<Key> {
    0..KEYS_PER_SET * TRANSACTIONS.div_ceil(TRANSACTIONS_PER_SET)
}

/// The bytes of a key.
pub fn key_bytes(key: Key) -> Vec<u8> {
    let (set, index) = (key / KEYS_PER_SET, key % KEYS_PER_SET);
    let kind = if index < LISTS { "list" } else { "register" };
    format!("{set:04}-{kind}-{index}").into_bytes()
}

/// The key of these bytes.
pub fn key_of(bytes: &[u8]) -> Option<Key> {
    let text = std::str::from_utf8(bytes).ok()?;
    let mut parts = text.split('-');
    let set: u64 = parts.next()?.parse().ok()?;
    Some(set * KEYS_PER_SET + parts.nth(1)?.parse::<u64>().ok()?)
}

/// The elements of a value; a register has one.
pub fn elements(value: &[u8]) -> Vec<Version> {
    value.as_chunks().0.iter().map(|bytes| u64::from_le_bytes(*bytes)).collect()
}

/// The order of every key's versions, as the witness recorded it.
pub fn orders(witness: &Witness) -> BTreeMap<Key, Vec<Version>> {
    let mut orders = BTreeMap::new();
    for (name, values) in witness.orders() {
        if let Some(key) = key_of(&name) {
            let last = values.iter().filter_map(|value| elements(value).last().copied());
            orders.insert(key, last.collect());
        }
    }
    orders
}

struct Worker<'s> {
    store: &'s dyn Store,
    clock: &'s AtomicU64,
    versions: &'s AtomicU64,
    process: u64,
    rng: TestRng,
}

impl Worker<'_> {
    fn transaction(&mut self, set: u64) -> Result<Transaction> {
        let began = self.clock.fetch_add(1, SeqCst);
        let mut events = Vec::new();
        let outcome = match self.rng.below(10) {
            0..2 => self.without_transaction(set, &mut events),
            kind => self.in_transaction(set, kind < 5, &mut events),
        };
        let outcome = match outcome {
            Ok(()) => Outcome::Committed,
            Err(error) if error.is_retryable() => Outcome::Aborted,
            Err(other) => return Err(other),
        };
        let ended = self.clock.fetch_add(1, SeqCst);
        Ok(Transaction { process: self.process, began, ended, outcome, events })
    }

    /// Runs one operation outside of a transaction, which is recorded as one.
    fn without_transaction(&mut self, set: u64, events: &mut Vec<Event>) -> Result<()> {
        let key = self.register(set);
        if self.rng.one_in(3) {
            let value = self.store.get(&key_bytes(key))?;
            events.push(Event::Read(key, register_of(value)));
            return Ok(());
        }
        let version = self.versions.fetch_add(1, SeqCst);
        events.push(Event::Write(key, version));
        self.store.put(&key_bytes(key), &version.to_le_bytes())
    }

    fn in_transaction(
        &mut self,
        set: u64,
        reads_only: bool,
        events: &mut Vec<Event>,
    ) -> Result<()> {
        let mut session = self.store.begin(reads_only)?;
        for _ in 0..=self.rng.below(5) {
            if self.rng.one_in(3) {
                std::thread::yield_now();
            }
            match self.rng.below(if reads_only { 4 } else { 8 }) {
                0 | 1 => {
                    let key = self.list(set);
                    let list = session.get(&key_bytes(key))?.unwrap_or_default();
                    events.push(Event::List(key, elements(&list)));
                }
                2 => self.scan(set, session.as_ref(), events)?,
                3 => {
                    let key = self.register(set);
                    events.push(Event::Read(key, register_of(session.get(&key_bytes(key))?)));
                }
                4 => {
                    let (key, version) = (self.register(set), self.versions.fetch_add(1, SeqCst));
                    session.put(&key_bytes(key), &version.to_le_bytes())?;
                    events.push(Event::Write(key, version));
                }
                _ => {
                    let (key, version) = (self.list(set), self.versions.fetch_add(1, SeqCst));
                    let is_blind = self.rng.one_in(2);
                    if is_blind && session.append(&key_bytes(key), &version.to_le_bytes())? {
                        events.push(Event::Append(key, version));
                        continue;
                    }
                    let mut list = session.get(&key_bytes(key))?.unwrap_or_default();
                    events.push(Event::List(key, elements(&list)));
                    list.extend_from_slice(&version.to_le_bytes());
                    session.put(&key_bytes(key), &list)?;
                    events.push(Event::Append(key, version));
                }
            }
        }
        let durability = if self.rng.one_in(8) { Durability::Synced } else { Durability::Buffered };
        // Some are rolled back: nothing of them may be visible.
        if self.rng.one_in(12) {
            return Err(Error::Conflict { key: Vec::new() });
        }
        session.commit(durability)
    }

    /// Scans some adjacent lists, missing ones included.
    fn scan(&mut self, set: u64, session: &dyn Session, events: &mut Vec<Event>) -> Result<()> {
        let first = self.rng.below(LISTS);
        let end = first + 1 + self.rng.below(LISTS - first);
        let (start_key, end_key) = (set * KEYS_PER_SET + first, set * KEYS_PER_SET + end);
        // The key after the last list is a register, whose name is greater than those of lists.
        let entries =
            session.scan(&key_bytes(start_key), &key_bytes(end_key), self.rng.one_in(2))?;
        for key in start_key..end_key {
            let name = key_bytes(key);
            let found = entries.iter().find(|(other, _)| *other == name);
            events.push(Event::List(key, found.map_or(Vec::new(), |(_, value)| elements(value))));
        }
        Ok(())
    }

    /// Reads the final state.
    fn read_everything(&mut self) -> Result<Transaction> {
        let began = self.clock.fetch_add(1, SeqCst);
        let session = self.store.begin(true)?;
        let mut events = Vec::new();
        for set in 0..=TRANSACTIONS / TRANSACTIONS_PER_SET {
            for index in 0..KEYS_PER_SET {
                let key = set * KEYS_PER_SET + index;
                let value = session.get(&key_bytes(key))?;
                events.push(match index < LISTS {
                    true => Event::List(key, elements(&value.unwrap_or_default())),
                    false => Event::Read(key, register_of(value)),
                });
            }
        }
        session.commit(Durability::Buffered)?;
        let ended = self.clock.fetch_add(1, SeqCst);
        let outcome = Outcome::Committed;
        Ok(Transaction { process: self.process, began, ended, outcome, events })
    }

    fn list(&mut self, set: u64) -> Key {
        set * KEYS_PER_SET + self.rng.below(LISTS)
    }

    fn register(&mut self, set: u64) -> Key {
        set * KEYS_PER_SET + LISTS + self.rng.below(REGISTERS)
    }
}

fn register_of(value: Option<Vec<u8>>) -> Option<Version> {
    elements(&value?).first().copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_round_trip_and_lists_come_before_registers() {
        for key in 0..100 {
            assert_eq!(key_of(&key_bytes(key)), Some(key));
            assert!(key_bytes(key) < key_bytes(key + 1), "{key}");
        }
    }
}
