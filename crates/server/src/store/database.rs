//! One SELECT index: an engine, its locks and watches.
//!
//! All writes of all clients go through [`Database::write`], under the locks of their keys; it
//! notifies watches and marks the table for its next sync.
//!
//! The database has what belongs to the number that clients select: locks, watches, waiting
//! commands. What belongs to the table is in [`Content`], and SWAPDB exchanges the contents of two
//! databases under all locks of both. A command that holds a lock, or reads once, sees one content.
//! When a table has moved to another engine, its new content takes the place of the old one, while
//! no command runs.
//!
//! An ordered engine also has the rows of collections, under a reserved prefix
//! ([`siltstone_collections`]). A *stored key* is the key in the engine; it differs from the
//! user's key only under that prefix. Batches and overlays have stored keys.

use std::borrow::Cow;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use siltstone::Table;
use siltstone_collections::layout::PREFIX;
use siltstone_collections::{EngineRows, ExpiredFields, Hash, Keyspace, UserKeys, WriteSet};
use siltstone_engine::{
    Clock, Cursor, Durability, Engine, Entry, Error, MAX_KEY_BYTES, Op, Result, Timestamp,
    WriteBatch,
};
use siltstone_mica::Store;

use super::contents::Contents;
use super::expiries::NextExpiry;
use super::fetch_times::FetchTimes;
use super::flags_trailer;
use super::locks::KeyLocks;
use super::observers::Observers;
use super::versions::Versions;
use super::watch::Watches;

/// One SELECT index. Dereferences to the content that it has at the moment.
pub(crate) struct Database {
    pub(crate) locks: KeyLocks,
    pub(crate) watches: Watches,
    /// Receivers of changed keys; shared by all tables.
    observers: Arc<Observers>,
    /// SELECT index.
    index: usize,
    /// The contents of all databases.
    contents: Arc<Contents>,
    /// Which of them this one has. Changes under all locks.
    content: AtomicUsize,
    /// Version counters for `cas`, if the table serves memcached clients.
    pub(crate) versions: Option<Versions>,
    /// Fetch times for `mg`, if the table serves memcached clients.
    pub(crate) fetch_times: Option<FetchTimes>,
}

/// A table with the state that stays with it.
pub(crate) struct Content {
    pub(crate) name: String,
    pub(crate) engine: Arc<dyn Engine>,
    /// The table, if it is not replicated.
    pub(crate) table: Option<Table>,
    pub(crate) max_value_bytes: usize,
    /// The collections, if the engine is ordered.
    pub(crate) keyspace: Option<Keyspace>,
    /// The concrete store, if the engine is `mica`.
    pub(crate) mica: Option<Arc<Store>>,
    /// Written since the last sync began.
    unsynced: AtomicBool,
}

impl Deref for Database {
    type Target = Content;

    #[inline]
    fn deref(&self) -> &Content {
        self.contents.get(self.content.load(Ordering::Acquire))
    }
}

impl Content {
    /// A table whose values have up to `max_value_bytes`, or fewer if the engine's limit is lower.
    /// Upgrades a table that is older than collections.
    pub(crate) fn open(table: Table, max_value_bytes: usize, now: Timestamp) -> Result<Self> {
        let engine = table.engine().clone();
        let is_ordered = engine.capabilities().ordered;
        Ok(Content {
            keyspace: is_ordered.then(|| Keyspace::open(engine.as_ref(), now)).transpose()?,
            name: table.name().to_owned(),
            max_value_bytes: max_value_bytes.min(engine.capabilities().max_value_bytes),
            mica: engine.as_any().and_then(|inside| inside.downcast().ok()),
            unsynced: AtomicBool::new(false),
            table: Some(table),
            engine,
        })
    }

    /// The table of a replicated group, which other nodes write, too.
    pub(crate) fn open_replicated(
        name: String,
        engine: Arc<dyn Engine>,
        max_value_bytes: usize,
        now: Timestamp,
    ) -> Result<Self> {
        Ok(Content {
            keyspace: Some(Keyspace::attach(engine.as_ref(), now)?),
            name,
            max_value_bytes: max_value_bytes.min(engine.capabilities().max_value_bytes),
            mica: None,
            unsynced: AtomicBool::new(false),
            table: None,
            engine,
        })
    }
}

impl Database {
    /// One database per content, in this order.
    pub(crate) fn of_contents(contents: Vec<Content>, observers: &Arc<Observers>) -> Vec<Self> {
        let len = contents.len();
        let contents = Arc::new(Contents::of(contents));
        let database = |index| Database {
            index,
            observers: observers.clone(),
            locks: KeyLocks::new(),
            watches: Watches::default(),
            versions: None,
            fetch_times: None,
            content: AtomicUsize::new(index),
            contents: contents.clone(),
        };
        (0..len).map(database).collect()
    }

