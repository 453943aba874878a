//! Execution of memcached lookups, also of those that change the expiry or win a refresh.
//!
//! ```text
//! item            role of the client
//! up to date      none
//! stale, ending   the first one wins and is to refresh the value; the item is marked
//! marked          the others wait: another client has won
//! ```
//!
//! A lookup that cannot change its item takes no lock. All others hold the lock of the key's stripe
//! from the read to the write.
//!
//! Source: memcached's `doc/protocol.txt`.

use siltstone_engine::Result;

use super::commands::{CommandContext, CommandError};
use super::line::Expiry;
use super::prefixes::Access;
use crate::store::fetch_times::FetchState;
use crate::store::item::{Item, STALE, WON};

/// Options of a lookup.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct FetchOptions {
    /// New expiry, in seconds.
    pub(super) expiry: Option<i64>,
    /// On a miss: create an empty value with this expiry in seconds; the client wins the refresh.
    pub(super) vivify: Option<i64>,
    /// If fewer seconds are left, the client may win the refresh.
    pub(super) recache: Option<i64>,
    /// Do not record the fetch.
    pub(super) is_unrecorded: bool,
}

/// Role of a client in refreshing a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RefreshRole {
    /// It has won and is to refresh the value.
    Winner,
    /// Another client has won.
    Waiting,
}

/// Result of a lookup.
#[derive(Debug)]
pub(super) struct FetchResult {
    pub(super) item: Item,
    /// Fetch state before this lookup.
    pub(super) fetch_state: FetchState,
    /// The client's role, if the value is to be refreshed.
    pub(super) role: Option<RefreshRole>,
}

impl CommandContext<'_> {
    /// Looks up a key.
    pub(super) fn get(&self, key: &[u8]) -> Result<Option<Item>> {
        let item = self.database().item(key)?;
        self.shared.memcached.add_get(item.is_some());
        self.record_get(key, item.is_some());
        Ok(item)
    }

    fn record_get(&self, key: &[u8], is_found: bool) {
        let access = if is_found { Access::Hit } else { Access::Miss };
        self.shared.memcached.prefixes.record(key, access);
        if is_found {
            self.record_fetch(key);
        }
    }

    /// Looks up a key, and determines the client's role if the value is to be refreshed. A winner
    /// is recorded in the item, which changes its cas.
    pub(super) fn fetch(&mut self, key: &[u8], fetch: FetchOptions) -> Result<Option<FetchResult>> {
        let shared = self.shared;
        let database = &shared.databases[self.table];
        let record = |context: &Self, is_found| {
            match fetch.expiry {
                None => shared.memcached.add_get(is_found),
                Some(_) => shared.memcached.add_touch(is_found),
            }
            if is_found && !fetch.is_unrecorded {
                context.record_fetch(key);
            }
        };
        if fetch.expiry.or(fetch.vivify).or(fetch.recache).is_none() {
            // Most lookups need no lock: there is no refresh to win.
            let item = database.item(key)?;
            if item.as_ref().is_none_or(|item| item.marks != STALE) {
                let fetch_state = self.fetch_state(key);
                record(self, item.is_some());
                let role = |item: &Item| (item.marks & WON != 0).then_some(RefreshRole::Waiting);
                return Ok(item.map(|item| FetchResult { role: role(&item), item, fetch_state }));
            }
        }
        let _guard = database.locks.one(key);
        let item = database.item(key)?;
        let fetch_state = self.fetch_state(key);
        record(self, item.is_some());
        let Some(mut item) = item else {
            let Some(seconds) = fetch.vivify else { return Ok(None) };
            let item = self.put(key, Item { marks: WON, ..Item::default() }, seconds)?;
            // Creating an item counts as fetching it.
            self.record_fetch(key);
            return Ok(Some(FetchResult {
                item,
                role: Some(RefreshRole::Winner),
                fetch_state: FetchState::default(),
            }));
        };
        // The new expiry applies first.
        match fetch.expiry.map(|seconds| Expiry::of(seconds, self.now())) {
            Some(Expiry::At(moment)) => item.expires_at = Some(moment),
            Some(Expiry::Never) => item.expires_at = None,
            Some(Expiry::Past) | None => {}
        }
        let left = self.seconds_left(&item).and_then(|left| i64::try_from(left).ok());
        let ends_soon = fetch.recache.zip(left).is_some_and(|(most, left)| left < most);
        let role = match item.marks {
            marks if marks & WON != 0 => Some(RefreshRole::Waiting),
            marks if marks & STALE != 0 || ends_soon => Some(RefreshRole::Winner),
            _ => None,
        };
        if role == Some(RefreshRole::Winner) {
            item.marks |= WON;
        }
        let item = match fetch.expiry {
            Some(seconds) => self.put(key, item, seconds)?,
            None if role == Some(RefreshRole::Winner) => self.put_keeping_expiry(key, item)?,
            None => item,
        };
        Ok(Some(FetchResult { item, role, fetch_state }))
    }

    /// Looks up a key and sets its expiry.
    pub(super) fn get_and_touch(&mut self, key: &[u8], seconds: i64) -> Result<Option<Item>> {
        let shared = self.shared;
        let database = &shared.databases[self.table];
        let _guard = database.locks.one(key);
        let item = database.item(key)?;
        shared.memcached.add_touch(item.is_some());
        let item = item.map(|item| self.put(key, item, seconds)).transpose()?;
        self.record_get(key, item.is_some());
        Ok(item)
    }

    /// Sets the expiry of a key. Returns whether it exists.
    pub(super) fn touch(&mut self, key: &[u8], seconds: i64) -> Result<bool> {
        let shared = self.shared;
        let database = &shared.databases[self.table];
        let _guard = database.locks.one(key);
        let item = database.item(key)?;
        shared.memcached.add_touch(item.is_some());
        let Some(item) = item else { return Ok(false) };
        self.put(key, item, seconds)?;
        self.record_fetch(key);
        Ok(true)
    }

    /// Fetch state of a key.
    pub(super) fn fetch_state(&self, key: &[u8]) -> FetchState {
        self.database().fetch_times.as_ref().map_or_else(FetchState::default, |times| times.of(key))
    }

    /// Seconds until an item expires, if it does.
    pub(super) fn seconds_left(&self, item: &Item) -> Option<u64> {
        Some(item.expires_at?.saturating_sub(self.now()).div_ceil(1000))
    }

    /// Rejects a value that does not fit in a reply; it was written by other means.
    pub(super) fn check_reply_size(&self, item: &Item) -> Result<(), CommandError> {
        match item.value.len() <= self.shared.options.max_reply_value_bytes() {
            true => Ok(()),
            false => Err(CommandError::Text(
                "SERVER_ERROR the value is too large for a reply; raise --max-output",
            )),
        }
    }
}
