//! Options as `key=value`, rejected together with every mistake named.
//!
//! Engines have option structs with `Default`. [`OptionReader`] fills such a struct from a command
//! line, a catalogue or a test matrix. Sizes are written `4KiB`, `1GB`; counts `20M`; durations
//! `10ms`.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::ops::RangeInclusive;
use std::time::Duration;

#[cfg(feature = "serde")]
use serde::Serialize;

use crate::names::{suggest, unknown};
use crate::{Error, InvalidOption, Result};

/// When an option of a table may change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(Serialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
pub enum OptionChange {
    /// While the table is open, by [`Engine::set_options`](crate::Engine::set_options), and
    /// whenever it is opened.
    Live,
    /// Whenever the table is opened.
    AtOpen,
    /// Never: the table was created with it.
    Never,
}

/// Reads options by name and collects every mistake.
#[derive(Debug)]
pub struct OptionReader<'a> {
    given: BTreeMap<&'a str, &'a str>,
    mistakes: Vec<InvalidOption>,
    known: Vec<&'static str>,
}

impl<'a> OptionReader<'a> {
    /// A reader of the given options.
    pub fn new(given: &'a BTreeMap<String, String>) -> Self {
        let given = given.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
        OptionReader { given, mistakes: Vec::new(), known: Vec::new() }
    }

    /// Accepts options under their old names: pairs of the old name and the present one. Call it
    /// before the options are read. It does not warn, because the catalogues of existing stores
    /// contain old names.
    pub fn renamed(&mut self, names: &[(&'static str, &'static str)]) {
        for &(old, new) in names {
            let Some(value) = self.given.remove(old) else { continue };
            if self.given.contains_key(new) {
                self.mistake(old, format!("is the old name of '{new}', which is given too"));
            } else {
                self.given.insert(new, value);
            }
        }
    }

    /// Sets `slot` from the option `name`, if it is given, with `parse`. Its error is recorded as a
    /// mistake and returned by [`finish`](Self::finish).
    pub fn with<T>(
        &mut self,
        name: &'static str,
        slot: &mut T,
        parse: impl FnOnce(&str) -> Result<T, String>,
    ) {
        self.known.push(name);
        if let Some(text) = self.given.remove(name) {
            match parse(text) {
                Ok(value) => *slot = value,
                Err(reason) => self.mistake(name, reason),
            }
        }
    }

    /// An option of any type with `FromStr`, e.g. a number.
    pub fn value<T: std::str::FromStr>(&mut self, name: &'static str, slot: &mut T) {
        self.with(name, slot, |text| {
            text.parse().map_err(|_| format!("'{text}' is not a valid value"))
        });
    }

    /// A size in bytes.
    pub fn size(&mut self, name: &'static str, slot: &mut u64) {
        self.with(name, slot, parse_size);
    }

    /// A flag: `true`/`false`, `on`/`off`, `yes`/`no`, `1`/`0`.
    pub fn flag(&mut self, name: &'static str, slot: &mut bool) {
        self.with(name, slot, |text| match text {
            "true" | "on" | "yes" | "1" => Ok(true),
            "false" | "off" | "no" | "0" => Ok(false),
            _ => Err(format!("'{text}' is neither on nor off")),
        });
    }

    /// One of the named `values`. A later name of a value is an old one: it is accepted, and not
    /// listed in the error.
    pub fn choice<T: Copy + PartialEq>(
        &mut self,
        name: &'static str,
        slot: &mut T,
        values: &[(&str, T)],
    ) {
        self.with(name, slot, |text| {
            let found = values.iter().find(|(name, _)| *name == text);
            found.map(|&(_, value)| value).ok_or_else(|| {
                let present = |value| values.iter().position(|(_, other)| other == value);
                let names = values.iter().enumerate();
                let names = names.filter(|(at, (_, value))| present(value) == Some(*at));
                unknown(text, &names.map(|(_, (name, _))| *name).collect::<Vec<_>>())
            })
        });
    }

    /// Records a mistake, e.g. an invalid combination.
    pub fn mistake(&mut self, name: &str, reason: impl Into<String>) {
        self.mistakes.push(InvalidOption { option: name.to_owned(), reason: reason.into() });
    }

    /// Records a mistake unless `holds`.
    pub fn require(&mut self, holds: bool, name: &str, reason: &str) {
        if !holds {
            self.mistake(name, reason);
        }
    }

    /// Records a mistake unless `value` is in `range`.
    pub fn range<T: PartialOrd + Display>(
        &mut self,
        name: &str,
        value: T,
        range: RangeInclusive<T>,
    ) {
        let reason = format!("from {} to {}", range.start(), range.end());
        self.require(range.contains(&value), name, &reason);
    }

