//! Observers of keys and commands: blocked clients, client-side caches, keyspace events, MONITOR
//! and the slow log. WATCH has lists of its own.
//!
//! Every write of every protocol calls [`Observers::changed`] after the engine has applied it,
//! still under the locks of its keys.
//!
//! Cost while nobody observes: one atomic load per write, and one per batched SET.

use std::borrow::Cow;
use std::sync::atomic::{AtomicU32, Ordering};

use super::blocked_keys::{BLOCKED, BlockedKeys, WaitKind};
use super::expiries::{Expiries, NextExpiry};
use crate::clients::{Client, Ticket};
use crate::tracking::{Tracking, TrackingOptions};

/// Clients track keys.
const TRACKING: u32 = 1 << 1;
/// Keyspace events are published.
const EVENTS: u32 = 1 << 2;
/// `expired` events are published.
const EXPIRED_EVENTS: u32 = 1 << 3;
/// Clients monitor all commands.
pub(crate) const MONITORS: u32 = 1 << 4;
/// Every command is logged as slow.
pub(crate) const LOG_ALL: u32 = 1 << 5;

/// The observers of all tables.
#[derive(Default)]
pub(crate) struct Observers {
    /// A bit per kind of observer that exists: [`BLOCKED`], [`TRACKING`] and so on.
    active: AtomicU32,
    pub(crate) blocked: BlockedKeys,
    pub(crate) tracking: Tracking,
    pub(crate) expiries: Expiries,
}

impl Observers {
    /// Notifies of written keys with their next expiry, and of removed keys.
    #[inline]
    pub(super) fn changed<'k>(
        &self,
        table: usize,
        mut keys: impl Iterator<Item = (Cow<'k, [u8]>, Option<NextExpiry>)>,
    ) {
        let active = self.active.load(Ordering::Acquire);
        if active != 0 {
            self.notify(active, table, &mut keys);
        }
    }

    #[cold]
    fn notify<'k>(
        &self,
        active: u32,
        table: usize,
        keys: &mut dyn Iterator<Item = (Cow<'k, [u8]>, Option<NextExpiry>)>,
    ) {
        let mut changed = Vec::new();
        for (key, next) in keys {
            if active & BLOCKED != 0 {
                self.blocked.mark_ready(table, &key);
            }
            if active & (TRACKING | EXPIRED_EVENTS) != 0 {
                self.expiries.record(table, &key, next);
            }
            if active & TRACKING != 0 {
                changed.push(key);
            }
        }
        if !changed.is_empty() {
            let changed: Vec<&[u8]> = changed.iter().map(AsRef::as_ref).collect();
            self.tracking.invalidate(&changed);
        }
    }

    /// Notifies that one or all tables were cleared.
    pub(crate) fn cleared(&self) {
        let active = self.active.load(Ordering::Acquire);
        if active & BLOCKED != 0 {
            self.blocked.mark_all_ready();
        }
        if active & TRACKING != 0 {
            self.tracking.invalidate_all();
        }
    }

    /// Notifies that two tables were exchanged. Tracking clients are not notified, as in Redis.
    pub(super) fn swapped(&self, table: usize, other: usize) {
        self.expiries.swap(table, other);
        if self.active.load(Ordering::Acquire) & BLOCKED != 0 {
            self.blocked.mark_all_ready();
        }
    }

    /// Whether the client and time of each SET matter, so that SETs are not batched.
    #[inline]
    pub(crate) fn need_single_sets(&self) -> bool {
        self.active.load(Ordering::Acquire) & !BLOCKED != 0
    }

    /// Whether any observer exists.
    #[inline]
    pub(crate) fn has_some(&self) -> bool {
        self.active.load(Ordering::Acquire) != 0
    }

    /// Whether any of these kinds of observers exists.
    #[inline]
    pub(crate) fn has_any(&self, bits: u32) -> bool {
        self.active.load(Ordering::Acquire) & bits != 0
    }

    /// Whether keyspace events are published.
    #[inline]
    pub(crate) fn has_events(&self) -> bool {
        self.has_any(EVENTS)
    }

    /// Whether clients track keys.
    #[inline]
    pub(crate) fn has_tracking(&self) -> bool {
        self.has_any(TRACKING)
    }

    /// Whether an observer needs to know when keys expire, or a blocked command waits for it.
    pub(crate) fn has_expiries_or_expiring_waits(&self) -> bool {
        self.has_expiries() || self.has_any(BLOCKED) && self.blocked.has_expiries()
    }

    /// Whether an observer needs to know when keys expire.
    pub(crate) fn has_expiries(&self) -> bool {
        self.has_any(TRACKING | EXPIRED_EVENTS)
    }

    /// Sets or clears bits of kinds of observers.
    pub(crate) fn set(&self, bits: u32, is_active: bool) {
        match is_active {
            true => self.active.fetch_or(bits, Ordering::AcqRel),
            false => self.active.fetch_and(!bits, Ordering::AcqRel),
        };
        if !self.has_expiries() {
            self.expiries.clear();
        }
    }

    /// Sets which keyspace events are published.
    pub(crate) fn set_events(&self, any: bool, expired: bool) {
        self.set(EVENTS, any);
        self.set(EXPIRED_EVENTS, expired);
    }

    /// Adds a waiting command for a key. The caller holds the lock of the key.
    pub(crate) fn block(&self, table: usize, key: &[u8], ticket: Ticket, kind: WaitKind) {
        self.blocked.add(table, key, (ticket, kind), &self.active);
    }

    /// Removes a waiting command of a key.
    pub(crate) fn unblock(&self, table: usize, key: &[u8], ticket: Ticket) {
        self.blocked.remove(table, key, ticket, &self.active);
    }

    /// Begins or changes the tracking of a client.
    pub(crate) fn track(
        &self,
        client: &std::sync::Arc<Client>,
        receiver: std::sync::Arc<Client>,
        options: TrackingOptions,
    ) {
        self.tracking.start(client, receiver, options, || self.set(TRACKING, true));
    }

    /// Ends the tracking of a client.
    pub(crate) fn untrack(&self, id: u64) {
        self.tracking.stop(id, || self.set(TRACKING, false));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use mio::{Poll, Token, Waker};

    use super::*;
    use crate::clients::{Address, Clients, Registration};
    use crate::net::wakeups::Wakeups;

    /// While it is not active, nothing that a client reads is recorded, and no change is reported.
    #[test]
    fn tracking_is_active_while_one_of_several_clients_begins_and_ends() {
        let poll = Poll::new().unwrap();
        let waker = Waker::new(poll.registry(), Token(0)).unwrap();
        let (clients, wakeups) = (Arc::new(Clients::default()), Arc::new(Wakeups::new(waker)));
        let address = Address::Ip(([127, 0, 0, 1], 1).into());
        let [first, second]: [Registration; 2] = [0, 1].map(|token| {
            assert!(clients.reserve_connection(2));
            clients.register(address.clone(), address.clone(), wakeups.clone(), token)
        });
        let observers = Observers::default();
        let track = |client: &Arc<Client>| {
            observers.track(client, client.clone(), TrackingOptions::default());
        };
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for _ in 0..30_000 {
                    track(&first.client);
                    observers.untrack(first.client.id);
                }
            });
            for round in 0..30_000 {
                track(&second.client);
                assert!(observers.has_tracking(), "in round {round}");
                observers.untrack(second.client.id);
            }
        });
        assert!(!observers.has_tracking());
    }
}
