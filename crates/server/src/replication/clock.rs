//! The time of a replicated table: that of its leader, carried by the log.
//!
//! Nodes have different clocks. If each judged by its own whether an entry has expired, an expired
//! key could reappear after a failover, and a node whose clock is ahead could drop elements of a
//! collection that the leader's PERSIST then keeps. So there is one time per group: the newest that
//! was committed. Every proposal carries the leader's time, in one row of the table:
//!
//! ```text
// ANCHOR: layout
//! key   := 0xff 0xc0 0xfe "time"
//! value := milliseconds since 1970:u64, little endian
// ANCHOR_END: layout
//! ```
//!
//! | who | what has expired |
//! | --- | --- |
//! | the engine, at every node: reads and compactions | what has expired at the committed time |
//! | commands on the leader | what has expired by the leader's clock; replies wait for its commit |
//! | commands on a follower | what has expired at the committed time, which is held meanwhile |
//!
//! Invariant: the time never goes back, at no node and across failovers. So what a command of the
//! leader has seen counts for all after it, and for the next proposal, though the leader's clock is
//! set back meanwhile. On a follower the node's thread commits times while a command reads; the
//! command sees one, and the engine drops nothing that it may see ([`GroupClock::hold`]).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use siltstone_engine::{Clock, SystemClock, Timestamp, WriteBatch};

/// Key of the row with the committed time.
pub(crate) const TIME_KEY: &[u8] = b"\xff\xc0\xfetime";

/// The committed time. As a clock it is that of commands.
#[derive(Debug)]
pub(crate) struct GroupClock {
    committed: AtomicU64,
    /// The time that commands on a follower see; [`NOT_HELD`]: the committed one.
    held: AtomicU64,
    is_leading: AtomicBool,
    /// The newest time that commands have seen since this node leads.
    seen: AtomicU64,
}

const NOT_HELD: Timestamp = Timestamp::MAX;

impl Default for GroupClock {
    fn default() -> Self {
        GroupClock {
            committed: AtomicU64::new(0),
            held: AtomicU64::new(NOT_HELD),
            is_leading: AtomicBool::new(false),
            seen: AtomicU64::new(0),
        }
    }
}

impl GroupClock {
    /// The newest time that this node has applied.
    pub(crate) fn committed(&self) -> Timestamp {
        self.committed.load(Ordering::Acquire)
    }

    /// Lets commands on a follower, and the engine, see the time that is committed now, until
    /// [`release`](Self::release).
    pub(super) fn hold(&self) {
        // Background work that does not see this has taken its time before, so it drops nothing
        // that has not expired at the time of the second look.
        self.held.store(self.committed.load(Ordering::SeqCst), Ordering::SeqCst);
        self.held.store(self.committed.load(Ordering::SeqCst), Ordering::SeqCst);
    }

    /// Ends [`hold`](Self::hold).
    pub(super) fn release(&self) {
        self.held.store(NOT_HELD, Ordering::SeqCst);
    }

    /// The committed time, or the one that is held.
    fn following(&self) -> Timestamp {
        // In this order: see `hold`.
        let committed = self.committed.load(Ordering::SeqCst);
        committed.min(self.held.load(Ordering::SeqCst))
    }

    /// Whether commands see this node's clock.
    pub(crate) fn is_leading(&self) -> bool {
        self.is_leading.load(Ordering::Acquire)
    }

    /// Sets whether commands see this node's clock.
    pub(crate) fn set_leading(&self, is_leading: bool) {
        // What was not committed is lost, with all replies that depend on it.
        self.seen.store(0, Ordering::Release);
        self.is_leading.store(is_leading, Ordering::Release);
    }

    /// Adds the time of a proposal to it, and returns it.
    pub(crate) fn stamp(&self, batch: &mut WriteBatch) {
        batch.put(TIME_KEY, &self.now().to_le_bytes());
    }

    /// The time of a leader whose clock shows `clock`.
    fn leading(&self, clock: Timestamp) -> Timestamp {
        let now = self.committed().max(clock);
        self.seen.fetch_max(now, Ordering::AcqRel).max(now)
    }

    /// Notes the value of a row that was applied.
    pub(super) fn note(&self, time: &[u8]) {
        if let Some(time) = time.first_chunk() {
            self.committed.fetch_max(u64::from_le_bytes(*time), Ordering::SeqCst);
        }
    }
}

impl Clock for GroupClock {
    fn now(&self) -> Timestamp {
        match self.is_leading() {
            true => self.leading(SystemClock.now()),
            false => self.following(),
        }
    }
}

/// The committed time as a clock, for the engine.
pub(crate) struct CommittedClock(pub(crate) Arc<GroupClock>);

impl Clock for CommittedClock {
    fn now(&self) -> Timestamp {
        self.0.following()
    }
}

#[cfg(test)]
mod tests {
    use siltstone_engine::Op;

    use super::*;

    #[test]
    fn time_that_a_command_has_seen_is_committed_though_the_clock_is_set_back() {
        let clock = GroupClock::default();
        clock.set_leading(true);
        let ahead = SystemClock.now() + 3_600_000;
        // Something has expired then.
        assert_eq!(clock.leading(ahead), ahead);
        assert_eq!(clock.now(), ahead);
        let mut batch = WriteBatch::new();
        clock.stamp(&mut batch);
        let Some(Op::Put { value, .. }) = batch.iter().next() else { panic!("no time") };
        clock.note(value);
        assert_eq!(clock.committed(), ahead);
    }

    #[test]
    fn time_that_was_not_committed_is_forgotten_with_the_leadership() {
        let clock = GroupClock::default();
        clock.set_leading(true);
        let ahead = SystemClock.now() + 3_600_000;
        clock.leading(ahead);
        clock.set_leading(false);
        assert_eq!(clock.now(), 0);
        clock.set_leading(true);
        assert!(clock.now() < ahead);
    }
}
