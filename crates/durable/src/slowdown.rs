//! The events of a slowdown: writers are delayed in proportion to the backlog.
//!
//! A delay takes less than a few milliseconds, and an event per delay would be of no use. A
//! slowdown begins with the first delay. It ends when a job has ended, or all keys were removed,
//! and writes accrue no delays any more; at the latest when the table is closed.
//!
//! Cost: writers that are not delayed do nothing.

use std::time::Instant;

use parking_lot::Mutex;
use siltstone_engine::{EventKind, WriteStall};
use siltstone_runtime::{Events, WriteController};

const CAUSE: WriteStall = WriteStall::Slowdown;

/// Since when writers are delayed.
#[derive(Default)]
pub(crate) struct Slowdown {
    since: Mutex<Option<Instant>>,
}

impl Slowdown {
    /// A writer is about to be delayed.
    pub(crate) fn begin(&self, events: &Events) {
        if !events.is_enabled() {
            return;
        }
        let mut since = self.since.lock();
        if since.is_none() {
            *since = Some(Instant::now());
            events.emit(|| EventKind::StallBegun { cause: CAUSE });
        }
    }

    /// The backlog may have decreased.
    pub(crate) fn end_if_over(&self, events: &Events, controller: &WriteController) {
        // Whatever the memtable's fill.
        if events.is_enabled() && !controller.is_throttling(1.0) {
            self.end(events);
        }
    }

    /// Writers are not delayed any more.
    pub(crate) fn end(&self, events: &Events) {
        if let Some(since) = self.since.lock().take() {
            let duration = since.elapsed();
            events.emit(|| EventKind::StallEnded { cause: CAUSE, duration });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use siltstone_engine::{Event, ManualClock};

    use super::*;

    #[test]
    fn slowdown_lasts_until_writes_accrue_no_delays() {
        let heard = Arc::new(Mutex::new(Vec::new()));
        let listener = {
            let heard = heard.clone();
            move |event: &Event| heard.lock().push(event.to_string())
        };
        let clock = Arc::new(ManualClock::at(0));
        let events = Events::new(vec![Arc::new(listener)], clock).unwrap();
        let (slowdown, controller) = (Slowdown::default(), WriteController::default());
        controller.set(0.5);
        for _ in 0..3 {
            slowdown.begin(&events);
            slowdown.end_if_over(&events, &controller);
        }
        controller.set(0.0);
        for _ in 0..3 {
            slowdown.end_if_over(&events, &controller);
        }
        events.close();
        let heard = heard.lock();
        assert_eq!(heard.len(), 2, "{heard:?}");
        assert_eq!(heard[0], "write stall (slowdown) begun");
        assert!(heard[1].starts_with("write stall (slowdown) ended after "), "{heard:?}");
    }
}
