//! What the clients of a round have seen, and the checks of it.
//!
//! Times are nanoseconds of one monotonic clock, since all clients run on one machine.
//!
//! | history | checked |
//! | --- | --- |
//! | a register, written with unique values | it is linearizable ([`siltstone_testkit::linear`]) |
//! | a counter, only incremented | its replies are in the order of time, none comes twice, and what is missing or more at the end are increments of unknown outcome |
//! | a key that expires | once it has gone it does not come back |

use siltstone_testkit::linear::{Act, NEVER, Operation, is_linearizable};

/// An operation on a counter and its times.
#[derive(Debug, Clone, Copy)]
pub struct Count {
    pub called: u64,
    /// [`NEVER`] if the outcome is unknown.
    pub returned: u64,
    pub is_increment: bool,
    /// The counter after it.
    pub value: u64,
}

/// Checks a counter that began at 0 and ends at `last`.
///
/// # Errors
/// What is wrong.
pub fn check_counter(history: &[Count], last: u64) -> Result<(), String> {
    let is_known = |count: &&Count| count.returned != NEVER;
    let unknown = history.iter().filter(|count| count.returned == NEVER).count() as u64;
    let mut known: Vec<_> = history.iter().filter(is_known).copied().collect();
    // An increment comes before the reads of its value.
    known.sort_by_key(|count| (count.value, !count.is_increment));
    let increments: Vec<_> = known.iter().filter(|count| count.is_increment).collect();
    if let Some(pair) = increments.windows(2).find(|pair| pair[0].value == pair[1].value) {
        return Err(format!("two increments have the same reply: {pair:?}"));
    }
    let acknowledged = increments.len() as u64;
    if !(acknowledged..=acknowledged + unknown).contains(&last) {
        return Err(format!("{acknowledged} acknowledged and {unknown} unknown make {last}"));
    }
    if let Some(count) = known.iter().find(|count| count.value > last) {
        return Err(format!("{count:?} is lost: the counter is {last} at the end"));
    }
    let mut first_return: Option<Count> = None;
    for count in known.iter().rev() {
        if let Some(later) = first_return
            && later.returned < count.called
            && (later.value > count.value || count.is_increment)
        {
            return Err(format!("{later:?} has ended before {count:?} began"));
        }
        if first_return.is_none_or(|first| count.returned < first.returned) {
            first_return = Some(*count);
        }
    }
    Ok(())
}

/// Checks a register whose written values are unique.
///
/// # Errors
/// What is wrong.
pub fn check_register(history: &[Operation]) -> Result<(), String> {
    match is_linearizable(&settle(history)) {
        true => Ok(()),
        false => Err(format!("not linearizable: {history:?}")),
    }
}

/// Gives writes of unknown outcome an end if a read shows that they took effect, and removes the
/// others, which nobody has seen. The result is linearizable if and only if the history is, and it
/// is checked far sooner.
fn settle(history: &[Operation]) -> Vec<Operation> {
    let seen_at = |written: Act| {
        let Act::Write(value) = written else { return None };
        let reads = history.iter().filter(|read| read.act == Act::Read(value));
        reads.map(|read| read.returned).min()
    };
    let settled = |operation: &Operation| match operation.returned {
        NEVER => {
            let returned = seen_at(operation.act)?.max(operation.called + 1);
            Some(Operation { returned, ..*operation })
        }
        _ => Some(*operation),
    };
    history.iter().filter_map(settled).collect()
}

/// Checks the reads of a key in their order, each with whether it has found the key.
///
/// # Errors
/// What is wrong.
pub fn check_expiry(reads: &[bool]) -> Result<(), String> {
    match reads.windows(2).any(|pair| pair == [false, true]) {
        true => Err(format!("an expired key has come back: {reads:?}")),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(called: u64, returned: u64, is_increment: bool, value: u64) -> Count {
        Count { called, returned, is_increment, value }
    }

    #[test]
    fn counter_with_lost_repeated_or_stale_values_is_reported() {
        let good = [
            count(0, 2, true, 1),
            count(1, 9, true, 3),
            count(1, NEVER, true, 0),
            count(3, 4, false, 1),
            count(5, 6, false, 3),
        ];
        check_counter(&good, 3).unwrap();
        // The unknown one may also have had no effect.
        check_counter(&[good[0], good[2], good[3]], 1).unwrap();
        for (more, last, expected) in [
            (count(10, 11, true, 3), 4, "the same reply"),
            (count(10, 11, true, 4), 3, "is lost"),
            (count(10, 11, true, 4), 6, "make 6"),
            (count(10, 11, false, 2), 3, "has ended before"),
            (count(10, 11, true, 2), 3, "has ended before"),
            (count(0, 0, false, 1), 3, "has ended before"),
        ] {
            let mut bad = good.to_vec();
            // So that the increment of the reply 1 begins after the read of the last case.
            bad[0].called = 1;
            bad.push(more);
            let error = check_counter(&bad, last).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn register_with_unknown_writes_is_checked_as_with_known_ones() {
        let write =
            |called, returned, value| Operation { called, returned, act: Act::Write(Some(value)) };
        let read =
            |called, returned, value| Operation { called, returned, act: Act::Read(Some(value)) };
        let mut history = vec![write(0, 1, 1)];
        // With these as they are, a check would take 2^60 states.
        history.extend((2..62).map(|value| write(value, NEVER, value)));
        history.extend([read(70, 71, 1), read(72, 73, 5)]);
        check_register(&history).unwrap();
        history.push(read(74, 75, 1));
        assert!(check_register(&history).is_err());
        // Seen before it was written.
        assert!(check_register(&[read(0, 1, 7), write(2, NEVER, 7)]).is_err());
    }

    #[test]
    fn expired_key_that_comes_back_is_reported() {
        check_expiry(&[true, true, false, false]).unwrap();
        assert!(check_expiry(&[true, false, true]).is_err());
    }
}
