//! Client-side caching: which clients are notified that a key has changed (CLIENT TRACKING).
//!
//! | mode | notified of |
//! | --- | --- |
//! | default | keys that the client has read since the last notification of them; then it must read again |
//! | BCAST | every key with one of the client's prefixes |
//!
//! A read is recorded before the value is read, and a write notifies after it has been applied, so
//! a client never keeps a value that changed in between. The keys of the default mode are bounded:
//! beyond `tracking-table-max-keys`, or [`MAX_TRACKED_BYTES`], a key is reported as changed and
//! forgotten.
//!
//! Invariant: with NOLOOP a client is not notified of its own writes, which the thread that runs
//! the command identifies by [`set_current_client`].
//!
//! Source: the documentation of Redis's client-side caching; messages of Redis 7.2.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use parking_lot::Mutex;
use siltstone_engine::MAX_KEY_BYTES;

use crate::clients::Client;
use crate::resp::{Replies, RespVersion};

/// Maximum bytes of the keys of the default mode: clients choose which they read.
const MAX_TRACKED_BYTES: usize = 256 << 20;
/// Channel of invalidations for RESP2 clients that others redirect to.
const CHANNEL: &[u8] = b"__redis__:invalidate";

thread_local! {
    /// Id of the client whose command this thread runs.
    static CURRENT_CLIENT: Cell<u64> = const { Cell::new(0) };
}

/// Sets the client whose command this thread runs.
pub(crate) fn set_current_client(id: u64) {
    CURRENT_CLIENT.set(id);
}

/// How a client is notified.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct TrackingOptions {
    /// Id of the client that receives the messages.
    pub(crate) redirect: Option<u64>,
    pub(crate) is_broadcast: bool,
    /// The prefixes of BCAST; if empty, all keys.
    pub(crate) prefixes: BTreeSet<Vec<u8>>,
    pub(crate) no_loop: bool,
    /// OPTIN: only keys of commands after CLIENT CACHING YES are tracked.
    pub(crate) opt_in: bool,
    /// OPTOUT: keys of commands after CLIENT CACHING NO are not tracked.
    pub(crate) opt_out: bool,
}

/// Tracking clients and the keys that they have read.
pub(crate) struct Tracking {
    max_keys: AtomicUsize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    clients: BTreeMap<u64, TrackingClient>,
    /// Ids of the clients that have read a key.
    keys: BTreeMap<Vec<u8>, BTreeSet<u64>>,
    /// Bytes of these keys.
    key_bytes: usize,
    /// Ids of the clients per prefix.
    prefixes: BTreeMap<Vec<u8>, BTreeSet<u64>>,
}

struct TrackingClient {
    client: Arc<Client>,
    /// Receives the messages; the client itself, or the one of REDIRECT.
    receiver: Arc<Client>,
    options: TrackingOptions,
}

impl Default for Tracking {
    fn default() -> Self {
        Tracking { max_keys: AtomicUsize::new(1_000_000), state: Mutex::default() }
    }
}

impl Tracking {
    /// Begins or changes the tracking of a client. `activate` is called before another call can
    /// begin or end one.
    pub(crate) fn start(
        &self,
        client: &Arc<Client>,
        receiver: Arc<Client>,
        options: TrackingOptions,
        activate: impl FnOnce(),
    ) {
        let mut state = self.state.lock();
        activate();
        state.forget_prefixes(client.id);
        if options.is_broadcast {
            let all = BTreeSet::from([Vec::new()]);
            let prefixes = if options.prefixes.is_empty() { &all } else { &options.prefixes };
            for prefix in prefixes {
                state.prefixes.entry(prefix.clone()).or_default().insert(client.id);
            }
        }
        state
            .clients
            .insert(client.id, TrackingClient { client: client.clone(), receiver, options });
    }

    /// Ends the tracking of a client. `deactivate` is called if no client is tracked now, before
    /// another call can begin to track one.
    pub(crate) fn stop(&self, id: u64, deactivate: impl FnOnce()) {
        let mut state = self.state.lock();
        state.forget_prefixes(id);
        state.clients.remove(&id);
        if state.clients.is_empty() {
            (state.keys, state.key_bytes) = (BTreeMap::new(), 0);
            deactivate();
        }
    }

    /// Number of tracked clients.
    pub(crate) fn clients(&self) -> usize {
        self.state.lock().clients.len()
    }

