//! The `Engine` implementation over a [`Store`].
//!
//! Nothing is durable, whatever durability a write requests; `capabilities` says so. `sync` and
//! `flush` do nothing. Checkpoints are rejected, because a copy could not be opened.
//!
//! Invariant: a batch takes effect atomically.

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use siltstone_engine::entry::check_key;
use siltstone_engine::stats::Stats;
use siltstone_engine::{
    Capabilities, CheckpointSink, Cursor, Durability, Engine, Entry, Error, Forward, InvalidOption,
    Op, Result, VerifyReport, WriteBatch,
};
use siltstone_runtime::Env;

use crate::NAME;
use crate::cursor::CopyCursor;
use crate::options::{LIVE_OPTIONS, Options};
use crate::request::{Action, Outcome, Request, Value};
use crate::store::Store;

/// An open table of the `mica` engine.
pub struct Mica {
    store: Arc<Store>,
    closed: AtomicBool,
    cursors: Arc<AtomicU64>,
}

impl Mica {
    /// Opens an empty table.
    ///
    /// # Errors
    /// As [`Store::new`].
    pub fn open(env: Env, options: Options) -> Result<Self> {
        let store = Arc::new(Store::new(&env, options)?);
        Ok(Mica { store, closed: AtomicBool::new(false), cursors: Arc::default() })
    }

    /// The store, for bursts and for what the `Engine` trait does not offer. It stays usable after
    /// `close`.
    pub fn store(&self) -> &Arc<Store> {
        &self.store
    }

    fn check_open(&self) -> Result<()> {
        if self.closed.load(Relaxed) { Err(Error::Closed) } else { Ok(()) }
    }

    fn request<'b>(&self, op: Op<'b>) -> Request<'b> {
        let action = match op {
            Op::Put { value, expires_at, .. } => {
                Action::Put(Value { bytes: value, expires_at, ..Value::default() })
            }
            Op::Delete { .. } => Action::Delete(None),
        };
        Request { hash: self.store.hash(op.key()), key: op.key(), action }
    }
}

impl Engine for Mica {
    fn name(&self) -> &'static str {
        NAME
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            ordered: false,
            durable: false,
            versioned: false,
            incremental_gc: false,
            range_deletes: false,
            merge: false,
            change_feed: false,
            max_value_bytes: self.store.max_value_bytes(),
        }
    }

    fn get(&self, key: &[u8]) -> Result<Option<Entry>> {
        self.check_open()?;
        check_key(key)?;
        let mut value = Vec::new();
        let request = Request { hash: self.store.hash(key), key, action: Action::Get };
        let answer = self.store.one(&request, &mut value);
        let is_found = answer.outcome == Outcome::Found;
        Ok(is_found.then_some(Entry { value, expires_at: answer.meta.expires_at }))
    }

    fn write(&self, batch: &WriteBatch, _durability: Durability) -> Result<()> {
        self.check_open()?;
        batch.check(self.store.max_value_bytes())?;
        batch.reject_range_deletions(self.name())?;
        batch.reject_merges(self.name())?;
        let mut requests = batch.iter().map(|op| self.request(op));
        let outcome = match batch.len() {
            0 => return Ok(()),
            1 => requests.next().map_or(Outcome::Missing, |r| self.store.one(&r, &mut ()).outcome),
            _ => self.store.batch(&requests.collect::<Vec<_>>()),
        };
        // The options guarantee room for the largest key with the largest value.
        let limit = self.store.max_value_bytes() as u64;
        outcome.failure("batch", batch.user_bytes(), limit).map_or(Ok(()), Err)
    }

    /// Atomic; blocks other operations meanwhile.
    fn clear(&self) -> Result<()> {
        self.check_open()?;
        self.store.clear();
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        self.check_open()
    }

    fn iter(&self) -> Result<Box<dyn Cursor>> {
        self.check_open()?;
        Ok(Box::new(Forward::new(CopyCursor::of(&self.store, &self.cursors))))
    }

    /// Uniformly distributed over the keys.
    fn random_key(&self, below: &mut dyn FnMut(u64) -> u64) -> Result<Option<Vec<u8>>> {
        self.check_open()?;
        Ok(self.store.random_key(below))
    }

    fn flush(&self) -> Result<()> {
        self.check_open()
    }

    fn maintain(&self) -> Result<()> {
        self.check_open()
    }

    /// Waits for running bursts, and blocks others meanwhile.
    fn set_options(&self, changes: &BTreeMap<String, String>) -> Result<()> {
        self.check_open()?;
        let access = Options::from_map(changes)?.access;
        let fixed = changes.keys().filter(|name| !LIVE_OPTIONS.contains(&name.as_str()));
        let mistakes: Vec<_> = fixed
            .map(|name| InvalidOption {
                option: name.clone(),
                reason: "changes only when the table is opened: close it first".to_owned(),
            })
            .collect();
        if !mistakes.is_empty() {
            return Err(Error::InvalidOptions(mistakes));
        }
        if !changes.is_empty() {
            self.store.set_access(access);
        }
        Ok(())
    }

    fn checkpoint(&self, _sink: &mut dyn CheckpointSink) -> Result<()> {
        self.check_open()?;
        Err(self.unsupported("checkpoints"))
    }

    fn verify(&self, progress: &mut dyn FnMut(u64, u64)) -> Result<VerifyReport> {
        self.check_open()?;
        let bytes = self.store.memory().values().sum();
        progress(0, bytes);
        let mut report = VerifyReport { bytes, ..VerifyReport::default() };
        report.entries = self.store.verify(&mut report.damage);
        progress(bytes, bytes);
        Ok(report)
    }

    fn stats(&self) -> Stats {
        let (tally, counters) = self.store.counter_values();
        let mut memory = self.store.memory();
        memory.insert("cursors", self.cursors.load(Relaxed));
        Stats {
            engine: NAME,
            user_bytes_written: tally.user_bytes_written,
            writes: tally.writes,
            gets: tally.gets,
            gets_found: tally.gets_found,
            expired_entries_dropped: tally.expired_entries_dropped,
            keys_estimate: Some(self.store.items()),
            memory,
            counters,
            ..Stats::default()
        }
    }

    fn as_any(&self) -> Option<Arc<dyn Any + Send + Sync>> {
        Some(self.store.clone())
    }

    fn check_open(&self) -> Result<()> {
        Mica::check_open(self)
    }

    fn close(&self) -> Result<()> {
        self.closed.store(true, Relaxed);
        Ok(())
    }
}
