//! Timestamps of versions: a hybrid clock.
//!
//! ```text
//!   63                              20              0
//!   milliseconds since 1970        │ counter
//! ```
//!
//! A timestamp is the environment's time, or one more than the last one if that is not later. So
//! timestamps increase even if the clock goes back or stands still, and a run with an injected
//! clock is reproducible. All records of a batch have the batch's timestamp.
//!
//! Source: Kulkarni et al., "Logical Physical Clocks", OPODIS 2014, for one node; the paper uses
//! those of SEMEL.

use siltstone_engine::Timestamp;

const COUNTER_BITS: u32 = 20;

/// The first timestamp of a millisecond.
pub(crate) fn first_of(millis: Timestamp) -> u64 {
    millis.min(u64::MAX >> COUNTER_BITS) << COUNTER_BITS
}

/// The last timestamp of a millisecond.
pub(crate) fn last_of(millis: Timestamp) -> u64 {
    first_of(millis) | ((1 << COUNTER_BITS) - 1)
}

/// The millisecond of a timestamp.
pub(crate) fn millis(timestamp: u64) -> Timestamp {
    timestamp >> COUNTER_BITS
}

/// The timestamp that follows `last` at this time.
pub(crate) fn after(last: u64, now: Timestamp) -> u64 {
    first_of(now).max(last + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps_increase_when_the_clock_goes_back() {
        let mut last = 0;
        for now in [5, 5, 3, 9, 9, 8] {
            let next = after(last, now);
            assert!(next > last);
            last = next;
        }
        assert_eq!(millis(last), 9);
        assert!(first_of(9) < last && last < last_of(9));
    }
}
