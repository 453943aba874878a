//! Adaptive polling: spin for a while before blocking, unless other threads want the core.
//!
//! A wake-up takes longer than most responses and costs the sender as well, so a thread polls for
//! up to 50 us and yields the core between polls. The Linux scheduler may then run another thread
//! for its whole slice: beside a busy thread each poll takes milliseconds, while a thread that
//! blocks is woken within microseconds because it has not used its share. A thread that was
//! descheduled for more than 1 ms between two polls therefore blocks at once for the next 8
//! receives. The count doubles with each further such event, up to 1,024, and halves when polling
//! succeeds, since one long slice of another thread can also happen on an otherwise idle core.
//!
//! Source: I. Stoica and H. Abdel-Wahab, "Earliest Eligible Virtual Deadline First" (1995), by
//! which Linux schedules since version 6.6, for the time slices.

use std::time::{Duration, Instant};

/// Maximum polling time before a thread blocks.
const MAX_POLL_TIME: Duration = Duration::from_micros(50);
/// Absence that counts as descheduled: above a response time, below a scheduler slice.
const MIN_DESCHEDULED: Duration = Duration::from_millis(1);
/// Receives that block at once after the first descheduling.
const MIN_BLOCKING: u32 = 8;
/// Upper bound of that number.
const MAX_BLOCKING: u32 = 1024;

/// Polling state of one thread.
#[derive(Debug)]
pub(crate) struct AdaptivePoller {
    /// Start of the current polling phase.
    started: Instant,
    /// Time of the last poll.
    last_poll: Instant,
    /// Whether the thread has yielded in this phase.
    has_yielded: bool,
    /// Remaining receives that block at once.
    blocking_left: u32,
    /// Value of `blocking_left` after the next descheduling.
    next_blocking: u32,
}

impl AdaptivePoller {
    pub(crate) fn new() -> Self {
        let now = Instant::now();
        AdaptivePoller {
            started: now,
            last_poll: now,
            has_yielded: false,
            blocking_left: 0,
            next_blocking: MIN_BLOCKING,
        }
    }

    /// Starts a receive. Returns whether to poll; if not, the caller blocks at once.
    pub(crate) fn begin(&mut self, now: Instant) -> bool {
        (self.started, self.has_yielded) = (now, false);
        let polls = self.blocking_left == 0;
        self.blocking_left = self.blocking_left.saturating_sub(1);
        polls
    }

    /// Whether to poll again.
    pub(crate) fn should_poll(&mut self, now: Instant) -> bool {
        self.last_poll = now;
        self.blocking_left == 0 && now - self.started <= MAX_POLL_TIME
    }

    /// Records the return from a yield.
    pub(crate) fn record_yield(&mut self, now: Instant) {
        if now - self.last_poll > MIN_DESCHEDULED {
            self.blocking_left = self.next_blocking;
            self.next_blocking = MAX_BLOCKING.min(2 * self.next_blocking);
        } else if !self.has_yielded {
            self.next_blocking = MIN_BLOCKING.max(self.next_blocking / 2);
        }
        self.has_yielded = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_core_is_polled_for_the_maximum_time() {
        let (mut poller, start) = (AdaptivePoller::new(), Instant::now());
        for _ in 0..3 {
            assert!(poller.begin(start), "never descheduled");
            let mut micros = 0;
            while poller.should_poll(start + Duration::from_micros(micros)) {
                micros += 10;
            }
            assert_eq!(micros, 60, "polling ends after the maximum time");
        }
    }

    /// Yields once for `away` between two polls, and returns how many receives block at once
    /// afterwards.
    fn blocking_after(poller: &mut AdaptivePoller, away: Duration) -> u32 {
        let start = Instant::now();
        assert!(poller.begin(start) && poller.should_poll(start));
        poller.record_yield(start + away);
        let mut blocking_left = 0;
        while !poller.begin(start) {
            blocking_left += 1;
        }
        blocking_left
    }

    #[test]
    fn descheduling_doubles_and_success_halves_the_blocking_receives() {
        let (mut poller, slice) = (AdaptivePoller::new(), Duration::from_millis(4));
        let short = Duration::from_micros(900);
        assert_eq!(
            blocking_after(&mut poller, short),
            0,
            "the other thread used the core only briefly"
        );
        assert_eq!(blocking_after(&mut poller, slice), MIN_BLOCKING);
        assert_eq!(blocking_after(&mut poller, slice), 2 * MIN_BLOCKING);
        assert_eq!(blocking_after(&mut poller, short), 0);
        assert_eq!(
            blocking_after(&mut poller, slice),
            2 * MIN_BLOCKING,
            "one success halves the count only"
        );
        (0..20).for_each(|_| _ = blocking_after(&mut poller, slice));
        assert_eq!(blocking_after(&mut poller, slice), MAX_BLOCKING);
        (0..20).for_each(|_| _ = blocking_after(&mut poller, short));
        assert_eq!(blocking_after(&mut poller, slice), MIN_BLOCKING);
    }

    #[test]
    fn long_absence_ends_the_polling_phase() {
        let (mut poller, start) = (AdaptivePoller::new(), Instant::now());
        assert!(poller.begin(start) && poller.should_poll(start));
        poller.record_yield(start + Duration::from_millis(4));
        assert!(
            !poller.should_poll(start + Duration::from_micros(1)),
            "a long absence ends the polling phase"
        );
    }
}
