//! What commands do: reads, and writes under the key's lock.
//!
//! The lock is the stripe that RESP's commands take, so `incr`, `cas`, `append` and `add` are atomic
//! with one another and with every command of every protocol on the same table.
//!
//! Source: memcached's `doc/protocol.txt`.

use std::borrow::Cow;
use std::sync::atomic::Ordering::Relaxed;

use siltstone_engine::{Error, Result, Timestamp};

use super::line::Expiry;
use crate::command::store_text;
use crate::resp::Replies;
use crate::resp::number::Digits;
use crate::shared::Shared;
use crate::store::Database;
use crate::store::annex;
use crate::store::item::Item;
use crate::store::turn::Turn;

/// What a command works with.
pub(super) struct Deed<'a> {
    pub(super) shared: &'a Shared,
    pub(super) table: usize,
    pub(super) replies: &'a mut Replies,
    pub(super) turn: &'a mut Turn,
}

/// Why a command has no other answer.
#[derive(Debug)]
pub(super) enum Complaint {
    /// A whole line, in memcached's words.
    Words(&'static str),
    /// What the store said.
    Store(Error),
}

impl From<Error> for Complaint {
    fn from(error: Error) -> Self {
        Complaint::Store(error)
    }
}

impl Complaint {
    /// The line.
    pub(super) fn text(&self) -> Cow<'static, str> {
        match self {
            Complaint::Words(text) => Cow::Borrowed(text),
            Complaint::Store(Error::TooLarge { .. }) => TOO_LARGE.into(),
            Complaint::Store(error) if error.is_disk_full() => {
                format!("SERVER_ERROR out of memory storing object: {error}").into()
            }
            Complaint::Store(error) => format!("SERVER_ERROR {}", store_text(error)).into(),
        }
    }
}

pub(super) const TOO_LARGE: &str = "SERVER_ERROR object too large for cache";
pub(super) const BAD_LINE: Complaint = Complaint::Words("CLIENT_ERROR bad command line format");
pub(super) const NOT_A_NUMBER: Complaint =
    Complaint::Words("CLIENT_ERROR cannot increment or decrement non-numeric value");

/// On what condition a value is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    Set,
    Add,
    Replace,
    /// Behind the value that is there, whose flags and expiry stay.
    Append,
    Prepend,
}

/// A value to be stored.
#[derive(Debug, Clone, Copy)]
pub(super) struct New<'a> {
    pub(super) mode: Mode,
    pub(super) value: &'a [u8],
    pub(super) flags: u32,
    /// Seconds, as [`Expiry::of`] takes them.
    pub(super) expiry: i64,
    /// What the cas of the item that is there must be.
    pub(super) cas: Option<u64>,
    /// If nothing is there to append to: store it, for so many seconds.
    pub(super) vivify: Option<i64>,
}

/// How a write went.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Written {
    /// The item as it is now.
    Done(Item),
    /// The condition of the mode does not hold.
    NotStored,
    /// The cas is another.
    Exists,
    /// There is nothing.
    NotFound,
}

/// A change of a number.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sum {
    pub(super) delta: u64,
    pub(super) is_down: bool,
    pub(super) cas: Option<u64>,
    /// If nothing is there: this number, for so many seconds.
    pub(super) vivify: Option<(u64, i64)>,
    /// Another expiry, in seconds.
    pub(super) expiry: Option<i64>,
}

