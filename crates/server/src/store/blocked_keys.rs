//! Keys that parked commands wait for, such as those of BLPOP.
//!
//! ```text
//! key "jobs"   ticket 3 (list)   ticket 7 (list)   ticket 9 (sorted set)      in order of arrival
//! ```
//!
//! A write of a key that somebody waits for makes the key *ready*. The thread that wrote it then
//! runs the waiting commands of the ready keys again, first come first served (`command::serve`).
//!
//! The expiry of a key is no write. A worker makes the keys ready whose expiry has passed, for
//! those commands that end when their key does.
//!
//! Invariant: a command that found nothing is added under the locks of its keys, so no write falls
//! between its lookup and its entry here.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use parking_lot::Mutex;
use siltstone_engine::Timestamp;

use crate::clients::Ticket;

/// Bit of `active` while somebody waits for a key.
pub(super) const BLOCKED: u32 = 1;

/// The kind of element that a command waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WaitKind {
    /// An element of a list, which the first command takes.
    List,
    /// A member of a sorted set, which the first command takes.
    SortedSet,
    /// Entries of a stream, which all commands may read.
    Stream,
    /// Entries of a stream for a consumer group. The commands fail if the group disappears.
    Group,
    /// Any change, which all commands may use.
    Change,
    /// Nothing: another thread does the work of the command.
    Job,
}

impl WaitKind {
    /// Whether the commands of this kind take what they find from those behind them.
    pub(crate) fn consumes(self) -> bool {
        matches!(self, WaitKind::List | WaitKind::SortedSet)
    }
}

/// Keys that parked commands wait for, of all tables.
#[derive(Default)]
pub(crate) struct BlockedKeys {
    /// A key is ready.
    has_ready: AtomicBool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// By table.
    queues: Vec<HashMap<Vec<u8>, Queue>>,
    ready: VecDeque<(usize, Vec<u8>)>,
    /// Expiries of keys with their tables, for the commands that end with their key.
    expiries: BTreeSet<(Timestamp, usize, Vec<u8>)>,
}

#[derive(Default)]
struct Queue {
    tickets: BTreeMap<Ticket, WaitKind>,
    is_ready: bool,
    /// As in `expiries`.
    expires_at: Option<Timestamp>,
}

impl BlockedKeys {
    /// Adds a waiting command, and sets [`BLOCKED`]. The caller holds the lock of the key.
    pub(super) fn add(
        &self,
        table: usize,
        key: &[u8],
        (ticket, kind): (Ticket, WaitKind),
        active: &AtomicU32,
    ) {
        let mut state = self.state.lock();
        active.fetch_or(BLOCKED, Ordering::AcqRel);
        if state.queues.len() <= table {
            state.queues.resize_with(table + 1, HashMap::new);
        }
        state.queues[table].entry(key.to_vec()).or_default().tickets.insert(ticket, kind);
    }

    /// Removes a waiting command, and clears [`BLOCKED`] if nobody waits for any key now.
    pub(super) fn remove(&self, table: usize, key: &[u8], ticket: Ticket, active: &AtomicU32) {
        let mut state = self.state.lock();
        let State { queues, expiries, .. } = &mut *state;
        if let Some(queues) = queues.get_mut(table)
            && let Some(queue) = queues.get_mut(key)
        {
            queue.tickets.remove(&ticket);
            if queue.tickets.is_empty()
                && let Some(Queue { expires_at: Some(at), .. }) = queues.remove(key)
            {
                expiries.remove(&(at, table, key.to_vec()));
            }
        }
        if state.queues.iter().all(HashMap::is_empty) {
            active.fetch_and(!BLOCKED, Ordering::AcqRel);
        }
    }

    /// Sets the expiry of a key whose end ends commands. The caller holds the lock of the key.
    pub(crate) fn set_expiry(&self, table: usize, key: &[u8], expires_at: Option<Timestamp>) {
        let mut state = self.state.lock();
        let State { queues, expiries, .. } = &mut *state;
        let queue = queues.get_mut(table).and_then(|queues| queues.get_mut(key));
        let Some(queue) = queue else { return };
        if let Some(before) = std::mem::replace(&mut queue.expires_at, expires_at) {
            expiries.remove(&(before, table, key.to_vec()));
        }
        expiries.extend(expires_at.map(|at| (at, table, key.to_vec())));
    }

    /// Whether the expiry of a key may end a command.
    pub(super) fn has_expiries(&self) -> bool {
        !self.state.lock().expiries.is_empty()
    }

    /// Marks the keys as ready whose expiry has passed.
    pub(crate) fn mark_expired_ready(&self, now: Timestamp) {
        loop {
            let mut state = self.state.lock();
            if state.expiries.first().is_none_or(|(at, ..)| *at > now) {
                return;
            }
            let Some((_, table, key)) = state.expiries.pop_first() else { return };
            if let Some(queue) = state.queues[table].get_mut(&key) {
                queue.expires_at = None;
            }
            drop(state);
            self.mark_ready(table, &key);
        }
    }

    /// Whether a command of this kind waits for the key.
    pub(crate) fn has_waiters(&self, table: usize, key: &[u8], kind: WaitKind) -> bool {
        let state = self.state.lock();
        let queue = state.queues.get(table).and_then(|queues| queues.get(key));
        queue.is_some_and(|queue| queue.tickets.values().any(|waiting| *waiting == kind))
    }

