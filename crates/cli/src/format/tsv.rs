//! TSV: `key TAB value`, one row per line, with the escapes of PostgreSQL's COPY.
//!
//! Written: `\t \n \r \\` and `\xNN` for what is not printable UTF-8. Read: the same, unless
//! escapes are disabled; then every byte up to the first tab is the key and the rest the value.

use std::io::BufRead;

use siltstone::Entry;

use super::{Row, from_hex, read_line};

/// Reads the next row; `None` at the end.
pub(crate) fn read(
    input: &mut dyn BufRead,
    line: &mut Vec<u8>,
    escapes: bool,
) -> Result<Option<Row>, String> {
    if !read_line(input, line)? {
        return Ok(None);
    }
    let tab = line.iter().position(|&b| b == b'\t').ok_or(
        "no tab between key and value (is it another format? --format csv or --format jsonl; an \
         empty value needs its tab, too)",
    )?;
    let (key, value) = (&line[..tab], &line[tab + 1..]);
    let field = |bytes: &[u8]| if escapes { unescape(bytes) } else { Ok(bytes.to_vec()) };
    Ok(Some((field(key)?, Entry::new(field(value)?))))
}

/// Escapes bytes for TSV and for terminals.
pub(crate) fn escape(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '\t' => out.extend(b"\\t"),
                '\n' => out.extend(b"\\n"),
                '\r' => out.extend(b"\\r"),
                '\\' => out.extend(b"\\\\"),
                c if c.is_control() => {
                    let mut utf8 = [0; 4];
                    c.encode_utf8(&mut utf8).bytes().for_each(|b| push_hex(&mut out, b));
                }
                c => out.extend(c.encode_utf8(&mut [0; 4]).bytes()),
            }
        }
        chunk.invalid().iter().for_each(|&b| push_hex(&mut out, b));
    }
    out
}

fn push_hex(out: &mut Vec<u8>, byte: u8) {
    out.extend(format!("\\x{byte:02x}").bytes());
}

fn unescape(bytes: &[u8]) -> Result<Vec<u8>, String> {
    let mut out = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    while let Some(at) = rest.iter().position(|&b| b == b'\\') {
        out.extend_from_slice(&rest[..at]);
        rest = &rest[at + 1..];
        let (&code, after) = rest.split_first().ok_or_else(|| unknown("end of the field"))?;
        rest = after;
        out.push(match code {
            b't' => b'\t',
            b'n' => b'\n',
            b'r' => b'\r',
            b'\\' => b'\\',
            b'x' => {
                let digits = rest.get(..2).and_then(|d| std::str::from_utf8(d).ok());
                let byte = digits.and_then(from_hex);
                rest = rest.get(2..).unwrap_or_default();
                byte.ok_or_else(|| unknown("x without two hexadecimal digits"))?[0]
            }
            other => return Err(unknown(&char::from(other).to_string())),
        });
    }
    out.extend_from_slice(rest);
    Ok(out)
}

fn unknown(what: &str) -> String {
    format!("unknown escape: a backslash before {what} (use --no-escapes if backslashes are data)")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_round_trip() {
        let all: Vec<u8> = (0..=255).chain("grün\u{85}".bytes()).collect();
        let escaped = escape(&all);
        assert!(!escaped.iter().any(|b| b.is_ascii_control()));
        assert!(std::str::from_utf8(&escaped).is_ok());
        assert_eq!(unescape(&escaped).unwrap(), all);
    }

    #[test]
    fn unknown_escapes_are_refused() {
        for bad in [&b"\\"[..], b"\\q", b"\\x1", b"\\xzz", b"\\x+f"] {
            assert!(unescape(bad).is_err());
        }
    }

    #[test]
    fn first_tab_separates_key_and_value() {
        let mut input = &b"k\tv\tw\r\nempty\t\nalone\n"[..];
        let mut line = Vec::new();
        let mut next = || read(&mut input, &mut line, true);
        assert_eq!(next().unwrap(), Some((b"k".to_vec(), Entry::new("v\tw"))));
        assert_eq!(next().unwrap(), Some((b"empty".to_vec(), Entry::new(""))));
        assert!(next().unwrap_err().contains("no tab"));
        assert_eq!(next().unwrap(), None);
    }
}
