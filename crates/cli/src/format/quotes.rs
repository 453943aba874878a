//! Whether the quotes of a CSV file are closed.
//!
//! The reader of CSV takes a quote that is never closed for one that the end of the file closes, and
//! everything behind it for one field: rows would be lost without a word. So what it reads is watched.
//!
//! ```text
//!   begin ── " ──▶ quoted ◀── " ──▶ closed? ── , or line end ──▶ begin
//!     └── other ──▶ plain ◀──── other ──┘
//! ```
//!
//! Source: RFC 4180, as the crate `csv` reads it.

use std::io::Read;

/// A reader that passes on what it reads.
pub(crate) struct Quotes<R> {
    input: R,
    state: State,
    line: u64,
    /// The line of the last quote that opened a field.
    opened: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// Of a field.
    Begin,
    Plain,
    Quoted,
    /// Behind a quote within quotes: the end, or the first of two.
    Closed,
}

impl<R> Quotes<R> {
    pub(crate) fn of(input: R) -> Self {
        Quotes { input, state: State::Begin, line: 1, opened: 0 }
    }

    /// The line of the quote that is open.
    pub(crate) fn open(&self) -> Option<u64> {
        (self.state == State::Quoted).then_some(self.opened)
    }

    fn pass(&mut self, byte: u8) {
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
    }
}

impl<R: Read> Read for Quotes<R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let read = self.input.read(buffer)?;
        buffer[..read].iter().for_each(|&byte| self.pass(byte));
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_a_quote_that_stays_open_told_by_its_line() {
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
            let mut quotes = Quotes::of(text.as_bytes());
            quotes.read_to_end(&mut Vec::new()).unwrap();
            assert_eq!(quotes.open(), line, "{text}");
        }
    }
}