    /// Whether clients of memcached's protocol or of UDP are served from the table.
    pub(crate) fn is_named_by_other_protocols(&self) -> bool {
        self.versions.is_some() || self.locks.has_burst_threads()
    }

    /// Exchanges the contents of two databases, durably. Writes before it are synced. The caller
    /// holds all locks of both.
    pub(crate) fn swap(&self, other: &Database) -> Result<()> {
        let (Some(table), Some(others)) = (&self.table, &other.table) else {
            let engine = self.engine.name();
            return Err(Error::Unsupported { engine, operation: "SWAPDB" });
        };
        // A worker that has written one of them will sync what the database then has.
        self.engine.sync()?;
        other.engine.sync()?;
        // As in Redis, a watched key that exists in neither is not changed.
        for database in [self, other] {
            let mut watched = database.watches.keys();
            watched.retain(|key| [self, other].iter().any(|it| !matches!(it.get(key), Ok(None))));
            database.watches.touch(watched.iter());
        }
        table.swap_places(others)?;
        let mine = self.content.load(Ordering::Acquire);
        self.content.store(other.content.load(Ordering::Acquire), Ordering::Release);
        other.content.store(mine, Ordering::Release);
        self.observers.swapped(self.index, other.index);
        Ok(())
    }

    /// The number of the present content.
    pub(crate) fn content_number(&self) -> usize {
        self.content.load(Ordering::Acquire)
    }

    /// Whether the table that had the content with this number has moved to another engine.
    pub(crate) fn has_moved(&self, content: usize) -> bool {
        self.contents.get(content).engine.check_open().is_err()
    }

    /// Whether [`replace`](Self::replace) has room for another content.
    pub(crate) fn can_be_replaced(&self) -> bool {
        self.contents.has_room()
    }

    /// Replaces the content by that of the same table on another engine. No command runs meanwhile.
    pub(crate) fn replace(&self, content: Content) {
        if let Some(number) = self.contents.add(content) {
            self.content.store(number, Ordering::Release);
        }
    }

    /// Reads the state of the table again after other nodes may have written it.
    pub(crate) fn reload(&self, now: Timestamp) -> Result<()> {
        self.watches.touch(self.watches.keys().iter());
        self.keyspace.iter().try_for_each(|keyspace| keyspace.reload(self.engine.as_ref(), now))
    }