    /// Number of tracked keys, of clients per key summed up, and of prefixes.
    pub(crate) fn counts(&self) -> [usize; 3] {
        let state = self.state.lock();
        let items = state.keys.values().map(BTreeSet::len).sum();
        [state.keys.len(), items, state.prefixes.len()]
    }

    pub(crate) fn max_keys(&self) -> usize {
        self.max_keys.load(Relaxed)
    }

    /// Sets the maximum number of tracked keys; 0: no limit.
    pub(crate) fn set_max_keys(&self, max_keys: usize) {
        self.max_keys.store(max_keys, Relaxed);
        self.state.lock().evict(max_keys, MAX_TRACKED_BYTES, None);
    }

    /// Records that a client is about to read keys. Returns those that no client had read.
    pub(crate) fn record_reads<'k>(
        &self,
        id: u64,
        keys: impl Iterator<Item = &'k [u8]>,
    ) -> Vec<&'k [u8]> {
        let max_keys = self.max_keys();
        let mut new = Vec::new();
        let mut state = self.state.lock();
        // A longer key does not exist, whatever happens.
        for key in keys.filter(|key| key.len() <= MAX_KEY_BYTES) {
            if state.record(key, id) {
                new.push(key);
            }
            state.evict(max_keys, MAX_TRACKED_BYTES, Some(key));
        }
        new
    }

    /// Notifies the tracking clients of changed keys.
    pub(crate) fn invalidate(&self, keys: &[&[u8]]) {
        let mut state = self.state.lock();
        for key in keys {
            state.invalidate_read(key);
        }
        let mut changed: BTreeMap<&[u8], Vec<&[u8]>> = BTreeMap::new();
        for key in keys {
            for prefix in state.prefixes_of(key) {
                changed.entry(prefix).or_default().push(key);
            }
        }
        for (prefix, keys) in &changed {
            let ids = state.prefixes.get(*prefix).into_iter().flatten();
            ids.for_each(|id| state.notify(*id, Some(keys)));
        }
    }

    /// Notifies all tracking clients that every key has changed.
    pub(crate) fn invalidate_all(&self) {
        let mut state = self.state.lock();
        (state.keys, state.key_bytes) = (BTreeMap::new(), 0);
        state.clients.keys().for_each(|id| state.notify(*id, None));
    }
}

impl State {
    fn forget_prefixes(&mut self, id: u64) {
        let before = self.clients.get(&id).filter(|tracked| tracked.options.is_broadcast);
        if before.is_some() {
            self.prefixes.retain(|_, ids| {
                ids.remove(&id);
                !ids.is_empty()
            });
        }
    }

    /// The prefixes of a key, the longest first. The time does not depend on the number of others.
    fn prefixes_of(&self, key: &[u8]) -> Vec<&[u8]> {
        let (mut found, mut bound) = (Vec::new(), Bound::Included(key));
        let next = |bound| self.prefixes.range::<[u8], _>((Bound::Unbounded, bound)).next_back();
        while let Some((prefix, _)) = next(bound) {
            if key.starts_with(prefix) {
                found.push(prefix.as_slice());
                bound = Bound::Excluded(&key[..prefix.len()]);
            } else {
                // It is less than the key, and prefixes that are longer than what both have in
                // common would come after it.
                let common = key.iter().zip(prefix).take_while(|(a, b)| a == b).count();
                bound = Bound::Included(&key[..common]);
            }
        }
        found
    }

    /// Records that a client reads a key. Returns whether none had.
    fn record(&mut self, key: &[u8], id: u64) -> bool {
        if let Some(ids) = self.keys.get_mut(key) {
            ids.insert(id);
            return false;
        }
        self.key_bytes += key.len();
        self.keys.insert(key.to_vec(), BTreeSet::from([id]));
        true
    }

    /// Forgets keys beyond the maxima, and notifies their clients as if they had changed; with
    /// NOLOOP, too, since no client has changed them. Keeps one of the keys, and forgets those that
    /// follow it in their order.
    fn evict(&mut self, max_keys: usize, max_bytes: usize, kept: Option<&[u8]>) {
        let is_full = |state: &Self| {
            max_keys > 0 && state.keys.len() > max_keys || state.key_bytes > max_bytes
        };
        if !is_full(self) {
            return;
        }
        let current = CURRENT_CLIENT.replace(0);
        while is_full(self) {
            let after = (Bound::Excluded(kept.unwrap_or_default()), Bound::Unbounded);
            let next = self.keys.range::<[u8], _>(after).next();
            let next = next.or_else(|| self.keys.first_key_value()).map(|(key, _)| key);
            let Some(evicted) = next.filter(|key| Some(key.as_slice()) != kept).cloned() else {
                break;
            };
            self.invalidate_read(&evicted);
        }
        CURRENT_CLIENT.set(current);
    }

