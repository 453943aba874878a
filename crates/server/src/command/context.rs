//! What a command works with: its client, its table, its replies.
//!
//! Reads and writes go through here, so that a handler is the same outside and inside of a
//! transaction: outside, writes go to the engine at once; inside, to the transaction's overlay,
//! under locks that EXEC holds.

use std::cell::Cell;

use siltstone_engine::{Entry, Error, Result, Timestamp, WriteBatch};

use super::Session;
use crate::resp::Replies;
use crate::shared::Shared;
use crate::store::locks::Guard;
use crate::store::turn::Turn;
use crate::store::walk::{Start, Walk};
use crate::store::{Database, Overlay, annex};

/// What a command works with.
pub(crate) struct Context<'a> {
    pub(crate) shared: &'a Shared,
    pub(crate) session: &'a mut Session,
    pub(crate) replies: &'a mut Replies,
    pub(crate) turn: &'a mut Turn,
    /// The writes of the transaction that is running, one a table; empty outside of one.
    pub(crate) overlays: &'a mut [Overlay],
    now: Cell<Option<Timestamp>>,
}

impl<'a> Context<'a> {
    pub(crate) fn new(
        shared: &'a Shared,
        session: &'a mut Session,
        replies: &'a mut Replies,
        turn: &'a mut Turn,
        overlays: &'a mut [Overlay],
    ) -> Self {
        Context { shared, session, replies, turn, overlays, now: Cell::new(None) }
    }

    /// The time, the same throughout a command or transaction.
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

    /// Locks a key of the selected table, for a command that writes it.
    pub(crate) fn lock(&self, key: &[u8]) -> Guard<'a> {
        if self.is_in_transaction() { Guard::Held } else { self.database().locks.one(key) }
    }

    /// Locks several keys.
    pub(crate) fn lock_many<'k>(&self, keys: impl Iterator<Item = &'k [u8]>) -> Guard<'a> {
        if self.is_in_transaction() { Guard::Held } else { self.database().locks.many(keys) }
    }

    /// The entry of a key of the selected table, for a command that is about to write it.
    #[inline]
    pub(crate) fn get(&self, key: &[u8]) -> Result<Option<Entry>> {
        self.get_in(self.session.table, key)
    }

    /// The entry of a key of the selected table, for a command that reads it: the access is counted
    /// and remembered.
    #[inline]
    pub(crate) fn read(&mut self, key: &[u8]) -> Result<Option<Entry>> {
        let entry = self.peek(key)?;
        if entry.is_some() {
            self.note_access(self.session.table, key);
        }
        Ok(entry)
    }

    /// As [`read`](Self::read), for a command that leaves the time of the last access as it is.
    #[inline]
    pub(crate) fn peek(&mut self, key: &[u8]) -> Result<Option<Entry>> {
        let entry = self.get(key)?;
        match entry {
            Some(_) => self.turn.samples.hits += 1,
            None => self.turn.samples.misses += 1,
        }
        Ok(entry)
    }

    #[inline]
    fn note_access(&self, table: usize, key: &[u8]) {
        self.shared.access_times.record(table, key, self.turn.clock);
    }

    /// The entry of a key of any table.
    pub(crate) fn get_in(&self, table: usize, key: &[u8]) -> Result<Option<Entry>> {
        // The store has no empty keys, so there is none to find.
        if key.is_empty() {
            return Ok(None);
        }
        let mut entry = match self.overlays.get(table).and_then(|overlay| overlay.get(key)) {
            Some(written) => written.filter(|entry| !entry.is_expired(self.now())).cloned(),
            None => self.shared.databases[table].engine.get(key)?,
        };
        self.bare(table, &mut entry);
        Ok(entry)
    }

    /// The entry that a key of the selected table had at a time, in milliseconds since 1970.
    pub(crate) fn get_at(&self, key: &[u8], time: Timestamp) -> Result<Option<Entry>> {
        let engine = &self.database().engine;
        let point = engine.at(time)?;
        if key.is_empty() {
            return Ok(None);
        }
        let mut entry = engine.get_at(key, &point)?;
        self.bare(self.session.table, &mut entry);
        Ok(entry)
    }

    /// Flags are for memcached's clients; the value is what stands before them.
    fn bare(&self, table: usize, entry: &mut Option<Entry>) {
        if let Some(entry) = entry
            && self.shared.databases[table].has_annexes()
        {
            annex::take(&mut entry.value);
        }
    }

    /// Whether a key is there.
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

    /// Applies what `fill` puts into a batch, whole. The caller holds the locks of its keys.
    pub(crate) fn write(&mut self, fill: impl FnOnce(&mut WriteBatch)) -> Result<()> {
        self.write_in(self.session.table, fill)
    }

    /// As [`write`](Self::write), in any table.
    pub(crate) fn write_in(
        &mut self,
        table: usize,
        fill: impl FnOnce(&mut WriteBatch),
    ) -> Result<()> {
        let mut batch = std::mem::take(&mut self.turn.scratch);
        batch.clear();
        fill(&mut batch);
        let database = &self.shared.databases[table];
        batch.iter().for_each(|op| self.note_access(table, op.key()));
        if database.has_annexes() {
            annex::protect(&mut batch);
        }
        let written = match self.overlays.get_mut(table) {
            // Refused now, where the command can say so, and not when EXEC applies the whole.
            Some(overlay) => batch
                .check(database.max_value_bytes)
                .and_then(|()| check_size(overlay.bytes() + batch.as_bytes().len(), self.shared))
                .map(|()| overlay.apply(&batch)),
            None => self.turn.write(&self.shared.databases, table, &batch),
        };
        self.turn.scratch = batch;
        written
    }

    /// The keys of the selected table from a start on.
    pub(crate) fn walk(&self, start: &Start) -> Result<Walk<'_>> {
        let overlay = self.overlays.get(self.session.table);
        Walk::new(self.database(), overlay, start, self.now())
    }
}

/// Refuses a transaction that would hold more than a request may.
fn check_size(bytes: usize, shared: &Shared) -> Result<()> {
    let limit = shared.options.max_request_bytes;
    if bytes > limit {
        let (size, limit) = (bytes as u64, limit as u64);
        return Err(Error::TooLarge { what: "transaction", size, limit });
    }
    Ok(())
}
