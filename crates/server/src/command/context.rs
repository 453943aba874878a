//! State of a running command: client, table, replies.
//!
//! All reads and writes go through the context, so a handler is the same inside and outside of a
//! transaction: outside, writes go to the engine at once; inside, to the transaction's overlay,
//! under the locks held by EXEC.

use std::cell::Cell;

use siltstone_engine::{Entry, Error, Result, Timestamp, WriteBatch};

use super::Session;
use crate::resp::Replies;
use crate::shared::Shared;
use crate::store::key_iter::{KeyIter, Start};
use crate::store::locks::Guard;
use crate::store::write_batcher::WriteBatcher;
use crate::store::{Database, Overlay, flags_trailer};

/// State of a running command.
pub(crate) struct Context<'a> {
    pub(crate) shared: &'a Shared,
    pub(crate) session: &'a mut Session,
    pub(crate) replies: &'a mut Replies,
    pub(crate) batcher: &'a mut WriteBatcher,
    /// Writes of the running transaction, one overlay per table; empty outside of a transaction.
    pub(crate) overlays: &'a mut [Overlay],
    now: Cell<Option<Timestamp>>,
}

impl<'a> Context<'a> {
    pub(crate) fn new(
        shared: &'a Shared,
        session: &'a mut Session,
        replies: &'a mut Replies,
        batcher: &'a mut WriteBatcher,
        overlays: &'a mut [Overlay],
    ) -> Self {
        Context { shared, session, replies, batcher, overlays, now: Cell::new(None) }
    }

    /// Current time, constant throughout a command or transaction.
    pub(crate) fn now(&self) -> Timestamp {
        let now = self.now.get().unwrap_or_else(|| self.shared.options.clock.now());
        self.now.set(Some(now));
        now
    }

    /// Whether a transaction is running.
    pub(crate) fn is_in_transaction(&self) -> bool {
        !self.overlays.is_empty()
    }

    /// The selected table.
    #[inline]
    pub(crate) fn database(&self) -> &'a Database {
        &self.shared.databases[self.session.table]
    }

    /// Locks a key of the selected table for a write.
    pub(crate) fn lock(&self, key: &[u8]) -> Guard<'a> {
        if self.is_in_transaction() { Guard::AlreadyHeld } else { self.database().locks.one(key) }
    }

    /// Locks several keys.
    pub(crate) fn lock_many<'k>(&self, keys: impl Iterator<Item = &'k [u8]>) -> Guard<'a> {
        if self.is_in_transaction() { Guard::AlreadyHeld } else { self.database().locks.many(keys) }
    }

    /// Entry of a key of the selected table, for a command that is about to write it.
    #[inline]
    pub(crate) fn get(&self, key: &[u8]) -> Result<Option<Entry>> {
        self.get_in(self.session.table, key)
    }

    /// Entry of a key of the selected table, for a command that reads it. Counts a hit or miss and
    /// records the access time.
    #[inline]
    pub(crate) fn read(&mut self, key: &[u8]) -> Result<Option<Entry>> {
        let entry = self.peek(key)?;
        if entry.is_some() {
            self.record_access(self.session.table, key);
        }
        Ok(entry)
    }

    /// As [`read`](Self::read), without recording the access time.
    #[inline]
    pub(crate) fn peek(&mut self, key: &[u8]) -> Result<Option<Entry>> {
        let entry = self.get(key)?;
        match entry {
            Some(_) => self.batcher.samples.hits += 1,
            None => self.batcher.samples.misses += 1,
        }
        Ok(entry)
    }

    #[inline]
    fn record_access(&self, table: usize, key: &[u8]) {
        self.shared.access_times.record(table, key, self.batcher.clock);
    }

    /// Entry of a key of any table.
    pub(crate) fn get_in(&self, table: usize, key: &[u8]) -> Result<Option<Entry>> {
        // The store has no empty keys.
        if key.is_empty() {
            return Ok(None);
        }
        let mut entry = match self.overlays.get(table).and_then(|overlay| overlay.get(key)) {
            Some(written) => written.filter(|entry| !entry.is_expired(self.now())).cloned(),
            None => self.shared.databases[table].engine.get(key)?,
        };
        self.strip_trailer(table, &mut entry);
        Ok(entry)
    }

    /// Entry of a key of the selected table at a time, in milliseconds since 1970.
    pub(crate) fn get_at(&self, key: &[u8], time: Timestamp) -> Result<Option<Entry>> {
        let engine = &self.database().engine;
        let point = engine.at(time)?;
        if key.is_empty() {
            return Ok(None);
        }
        let mut entry = engine.get_at(key, &point)?;
        self.strip_trailer(self.session.table, &mut entry);
        Ok(entry)
    }

    /// Strips the trailer with memcached flags from the value.
    fn strip_trailer(&self, table: usize, entry: &mut Option<Entry>) {
        if let Some(entry) = entry
            && self.shared.databases[table].has_flags_trailers()
        {
            flags_trailer::strip(&mut entry.value);
        }
    }

    /// Whether a key exists.
    pub(crate) fn exists(&self, key: &[u8]) -> Result<bool> {
        Ok(self.get(key)?.is_some())
    }

    /// Writes one entry.
    pub(crate) fn put(
        &mut self,
        key: &[u8],
        value: &[u8],
        expires_at: Option<Timestamp>,
    ) -> Result<()> {
        self.write(|batch| {
            match expires_at {
                None => batch.put(key, value),
                Some(at) => batch.put_until(key, value, at),
            };
        })
    }

    /// Removes one key.
    pub(crate) fn delete(&mut self, key: &[u8]) -> Result<()> {
        self.write(|batch| {
            batch.delete(key);
        })
    }

    /// Applies the batch filled by `fill` atomically. The caller holds the locks of its keys.
    pub(crate) fn write(&mut self, fill: impl FnOnce(&mut WriteBatch)) -> Result<()> {
        self.write_in(self.session.table, fill)
    }

    /// As [`write`](Self::write), in any table.
    pub(crate) fn write_in(
        &mut self,
        table: usize,
        fill: impl FnOnce(&mut WriteBatch),
    ) -> Result<()> {
        let mut batch = std::mem::take(&mut self.batcher.scratch);
        batch.clear();
        fill(&mut batch);
        let database = &self.shared.databases[table];
        batch.iter().for_each(|op| self.record_access(table, op.key()));
        if database.has_flags_trailers() {
            flags_trailer::escape(&mut batch);
        }
        let written = match self.overlays.get_mut(table) {
            // Rejected here, where the command can report it, not when EXEC applies the batch.
            Some(overlay) => batch
                .check(database.max_value_bytes)
                .and_then(|()| check_size(overlay.bytes() + batch.as_bytes().len(), self.shared))
                .map(|()| overlay.apply(&batch)),
            None => self.batcher.write(&self.shared.databases, table, &batch),
        };
        self.batcher.scratch = batch;
        written
    }

    /// Iterates over the keys of the selected table from `start`.
    pub(crate) fn iter_keys(&self, start: &Start) -> Result<KeyIter<'_>> {
        let overlay = self.overlays.get(self.session.table);
        KeyIter::new(self.database(), overlay, start, self.now())
    }
}

/// Rejects a transaction larger than the request limit.
fn check_size(bytes: usize, shared: &Shared) -> Result<()> {
    let limit = shared.options.max_request_bytes;
    if bytes > limit {
        let (size, limit) = (bytes as u64, limit as u64);
        return Err(Error::TooLarge { what: "transaction", size, limit });
    }
    Ok(())
}
