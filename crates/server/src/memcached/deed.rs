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
use super::prefixes::Access;
use super::tallies::Count;
use crate::command::store_text;
use crate::resp::Replies;
use crate::resp::number::Digits;
use crate::shared::Shared;
use crate::store::Database;
use crate::store::annex;
use crate::store::item::{Item, STALE, WON};
use crate::store::reads::Seen;
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
                format!("{NO_MEMORY}: {error}").into()
            }
            Complaint::Store(error) => format!("SERVER_ERROR {}", store_text(error)).into(),
        }
    }
}

const NO_MEMORY: &str = "SERVER_ERROR out of memory storing object";
const TOO_LARGE: &str = "SERVER_ERROR object too large for cache";
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
    /// Whether a value that is older than the one that is there is stored all the same, as stale.
    pub(super) may_be_stale: bool,
}

/// What a look-up does beside.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Fetch {
    /// Another expiry, in seconds.
    pub(super) expiry: Option<i64>,
    /// If nothing is there: an empty value, for so many seconds, which the client is to replace.
    pub(super) vivify: Option<i64>,
    /// If fewer seconds are left than these: the client is to replace the value.
    pub(super) recache: Option<i64>,
    /// The look-up is not noted.
    pub(super) is_unnoted: bool,
}

/// A client's part where a value is to be replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    /// To replace it.
    Wins,
    /// Another one was told to.
    Waits,
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

/// What is left of an item whose value is taken away.
#[derive(Debug, Clone, Copy)]
pub(super) struct EmptyItem {
    pub(super) is_stale: bool,
    pub(super) flags: u32,
    /// Seconds, as [`Expiry::of`] takes them.
    pub(super) expiry: i64,
}

