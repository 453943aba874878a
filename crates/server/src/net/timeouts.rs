//! Idle and stalled clients, and deadlines of parked commands.
//!
//! | a client that | is closed after |
//! | --- | --- |
//! | has an incomplete request | `stall_timeout`, plus a second per 64 KiB of it |
//! | leaves replies unread | `stall_timeout` without progress |
//! | is otherwise silent, waits for no command and has no subscriptions | `idle_timeout`, if set |
//!
//! The time of a request runs from its first byte, so a client that sends a byte now and then is
//! closed.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use crate::ServerOptions;

/// Minimum rate of a request after `stall_timeout`, in bytes per second.
const MIN_BYTES_PER_SECOND: usize = 64 << 10;

/// Times of a client's last activity.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Activity {
    /// Time of the last received bytes.
    pub(crate) last_received: Instant,
    /// Start of the incomplete request, and its bytes so far.
    pub(crate) request: Option<(Instant, usize)>,
    /// Time since which none of the pending replies were taken.
    pub(crate) unread: Option<Instant>,
}

impl Activity {
    /// Whether a timeout has passed. `may_be_silent`: nothing is expected from the client.
    pub(crate) fn has_timed_out(
        &self,
        now: Instant,
        (stall_timeout, idle_timeout): (Duration, Option<Duration>),
        may_be_silent: bool,
    ) -> bool {
        let since = |then: Instant| now.saturating_duration_since(then);
        if let Some((started, bytes)) = self.request {
            let extra = Duration::from_secs((bytes / MIN_BYTES_PER_SECOND) as u64);
            if since(started) > stall_timeout + extra {
                return true;
            }
        }
        match (self.unread, idle_timeout) {
            (Some(unread), _) => since(unread) > stall_timeout,
            (None, Some(idle)) => {
                !may_be_silent && self.request.is_none() && since(self.last_received) > idle
            }
            (None, None) => false,
        }
    }
}

/// Deadlines of the parked commands of a worker, by connection token.
#[derive(Default)]
pub(crate) struct Deadlines(BTreeSet<(Instant, usize)>);

impl Deadlines {
    /// Changes the deadline of a connection.
    pub(crate) fn set(&mut self, token: usize, before: Option<Instant>, now: Option<Instant>) {
        if before != now {
            before.map(|deadline| self.0.remove(&(deadline, token)));
            now.map(|deadline| self.0.insert((deadline, token)));
        }
    }

    /// The earliest deadline.
    pub(crate) fn first(&self) -> Option<Instant> {
        self.0.first().map(|(deadline, _)| *deadline)
    }

    /// Takes a connection whose deadline has passed.
    pub(crate) fn take_due(&mut self, now: Instant) -> Option<usize> {
        let (deadline, _) = self.0.first()?;
        if *deadline > now {
            return None;
        }
        self.0.pop_first().map(|(_, token)| token)
    }
}

/// Interval between checks: a quarter of the shortest timeout, between 10 ms and 1 s.
pub(crate) fn interval(options: &ServerOptions) -> Duration {
    let shortest =
        options.idle_timeout.map_or(options.stall_timeout, |idle| idle.min(options.stall_timeout));
    (shortest / 4).clamp(Duration::from_millis(10), Duration::from_secs(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stalled_and_idle_clients_time_out() {
        let options = (Duration::from_secs(10), Some(Duration::from_secs(100)));
        let start = Instant::now();
        let after = |seconds| start + Duration::from_secs(seconds);
        let idle = Activity { last_received: start, request: None, unread: None };
        assert!(!idle.has_timed_out(after(100), options, false));
        assert!(idle.has_timed_out(after(101), options, false));
        assert!(!idle.has_timed_out(after(101), options, true), "it waits");
        // A byte now and then does not extend the time.
        let slow_sender =
            Activity { last_received: after(10), request: Some((start, 10)), unread: None };
        assert!(!slow_sender.has_timed_out(after(10), options, false));
        assert!(slow_sender.has_timed_out(after(11), options, false));
        // A large request gets more time.
        let large = Activity { request: Some((start, MIN_BYTES_PER_SECOND * 5)), ..slow_sender };
        assert!(!large.has_timed_out(after(15), options, false));
        assert!(large.has_timed_out(after(16), options, false));
        let non_reader =
            Activity { last_received: after(20), request: None, unread: Some(after(5)) };
        assert!(non_reader.has_timed_out(after(16), options, false));
    }

    #[test]
    fn deadlines_are_taken_in_order() {
        let start = Instant::now();
        let after = |seconds| Some(start + Duration::from_secs(seconds));
        let mut deadlines = Deadlines::default();
        deadlines.set(1, None, after(20));
        deadlines.set(2, None, after(10));
        deadlines.set(3, None, after(30));
        deadlines.set(1, after(20), after(5));
        deadlines.set(3, after(30), None);
        assert_eq!(deadlines.first(), after(5));
        assert_eq!(deadlines.take_due(start), None);
        let late = start + Duration::from_secs(60);
        let taken = [1, 2, 3].map(|_| deadlines.take_due(late));
        assert_eq!(taken, [Some(1), Some(2), None]);
    }
}