    /// The same for a size in bytes.
    pub fn size_range(&mut self, name: &str, bytes: u64, range: RangeInclusive<u64>) {
        let [from, to] = [range.start(), range.end()].map(|bytes| format_size(*bytes));
        self.require(range.contains(&bytes), name, &format!("from {from} to {to}"));
    }

    /// Ends the reading. Options that nobody read are mistakes, too.
    ///
    /// # Errors
    /// [`Error::InvalidOptions`] with all mistakes.
    pub fn finish(mut self) -> Result<()> {
        for name in std::mem::take(&mut self.given).into_keys() {
            let meant = suggest(name, self.known.iter().copied());
            let reason = format!("unknown{meant} (the options are {})", self.known.join(", "));
            self.mistakes.push(InvalidOption { option: name.to_owned(), reason });
        }
        if self.mistakes.is_empty() { Ok(()) } else { Err(Error::InvalidOptions(self.mistakes)) }
    }
}

/// A size as [`parse_size`] reads it, in the largest unit of which it is a multiple.
fn format_size(bytes: u64) -> String {
    let units = [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")];
    match units.iter().find(|(bits, _)| bytes > 0 && bytes.is_multiple_of(1 << bits)) {
        Some((bits, unit)) => format!("{}{unit}", bytes >> bits),
        None => format!("{bytes}B"),
    }
}

/// Parses `4096`, `4KiB`, `4K`, `1GB`. K, M, G, T, alone or with `iB`, are powers of 1,024; with
/// `B` they are powers of 1,000.
///
/// # Errors
/// A description of what is valid.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let split = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let factor: f64 = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 1.0,
        "k" | "kib" => 1024.0,
        "kb" => 1e3,
        "m" | "mib" => 1024f64.powi(2),
        "mb" => 1e6,
        "g" | "gib" => 1024f64.powi(3),
        "gb" => 1e9,
        "t" | "tib" => 1024f64.powi(4),
        "tb" => 1e12,
        _ => return Err(format!("'{text}' is not a size; write it like 64MiB or 1GB")),
    };
    let number: f64 = number
        .parse()
        .map_err(|_| format!("'{text}' is not a size; write it like 64MiB or 1GB"))?;
    let bytes = number * factor;
    if bytes > u64::MAX as f64 {
        return Err(format!("'{text}' is larger than 2^64 bytes"));
    }
    Ok(bytes.round() as u64)
}

/// Parses a count: `1000`, `1_000`, `20M`, `1e8`, `1.5k`. k, M, G and T are powers of 1,000, unlike
/// those of [`parse_size`].
///
/// # Errors
/// A description of what is valid.
pub fn parse_count(text: &str) -> Result<u64, String> {
    let wrong = || format!("'{text}' is not a count; write it like 1000, 20M or 1e8");
    let digits = text.replace('_', "");
    let (number, factor) = match digits.char_indices().next_back() {
        Some((at, 'k' | 'K')) => (&digits[..at], 1e3),
        Some((at, 'M' | 'm')) => (&digits[..at], 1e6),
        Some((at, 'G' | 'g' | 'B' | 'b')) => (&digits[..at], 1e9),
        Some((at, 'T' | 't')) => (&digits[..at], 1e12),
        _ => (&*digits, 1.0),
    };
    if let (Ok(exact), 1.0) = (number.parse(), factor) {
        return Ok(exact);
    }
    // The parser of `f64` accepts `inf` and `nan`, too.
    if !number.starts_with(|c: char| c.is_ascii_digit()) {
        return Err(wrong());
    }
    let count: f64 = number.parse::<f64>().map_err(|_| wrong())? * factor;
    if count >= u64::MAX as f64 {
        return Err(format!("'{text}' is 2^64 or more"));
    }
    if count.fract() != 0.0 {
        return Err(format!("'{text}' is not a whole number"));
    }
    Ok(count as u64)
}

