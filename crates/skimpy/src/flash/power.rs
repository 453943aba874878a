//! Power cuts, and the requests in flight at that time.
//!
//! A program or erase is in flight from its submission until somebody has waited for a time at or
//! after its completion. Requests in flight are recorded from [`watch`](Power::watch) on, an erase
//! with the block's content, so that a survivor can undo it.
//!
//! Invariant: a request that a caller has waited for is not in flight.

use std::time::Duration;

use super::cells::PageAddress;
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
    Program(PageAddress),
    /// With the content of the block before.
    Erase(BlockImage),
}

#[derive(Default)]
pub(super) struct Power {
    pub(super) operations: u64,
    pub(super) is_off: bool,
    cut_at: Option<u64>,
    watched: bool,
    /// The latest time that was waited for.
    horizon: Duration,
    in_flight: Vec<InFlight>,
}

impl Power {
    /// Starts to record requests in flight.
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

    /// Counts a program or an erase; `true` if power is cut during it.
    pub(super) fn count(&mut self) -> bool {
        let cut = self.cut_at == Some(self.operations);
        self.operations += 1;
        self.is_off |= cut;
        cut
    }

    /// Records that `now` was waited for: requests completed by then have happened. `false` if
    /// power was cut before.
    pub(super) fn saw(&mut self, now: Duration) -> bool {
        if self.is_off {
            return now <= self.horizon;
        }
        self.horizon = self.horizon.max(now);
        let horizon = self.horizon;
        self.in_flight.retain(|change| change.done > horizon);
        true
    }

    /// Records a change. The one during which power was cut is in flight at any time.
    pub(super) fn note(&mut self, change: InFlight, cut: bool) {
        if self.watched && (cut || change.done > self.horizon) {
            self.in_flight.push(change);
        }
    }

    pub(super) fn in_flight(&self) -> Vec<InFlight> {
        self.in_flight.clone()
    }
}
