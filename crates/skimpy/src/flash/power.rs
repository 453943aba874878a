//! When power goes off, and what was in flight then.
//!
//! A program or an erase is in flight from its submission until a clock that somebody waited on has
//! reached its completion. What is in flight is noted from [`watch`](Power::watch) on, an erase with
//! what it erased, so that a survivor can have it not begun.
//!
//! Invariant: whatever a caller waited for is not in flight.
//!
//! Source: ours, in the manner of `siltstone-faults`.

use std::time::Duration;

use super::cells::Place;
use super::memory::BlockImage;

/// A change that may not have happened.
#[derive(Clone)]
pub(super) struct InFlight {
    pub(super) done: Duration,
    pub(super) block: u32,
    pub(super) change: Change,
}

#[derive(Clone)]
pub(super) enum Change {
    Program(Place),
    /// With what the block held before.
    Erase(BlockImage),
}

#[derive(Default)]
pub(super) struct Power {
    pub(super) operations: u64,
    pub(super) is_off: bool,
    cut_at: Option<u64>,
    watched: bool,
    /// The latest time that anybody has seen.
    horizon: Duration,
    in_flight: Vec<InFlight>,
}

impl Power {
    /// Begins to note what is in flight.
    pub(super) fn watch(&mut self) {
        self.watched = true;
    }

    pub(super) fn is_watched(&self) -> bool {
        self.watched
    }

    pub(super) fn cut_at(&mut self, operation: u64) {
        self.watched = true;
        self.cut_at = Some(operation);
    }

    /// Counts a program or an erase; `true` if power goes off in the middle of it.
    pub(super) fn count(&mut self) -> bool {
        let cut = self.cut_at == Some(self.operations);
        self.operations += 1;
        self.is_off |= cut;
        cut
    }

    /// Somebody saw this time: what is done by then has happened. `false` if power went off before.
    pub(super) fn saw(&mut self, now: Duration) -> bool {
        if self.is_off {
            return now <= self.horizon;
        }
        self.horizon = self.horizon.max(now);
        let horizon = self.horizon;
        self.in_flight.retain(|change| change.done > horizon);
        true
    }

    /// Notes a change. The one that power went off in is in flight whatever the time.
    pub(super) fn note(&mut self, change: InFlight, cut: bool) {
        if self.watched && (cut || change.done > self.horizon) {
            self.in_flight.push(change);
        }
    }

    pub(super) fn in_flight(&self) -> Vec<InFlight> {
        self.in_flight.clone()
    }
}
