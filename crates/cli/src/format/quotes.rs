//! Detects unclosed quotes in a CSV file.
//!
//! The CSV reader closes an open quote at the end of the file and takes everything after it for
//! one field: rows would be lost silently, and all of a large file would be read into memory
//! first. So this reader tracks quotes in the input, and a row longer than the limit is an error.
//!
//! ```text
//!   begin ── " ──▶ quoted ◀── " ──▶ closed? ── , or line end ──▶ begin
//!     └── other ──▶ plain ◀──── other ──┘
//! ```
//!
//! Source: RFC 4180, as the crate `csv` implements it.

use std::fmt;
use std::io::{ErrorKind, Read};

use super::MAX_LINE_BYTES;

/// A reader that forwards its input and tracks quotes.
pub(crate) struct QuoteTracker<R> {
    input: R,
    state: State,
    line: u64,
    /// The line of the last quote that opened a field.
    opened: u64,
    /// Bytes of the row so far, and their limit.
    row: u64,
    max_row_bytes: u64,
}

/// A row longer than the largest key and value.
#[derive(Debug)]
struct RowTooLong {
    line: u64,
    max_row_bytes: u64,
    is_quoted: bool,
}

impl fmt::Display for RowTooLong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a row is longer than {} bytes", self.max_row_bytes)?;
        if self.is_quoted { f.write_str("; is the quote closed that opens here?") } else { Ok(()) }
    }
}

impl std::error::Error for RowTooLong {}

/// The line of the row that was too long, if that is the error.
pub(crate) fn line_of_long_row(error: &csv::Error) -> Option<u64> {
    let csv::ErrorKind::Io(error) = error.kind() else { return None };
    error.get_ref()?.downcast_ref::<RowTooLong>().map(|row| row.line)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// At the beginning of a field.
    Begin,
    Plain,
    Quoted,
    /// After a quote within quotes: the end, or the first of two.
    Closed,
}

impl<R> QuoteTracker<R> {
    pub(crate) fn of(input: R) -> Self {
        let max_row_bytes = MAX_LINE_BYTES;
        QuoteTracker { input, state: State::Begin, line: 1, opened: 0, row: 0, max_row_bytes }
    }

    /// The line of the open quote.
    pub(crate) fn open(&self) -> Option<u64> {
        (self.state == State::Quoted).then_some(self.opened)
    }

    fn advance(&mut self, byte: u8) {
        self.state = match (self.state, byte) {
            (State::Begin, b'"') => {
                self.opened = self.line;
                State::Quoted
            }
            (State::Quoted, b'"') => State::Closed,
            (State::Quoted, _) | (State::Closed, b'"') => State::Quoted,
            (_, b',' | b'\r' | b'\n') => State::Begin,
            _ => State::Plain,
        };
        self.line += u64::from(byte == b'\n');
        let is_end = matches!(byte, b'\r' | b'\n') && self.state == State::Begin;
        self.row = if is_end { 0 } else { self.row + 1 };
    }
}

impl<R: Read> Read for QuoteTracker<R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let read = self.input.read(buffer)?;
        for &byte in &buffer[..read] {
            self.advance(byte);
            if self.row > self.max_row_bytes {
                let open = self.open();
                let (line, is_quoted) = (open.unwrap_or(self.line), open.is_some());
                let row = RowTooLong { line, max_row_bytes: self.max_row_bytes, is_quoted };
                return Err(std::io::Error::new(ErrorKind::InvalidData, row));
            }
        }
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unclosed_quote_is_reported_with_its_line() {
        for (text, line) in [
            ("a,1\nb,\"2\nc,3\n", Some(2)),
            ("a,\"1\n2\"\nb,\"", Some(3)),
            ("\"a", Some(1)),
            ("a,\"1\"\"", Some(1)),
            ("a,\"1\"\"\"\n", None),
            ("a,\"1\n2\"\nb,3", None),
            ("a,1\"2\nb,3\n", None),
            ("a,\"1\"2\"3\n", None),
            ("", None),
        ] {
            let mut quotes = QuoteTracker::of(text.as_bytes());
            quotes.read_to_end(&mut Vec::new()).unwrap();
            assert_eq!(quotes.open(), line, "{text}");
        }
    }

    #[test]
    fn row_over_the_limit_is_an_error_before_it_is_in_memory() {
        let error = |text: &str| {
            let mut quotes =
                QuoteTracker { max_row_bytes: 10, ..QuoteTracker::of(text.as_bytes()) };
            let mut reader = csv::Reader::from_reader(&mut quotes);
            let error = reader.byte_records().find_map(Result::err)?;
            Some((line_of_long_row(&error)?, super::super::csv::reason(&error)))
        };
        assert_eq!(error("a,12345678\nb,\"1\n45\"\nc,1\n"), None);
        let (at, reason) = error("a,1\nb,12345\n67890123456,\n").unwrap();
        assert!(at == 3 && reason.contains("longer than 10 bytes"), "{at} {reason}");
        let (at, reason) = error("a,1\nb,\"12\nc,3\nd,5\ne,6\n").unwrap();
        assert!(at == 2 && reason.contains("is the quote closed"), "{at} {reason}");
    }
}
