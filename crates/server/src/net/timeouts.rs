//! Idle and stalled clients.
//!
//! | a client that | is closed after |
//! | --- | --- |
//! | has an incomplete request | `stall_timeout`, plus a second per 64 KiB of it |
//! | leaves replies unread | `stall_timeout` without progress |
//! | is otherwise silent | `idle_timeout`, if set |
//!
//! The time of a request runs from its first byte, so a client that sends a byte now and then is
//! closed.

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
    /// Whether a timeout has passed.
    pub(crate) fn has_timed_out(&self, now: Instant, options: &ServerOptions) -> bool {
        let since = |then: Instant| now.saturating_duration_since(then);
        if let Some((started, bytes)) = self.request {
            let extra = Duration::from_secs((bytes / MIN_BYTES_PER_SECOND) as u64);
            if since(started) > options.stall_timeout + extra {
                return true;
            }
        }
        match (self.unread, options.idle_timeout) {
            (Some(unread), _) => since(unread) > options.stall_timeout,
            (None, Some(idle)) => self.request.is_none() && since(self.last_received) > idle,
            (None, None) => false,
        }
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
        let options = ServerOptions {
            stall_timeout: Duration::from_secs(10),
            idle_timeout: Some(Duration::from_secs(100)),
            ..ServerOptions::default()
        };
        let start = Instant::now();
        let after = |seconds| start + Duration::from_secs(seconds);
        let idle = Activity { last_received: start, request: None, unread: None };
        assert!(!idle.has_timed_out(after(100), &options));
        assert!(idle.has_timed_out(after(101), &options));
        // A byte now and then does not extend the time.
        let slow_sender =
            Activity { last_received: after(10), request: Some((start, 10)), unread: None };
        assert!(!slow_sender.has_timed_out(after(10), &options));
        assert!(slow_sender.has_timed_out(after(11), &options));
        // A large request gets more time.
        let large = Activity { request: Some((start, MIN_BYTES_PER_SECOND * 5)), ..slow_sender };
        assert!(!large.has_timed_out(after(15), &options));
        assert!(large.has_timed_out(after(16), &options));
        let non_reader =
            Activity { last_received: after(20), request: None, unread: Some(after(5)) };
        assert!(non_reader.has_timed_out(after(16), &options));
    }
}