/// What a look-up has found.
#[derive(Debug)]
pub(super) struct Fetched {
    pub(super) item: Item,
    /// What is known of look-ups before this one.
    pub(super) seen: Seen,
    /// The client's part, if the value is to be replaced.
    pub(super) part: Option<Part>,
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
        let (database, options) = (self.database(), &self.shared.options);
        let annex = if database.has_annexes() { annex::BYTES } else { 0 };
        (database.max_value_bytes - annex).min(options.max_value_bytes())
    }

    /// Refuses to answer a value for which replies have no room; it was stored by another way.
    pub(super) fn check_answerable(&self, item: &Item) -> Result<(), Complaint> {
        match item.value.len() <= self.shared.options.max_carried_bytes() {
            true => Ok(()),
            false => Err(Complaint::Words(
                "SERVER_ERROR the value is too large to be sent; raise --max-output",
            )),
        }
    }

    /// Looks a key up.
    pub(super) fn get(&self, key: &[u8]) -> Result<Option<Item>> {
        let item = self.database().item(key)?;
        self.shared.memcached.add_get(item.is_some());
        self.note_get(key, item.is_some());
        Ok(item)
    }

    fn note_get(&self, key: &[u8], is_found: bool) {
        let access = if is_found { Access::Hit } else { Access::Miss };
        self.shared.memcached.prefixes.note(key, access);
        if is_found {
            self.note_fetch(key);
        }
    }

    /// Refuses a value that is too large. What it was to replace is removed, so that nobody is served
    /// what its writer believes to be gone.
    pub(super) fn refuse_too_large(&mut self, replaced: Option<&[u8]>) -> Complaint {
        let shared = self.shared;
        shared.memcached.add(Count::TooLarge);
        let Some(key) = replaced else { return Complaint::Words(TOO_LARGE) };
        let database = &shared.databases[self.table];
        let _guard = database.locks.one(key);
        let removed = match database.item(key) {
            Ok(None) => Ok(()),
            Ok(Some(_)) => self.remove(key),
            Err(error) => Err(error),
        };
        removed.map_or_else(Complaint::Store, |()| Complaint::Words(TOO_LARGE))
    }

    /// Notes that a key has another value.
    fn note_store(&self, key: &[u8]) {
        if let Some(reads) = &self.database().reads {
            reads.store(key);
        }
    }

    fn note_fetch(&self, key: &[u8]) {
        if let Some(reads) = &self.database().reads {
            reads.fetch(key);
        }
    }

    /// What is known of when a key was looked up.
    pub(super) fn seen(&self, key: &[u8]) -> Seen {
        self.database().reads.as_ref().map_or_else(Seen::default, |reads| reads.of(key))
    }

    /// Seconds until an item expires, if it does.
    pub(super) fn seconds_left(&self, item: &Item) -> Option<u64> {
        Some(item.expires_at?.saturating_sub(self.now()).div_ceil(1000))
    }

    /// Looks a key up, and tells the client's part if the value is to be replaced. Who wins is written
    /// down, so the item's cas is another from then on.
    pub(super) fn fetch(&mut self, key: &[u8], fetch: Fetch) -> Result<Option<Fetched>> {
        let shared = self.shared;
        let database = &shared.databases[self.table];
        let note = |deed: &Self, is_found| {
            match fetch.expiry {
                None => shared.memcached.add_get(is_found),
                Some(_) => shared.memcached.add_touch(is_found),
            }
            if is_found && !fetch.is_unnoted {
                deed.note_fetch(key);
            }
        };
        if fetch.expiry.or(fetch.vivify).or(fetch.recache).is_none() {
            // Most look-ups need no lock: nobody is to win anything.
            let item = database.item(key)?;
            if item.as_ref().is_none_or(|item| item.marks != STALE) {
                let seen = self.seen(key);
                note(self, item.is_some());
                let part = |item: &Item| (item.marks & WON != 0).then_some(Part::Waits);
                return Ok(item.map(|item| Fetched { part: part(&item), item, seen }));
            }
        }
        let _guard = database.locks.one(key);
        let item = database.item(key)?;
        let seen = self.seen(key);
        note(self, item.is_some());
        let Some(mut item) = item else {
            let Some(seconds) = fetch.vivify else { return Ok(None) };
            let item = self.put(key, Item { marks: WON, ..Item::default() }, seconds)?;
            // Who makes it has seen it, too.
            self.note_fetch(key);
            return Ok(Some(Fetched { item, part: Some(Part::Wins), seen: Seen::default() }));
        };
        // The new expiry counts, where there is one.
        match fetch.expiry.map(|seconds| Expiry::of(seconds, self.now())) {
            Some(Expiry::At(moment)) => item.expires_at = Some(moment),
            Some(Expiry::Never) => item.expires_at = None,
            Some(Expiry::Past) | None => {}
        }
        let left = self.seconds_left(&item).and_then(|left| i64::try_from(left).ok());
        let ends_soon = fetch.recache.zip(left).is_some_and(|(most, left)| left < most);
        let part = match item.marks {
            marks if marks & WON != 0 => Some(Part::Waits),
            marks if marks & STALE != 0 || ends_soon => Some(Part::Wins),
            _ => None,
        };
        if part == Some(Part::Wins) {
            item.marks |= WON;
        }
        let item = match fetch.expiry {
            Some(seconds) => self.put(key, item, seconds)?,
            None if part == Some(Part::Wins) => self.put_as_it_is(key, item)?,
            None => item,
        };
        Ok(Some(Fetched { item, part, seen }))
    }

    /// Marks a key's value as stale, with another expiry if one is given.
    pub(super) fn invalidate(
        &mut self,
        key: &[u8],
        cas: Option<u64>,
        expiry: Option<i64>,
    ) -> Result<Written> {
        self.end(key, cas, |deed, old| {
            let item = Item { marks: STALE, ..old };
            match expiry {
                None => deed.put_as_it_is(key, item),
                Some(seconds) => deed.put(key, item, seconds),
            }
        })
    }

    /// Takes a key's value away and leaves an empty item, stale or not, with these flags and expiry.
    pub(super) fn take_value(
        &mut self,
        key: &[u8],
        cas: Option<u64>,
        empty: EmptyItem,
    ) -> Result<Written> {
        let EmptyItem { is_stale, flags, expiry } = empty;
        self.end(key, cas, |deed, _| {
            let marks = if is_stale { STALE } else { 0 };
            deed.put(key, Item { marks, flags, ..Item::default() }, expiry)
        })
    }

    /// Does something to a key whose value is to be no more, if it is there and has the cas, where one is
    /// given. Counted as a deletion.
    fn end(
        &mut self,
        key: &[u8],
        cas: Option<u64>,
        what: impl FnOnce(&mut Self, Item) -> Result<Item>,
    ) -> Result<Written> {
        let shared = self.shared;
        let database = &shared.databases[self.table];
        let _guard = database.locks.one(key);
        let old = database.item(key)?;
        let is_right = old.as_ref().is_some_and(|old| cas.is_none_or(|cas| cas == old.cas));
        shared.memcached.add(if is_right { Count::DeleteHits } else { Count::DeleteMisses });
        match old {
            None => Ok(Written::NotFound),
            Some(_) if !is_right => Ok(Written::Exists),
            Some(old) => what(self, old).map(Written::Done),
        }
    }

    /// Looks a key up and gives it another expiry.
    pub(super) fn get_and_touch(&mut self, key: &[u8], seconds: i64) -> Result<Option<Item>> {
        let shared = self.shared;
        let database = &shared.databases[self.table];
        let _guard = database.locks.one(key);
        let item = database.item(key)?;
        shared.memcached.add_touch(item.is_some());
        let item = item.map(|item| self.put(key, item, seconds)).transpose()?;
        self.note_get(key, item.is_some());
        Ok(item)
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
        item.cas = database.put_item(key, &item)?;
        self.turn.note_written(self.table);
        Ok(item)
    }

    fn remove(&mut self, key: &[u8]) -> Result<()> {
        self.shared.databases[self.table].remove_item(key)?;
        self.turn.note_written(self.table);
        Ok(())
    }

    /// Stores a value, if its condition holds.
    pub(super) fn store(&mut self, key: &[u8], new: New<'_>) -> Result<Written, Complaint> {
        let tallies = &self.shared.memcached;
        tallies.add(Count::Sets);
        let written = match self.store_if(key, new) {
            Err(Error::TooLarge { .. }) => {
                let is_set = new.mode == Mode::Set && new.cas.is_none();
                return Err(self.refuse_too_large(is_set.then_some(key)));
            }
            Err(error) if error.is_disk_full() => {
                tallies.add(Count::NoMemory);
                // Where memory is full there is nothing to add to memcached's words.
                return Err(match self.database().mica {
                    Some(_) => Complaint::Words(NO_MEMORY),
                    None => error.into(),
                });
            }
            Err(error) => return Err(error.into()),
            Ok(written) => written,
        };
        if let Written::Done(_) = written {
            tallies.add(Count::Items);
            self.note_store(key);
        }
        if new.cas.is_some() && matches!(new.mode, Mode::Set | Mode::Replace) {
            tallies.add(match written {
                Written::NotFound => Count::CasMisses,
                Written::Exists => Count::CasBadValue,
                Written::Done(_) | Written::NotStored => Count::CasHits,
            });
        }
        Ok(written)
    }

    fn store_if(&mut self, key: &[u8], new: New<'_>) -> Result<Written> {
        let shared = self.shared;
        let database = &shared.databases[self.table];
        let _guard = database.locks.one(key);
        let needs_old = new.mode != Mode::Set || new.cas.is_some();
        let old = if needs_old { database.item(key)? } else { None };
        // As in memcached: `add` looks at no cas, and an append to nothing finds none to compare.
        match (new.cas, new.mode, &old) {
            (None, ..) | (_, Mode::Add, _) | (_, Mode::Append | Mode::Prepend, None) => {}
            (Some(_), _, None) => return Ok(Written::NotFound),
            // What is stored late is better than nothing, but no more than that.
            (Some(cas), Mode::Set, Some(old)) if cas < old.cas && new.may_be_stale => {
                let (flags, expires_at) = (new.flags, old.expires_at);
                let (value, marks) = (new.value.to_vec(), STALE | old.marks);
                let item = Item { value, flags, marks, expires_at, ..Item::default() };
                return self.put_as_it_is(key, item).map(Written::Done);
            }
            (Some(cas), _, Some(old)) if old.cas != cas => return Ok(Written::Exists),
            (Some(_), _, Some(_)) => {}
        }
        let item = Item { value: new.value.to_vec(), flags: new.flags, ..Item::default() };
        let joined = |old: Item, parts: [&[u8]; 2]| Item { value: parts.concat(), marks: 0, ..old };
        match (new.mode, old) {
            (Mode::Set, _) | (Mode::Add, None) | (Mode::Replace, Some(_)) => {
                self.put(key, item, new.expiry).map(Written::Done)
            }
            (Mode::Add, Some(_)) | (Mode::Replace, None) => Ok(Written::NotStored),
            (Mode::Append | Mode::Prepend, None) => match new.vivify {
                None => Ok(Written::NotStored),
                Some(seconds) => self.put(key, item, seconds).map(Written::Done),
            },
            // As in memcached, which has no other word for it.
            (Mode::Append | Mode::Prepend, Some(old))
                if old.value.len() + new.value.len() > self.max_value_bytes() =>
            {
                Ok(Written::NotStored)
            }
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
        self.end(key, cas, |deed, old| deed.remove(key).map(|_| old))
    }

    /// Gives a key another expiry; whether it is there.
    pub(super) fn touch(&mut self, key: &[u8], seconds: i64) -> Result<bool> {
        let shared = self.shared;
        let database = &shared.databases[self.table];
        let _guard = database.locks.one(key);
        let item = database.item(key)?;
        shared.memcached.add_touch(item.is_some());
        let Some(item) = item else { return Ok(false) };
        self.put(key, item, seconds)?;
        self.note_fetch(key);
        Ok(true)
    }

    /// Adds to a number or takes from it. Up wraps at 2^64, down ends at 0.
    pub(super) fn sum(&mut self, key: &[u8], sum: Sum) -> Result<Written, Complaint> {
        let shared = self.shared;
        let database = &shared.databases[self.table];
        let _guard = database.locks.one(key);
        let (hits, misses) = match sum.is_down {
            true => (Count::DecrHits, Count::DecrMisses),
            false => (Count::IncrHits, Count::IncrMisses),
        };
        let Some(mut item) = database.item(key)? else {
            let Some((initial, seconds)) = sum.vivify else {
                shared.memcached.add(misses);
                return Ok(Written::NotFound);
            };
            let value = Digits::unsigned(initial).as_bytes().to_vec();
            self.note_store(key);
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
        shared.memcached.add(hits);
        let digits = Digits::unsigned(number);
        if digits.as_bytes().len() > item.value.len() {
            // As in memcached, where what takes more room is a new item.
            item.marks = 0;
            self.note_store(key);
        }
        item.value = digits.as_bytes().to_vec();
        let stored = match sum.expiry {
            None => self.put_as_it_is(key, item)?,
            Some(seconds) => self.put(key, item, seconds)?,
        };
        Ok(Written::Done(stored))
    }

    /// Removes every key, now or in so many seconds.
    pub(super) fn flush(&mut self, seconds: i64) -> Result<()> {
        let tallies = &self.shared.memcached;
        tallies.add(Count::Flushes);
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
