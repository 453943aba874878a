//! One line of a trace; [the parent module](super) describes the format.
//!
//! Invariant: parsing a written line gives the same line.

use std::borrow::Cow;
use std::time::Duration;

/// The word for the empty key.
const EMPTY_KEY: &[u8] = b"\\";

/// Maximal time of a line, in seconds: about thirty years.
const MAX_SECONDS: f64 = 1e9;

/// The operation of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    /// A lookup.
    Get,
    /// A write of a value.
    Put {
        /// Bytes of the value.
        bytes: u32,
    },
    /// A deletion.
    Delete,
    /// A range scan.
    Scan {
        /// Number of entries from the key on.
        entries: u32,
    },
}

/// A line that is neither empty nor a comment.
#[derive(Debug, Clone, PartialEq)]
pub enum Line<'a> {
    /// A request for a key.
    Request(Verb, Cow<'a, [u8]>),
    /// Arrival time of the following requests, since the first request.
    Time(Duration),
}

impl<'a> Line<'a> {
    /// Parses a line; `None` if it is empty or a comment.
    ///
    /// # Errors
    /// A description of the syntax error.
    pub fn parse(line: &'a [u8]) -> Result<Option<Self>, String> {
        let mut words = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
        let Some(verb) = words.next().filter(|word| !word.starts_with(b"#")) else {
            return Ok(None);
        };
        if verb == b"@" {
            return time(words.next()).map(|time| Some(Line::Time(time)));
        }
        let takes_number = match verb {
            b"get" | b"del" => false,
            b"put" | b"scan" => true,
            other => {
                let other = other.escape_ascii();
                return Err(format!("'{other}' is unknown; there are get, put, del, scan"));
            }
        };
        let key = unescaped(words.next().ok_or("there is no key after the request")?)?;
        let number = if takes_number { words.next() } else { None };
        let verb = match verb {
            b"get" => Verb::Get,
            b"del" => Verb::Delete,
            b"put" => {
                let bytes = number.and_then(count).ok_or("say how many bytes: put KEY BYTES")?;
                Verb::Put { bytes }
            }
            _ => {
                let entries = number.map_or(Some(1), count);
                Verb::Scan { entries: entries.ok_or("say how many entries: scan KEY ENTRIES")? }
            }
        };
        match words.next() {
            None => Ok(Some(Line::Request(verb, key))),
            Some(more) => Err(format!("'{}' is one word too many", more.escape_ascii())),
        }
    }

    /// Appends the line with its newline.
    pub fn write(&self, out: &mut Vec<u8>) {
        let (verb, key) = match self {
            Line::Time(time) => {
                out.extend_from_slice(format!("@ {:.6}\n", time.as_secs_f64()).as_bytes());
                return;
            }
            Line::Request(verb, key) => (verb, key),
        };
        let (name, number) = match *verb {
            Verb::Get => ("get ", None),
            Verb::Delete => ("del ", None),
            Verb::Put { bytes } => ("put ", Some(bytes)),
            Verb::Scan { entries } => ("scan ", Some(entries)),
        };
        out.extend_from_slice(name.as_bytes());
        if key.is_empty() {
            out.extend_from_slice(EMPTY_KEY);
        }
        for &byte in key.iter() {
            match byte {
                b'!'..=b'~' if byte != b'\\' => out.push(byte),
                _ => out.extend_from_slice(format!("\\x{byte:02x}").as_bytes()),
            }
        }
        if let Some(number) = number {
            out.extend_from_slice(format!(" {number}").as_bytes());
        }
        out.push(b'\n');
    }
}

fn text(word: &[u8]) -> Option<&str> {
    std::str::from_utf8(word).ok()
}

fn count(word: &[u8]) -> Option<u32> {
    text(word)?.parse().ok()
}

fn time(word: Option<&[u8]>) -> Result<Duration, String> {
    let seconds = word.and_then(text).and_then(|word| word.parse::<f64>().ok());
    let seconds = seconds.filter(|seconds| (0.0..=MAX_SECONDS).contains(seconds));
    seconds.map(Duration::from_secs_f64).ok_or_else(|| "say when: @ SECONDS".to_owned())
}

fn unescaped(word: &[u8]) -> Result<Cow<'_, [u8]>, String> {
    if !word.contains(&b'\\') {
        return Ok(Cow::Borrowed(word));
    }
    if word == EMPTY_KEY {
        return Ok(Cow::Borrowed(&[]));
    }
    let mut key = Vec::with_capacity(word.len());
    let mut rest = word;
    while let Some((&byte, tail)) = rest.split_first() {
        rest = tail;
        if byte != b'\\' {
            key.push(byte);
            continue;
        }
        let hex = rest.strip_prefix(b"x").and_then(|hex| hex.get(..2)).and_then(text);
        let byte = hex.and_then(|hex| u8::from_str_radix(hex, 16).ok());
        key.push(byte.ok_or("a backslash in a key begins \\xHH; itself it is \\x5c")?);
        rest = &rest[3..];
    }
    Ok(Cow::Owned(key))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Option<Line<'_>>, String> {
        Line::parse(text.as_bytes())
    }

    #[test]
    fn lines_round_trip() {
        let every: Vec<u8> = (0..=255).collect();
        for key in [&b"a"[..], b"", b"# no comment", b"\\x41", b"\xff \n", &every] {
            for verb in [
                Verb::Get,
                Verb::Put { bytes: 0 },
                Verb::Put { bytes: u32::MAX },
                Verb::Delete,
                Verb::Scan { entries: 7 },
            ] {
                let line = Line::Request(verb, Cow::Borrowed(key));
                let mut out = Vec::new();
                line.write(&mut out);
                assert_eq!(out.iter().filter(|byte| **byte == b'\n').count(), 1);
                assert_eq!(Line::parse(&out).unwrap(), Some(line));
            }
        }
        let time = Line::Time(Duration::from_micros(1_500_001));
        let mut out = Vec::new();
        time.write(&mut out);
        assert_eq!(out, b"@ 1.500001\n");
        assert_eq!(Line::parse(&out).unwrap(), Some(time));
    }

    #[test]
    fn comments_are_skipped_and_scan_defaults_to_one_entry() {
        assert_eq!(parse("").unwrap(), None);
        assert_eq!(parse("  # put a 1\n").unwrap(), None);
        let scan = Line::Request(Verb::Scan { entries: 1 }, Cow::Borrowed(b"k"));
        assert_eq!(parse("scan k").unwrap(), Some(scan));
    }

    #[test]
    fn malformed_line_is_described() {
        for (line, message) in [
            ("fetch b", "'fetch'"),
            ("put a", "say how many bytes"),
            ("put a -1", "say how many bytes"),
            ("scan a x", "say how many entries"),
            ("get", "no key"),
            ("get a b", "'b' is one word too many"),
            ("put a 1 2", "'2' is one word too many"),
            ("get a\\b", "\\x5c"),
            ("get a\\x4", "\\x5c"),
            ("get \\xg0", "\\x5c"),
            ("@", "say when"),
            ("@ -1", "say when"),
            ("@ nan", "say when"),
            ("@ 1e300", "say when"),
        ] {
            let reason = parse(line).unwrap_err();
            assert!(reason.contains(message), "{line}: {reason}");
        }
    }
}
