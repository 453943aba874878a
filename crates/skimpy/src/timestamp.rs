//! Timestamps of versions: a hybrid clock.
//!
//! ```text
//!   63                              20              0
//!   milliseconds since 1970        │ counter
//! ```
//!
//! A timestamp is the environment's time, or one more than the last if that is not later: so
//! timestamps grow though the clock may go back or stand still, and a run with an injected clock
//! gives the same ones again. All records of a batch have the batch's.
//!
//! Source: Kulkarni et al., "Logical Physical Clocks", OPODIS 2014, for one node; the paper's are
//! SEMEL's.

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

/// The timestamp after `last`, at this time.
pub(crate) fn after(last: u64, now: Timestamp) -> u64 {
    first_of(now).max(last + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps_grow_whatever_the_clock_does() {
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
