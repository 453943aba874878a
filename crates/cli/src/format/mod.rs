//! Rows in files: TSV, CSV and JSON lines, read and written row by row.
//!
//! | format | row | bytes that the format cannot hold |
//! | --- | --- | --- |
//! | `tsv` | `key TAB value`, one per line | escaped: `\t \n \r \\ \xNN` |
//! | `csv` | first column the key; see [`csv`] | as they are, quoted |
//! | `jsonl` | `{"key": …, "value": …, "expires_at": ms}` | `key_hex`, `value_hex` |
//!
//! Every reader is bounded: a row is at most one key and one value, so a file without line ends is
//! refused before it is read into memory.

pub(crate) mod csv;
pub(crate) mod jsonl;
pub(crate) mod quotes;
pub(crate) mod tsv;

use std::fmt;
use std::io::BufRead;
use std::path::Path;

use clap::ValueEnum;
use serde_json::{Map, Value, json};
use siltstone::Entry;

/// The format of rows in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// `key TAB value` lines
    Tsv,
    /// Comma-separated, the key in the first column
    Csv,
    /// One JSON object per line
    Jsonl,
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Format::Tsv => "TSV",
            Format::Csv => "CSV",
            Format::Jsonl => "JSON lines",
        })
    }
}

impl Format {
    /// The format by a file's extension; TSV by default.
    pub(crate) fn of(path: &Path) -> Format {
        let extension = path.extension().unwrap_or_default().to_string_lossy();
        match extension.to_ascii_lowercase().as_str() {
            "csv" => Format::Csv,
            "jsonl" | "ndjson" | "json" => Format::Jsonl,
            _ => Format::Tsv,
        }
    }
}

/// A row: a key and its entry.
pub(crate) type Row = (Vec<u8>, Entry);

/// The maximum length of a line: the largest key and value, fully escaped.
const MAX_LINE_BYTES: u64 = 4 * (siltstone::MAX_KEY_BYTES + siltstone::MAX_VALUE_BYTES) as u64;

/// Reads one line without its end into `line`; `false` at the end of the input.
pub(crate) fn read_line(input: &mut dyn BufRead, line: &mut Vec<u8>) -> Result<bool, String> {
    line.clear();
    let mut limited = std::io::Read::take(&mut *input, MAX_LINE_BYTES);
    let read = limited.read_until(b'\n', line).map_err(|e| e.to_string())?;
    if read as u64 == MAX_LINE_BYTES {
        return Err(format!("a line is longer than {MAX_LINE_BYTES} bytes"));
    }
    if line.last() == Some(&b'\n') {
        line.pop();
        if line.last() == Some(&b'\r') {
            line.pop();
        }
    }
    Ok(read > 0)
}

/// A row as JSON: text where the bytes are UTF-8, hexadecimal where they are not.
pub(crate) fn json_row(key: &[u8], entry: &Entry) -> Value {
    let mut row = Map::new();
    put_bytes(&mut row, "key", key);
    put_bytes(&mut row, "value", &entry.value);
    if let Some(at) = entry.expires_at {
        row.insert("expires_at".to_owned(), json!(at));
    }
    Value::Object(row)
}

/// A key as JSON.
pub(crate) fn json_key(key: &[u8]) -> Value {
    let mut row = Map::new();
    put_bytes(&mut row, "key", key);
    Value::Object(row)
}

/// Puts bytes into an object: as text, or in hexadecimal under a name of its own.
pub(crate) fn put_bytes(row: &mut Map<String, Value>, name: &str, bytes: &[u8]) {
    match std::str::from_utf8(bytes) {
        Ok(text) => row.insert(name.to_owned(), json!(text)),
        Err(_) => row.insert(format!("{name}_hex"), json!(to_hex(bytes))),
    };
}

pub(crate) fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub(crate) fn from_hex(text: &str) -> Option<Vec<u8>> {
    // `from_str_radix` would accept a sign.
    if !text.bytes().all(|byte| byte.is_ascii_hexdigit()) || !text.len().is_multiple_of(2) {
        return None;
    }
    (0..text.len()).step_by(2).map(|i| u8::from_str_radix(&text[i..i + 2], 16).ok()).collect()
}
