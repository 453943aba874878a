//! The day of a run.

use std::time::{SystemTime, UNIX_EPOCH};

/// Today's date in UTC, as `2026-11-27`.
pub(super) fn today() -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    date(since.as_secs() / (24 * 60 * 60))
}

/// The date of a day, counted from 1970-01-01.
fn date(mut days: u64) -> String {
    let mut year = 1970;
    loop {
        let is_leap = year % 4 == 0 && year % 100 != 0 || year % 400 == 0;
        let february = if is_leap { 29 } else { 28 };
        for (month, length) in (1..).zip([31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31]) {
            if days < length {
                return format!("{year:04}-{month:02}-{:02}", days + 1);
            }
            days -= length;
        }
        year += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn date_is_of_the_calendar() {
        assert_eq!(
            [0, 58, 59, 789, 790].map(date),
            ["1970-01-01", "1970-02-28", "1970-03-01", "1972-02-29", "1972-03-01"]
        );
        assert_eq!([11016, 20784].map(date), ["2000-02-29", "2026-11-27"]);
        assert_eq!(today().len(), 10);
    }
}
