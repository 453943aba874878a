//! Expiries to be published when they pass: for `expired` events and for tracking clients.
//!
//! Engines drop expired entries silently and much later. So while there are observers, the expiry
//! of each written key is kept here, and a worker takes those that have passed.
//!
//! Expiries that were written before the first observer, or beyond [`MAX_EXPIRIES`], are not
//! published, except to tracking clients that have read the key.

use std::collections::{BTreeSet, HashMap};

use parking_lot::Mutex;
use siltstone_collections::{Metadata, StoredValue};
use siltstone_engine::{Entry, Timestamp};

/// Maximum number of known expiries.
const MAX_EXPIRIES: usize = 1 << 20;

/// When a key changes next because something expires.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NextExpiry {
    pub(crate) at: Timestamp,
    /// Fields of a hash expire, not the key.
    pub(crate) is_of_fields: bool,
}

impl NextExpiry {
    /// That of a key that is no hash with fields that expire.
    pub(crate) fn of_key(at: Timestamp) -> Self {
        NextExpiry { at, is_of_fields: false }
    }

    /// That of a key with a value.
    pub(crate) fn of_stored(stored: &StoredValue) -> Option<Self> {
        let of_key = stored.entry.expires_at.map(Self::of_key);
        let fields = stored.metadata.and_then(|metadata| metadata.field_expiry);
        let Some(fields) = fields.filter(|expiry| expiry.fields > 0) else { return of_key };
        let is_first = of_key.is_none_or(|key| fields.earliest < key.at);
        let of_fields = NextExpiry { at: fields.earliest, is_of_fields: true };
        if is_first { Some(of_fields) } else { of_key }
    }

    /// That of a row at a user's key.
    pub(super) fn of_row(value: &[u8], expires_at: Option<Timestamp>) -> Option<Self> {
        match Metadata::decode(value).is_some_and(|metadata| metadata.field_expiry.is_some()) {
            true => Self::of_stored(&StoredValue::new(Entry { value: value.to_vec(), expires_at })),
            false => expires_at.map(Self::of_key),
        }
    }
}

/// Expiries of keys, of all tables.
#[derive(Default)]
pub(crate) struct Expiries {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Expiry by table and key.
    by_key: HashMap<(usize, Vec<u8>), NextExpiry>,
    in_order: BTreeSet<(Timestamp, usize, Vec<u8>)>,
}

impl Expiries {
    /// Records a write of a key: its next expiry, or `None`.
    pub(super) fn record(&self, table: usize, key: &[u8], next: Option<NextExpiry>) {
        let mut state = self.state.lock();
        if next.is_none() && state.by_key.is_empty() {
            return;
        }
        let place = (table, key.to_vec());
        if let Some(before) = state.by_key.remove(&place) {
            state.in_order.remove(&(before.at, table, key.to_vec()));
        }
        if let Some(next) = next
            && state.by_key.len() < MAX_EXPIRIES
        {
            state.in_order.insert((next.at, table, key.to_vec()));
            state.by_key.insert(place, next);
        }
    }

    /// Records the expiry that a key was read with, unless a write has recorded one.
    pub(crate) fn expect(&self, table: usize, key: &[u8], next: NextExpiry) {
        let mut state = self.state.lock();
        let place = (table, key.to_vec());
        if state.by_key.len() < MAX_EXPIRIES && !state.by_key.contains_key(&place) {
            state.in_order.insert((next.at, table, key.to_vec()));
            state.by_key.insert(place, next);
        }
    }

    /// Takes a key whose next expiry has passed, and whether it was one of fields.
    pub(crate) fn take_due(&self, now: Timestamp) -> Option<(usize, Vec<u8>, bool)> {
        let mut state = self.state.lock();
        if state.in_order.first()?.0 > now {
            return None;
        }
        let (_, table, key) = state.in_order.pop_first()?;
        let next = state.by_key.remove(&(table, key.clone()));
        Some((table, key, next.is_some_and(|next| next.is_of_fields)))
    }

    /// Exchanges the expiries of two tables.
    pub(super) fn swap(&self, first: usize, second: usize) {
        let mut state = self.state.lock();
        if state.by_key.is_empty() {
            return;
        }
        let swapped = |table| match table {
            _ if table == first => second,
            _ if table == second => first,
            _ => table,
        };
        let by_key = std::mem::take(&mut state.by_key).into_iter();
        state.by_key = by_key.map(|((table, key), at)| ((swapped(table), key), at)).collect();
        let in_order = std::mem::take(&mut state.in_order).into_iter();
        state.in_order = in_order.map(|(at, table, key)| (at, swapped(table), key)).collect();
    }

    /// Forgets all expiries.
    pub(super) fn clear(&self) {
        *self.state.lock() = State::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_expiry_of_a_key_counts() {
        let expiries = Expiries::default();
        let at = NextExpiry::of_key;
        let of_fields = NextExpiry { at: 20, is_of_fields: true };
        expiries.record(0, b"a", Some(at(10)));
        expiries.record(1, b"a", Some(of_fields));
        expiries.record(0, b"a", Some(at(30)));
        expiries.record(0, b"b", Some(at(5)));
        expiries.record(0, b"b", None);
        assert_eq!(expiries.take_due(19), None);
        assert_eq!(expiries.take_due(30), Some((1, b"a".to_vec(), true)));
        assert_eq!(expiries.take_due(30), Some((0, b"a".to_vec(), false)));
        assert_eq!(expiries.take_due(u64::MAX), None);
        // One that was read does not replace one that was written.
        expiries.expect(0, b"a", at(10));
        expiries.expect(0, b"a", at(5));
        assert_eq!(expiries.take_due(9), None);
        assert_eq!(expiries.take_due(10), Some((0, b"a".to_vec(), false)));
        assert_eq!(expiries.take_due(u64::MAX), None);
    }
}
