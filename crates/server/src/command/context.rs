//! State of a running command: client, table, replies.
//!
//! All reads and writes go through the context, so a handler is the same inside and outside of a
//! transaction: outside, writes go to the engine at once; inside, to the transaction's overlay,
//! under the locks held by EXEC.

use std::cell::Cell;

use siltstone_collections::{EngineRows, Metadata, Rows, StoredValue};
use siltstone_engine::{Entry, Error, Op, Result, Timestamp, WriteBatch};

use super::definition::{Definition, READ};
use super::events;
use super::failure::{self, Failure, Outcome};
use super::session::Session;
use super::sliced::SlicedCommand;
use super::table_rows::{Above, TableRows};
use crate::keyspace_events::EventClass;
use crate::resp::{Args, Replies};
use crate::shared::Shared;
use crate::store::expiries::NextExpiry;
use crate::store::group_writes::GroupWrites;
use crate::store::key_iter::{KeyIter, Start};
use crate::store::locks::Guard;
use crate::store::write_batcher::{KeyEvent, WriteBatcher};
use crate::store::{Database, Overlay, flags_trailer};

/// Runs a command: writes its reply, or returns the error that replaces it.
pub(crate) type Handler = fn(&mut Context<'_>, Args<'_>) -> Outcome;

/// State of a running command.
pub(crate) struct Context<'a> {
    pub(crate) shared: &'a Shared,
    pub(crate) session: &'a mut Session,
    pub(crate) replies: &'a mut Replies,
    pub(crate) batcher: &'a mut WriteBatcher,
    /// Writes of the running transaction, one overlay per table; empty outside of a transaction.
    pub(crate) overlays: &'a mut [Overlay],
    /// Handlers by command number: EXEC runs the queued commands.
    pub(crate) handlers: &'static [Handler],
    /// Writes of the group that the command belongs to, all of the selected table.
    pub(super) group: Option<&'a mut GroupWrites>,
    now: Cell<Option<Timestamp>>,
}

impl<'a> Context<'a> {
    pub(crate) fn new(
        shared: &'a Shared,
        session: &'a mut Session,
        replies: &'a mut Replies,
        batcher: &'a mut WriteBatcher,
        overlays: &'a mut [Overlay],
        handlers: &'static [Handler],
    ) -> Self {
        let (group, now) = (None, Cell::new(None));
        Context { shared, session, replies, batcher, overlays, handlers, group, now }
    }

    /// Current time, constant throughout a command or transaction.
    pub(crate) fn now(&self) -> Timestamp {
        let now = self.now.get().unwrap_or_else(|| self.shared.now(self.session.table));
        self.now.set(Some(now));
        now
    }

    /// Whether a transaction is running, or a group of commands.
    pub(crate) fn is_in_transaction(&self) -> bool {
        !self.overlays.is_empty() || self.group.is_some()
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

    /// Locks a key for a read of several rows; `None` in a transaction or a group, which holds the
    /// locks of its keys.
    pub(crate) fn lock_shared(&self, key: &[u8]) -> Option<Guard<'a>> {
        (!self.is_in_transaction()).then(|| self.database().locks.one_shared(key))
    }