    /// Marks a written key as ready if somebody waits for it.
    pub(super) fn mark_ready(&self, table: usize, key: &[u8]) {
        let mut state = self.state.lock();
        let State { queues, ready, .. } = &mut *state;
        let queue = queues.get_mut(table).and_then(|queues| queues.get_mut(key));
        if let Some(queue) = queue
            && !std::mem::replace(&mut queue.is_ready, true)
        {
            ready.push_back((table, key.to_vec()));
            self.has_ready.store(true, Ordering::Release);
        }
    }

    /// Marks all keys as ready that somebody waits for: their commands may want to fail.
    pub(super) fn mark_all_ready(&self) {
        let mut state = self.state.lock();
        let State { queues, ready, .. } = &mut *state;
        for (table, queues) in queues.iter_mut().enumerate() {
            for (key, queue) in queues.iter_mut() {
                if !std::mem::replace(&mut queue.is_ready, true) {
                    ready.push_back((table, key.clone()));
                }
            }
        }
        self.has_ready.store(!ready.is_empty(), Ordering::Release);
    }

    /// Number of keys that somebody waits for, and of those whose removal ends a command.
    pub(crate) fn count(&self) -> (usize, usize) {
        let state = self.state.lock();
        let mut counts = (0, 0);
        for queue in state.queues.iter().flat_map(HashMap::values) {
            counts.0 += 1;
            counts.1 += usize::from(queue.tickets.values().any(|kind| *kind == WaitKind::Group));
        }
        counts
    }

    /// Whether a key is ready. Cost: one atomic load.
    #[inline]
    pub(crate) fn has_ready(&self) -> bool {
        self.has_ready.load(Ordering::Acquire)
    }

    /// Takes the next ready key, and returns the commands that wait for it, in order.
    pub(crate) fn take_ready(&self) -> Option<Vec<(Ticket, WaitKind)>> {
        let mut state = self.state.lock();
        let Some((table, key)) = state.ready.pop_front() else {
            self.has_ready.store(false, Ordering::Release);
            return None;
        };
        let queue = state.queues[table].get_mut(&key);
        let tickets = queue.map(|queue| {
            queue.is_ready = false;
            queue.tickets.iter().map(|(ticket, kind)| (*ticket, *kind)).collect()
        });
        Some(tickets.unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_keys_of_all_tables_become_ready_once() {
        let (blocked, active) = (BlockedKeys::default(), AtomicU32::new(0));
        blocked.mark_all_ready();
        assert!(!blocked.has_ready());
        blocked.add(0, b"a", (1, WaitKind::Group), &active);
        blocked.add(2, b"b", (2, WaitKind::Stream), &active);
        assert_eq!(blocked.count(), (2, 1));
        blocked.mark_ready(2, b"b");
        blocked.mark_all_ready();
        let ready = [vec![(2, WaitKind::Stream)], vec![(1, WaitKind::Group)]];
        assert_eq!([blocked.take_ready().unwrap(), blocked.take_ready().unwrap()], ready);
        assert_eq!(blocked.take_ready(), None);
    }

    #[test]
    fn expired_key_is_ready_once_unless_its_expiry_or_its_command_has_gone() {
        let (blocked, active) = (BlockedKeys::default(), AtomicU32::new(0));
        for (ticket, key) in [(1, b"a"), (2, b"b"), (3, b"c")] {
            blocked.add(0, key, (ticket, WaitKind::Group), &active);
            blocked.set_expiry(0, key, Some(10));
        }
        blocked.set_expiry(0, b"a", Some(20));
        blocked.remove(0, b"c", 3, &active);
        blocked.mark_expired_ready(9);
        assert!(!blocked.has_ready());
        blocked.mark_expired_ready(10);
        assert_eq!(blocked.take_ready().unwrap(), [(2, WaitKind::Group)]);
        assert_eq!(blocked.take_ready(), None);
        blocked.set_expiry(0, b"a", None);
        assert!(!blocked.has_expiries());
        blocked.mark_expired_ready(30);
        assert!(!blocked.has_ready());
    }

    #[test]
    fn a_written_key_is_ready_once_with_its_commands_in_order() {
        let (blocked, active) = (BlockedKeys::default(), AtomicU32::new(0));
        let write = |table, key: &[u8]| blocked.mark_ready(table, key);
        write(0, b"a");
        assert!(!blocked.has_ready(), "nobody waits");
        blocked.add(1, b"a", (7, WaitKind::SortedSet), &active);
        blocked.add(1, b"a", (3, WaitKind::List), &active);
        assert!(blocked.has_waiters(1, b"a", WaitKind::List));
        assert!(!blocked.has_waiters(1, b"a", WaitKind::Change));
        assert!(!blocked.has_waiters(0, b"a", WaitKind::List));
        write(0, b"a");
        assert!(!blocked.has_ready(), "another table");
        write(1, b"a");
        write(1, b"a");
        assert!(blocked.has_ready());
        let tickets = vec![(3, WaitKind::List), (7, WaitKind::SortedSet)];
        assert_eq!(blocked.take_ready(), Some(tickets));
        assert_eq!(blocked.take_ready(), None);
        assert!(!blocked.has_ready());
        // A write during a turn makes the key ready again.
        write(1, b"a");
        blocked.remove(1, b"a", 3, &active);
        assert_eq!(active.load(Ordering::Relaxed), BLOCKED);
        blocked.remove(1, b"a", 7, &active);
        assert_eq!(active.load(Ordering::Relaxed), 0);
        assert_eq!(blocked.take_ready(), Some(Vec::new()));
        assert_eq!(blocked.take_ready(), None);
    }
}
