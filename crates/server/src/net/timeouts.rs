//! Which clients have taken too long.
//!
//! | a client that | is cut off after |
//! | --- | --- |
//! | has begun a request | `stall_timeout`, and a second more for each 64 KiB of it |
//! | leaves replies unread | `stall_timeout` without a byte taken |
//! | does neither and is silent | `idle_timeout`, if there is one |
//!
//! Time is kept from the beginning of a request, not from its last byte: a client that sends a byte
//! now and then does not hold its place for ever.

use std::time::{Duration, Instant};

use crate::ServerOptions;

/// How fast a request must come in once its time is over, in bytes a second.
const LEAST_RATE: usize = 64 << 10;

/// What a client was last seen to do.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Activity {
    /// When it last sent anything.
    pub(crate) heard: Instant,
    /// When the request began that has not come whole, and how much of it is here.
    pub(crate) request: Option<(Instant, usize)>,
    /// Since when it has taken none of the replies that wait for it.
    pub(crate) unread: Option<Instant>,
}

impl Activity {
    /// Whether it has taken too long.
    pub(crate) fn is_over(&self, now: Instant, options: &ServerOptions) -> bool {
        let since = |then: Instant| now.saturating_duration_since(then);
        if let Some((begun, bytes)) = self.request {
            let extra = Duration::from_secs((bytes / LEAST_RATE) as u64);
            if since(begun) > options.stall_timeout + extra {
                return true;
            }
        }
        match (self.unread, options.idle_timeout) {
            (Some(unread), _) => since(unread) > options.stall_timeout,
            (None, Some(idle)) => self.request.is_none() && since(self.heard) > idle,
            (None, None) => false,
        }
    }
}

/// How often to look: often enough that no one is late by much, seldom enough to cost nothing.
pub(crate) fn interval(options: &ServerOptions) -> Duration {
    let shortest =
        options.idle_timeout.map_or(options.stall_timeout, |idle| idle.min(options.stall_timeout));
    (shortest / 4).clamp(Duration::from_millis(10), Duration::from_secs(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_delay_has_its_limit() {
        let options = ServerOptions {
            stall_timeout: Duration::from_secs(10),
            idle_timeout: Some(Duration::from_secs(100)),
            ..ServerOptions::default()
        };
        let start = Instant::now();
        let after = |seconds| start + Duration::from_secs(seconds);
        let idle = Activity { heard: start, request: None, unread: None };
        assert!(!idle.is_over(after(100), &options));
        assert!(idle.is_over(after(101), &options));
        // A byte now and then does not help.
        let dripping = Activity { heard: after(10), request: Some((start, 10)), unread: None };
        assert!(!dripping.is_over(after(10), &options));
        assert!(dripping.is_over(after(11), &options));
        // A large request gets the time it needs.
        let large = Activity { request: Some((start, LEAST_RATE * 5)), ..dripping };
        assert!(!large.is_over(after(15), &options));
        assert!(large.is_over(after(16), &options));
        let deaf = Activity { heard: after(20), request: None, unread: Some(after(5)) };
        assert!(deaf.is_over(after(16), &options));
    }
}