    /// Notifies the clients that have read a key, and forgets their reads of it.
    fn invalidate_read(&mut self, key: &[u8]) {
        let Some(ids) = self.keys.remove(key) else { return };
        self.key_bytes -= key.len();
        for id in ids {
            // A client that has changed to BCAST is notified by its prefixes.
            if self.clients.get(&id).is_some_and(|tracked| !tracked.options.is_broadcast) {
                self.notify(id, Some(&[key]));
            }
        }
    }

    /// Sends an invalidation of keys, or of all.
    fn notify(&self, id: u64, keys: Option<&[&[u8]]>) {
        let Some(TrackingClient { client, receiver, options }) = self.clients.get(&id) else {
            return;
        };
        if options.no_loop && keys.is_some() && CURRENT_CLIENT.get() == id {
            return;
        }
        let is_redirected = receiver.id != id;
        if is_redirected && receiver.is_gone() {
            if client.is_resp3.load(Relaxed) {
                client.push(&broken_redirection(receiver.id));
            }
        } else if receiver.is_resp3.load(Relaxed) {
            receiver.push(&invalidation(RespVersion::Resp3, keys));
        } else if is_redirected && receiver.is_subscriber() {
            receiver.push(&invalidation(RespVersion::Resp2, keys));
        }
    }
}

fn broken_redirection(id: u64) -> Arc<[u8]> {
    let mut replies = Replies::new(usize::MAX);
    replies.version = RespVersion::Resp3;
    replies.push(2);
    replies.bulk(b"tracking-redir-broken");
    replies.int(id as i64);
    replies.unsent().into()
}

fn invalidation(version: RespVersion, keys: Option<&[&[u8]]>) -> Arc<[u8]> {
    let mut replies = Replies::new(usize::MAX);
    replies.version = version;
    match version {
        RespVersion::Resp2 => {
            replies.push(3);
            replies.bulk(b"message");
            replies.bulk(CHANNEL);
        }
        RespVersion::Resp3 => {
            replies.push(2);
            replies.bulk(b"invalidate");
        }
    }
    match keys {
        None => replies.null(),
        Some(keys) => {
            replies.array(keys.len());
            keys.iter().for_each(|key| replies.bulk(key));
        }
    }
    replies.unsent().into()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn keys_and_their_bytes_are_bounded() {
        let mut state = State::default();
        let reads = |state: &mut State, keys: &[&str], max_keys, max_bytes| {
            for key in keys {
                state.record(key.as_bytes(), 1);
                state.evict(max_keys, max_bytes, Some(key.as_bytes()));
            }
            let keys = state.keys.keys().map(|key| String::from_utf8_lossy(key).into_owned());
            (keys.collect::<Vec<_>>().join(" "), state.key_bytes)
        };
        let all = ["bb", "a", "dd", "bb", "ccc"];
        assert_eq!(reads(&mut state, &all, 0, 9), ("a bb ccc dd".into(), 8));
        assert_eq!(reads(&mut state, &["e"], 0, 9), ("a bb ccc dd e".into(), 9));
        // The next ones in their order, beginning again with the first.
        assert_eq!(reads(&mut state, &["c"], 0, 9), ("a bb c dd e".into(), 7));
        assert_eq!(reads(&mut state, &["f"], 4, 9), ("c dd e f".into(), 5));
        assert_eq!(reads(&mut state, &["0123456789"], 4, 9), ("0123456789".into(), 10));
        state.evict(0, 9, None);
        assert_eq!((state.keys.len(), state.key_bytes), (0, 0));
    }

    proptest! {
        #[test]
        fn prefixes_of_a_key_are_found_the_longest_first(
            prefixes in prop::collection::btree_set(prop::collection::vec(0u8..3, 0..5), 0..12),
            key in prop::collection::vec(0u8..3, 0..7),
        ) {
            let all = prefixes.iter().map(|prefix| (prefix.clone(), BTreeSet::from([1])));
            let state = State { prefixes: all.collect(), ..State::default() };
            let of_key = prefixes.iter().map(Vec::as_slice).filter(|prefix| key.starts_with(prefix));
            let expected: Vec<&[u8]> = of_key.rev().collect();
            prop_assert_eq!(state.prefixes_of(&key), expected);
        }
    }
}
