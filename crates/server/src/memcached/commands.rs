//! Execution of memcached commands that write, under the key's lock; [`super::lookup`] has lookups.
//!
//! The locks are the stripes used by Redis commands, so `incr`, `cas`, `append` and `add` are
//! atomic with each other and with every command of every protocol on the same table.
//!
//! Source: memcached's `doc/protocol.txt`.

use std::borrow::Cow;
use std::sync::atomic::Ordering::Relaxed;

use siltstone_engine::{Error, Result, Timestamp};

use super::counters::Counter;
use super::line::Expiry;
use crate::command::store_text;
use crate::resp::Replies;
use crate::resp::number::Digits;
use crate::shared::Shared;
use crate::store::Database;
use crate::store::flags_trailer;
use crate::store::item::{Item, STALE};
use crate::store::write_batcher::WriteBatcher;

/// State of a running command.
pub(super) struct CommandContext<'a> {
    pub(super) shared: &'a Shared,
    pub(super) table: usize,
    pub(super) replies: &'a mut Replies,
    pub(super) batcher: &'a mut WriteBatcher,
}

/// Error reply of a command.
#[derive(Debug)]
pub(super) enum CommandError {
    /// A complete line of memcached.
    Text(&'static str),
    /// An error of the store.
    Store(Error),
}

impl From<Error> for CommandError {
    fn from(error: Error) -> Self {
        CommandError::Store(error)
    }
}

impl CommandError {
    /// Text of the reply.
    pub(super) fn text(&self) -> Cow<'static, str> {
        match self {
            CommandError::Text(text) => Cow::Borrowed(text),
            CommandError::Store(Error::TooLarge { .. }) => TOO_LARGE.into(),
            CommandError::Store(error) if error.is_disk_full() => {
                format!("{NO_MEMORY}: {error}").into()
            }
            CommandError::Store(error) => format!("SERVER_ERROR {}", store_text(error)).into(),
        }
    }
}

const NO_MEMORY: &str = "SERVER_ERROR out of memory storing object";
const TOO_LARGE: &str = "SERVER_ERROR object too large for cache";
pub(super) const BAD_LINE: CommandError =
    CommandError::Text("CLIENT_ERROR bad command line format");
pub(super) const NOT_A_NUMBER: CommandError =
    CommandError::Text("CLIENT_ERROR cannot increment or decrement non-numeric value");

/// Condition of a store command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    Set,
    Add,
    Replace,
    /// Append to the existing value; its flags and expiry stay.
    Append,
    Prepend,
}

/// A value to store.
#[derive(Debug, Clone, Copy)]
pub(super) struct StoreRequest<'a> {
    pub(super) mode: Mode,
    pub(super) value: &'a [u8],
    pub(super) flags: u32,
    /// Seconds, see [`Expiry::of`].
    pub(super) expiry: i64,
    /// Required cas of the existing item.
    pub(super) cas: Option<u64>,
    /// For an append without an existing value: store it with this expiry, in seconds.
    pub(super) vivify: Option<i64>,
    /// Whether a value older than the existing one is stored as stale.
    pub(super) may_be_stale: bool,
}

/// Outcome of a write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum WriteOutcome {
    /// The resulting item.
    Done(Item),
    /// The mode's condition is not met.
    NotStored,
    /// The cas does not match.
    Exists,
    /// The key does not exist.
    NotFound,
}

/// Arguments of an increment or decrement.
#[derive(Debug, Clone, Copy)]
pub(super) struct Arithmetic {
    pub(super) delta: u64,
    pub(super) is_decrement: bool,
    pub(super) cas: Option<u64>,
    /// On a miss: initial value and expiry in seconds.
    pub(super) vivify: Option<(u64, i64)>,
    /// New expiry, in seconds.
    pub(super) expiry: Option<i64>,
}

/// The item that remains after its value is removed.
#[derive(Debug, Clone, Copy)]
pub(super) struct EmptyItem {
    pub(super) is_stale: bool,
    pub(super) flags: u32,
    /// Seconds, see [`Expiry::of`].
    pub(super) expiry: i64,
}

