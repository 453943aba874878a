//! The clock of a server whose expiry a client can hold: CLIENT HOLD-EXPIRY.
//!
//! A program that copies the writes of another server (`siltstone replicate-from`) must be the only
//! one to remove keys that expire there. A write that ends the expiry of a key may come here after
//! that expiry has passed; if the key had expired here meanwhile, it would stay lost. So while a
//! client holds the clock, it stands still and nothing expires.
//!
//! Invariant: the clock shows the system's time, or the earliest held time if that is before it. A
//! hold ends with the connection of its client at the latest.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use siltstone_engine::{Clock, SystemClock, Timestamp};

/// The system clock, which clients can hold. A server and its tables share one.
#[derive(Debug)]
pub struct HoldableClock {
    /// The earliest held time; `u64::MAX`: none.
    limit: AtomicU64,
    /// Held times by client.
    holds: Mutex<BTreeMap<u64, Timestamp>>,
}

impl Default for HoldableClock {
    fn default() -> Self {
        HoldableClock { limit: AtomicU64::new(u64::MAX), holds: Mutex::default() }
    }
}

impl HoldableClock {
    /// Holds the clock at `time` for a client, in place of an earlier hold of it.
    pub(crate) fn hold(&self, client: u64, time: Timestamp) {
        self.change(|holds| {
            holds.insert(client, time);
        });
    }

    /// Ends the hold of a client, if it has one.
    pub(crate) fn release(&self, client: u64) {
        self.change(|holds| {
            holds.remove(&client);
        });
    }

    fn change(&self, change: impl FnOnce(&mut BTreeMap<u64, Timestamp>)) {
        let mut holds = self.holds.lock();
        change(&mut holds);
        let limit = holds.values().min().copied().unwrap_or(u64::MAX);
        self.limit.store(limit, Ordering::Release);
    }
}

impl Clock for HoldableClock {
    fn now(&self) -> Timestamp {
        SystemClock.now().min(self.limit.load(Ordering::Acquire))
    }

    fn earliest(&self) -> Timestamp {
        SystemClock.earliest().min(self.limit.load(Ordering::Acquire))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn earliest_hold_counts_until_its_client_releases_it() {
        let clock = HoldableClock::default();
        clock.hold(1, 1000);
        clock.hold(2, 500);
        assert_eq!(clock.now(), 500);
        clock.release(2);
        assert_eq!(clock.now(), 1000);
        clock.hold(1, 2000);
        assert_eq!(clock.now(), 2000);
        clock.release(1);
        clock.release(1);
        assert!(clock.now() > 2000);
    }
}