/// Parses `10ms`, `5s`, `2m`, `1h`, `3d`, `250us`.
///
/// # Errors
/// A description of what is valid.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("'{text}' is not a duration; write it like 10ms, 5s or 2h");
    let split = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let seconds = match unit.trim() {
        "us" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        "d" => 86400.0,
        _ => return Err(wrong()),
    };
    let number: f64 = number.parse().map_err(|_| wrong())?;
    Duration::try_from_secs_f64(number * seconds).map_err(|_| wrong())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_options_are_all_reported() {
        let given =
            [("size", "ten"), ("flag", "maybe"), ("typo", "1"), ("count", "3"), ("mode", "c")]
                .map(|(k, v)| (k.to_owned(), v.to_owned()))
                .into();
        let mut reader = OptionReader::new(&given);
        let (mut size, mut flag, mut count) = (1, true, 0usize);
        reader.size("size", &mut size);
        reader.flag("flag", &mut flag);
        reader.value("count", &mut count);
        let mut mode = 0;
        reader.choice("mode", &mut mode, &[("a", 1), ("b", 2), ("old_a", 1)]);
        let Err(Error::InvalidOptions(mistakes)) = reader.finish() else { panic!("accepted") };
        let names: Vec<_> = mistakes.iter().map(|m| m.option.as_str()).collect();
        assert_eq!(names, ["size", "flag", "mode", "typo"]);
        assert_eq!(mistakes[2].reason, "'c' is unknown (there are a, b)");
        assert_eq!((size, flag, count, mode), (1, true, 3, 0));
    }

    #[test]
    fn value_out_of_its_range_is_reported_with_the_range() {
        let given = BTreeMap::new();
        let mut reader = OptionReader::new(&given);
        reader.range("in", 2, 1..=2);
        reader.range("number", 0, 1..=2);
        reader.range("share", f64::NAN, 0.5..=1.0);
        reader.size_range("size", 5 << 30, 256..=4 << 30);
        reader.size_range("large", 0, 1 << 10..=3 << 40);
        let Err(Error::InvalidOptions(mistakes)) = reader.finish() else { panic!("accepted") };
        let reasons: Vec<_> = mistakes.iter().map(|it| it.reason.as_str()).collect();
        let sizes = ["from 256B to 4GiB", "from 1KiB to 3TiB"];
        assert_eq!(reasons, ["from 1 to 2", "from 0.5 to 1", sizes[0], sizes[1]]);
    }

    #[test]
    fn choice_is_read_under_each_of_its_names() {
        for (text, value) in [("a", 1), ("b", 2), ("old_a", 1)] {
            let given = [("mode".to_owned(), text.to_owned())].into();
            let (mut reader, mut mode) = (OptionReader::new(&given), 0);
            reader.choice("mode", &mut mode, &[("a", 1), ("b", 2), ("old_a", 1)]);
            reader.finish().unwrap();
            assert_eq!(mode, value);
        }
    }

    #[test]
    fn option_under_its_old_name_sets_the_renamed_option() {
        let read = |given: &[(&str, &str)]| {
            let given = given.iter().map(|&(k, v)| (k.to_owned(), v.to_owned())).collect();
            let mut reader = OptionReader::new(&given);
            let mut size = 0;
            reader.renamed(&[("table", "target_file_size")]);
            reader.size("target_file_size", &mut size);
            reader.finish().map(|()| size)
        };
        assert_eq!(read(&[("table", "1KiB")]).unwrap(), 1024);
        assert_eq!(read(&[("target_file_size", "2KiB")]).unwrap(), 2048);
        let Err(Error::InvalidOptions(mistakes)) =
            read(&[("table", "1KiB"), ("target_file_size", "2KiB")])
        else {
            panic!("two values for one option were accepted")
        };
        assert_eq!(mistakes.len(), 1);
        assert_eq!(mistakes[0].option, "table");
    }

    #[test]
    fn sizes_counts_and_durations_are_parsed() {
        assert_eq!(parse_size("4KiB"), Ok(4096));
        assert_eq!(parse_size("1GB"), Ok(1_000_000_000));
        assert_eq!(parse_size("1.5M"), Ok(3 << 19));
        assert_eq!(parse_size("7"), Ok(7));
        for bad in ["", "x", "4QiB", "-1", "1e99GB", "..", "99999999999TiB"] {
            assert!(parse_size(bad).is_err(), "{bad}");
        }
        for (text, count) in [
            ("0", 0),
            ("1000", 1000),
            ("1_000", 1000),
            ("20M", 20_000_000),
            ("1e8", 100_000_000),
            ("1.5k", 1500),
            ("2g", 2_000_000_000),
            ("18446744073709551615", u64::MAX),
        ] {
            assert_eq!(parse_count(text), Ok(count), "{text}");
        }
        for bad in
            ["", "M", "-1", "1.5", "inf", "nan", "1MiB", "1e20", "18446744073709551616", "ten"]
        {
            assert!(parse_count(bad).is_err(), "{bad}");
        }
        assert_eq!(parse_duration("10ms"), Ok(Duration::from_millis(10)));
        assert_eq!(parse_duration("2h"), Ok(Duration::from_secs(7200)));
        for bad in ["", "10", "ms", "1y", "-1s"] {
            assert!(parse_duration(bad).is_err(), "{bad}");
        }
    }
}