    /// The stored key of a user's key.
    #[inline]
    pub(crate) fn stored_key<'k>(&self, key: &'k [u8]) -> Cow<'k, [u8]> {
        match &self.keyspace {
            Some(_) => siltstone_collections::stored_key(key),
            None => Cow::Borrowed(key),
        }
    }

    /// The user's key of a stored key; `None` for rows of collections.
    #[inline]
    pub(crate) fn user_key<'k>(&self, stored: &'k [u8]) -> Option<Cow<'k, [u8]>> {
        match &self.keyspace {
            Some(_) => siltstone_collections::user_key(stored),
            None => Some(Cow::Borrowed(stored)),
        }
    }

    /// The row of a user's key: a value with its trailer, or the metadata of a collection.
    #[inline]
    pub(crate) fn get(&self, key: &[u8]) -> Result<Option<Entry>> {
        self.engine.get(&self.stored_key(key))
    }

    /// Iterates over the user's keys.
    pub(crate) fn iter(&self) -> Result<Box<dyn Cursor>> {
        let rows = self.engine.iter()?;
        Ok(if self.keyspace.is_some() { Box::new(UserKeys::new(rows)) } else { rows })
    }

    /// The engine's estimate of the number of keys; `None` if it would count rows of collections.
    pub(crate) fn keys_estimate(&self) -> Option<u64> {
        match &self.keyspace {
            Some(keyspace) if keyspace.has_reserved_rows() => None,
            _ => self.engine.stats().keys_estimate,
        }
    }

    /// Replaces the user's keys of a batch by stored keys.
    #[inline]
    pub(crate) fn store_keys(&self, batch: &mut WriteBatch) {
        let Some(keyspace) = &self.keyspace else { return };
        if !batch.iter().any(|op| op.key().starts_with(&PREFIX)) {
            return;
        }
        for op in std::mem::take(batch).iter() {
            let key: &[u8] = &siltstone_collections::stored_key(op.key());
            match op {
                Op::Delete { .. } => batch.delete(key),
                Op::Put { value, expires_at, .. } => batch.push(Op::Put { key, value, expires_at }),
            };
        }
        keyspace.mark_batch(batch);
    }

    /// Applies a batch of stored keys, buffered. The caller holds the locks of its keys.
    #[inline]
    pub(crate) fn write(&self, batch: &WriteBatch) -> Result<()> {
        if batch.as_bytes().len() > self.max_value_bytes {
            batch.check(self.max_value_bytes)?;
        }
        self.watches.touch(batch.iter().filter_map(|op| self.user_key(op.key())));
        let written = self.engine.write(batch, Durability::Buffered);
        // After the write: a sync that began earlier does not cover it.
        self.unsynced.store(true, Ordering::Release);
        if let Some(versions) = &self.versions {
            // Whatever the outcome: a failed write may be applied in part.
            for key in batch.iter().filter_map(|op| self.user_key(op.key())) {
                versions.record_write(&key);
            }
        }
        self.record_change(batch.iter().filter_map(|op| {
            let next = match op {
                Op::Put { value, expires_at, .. } if self.keyspace.is_some() => {
                    NextExpiry::of_row(value, expires_at)
                }
                Op::Put { expires_at, .. } => expires_at.map(NextExpiry::of_key),
                Op::Delete { .. } => None,
            };
            Some((self.user_key(op.key())?, next))
        }));
        if let (Ok(()), Some(keyspace)) = (&written, &self.keyspace) {
            keyspace.record_write(batch);
        }
        written
    }

    /// Takes fields of a hash that have expired out of its count. A missing hash has expired with
    /// its last field. `clock` is that of commands.
    pub(crate) fn expire_fields(
        &self,
        key: &[u8],
        clock: &dyn Clock,
    ) -> Result<Option<ExpiredFields>> {
        let Some(keyspace) = &self.keyspace else { return Ok(None) };
        let _guard = self.locks.one(key);
        let rows = EngineRows::newest(self.engine.as_ref());
        let mut writes = WriteSet::new(&rows, keyspace, clock.now());
        writes.set_clock(clock);
        if writes.stored(key)?.is_none() {
            return Ok(Some(ExpiredFields { key: key.to_vec(), count: 0, is_removed: true }));
        }
        // Opening it counts them. A key of another type has no fields.
        if Hash::open(&mut writes, key).is_err() {
            return Ok(None);
        }
        let _stopped = writes.take_stopped_clock();
        let expired = writes.take_expired().pop();
        let batch = writes.take_batch();
        if !batch.is_empty() {
            self.write(&batch)?;
        }
        Ok(expired)
    }

    /// Notifies the observers of written keys with their next expiry, and of removed keys, after
    /// the write. The caller holds their locks.
    #[inline]
    pub(crate) fn record_change<'k>(
        &self,
        keys: impl Iterator<Item = (Cow<'k, [u8]>, Option<NextExpiry>)>,
    ) {
        self.observers.changed(self.index, keys);
    }

    /// Removes every key, durably. The caller holds all locks.
    pub(crate) fn clear(&self) -> Result<()> {
        // As in Redis, a watched key that does not exist is not changed.
        let mut watched = self.watches.keys();
        watched.retain(|key| !matches!(self.get(key), Ok(None)));
        self.watches.touch(watched.iter().map(Vec::as_slice));
        let cleared = match &self.table {
            // On a full disk it has space of the store's.
            Some(table) => table.clear(),
            None => self.engine.clear(),
        };
        if let Some(keyspace) = &self.keyspace {
            keyspace.record_clear();
        }
        if let Some(versions) = &self.versions {
            // Whatever the outcome: it may be applied in part.
            versions.record_write_of_all();
        }
        cleared
    }

    /// Syncs the table if it was written since the last sync.
    pub(crate) fn sync_if_written(&self) -> Result<()> {
        // Another content may take its place meanwhile, and the old one was synced then.
        let content: &Content = self;
        if !content.unsynced.swap(false, Ordering::AcqRel) {
            return Ok(());
        }
        let synced = content.engine.sync();
        if synced.is_err() && !std::ptr::eq(content, &**self) {
            return Ok(());
        }
        synced.inspect_err(|_| content.unsynced.store(true, Ordering::Release))
    }

    /// Whether a key and a value are within the limits and need no escaping, checked before they
    /// join a batch whose keys are stored keys.
    pub(crate) fn accepts(&self, key: &[u8], value: &[u8]) -> bool {
        let fits = key.len() <= MAX_KEY_BYTES && value.len() <= self.max_value_bytes;
        let is_reserved = self.keyspace.is_some() && key.starts_with(&PREFIX);
        fits && !is_reserved && !(self.has_flags_trailers() && flags_trailer::needs_escape(value))
    }
}
