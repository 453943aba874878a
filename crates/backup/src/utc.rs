//! Times as text, which sorts by time.

use crate::time::date;

/// A UTC time such as `20261126T053000Z`.
pub(crate) fn utc(seconds: u64) -> String {
    let (year, month, day) = date(seconds / 86_400);
    let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    format!("{year:04}{month:02}{day:02}T{hour:02}{minute:02}{second:02}Z")
}

#[cfg(test)]
mod tests {
    use super::utc;

    #[test]
    fn times_are_formatted_in_utc() {
        for (seconds, expected) in [
            (0, "19700101T000000Z"),
            (951_782_399, "20000228T235959Z"),
            (951_782_400, "20000229T000000Z"),
            (1_795_671_000, "20261126T053000Z"),
            (4_107_542_400, "21000301T000000Z"),
        ] {
            assert_eq!(utc(seconds), expected);
        }
    }
}
