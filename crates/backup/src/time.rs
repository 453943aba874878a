//! Times as text: RFC 3339, as in `2026-11-29T15:04:00.250Z`, and seconds since 1970.
//!
//! Source: Howard Hinnant, "chrono-Compatible Low-Level Date Algorithms", `civil_from_days` and
//! `days_from_civil`.

use siltstone_engine::Timestamp;

const DAY_MS: u64 = 86_400_000;
/// The days from 0000-03-01 to 1970-01-01.
const DAYS_BEFORE_1970: u64 = 719_468;
/// The days of 400 years.
const ERA_DAYS: u64 = 146_097;

/// A UTC time with milliseconds, such as `2026-11-29T15:04:00.250Z`.
pub fn format_time(time: Timestamp) -> String {
    let (year, month, day) = date(time / DAY_MS);
    let (hour, minute) = (time / 3_600_000 % 24, time / 60_000 % 60);
    let (second, milli) = (time / 1000 % 60, time % 1000);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{milli:03}Z")
}

/// Parses a time: RFC 3339 with `Z` or an offset such as `+01:00`, or seconds since 1970, each with
/// up to three decimals. Returns milliseconds since 1970.
///
/// # Errors
/// How a time is written, as text.
pub fn parse_time(text: &str) -> Result<Timestamp, String> {
    let parsed = if text.contains('T') || text.contains('t') || text.contains(' ') {
        parse_rfc3339(text)
    } else {
        let (seconds, millis) = split_fraction(text);
        number(seconds, 1..=12)
            .zip(millis)
            .and_then(|(seconds, millis)| seconds.checked_mul(1000)?.checked_add(millis))
    };
    parsed.ok_or_else(|| {
        format!(
            "'{text}' is not a time; write it like 2026-11-29T15:04:00Z, with an offset like \
             2026-11-29T16:04:00+01:00, or in seconds since 1970"
        )
    })
}

fn parse_rfc3339(text: &str) -> Option<Timestamp> {
    let (date, time) = text.split_once(['T', 't', ' '])?;
    let fields: Vec<_> = date.split('-').collect();
    let [year, month, day] = fields[..] else { return None };
    let (year, month, day) = (number(year, 4..=4)?, number(month, 2..=2)?, number(day, 2..=2)?);
    let is_leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let days = match month {
        2 if is_leap => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => return None,
    };
    if year < 1970 || !(1..=days).contains(&day) {
        return None;
    }
    let (time, offset_minutes) = match time.strip_suffix(['Z', 'z']) {
        Some(time) => (time, 0),
        None => {
            let at = time.rfind(['+', '-'])?;
            let (hours, minutes) = time[at + 1..].split_once(':')?;
            let (hours, minutes) = (number(hours, 2..=2)?, number(minutes, 2..=2)?);
            if hours > 23 || minutes > 59 {
                return None;
            }
            let offset = (hours * 60 + minutes) as i64;
            (&time[..at], if time.as_bytes()[at] == b'-' { -offset } else { offset })
        }
    };
    let (time, millis) = split_fraction(time);
    let fields: Vec<_> = time.split(':').collect();
    let [hour, minute, second] = fields[..] else { return None };
    let (hour, minute) = (number(hour, 2..=2)?, number(minute, 2..=2)?);
    let second = number(second, 2..=2)?;
    if hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let local = days_since_1970(year, month, day) * DAY_MS
        + (hour * 3600 + minute * 60 + second) * 1000
        + millis?;
    local.checked_add_signed(-offset_minutes * 60_000)
}

/// The text before a decimal point, and the milliseconds behind it.
fn split_fraction(text: &str) -> (&str, Option<u64>) {
    match text.split_once('.') {
        None => (text, Some(0)),
        Some((whole, decimals)) => {
            let millis = number(decimals, 1..=3);
            (whole, millis.map(|value| value * 10_u64.pow(3 - decimals.len() as u32)))
        }
    }
}

/// A number with exactly this many digits.
fn number(text: &str, digits: std::ops::RangeInclusive<usize>) -> Option<u64> {
    let is_number = digits.contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit());
    is_number.then(|| text.parse().ok())?
}

fn days_since_1970(year: u64, month: u64, day: u64) -> u64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (era, year_of_era) = (year / 400, year % 400);
    let month = if month > 2 { month - 3 } else { month + 9 };
    let day_of_year = (153 * month + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * ERA_DAYS + day_of_era - DAYS_BEFORE_1970
}

/// Year, month and day.
pub(crate) fn date(days_since_1970: u64) -> (u64, u64, u64) {
    let days = days_since_1970 + DAYS_BEFORE_1970;
    let (era, day_of_era) = (days / ERA_DAYS, days % ERA_DAYS);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (year_of_era + era * 400 + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn times_are_formatted_in_utc() {
        assert_eq!(format_time(1_795_671_000_250), "2026-11-26T05:30:00.250Z");
    }

    #[test]
    fn formatted_time_is_parsed_as_it_was() {
        for days in (0..60_000).step_by(7) {
            let time = days * DAY_MS + days * 977 % DAY_MS;
            assert_eq!(parse_time(&format_time(time)), Ok(time));
        }
    }

    #[test]
    fn offsets_and_seconds_since_1970_name_the_same_time() {
        let expected = Ok(1_795_671_000_500);
        for text in [
            "2026-11-26T05:30:00.5Z",
            "2026-11-26t05:30:00.500z",
            "2026-11-26 06:30:00.5+01:00",
            "2026-11-25T23:00:00.50-06:30",
            "1795671000.5",
        ] {
            assert_eq!(parse_time(text), expected, "{text}");
        }
    }

    #[test]
    fn malformed_time_is_refused_with_an_example() {
        for text in [
            "",
            "yesterday",
            "-5",
            "2026-11-26",
            "2026-11-26T05:30Z",
            "2026-11-26T05:30:00",
            "2026-02-29T00:00:00Z",
            "2100-02-29T00:00:00Z",
            "2026-13-01T00:00:00Z",
            "2026-01-01T24:00:00Z",
            "2026-01-01T00:00:00+1:00",
            "1969-12-31T23:59:59Z",
            "1970-01-01T00:00:00+01:00",
            "1.2345",
        ] {
            assert!(parse_time(text).unwrap_err().contains("2026-11-29T15:04:00Z"), "{text}");
        }
    }
}