impl Deed<'_> {
    pub(super) fn database(&self) -> &Database {
        &self.shared.databases[self.table]
    }

    pub(super) fn now(&self) -> Timestamp {
        self.shared.options.clock.now()
    }

    /// The largest value.
    pub(super) fn max_value_bytes(&self) -> usize {
        let database = self.database();
        let annex = if database.has_annexes() { annex::BYTES } else { 0 };
        (database.max_value_bytes - annex).min(self.shared.options.max_request_bytes)
    }

    /// Looks a key up.
    pub(super) fn get(&self, key: &[u8]) -> Result<Option<Item>> {
        let item = self.database().item(key)?;
        self.shared.memcached.count_get(item.is_some());
        Ok(item)
    }

    /// Looks a key up and gives it another expiry.
    pub(super) fn get_and_touch(&mut self, key: &[u8], seconds: i64) -> Result<Option<Item>> {
        let shared = self.shared;
        let database = &shared.databases[self.table];
        let _guard = database.locks.one(key);
        let item = self.get(key)?;
        shared.memcached.touches.fetch_add(1, Relaxed);
        let Some(item) = item else { return Ok(None) };
        self.put(key, item, seconds).map(Some)
    }

    /// Stores an item. The caller holds the key's lock.
    fn put(&mut self, key: &[u8], mut item: Item, seconds: i64) -> Result<Item> {
        match Expiry::of(seconds, self.now()) {
            Expiry::Past => {
                self.remove(key)?;
                return Ok(item);
            }
            Expiry::Never => item.expires_at = None,
            Expiry::At(moment) => item.expires_at = Some(moment),
        }
        self.put_as_it_is(key, item)
    }

    fn put_as_it_is(&mut self, key: &[u8], mut item: Item) -> Result<Item> {
        let database = &self.shared.databases[self.table];
        item.cas = database.put_item(key, &item.value, item.flags, item.expires_at)?;
        self.turn.note_written(self.table);
        Ok(item)
    }

    fn remove(&mut self, key: &[u8]) -> Result<()> {
        self.shared.databases[self.table].remove_item(key)?;
        self.turn.note_written(self.table);
        Ok(())
    }

    /// Stores a value, if its condition holds.
    pub(super) fn store(&mut self, key: &[u8], new: New<'_>) -> Result<Written> {
        let shared = self.shared;
        let database = &shared.databases[self.table];
        shared.memcached.sets.fetch_add(1, Relaxed);
        let _guard = database.locks.one(key);
        let needs_old = new.mode != Mode::Set || new.cas.is_some();
        let old = if needs_old { database.item(key)? } else { None };
        if let Some(cas) = new.cas {
            match &old {
                None => return Ok(Written::NotFound),
                Some(old) if old.cas != cas => return Ok(Written::Exists),
                Some(_) => {}
            }
        }
        let item = Item { value: new.value.to_vec(), flags: new.flags, ..Item::default() };
        let joined = |old: Item, parts: [&[u8]; 2]| Item { value: parts.concat(), ..old };
        match (new.mode, old) {
            (Mode::Set, _) | (Mode::Add, None) | (Mode::Replace, Some(_)) => {
                self.put(key, item, new.expiry).map(Written::Done)
            }
            (Mode::Add, Some(_)) | (Mode::Replace, None) => Ok(Written::NotStored),
            (Mode::Append | Mode::Prepend, None) => match new.vivify {
                None => Ok(Written::NotStored),
                Some(seconds) => self.put(key, item, seconds).map(Written::Done),
            },
            (Mode::Append, Some(mut old)) => {
                let value = std::mem::take(&mut old.value);
                self.put_as_it_is(key, joined(old, [&value, new.value])).map(Written::Done)
            }
            (Mode::Prepend, Some(mut old)) => {
                let value = std::mem::take(&mut old.value);
                self.put_as_it_is(key, joined(old, [new.value, &value])).map(Written::Done)
            }
        }
    }

    /// Removes a key, if it is there and has the cas, where one is given.
    pub(super) fn delete(&mut self, key: &[u8], cas: Option<u64>) -> Result<Written> {
        let shared = self.shared;
        let database = &shared.databases[self.table];
        let _guard = database.locks.one(key);
        let old = database.item(key)?;
        shared.memcached.count_delete(old.is_some());
        match old {
            None => Ok(Written::NotFound),
            Some(old) if cas.is_some_and(|cas| cas != old.cas) => Ok(Written::Exists),
            Some(old) => {
                self.remove(key)?;
                Ok(Written::Done(old))
            }
        }
    }

    /// Gives a key another expiry; whether it is there.
    pub(super) fn touch(&mut self, key: &[u8], seconds: i64) -> Result<bool> {
        let shared = self.shared;
        let database = &shared.databases[self.table];
        let _guard = database.locks.one(key);
        shared.memcached.touches.fetch_add(1, Relaxed);
        let Some(item) = database.item(key)? else { return Ok(false) };
        self.put(key, item, seconds)?;
        Ok(true)
    }

    /// Adds to a number or takes from it. Up wraps at 2^64, down ends at 0.
    pub(super) fn sum(&mut self, key: &[u8], sum: Sum) -> Result<Written, Complaint> {
        let shared = self.shared;
        let database = &shared.databases[self.table];
        let _guard = database.locks.one(key);
        let Some(mut item) = database.item(key)? else {
            let Some((initial, seconds)) = sum.vivify else { return Ok(Written::NotFound) };
            let value = Digits::unsigned(initial).as_bytes().to_vec();
            return Ok(Written::Done(self.put(key, Item { value, ..Item::default() }, seconds)?));
        };
        if sum.cas.is_some_and(|cas| cas != item.cas) {
            return Ok(Written::Exists);
        }
        // memcached's own numbers may end in spaces: a table that was filled from one has them.
        let old = super::line::number(item.value.trim_ascii_end()).ok_or(NOT_A_NUMBER)?;
        let number = match sum.is_down {
            true => old.saturating_sub(sum.delta),
            false => old.wrapping_add(sum.delta),
        };
        item.value = Digits::unsigned(number).as_bytes().to_vec();
        let stored = match sum.expiry {
            None => self.put_as_it_is(key, item)?,
            Some(seconds) => self.put(key, item, seconds)?,
        };
        Ok(Written::Done(stored))
    }

    /// Removes every key, now or in so many seconds.
    pub(super) fn flush(&mut self, seconds: i64) -> Result<()> {
        let tallies = &self.shared.memcached;
        tallies.flushes.fetch_add(1, Relaxed);
        match Expiry::of(seconds, self.now()) {
            Expiry::At(moment) => {
                tallies.flush_at.store(moment, Relaxed);
                Ok(())
            }
            Expiry::Never | Expiry::Past => {
                tallies.flush_at.store(0, Relaxed);
                self.turn.clear(&self.shared.databases, self.table)
            }
        }
    }
}

/// Removes every key, if a `flush_all` with a delay is due.
pub(crate) fn flush_if_due(shared: &Shared, turn: &mut Turn) {
    let due = shared.memcached.flush_at.load(Relaxed);
    if due == 0 || shared.options.clock.now() < due {
        return;
    }
    let taken = shared.memcached.flush_at.compare_exchange(due, 0, Relaxed, Relaxed);
    if taken.is_ok() && turn.clear(&shared.databases, shared.memcached.table).is_err() {
        // Nobody waits for an answer.
        shared.metrics.errors.fetch_add(1, Relaxed);
    }
}