impl CommandContext<'_> {
    pub(super) fn database(&self) -> &Database {
        &self.shared.databases[self.table]
    }

    pub(super) fn now(&self) -> Timestamp {
        self.shared.options.clock.now()
    }

    /// Maximum value size, in bytes.
    pub(super) fn max_value_bytes(&self) -> usize {
        let (database, options) = (self.database(), &self.shared.options);
        let flags_trailer = if database.has_flags_trailers() { flags_trailer::BYTES } else { 0 };
        (database.max_value_bytes - flags_trailer).min(options.max_value_bytes())
    }

    /// Rejects a value that is too large. The old value is removed, so that no client reads a value
    /// that its writer considers replaced.
    pub(super) fn reject_too_large(&mut self, replaced: Option<&[u8]>) -> CommandError {
        let shared = self.shared;
        shared.memcached.add(Counter::TooLarge);
        let Some(key) = replaced else { return CommandError::Text(TOO_LARGE) };
        let database = &shared.databases[self.table];
        let _guard = database.locks.one(key);
        let removed = match database.item(key) {
            Ok(None) => Ok(()),
            Ok(Some(_)) => self.remove(key),
            Err(error) => Err(error),
        };
        removed.map_or_else(CommandError::Store, |()| CommandError::Text(TOO_LARGE))
    }

    /// Records that a key was stored.
    fn record_store(&self, key: &[u8]) {
        if let Some(times) = &self.database().fetch_times {
            times.store(key);
        }
    }

    /// Records that a key was fetched.
    pub(super) fn record_fetch(&self, key: &[u8]) {
        if let Some(times) = &self.database().fetch_times {
            times.fetch(key);
        }
    }

    /// Marks a key's value as stale, with a new expiry if given.
    pub(super) fn invalidate(
        &mut self,
        key: &[u8],
        cas: Option<u64>,
        expiry: Option<i64>,
    ) -> Result<WriteOutcome> {
        self.delete_with(key, cas, |context, old| {
            let item = Item { marks: STALE, ..old };
            match expiry {
                None => context.put_keeping_expiry(key, item),
                Some(seconds) => context.put(key, item, seconds),
            }
        })
    }

    /// Removes a key's value and leaves an empty item with this metadata.
    pub(super) fn clear_value(
        &mut self,
        key: &[u8],
        cas: Option<u64>,
        empty: EmptyItem,
    ) -> Result<WriteOutcome> {
        let EmptyItem { is_stale, flags, expiry } = empty;
        self.delete_with(key, cas, |context, _| {
            let marks = if is_stale { STALE } else { 0 };
            context.put(key, Item { marks, flags, ..Item::default() }, expiry)
        })
    }

    /// Applies `action` to an item that is deleted, invalidated or emptied, if it exists and has
    /// the given cas. Counted as a deletion.
    fn delete_with(
        &mut self,
        key: &[u8],
        cas: Option<u64>,
        action: impl FnOnce(&mut Self, Item) -> Result<Item>,
    ) -> Result<WriteOutcome> {
        let shared = self.shared;
        let database = &shared.databases[self.table];
        let _guard = database.locks.one(key);
        let old = database.item(key)?;
        let is_match = old.as_ref().is_some_and(|old| cas.is_none_or(|cas| cas == old.cas));
        shared.memcached.add(if is_match { Counter::DeleteHits } else { Counter::DeleteMisses });
        match old {
            None => Ok(WriteOutcome::NotFound),
            Some(_) if !is_match => Ok(WriteOutcome::Exists),
            Some(old) => action(self, old).map(WriteOutcome::Done),
        }
    }

    /// Stores an item. The caller holds the key's lock.
    pub(super) fn put(&mut self, key: &[u8], mut item: Item, seconds: i64) -> Result<Item> {
        match Expiry::of(seconds, self.now()) {
            Expiry::Past => {
                self.remove(key)?;
                return Ok(item);
            }
            Expiry::Never => item.expires_at = None,
            Expiry::At(moment) => item.expires_at = Some(moment),
        }
        self.put_keeping_expiry(key, item)
    }

    /// Stores an item as it is. The caller holds the key's lock.
    pub(super) fn put_keeping_expiry(&mut self, key: &[u8], mut item: Item) -> Result<Item> {
        let database = &self.shared.databases[self.table];
        item.cas = database.put_item(key, &item)?;
        self.batcher.mark_written(self.table);
        Ok(item)
    }

    fn remove(&mut self, key: &[u8]) -> Result<()> {
        self.shared.databases[self.table].remove_item(key)?;
        self.batcher.mark_written(self.table);
        Ok(())
    }

    /// Stores a value, if its condition is met.
    pub(super) fn store(
        &mut self,
        key: &[u8],
        new: StoreRequest<'_>,
    ) -> Result<WriteOutcome, CommandError> {
        let counters = &self.shared.memcached;
        counters.add(Counter::Sets);
        let written = match self.store_if(key, new) {
            Err(Error::TooLarge { .. }) => {
                let is_set = new.mode == Mode::Set && new.cas.is_none();
                return Err(self.reject_too_large(is_set.then_some(key)));
            }
            Err(error) if error.is_disk_full() => {
                counters.add(Counter::NoMemory);
                // A full memory needs no further explanation.
                return Err(match self.database().mica {
                    Some(_) => CommandError::Text(NO_MEMORY),
                    None => error.into(),
                });
            }
            Err(error) => return Err(error.into()),
            Ok(written) => written,
        };
        if let WriteOutcome::Done(_) = written {
            counters.add(Counter::Items);
            self.record_store(key);
        }
        if new.cas.is_some() && matches!(new.mode, Mode::Set | Mode::Replace) {
            counters.add(match written {
                WriteOutcome::NotFound => Counter::CasMisses,
                WriteOutcome::Exists => Counter::CasBadValue,
                WriteOutcome::Done(_) | WriteOutcome::NotStored => Counter::CasHits,
            });
        }
        Ok(written)
    }

    fn store_if(&mut self, key: &[u8], new: StoreRequest<'_>) -> Result<WriteOutcome> {
        let shared = self.shared;
        let database = &shared.databases[self.table];
        let _guard = database.locks.one(key);
        let needs_old = new.mode != Mode::Set || new.cas.is_some();
        let old = if needs_old { database.item(key)? } else { None };
        // As in memcached: `add` ignores the cas, and an append to a missing key has none to
        // compare.
        match (new.cas, new.mode, &old) {
            (None, ..) | (_, Mode::Add, _) | (_, Mode::Append | Mode::Prepend, None) => {}
            (Some(_), _, None) => return Ok(WriteOutcome::NotFound),
            // A late value is better than none, but stored as stale only.
            (Some(cas), Mode::Set, Some(old)) if cas < old.cas && new.may_be_stale => {
                let (flags, expires_at) = (new.flags, old.expires_at);
                let (value, marks) = (new.value.to_vec(), STALE | old.marks);
                let item = Item { value, flags, marks, expires_at, ..Item::default() };
                return self.put_keeping_expiry(key, item).map(WriteOutcome::Done);
            }
            (Some(cas), _, Some(old)) if old.cas != cas => return Ok(WriteOutcome::Exists),
            (Some(_), _, Some(_)) => {}
        }
        let item = Item { value: new.value.to_vec(), flags: new.flags, ..Item::default() };
        let concatenated =
            |old: Item, parts: [&[u8]; 2]| Item { value: parts.concat(), marks: 0, ..old };
        match (new.mode, old) {
            (Mode::Set, _) | (Mode::Add, None) | (Mode::Replace, Some(_)) => {
                self.put(key, item, new.expiry).map(WriteOutcome::Done)
            }
            (Mode::Add, Some(_)) | (Mode::Replace, None) => Ok(WriteOutcome::NotStored),
            (Mode::Append | Mode::Prepend, None) => match new.vivify {
                None => Ok(WriteOutcome::NotStored),
                Some(seconds) => self.put(key, item, seconds).map(WriteOutcome::Done),
            },
            // As in memcached.
            (Mode::Append | Mode::Prepend, Some(old))
                if old.value.len() + new.value.len() > self.max_value_bytes() =>
            {
                Ok(WriteOutcome::NotStored)
            }
            (Mode::Append, Some(mut old)) => {
                let value = std::mem::take(&mut old.value);
                self.put_keeping_expiry(key, concatenated(old, [&value, new.value]))
                    .map(WriteOutcome::Done)
            }
            (Mode::Prepend, Some(mut old)) => {
                let value = std::mem::take(&mut old.value);
                self.put_keeping_expiry(key, concatenated(old, [new.value, &value]))
                    .map(WriteOutcome::Done)
            }
        }
    }

    /// Removes a key, if it exists and has the given cas.
    pub(super) fn delete(&mut self, key: &[u8], cas: Option<u64>) -> Result<WriteOutcome> {
        self.delete_with(key, cas, |context, old| context.remove(key).map(|_| old))
    }

    /// Increments or decrements a number. Increments wrap at 2^64, decrements stop at 0.
    pub(super) fn sum(
        &mut self,
        key: &[u8],
        sum: Arithmetic,
    ) -> Result<WriteOutcome, CommandError> {
        let shared = self.shared;
        let database = &shared.databases[self.table];
        let _guard = database.locks.one(key);
        let (hits, misses) = match sum.is_decrement {
            true => (Counter::DecrHits, Counter::DecrMisses),
            false => (Counter::IncrHits, Counter::IncrMisses),
        };
        let Some(mut item) = database.item(key)? else {
            let Some((initial, seconds)) = sum.vivify else {
                shared.memcached.add(misses);
                return Ok(WriteOutcome::NotFound);
            };
            let value = Digits::unsigned(initial).as_bytes().to_vec();
            self.record_store(key);
            return Ok(WriteOutcome::Done(self.put(
                key,
                Item { value, ..Item::default() },
                seconds,
            )?));
        };
        if sum.cas.is_some_and(|cas| cas != item.cas) {
            return Ok(WriteOutcome::Exists);
        }
        // memcached pads decremented numbers with spaces; imported tables may contain them.
        let old = super::line::number(item.value.trim_ascii_end()).ok_or(NOT_A_NUMBER)?;
        let number = match sum.is_decrement {
            true => old.saturating_sub(sum.delta),
            false => old.wrapping_add(sum.delta),
        };
        shared.memcached.add(hits);
        let digits = Digits::unsigned(number);
        if digits.as_bytes().len() > item.value.len() {
            // As in memcached, where a longer number is a new item.
            item.marks = 0;
            self.record_store(key);
        }
        item.value = digits.as_bytes().to_vec();
        let stored = match sum.expiry {
            None => self.put_keeping_expiry(key, item)?,
            Some(seconds) => self.put(key, item, seconds)?,
        };
        Ok(WriteOutcome::Done(stored))
    }

    /// Removes every key, now or after a delay in seconds.
    pub(super) fn flush(&mut self, seconds: i64) -> Result<()> {
        let counters = &self.shared.memcached;
        counters.add(Counter::Flushes);
        match Expiry::of(seconds, self.now()) {
            Expiry::At(moment) => {
                counters.flush_at.store(moment, Relaxed);
                Ok(())
            }
            Expiry::Never | Expiry::Past => {
                counters.flush_at.store(0, Relaxed);
                self.batcher.clear(&self.shared.databases, self.table)?;
                self.shared.observers.cleared();
                Ok(())
            }
        }
    }
}

/// Removes every key, if a delayed `flush_all` is due.
pub(crate) fn flush_if_due(shared: &Shared, batcher: &mut WriteBatcher) {
    let due = shared.memcached.flush_at.load(Relaxed);
    if due == 0 || shared.options.clock.now() < due {
        return;
    }
    let taken = shared.memcached.flush_at.compare_exchange(due, 0, Relaxed, Relaxed);
    if taken.is_err() {
        return;
    }
    match batcher.clear(&shared.databases, shared.memcached.table) {
        Ok(()) => shared.observers.cleared(),
        // There is no client to report to.
        Err(_) => drop(shared.metrics.errors.fetch_add(1, Relaxed)),
    }
}
