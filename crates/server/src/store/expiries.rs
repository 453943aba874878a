//! Expiries to be published when they pass: for `expired` events and for tracking clients.
//!
//! Engines drop expired entries silently and much later. So while there are observers, the expiry
//! of each written key is kept here, and a worker takes those that have passed.
//!
//! Expiries that were written before the first observer, or beyond [`MAX_EXPIRIES`], are not
//! published, except to tracking clients that have read the key.

use std::collections::{BTreeSet, HashMap};

use parking_lot::Mutex;
use siltstone_engine::Timestamp;

/// Maximum number of known expiries.
const MAX_EXPIRIES: usize = 1 << 20;

/// Expiries of keys, of all tables.
#[derive(Default)]
pub(crate) struct Expiries {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Expiry by table and key.
    by_key: HashMap<(usize, Vec<u8>), Timestamp>,
    in_order: BTreeSet<(Timestamp, usize, Vec<u8>)>,
}

impl Expiries {
    /// Records a write of a key: its expiry, or `None`.
    pub(super) fn record(&self, table: usize, key: &[u8], expires_at: Option<Timestamp>) {
        let mut state = self.state.lock();
        if expires_at.is_none() && state.by_key.is_empty() {
            return;
        }
        let place = (table, key.to_vec());
        if let Some(before) = state.by_key.remove(&place) {
            state.in_order.remove(&(before, table, key.to_vec()));
        }
        if let Some(at) = expires_at
            && state.by_key.len() < MAX_EXPIRIES
        {
            state.in_order.insert((at, table, key.to_vec()));
            state.by_key.insert(place, at);
        }
    }

    /// Records the expiry that a key was read with, unless a write has recorded one.
    pub(crate) fn expect(&self, table: usize, key: &[u8], expires_at: Timestamp) {
        let mut state = self.state.lock();
        let place = (table, key.to_vec());
        if state.by_key.len() < MAX_EXPIRIES && !state.by_key.contains_key(&place) {
            state.in_order.insert((expires_at, table, key.to_vec()));
            state.by_key.insert(place, expires_at);
        }
    }

    /// Takes a key whose expiry has passed.
    pub(crate) fn take_due(&self, now: Timestamp) -> Option<(usize, Vec<u8>)> {
        let mut state = self.state.lock();
        if state.in_order.first()?.0 > now {
            return None;
        }
        let (_, table, key) = state.in_order.pop_first()?;
        state.by_key.remove(&(table, key.clone()));
        Some((table, key))
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
        expiries.record(0, b"a", Some(10));
        expiries.record(1, b"a", Some(20));
        expiries.record(0, b"a", Some(30));
        expiries.record(0, b"b", Some(5));
        expiries.record(0, b"b", None);
        assert_eq!(expiries.take_due(19), None);
        assert_eq!(expiries.take_due(30), Some((1, b"a".to_vec())));
        assert_eq!(expiries.take_due(30), Some((0, b"a".to_vec())));
        assert_eq!(expiries.take_due(u64::MAX), None);
        // One that was read does not replace one that was written.
        expiries.expect(0, b"a", 10);
        expiries.expect(0, b"a", 5);
        assert_eq!(expiries.take_due(9), None);
        assert_eq!(expiries.take_due(10), Some((0, b"a".to_vec())));
        assert_eq!(expiries.take_due(u64::MAX), None);
    }
}