    /// As [`lock_shared`](Self::lock_shared), of several keys.
    pub(crate) fn lock_many_shared<'k>(
        &self,
        keys: impl Iterator<Item = &'k [u8]>,
    ) -> Option<Guard<'a>> {
        (!self.is_in_transaction()).then(|| self.database().locks.many_shared(keys))
    }

    /// Locks several keys for a read of one row each, so that all are of one moment.
    pub(crate) fn lock_rows<'k>(&self, keys: impl Iterator<Item = &'k [u8]>) -> Guard<'a> {
        self.lock_many_shared(keys).unwrap_or(Guard::AlreadyHeld)
    }

    /// Locks several keys for a write.
    pub(crate) fn lock_many<'k>(&self, keys: impl Iterator<Item = &'k [u8]>) -> Guard<'a> {
        if self.is_in_transaction() { Guard::AlreadyHeld } else { self.database().locks.many(keys) }
    }

    /// Locks all keys of the selected table.
    pub(crate) fn lock_table(&self) -> Guard<'a> {
        if self.is_in_transaction() { Guard::AlreadyHeld } else { self.database().locks.all() }
    }

    /// String at a key of the selected table, for a command that is about to write it. Fails for
    /// any other type.
    #[inline]
    pub(crate) fn get(&self, key: &[u8]) -> Result<Option<Entry>, Failure> {
        string_of(self.get_any(key)?)
    }

    /// Value of any type at a key of the selected table.
    #[inline]
    pub(crate) fn get_any(&self, key: &[u8]) -> Result<Option<StoredValue>> {
        self.get_any_in(self.session.table, key)
    }

    /// String at a key of the selected table, for a command that reads it. Counts a hit or miss and
    /// records the access time. Fails for any other type.
    #[inline]
    pub(crate) fn read(&mut self, key: &[u8]) -> Result<Option<Entry>, Failure> {
        string_of(self.read_any(key)?)
    }

    /// As [`read`](Self::read), for any type.
    #[inline]
    pub(crate) fn read_any(&mut self, key: &[u8]) -> Result<Option<StoredValue>> {
        let stored = self.peek_any(key)?;
        if stored.is_some() && !self.session.is_no_touch {
            self.record_access(self.session.table, key);
        }
        Ok(stored)
    }

    /// As [`read_any`](Self::read_any), without recording the access time.
    #[inline]
    pub(crate) fn peek_any(&mut self, key: &[u8]) -> Result<Option<StoredValue>> {
        let stored = self.get_any(key)?;
        self.count_lookup(key, stored.is_some());
        Ok(stored)
    }

    /// Replies with the string at a key of the selected table, or null. As [`read`](Self::read),
    /// but the value is not copied before.
    pub(crate) fn reply_string(&mut self, key: &[u8]) -> Outcome {
        if self.is_in_transaction() {
            let entry = self.read(key)?;
            self.replies.bulk_or_null(entry.as_ref().map(|entry| entry.value.as_slice()));
            return Ok(());
        }
        let (database, replies) = (self.database(), &mut *self.replies);
        let has_collections = database.keyspace.is_some();
        let has_trailers = database.has_flags_trailers();
        let mut is_collection = false;
        let stored_key = database.stored_key(key);
        let is_found = database.engine.lookup(&stored_key, None, &mut |value, _| {
            is_collection = has_collections && Metadata::decode(value).is_some();
            if !is_collection {
                replies.bulk(if has_trailers { flags_trailer::value_in(value) } else { value });
            }
        })?;
        self.count_lookup(key, is_found);
        if is_found && !self.session.is_no_touch {
            self.record_access(self.session.table, key);
        }
        match (is_found, is_collection) {
            (true, true) => return Err(failure::WRONG_TYPE),
            (true, false) => {}
            (false, _) => self.replies.null(),
        }
        Ok(())
    }

    /// Replies with the strings at some keys of the selected table; as in Redis, other types read
    /// as missing. Reads from a device overlap.
    pub(crate) fn reply_strings(&mut self, keys: Args<'_>) -> Outcome {
        if self.is_in_transaction() {
            for key in keys.iter() {
                let string = self.read_any(key)?.filter(|stored| stored.metadata.is_none());
                self.replies.bulk_or_null(string.as_ref().map(|stored| &*stored.entry.value));
            }
            return Ok(());
        }
        let (database, replies) = (self.database(), &mut *self.replies);
        let has_collections = database.keyspace.is_some();
        let has_trailers = database.has_flags_trailers();
        let stored_keys: Vec<_> = keys.iter().map(|key| database.stored_key(key)).collect();
        let stored_keys: Vec<_> = stored_keys.iter().map(|key| &key[..]).collect();
        let mut are_found = Vec::with_capacity(keys.len());
        database.engine.multi_lookup(&stored_keys, None, &mut |found| {
            are_found.push(found.is_some());
            let is_string = |value: &&[u8]| !has_collections || Metadata::decode(value).is_none();
            let string = found.map(|(value, _)| value).filter(is_string);
            let without_flags =
                |value| if has_trailers { flags_trailer::value_in(value) } else { value };
            replies.bulk_or_null(string.map(without_flags));
            // The client is disconnected: further reads are useless.
            !replies.has_overflowed()
        })?;
        for (key, is_found) in keys.iter().zip(are_found) {
            self.count_lookup(key, is_found);
            if is_found && !self.session.is_no_touch {
                self.record_access(self.session.table, key);
            }
        }
        Ok(())
    }

    /// Counts a hit or a miss.
    #[inline]
    fn count_lookup(&mut self, key: &[u8], is_found: bool) {
        if is_found {
            self.batcher.samples.hits += 1;
            return;
        }
        self.batcher.samples.misses += 1;
        if self.shared.observers.has_events() {
            let (table, key) = (self.session.table, key.to_vec());
            let (class, event) = (EventClass::MISS, "keymiss");
            self.batcher.events.push(KeyEvent { table, class, event, key });
        }
    }

    /// Records an access of a key.
    #[inline]
    pub(super) fn record_access(&self, table: usize, key: &[u8]) {
        self.shared.access_times.record(table, key, self.batcher.clock);
    }

    /// Value of any type at a key of any table.
    pub(crate) fn get_any_in(&self, table: usize, key: &[u8]) -> Result<Option<StoredValue>> {
        let database = &self.shared.databases[table];
        if let Some(group) = &self.group
            && let Some(metadata) = group.metadata.as_ref().filter(|last| last.key() == key)
        {
            return Ok(metadata.stored(self.now()));
        }
        let rows = self.rows_of(table);
        let Some(entry) = rows.row(&database.stored_key(key))? else { return Ok(None) };
        let mut stored = match database.keyspace {
            Some(_) => StoredValue::new(entry),
            None => StoredValue { entry, metadata: None },
        };
        if stored.metadata.is_none() && database.has_flags_trailers() {
            flags_trailer::strip(&mut stored.entry.value);
        }
        Ok(Some(stored))
    }

    /// Entry of a key of the selected table at a time, in milliseconds since 1970.
    pub(crate) fn get_at(&self, key: &[u8], time: Timestamp) -> Result<Option<Entry>> {
        let engine = &self.database().engine;
        let point = engine.at(time)?;
        let mut entry = engine.get_at(&self.database().stored_key(key), &point)?;
        if let Some(entry) = &mut entry
            && self.database().has_flags_trailers()
        {
            flags_trailer::strip(&mut entry.value);
        }
        Ok(entry)
    }

    /// Whether a key exists.
    pub(crate) fn exists(&self, key: &[u8]) -> Result<bool> {
        Ok(self.get_any(key)?.is_some())
    }

    /// Writes one entry.
    pub(crate) fn put(
        &mut self,
        key: &[u8],
        value: &[u8],
        expires_at: Option<Timestamp>,
    ) -> Result<()> {
        self.write_row(Op::Put { key, value, expires_at })
    }

    /// Removes one key.
    pub(crate) fn delete(&mut self, key: &[u8]) -> Result<()> {
        self.write_row(Op::Delete { key })
    }

    /// Applies one operation; in a group without a batch of its own, if nothing needs that.
    fn write_row(&mut self, op: Op<'_>) -> Result<()> {
        let (shared, database) = (self.shared, self.database());
        let (key, value) = match op {
            Op::Put { key, value, .. } => (key, value),
            Op::Delete { key } => (key, &b""[..]),
        };
        if let Some(group) = &mut self.group
            && database.accepts(key, value)
            && !shared.observers.has_events()
            && check_size(group.rows.bytes() + key.len() + value.len(), shared).is_ok()
        {
            group.write_metadata();
            group.rows.push(op);
            self.record_access(self.session.table, key);
            return Ok(());
        }
        self.write(|batch| _ = batch.push(op))
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
        if database.has_flags_trailers() {
            flags_trailer::escape(&mut batch);
        }
        database.store_keys(&mut batch);
        if let Some(group) = &mut self.group {
            group.write_metadata();
        }
        let written = self.write_rows(table, &batch);
        self.batcher.scratch = batch;
        written
    }

    /// Applies a batch of stored keys. The caller holds the locks of its keys.
    pub(super) fn write_rows(&mut self, table: usize, batch: &WriteBatch) -> Result<()> {
        let database = &self.shared.databases[table];
        for key in batch.iter().filter_map(|op| database.user_key(op.key())) {
            self.record_access(table, &key);
        }
        if self.shared.observers.has_events() {
            events::note_writes(self, table, batch);
        }
        self.write_unnoted_rows(table, batch)
    }

    /// As [`write_rows`](Self::write_rows), without the events of the command.
    pub(super) fn write_unnoted_rows(&mut self, table: usize, batch: &WriteBatch) -> Result<()> {
        let database = &self.shared.databases[table];
        let pending_bytes = match (&self.group, self.overlays.get(table)) {
            (Some(group), _) => group.rows.bytes(),
            (None, Some(overlay)) => overlay.bytes(),
            (None, None) => return self.batcher.write(&self.shared.databases, table, batch),
        };
        // Rejected here, where the command can report it, not when the batch is applied.
        batch.check(database.max_value_bytes)?;
        check_size(pending_bytes + batch.as_bytes().len(), self.shared)?;
        match (&mut self.group, self.overlays.get_mut(table)) {
            (Some(group), _) => group.rows.apply(batch),
            (None, Some(overlay)) => overlay.apply(batch),
            (None, None) => {}
        }
        Ok(())
    }

    /// The rows of a table under the writes of the transaction or the group.
    pub(super) fn rows_of(&self, table: usize) -> TableRows<'_> {
        let below = EngineRows::newest(self.shared.databases[table].engine.as_ref());
        let writes = match (&self.group, self.overlays.get(table)) {
            (Some(group), _) => Above::Group(&group.rows, self.now()),
            (None, Some(overlay)) => Above::Transaction(overlay, self.now()),
            (None, None) => Above::Nothing,
        };
        TableRows { below, writes }
    }

    /// Records that a tracking client is about to read the keys of a command.
    pub(super) fn record_tracked_reads(&self, command: &Definition, args: Args<'_>) {
        if command.has(READ) && self.session.tracks_reads() {
            let (id, table) = (self.session.client().id, self.session.table);
            let observers = &self.shared.observers;
            for key in observers.tracking.record_reads(id, command.keys_in(args)) {
                // It may have an expiry from before there were tracking clients. A read that fails
                // does so again in the command.
                let stored = self.get_any(key).ok().flatten();
                if let Some(next) = stored.as_ref().and_then(NextExpiry::of_stored) {
                    observers.expiries.expect(table, key, next);
                }
            }
        }
    }

    /// Ends a slice: replies if it was the last one, otherwise keeps the state in the session.
    pub(crate) fn end_slice(&mut self, sliced: SlicedCommand) {
        match sliced.is_paused() {
            true => self.session.sliced = Some(Box::new(sliced)),
            false => sliced.reply(self.replies),
        }
    }

    /// Iterates over the keys of the selected table from `start`.
    pub(crate) fn iter_keys(&self, start: &Start) -> Result<KeyIter<'_>> {
        let overlay = self.overlays.get(self.session.table);
        KeyIter::new(self.database(), overlay, start, self.now())
    }
}

/// The value of a string; a failure for any other type.
fn string_of(stored: Option<StoredValue>) -> Result<Option<Entry>, Failure> {
    match stored {
        Some(StoredValue { metadata: Some(_), .. }) => Err(failure::WRONG_TYPE),
        stored => Ok(stored.map(|stored| stored.entry)),
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
