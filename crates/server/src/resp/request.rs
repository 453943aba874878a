//! Finds the arguments of a command in a connection's input.
//!
//! The parser is always given the unconsumed input, from the first byte of the current request, and
//! resumes where it stopped. It returns *spans*: arguments stay in the input buffer.
//!
//! ```text
//! *2\r\n  $3\r\nGET\r\n  $1\r\nk\r\n          spans: 8..11, 17..18     consumed: 20
//! ```
//!
//! Invariant: announced lengths allocate nothing. A span is stored only for an argument that has
//! arrived completely, so memory is at most a fixed multiple of the input; an excessive request is
//! rejected by its announced length, before its bytes arrive.
//!
//! Source: the Redis serialization protocol specification; error texts are those that Redis clients
//! match on.

use std::fmt;

use super::args::{Args, Span};
use super::{inline, number};

/// Maximum length of an inline command, in bytes.
pub const MAX_INLINE_BYTES: usize = 64 << 10;
/// Maximum length of a line with a count or a length; fits any 64-bit number.
const MAX_COUNT_LINE_BYTES: usize = 32;
/// Limits before authentication.
const MAX_UNAUTHENTICATED_ARGUMENTS: i64 = 10;
const MAX_UNAUTHENTICATED_BULK_BYTES: i64 = 16 << 10;

/// Limits of a request.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Maximum bytes of a request, including framing.
    pub max_request_bytes: usize,
    /// Maximum number of arguments, including the command's name.
    pub max_arguments: usize,
    /// Whether the client is authenticated; if not, lower limits apply.
    pub authenticated: bool,
}

/// Result of a parsing step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ParseStatus {
    /// The request continues beyond the input.
    Incomplete,
    /// The request is complete; its arguments are in [`Parser::args`]. It may have none (an empty
    /// line), which gets no reply.
    Request {
        /// Bytes to drop from the input before the next step.
        consumed: usize,
    },
}

/// Why the input is not a valid request. The connection must close: the start of the next request
/// is unknown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProtocolError {
    /// The argument count is not a number, or exceeds the limit.
    MultibulkLength,
    /// The length of an argument is not a number, negative, or exceeds the limit.
    BulkLength,
    /// More arguments than allowed before authentication.
    UnauthenticatedMultibulk,
    /// A longer argument than allowed before authentication.
    UnauthenticatedBulk,
    /// An argument does not begin with `$`.
    ExpectedBulk(u8),
    /// An argument is not followed by CRLF.
    ExpectedEnd,
    /// An unterminated line.
    InlineTooBig,
    /// An unclosed quote.
    UnbalancedQuotes,
    /// An HTTP request, which any web page can make a browser send: what follows may look like
    /// commands.
    Http,
    /// The request exceeds the limit, given in bytes.
    RequestTooBig(usize),
}

impl fmt::Display for ProtocolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Protocol error: ")?;
        match self {
            Self::MultibulkLength => f.write_str("invalid multibulk length"),
            Self::BulkLength => f.write_str("invalid bulk length"),
            Self::UnauthenticatedMultibulk => f.write_str("unauthenticated multibulk length"),
            Self::UnauthenticatedBulk => f.write_str("unauthenticated bulk length"),
            Self::ExpectedBulk(got) => write!(f, "expected '$', got '{}'", got.escape_ascii()),
            Self::ExpectedEnd => f.write_str("expected CRLF after a bulk string"),
            Self::InlineTooBig => f.write_str("too big inline request"),
            Self::UnbalancedQuotes => f.write_str("unbalanced quotes in request"),
            Self::Http => f.write_str("this port does not speak HTTP"),
            Self::RequestTooBig(limit) => {
                write!(f, "request exceeds the limit of {limit} bytes; send smaller requests")
            }
        }
    }
}

impl std::error::Error for ProtocolError {}

/// Whether a line starting with this word is HTTP: a request with a body is a POST, or has a Host
/// header before the body.
pub(crate) fn is_http(word: &[u8]) -> bool {
    word.eq_ignore_ascii_case(b"post") || word.eq_ignore_ascii_case(b"host:")
}

/// Parser state of one connection.
#[derive(Debug, Default)]
pub struct Parser {
    state: State,
    /// Bytes parsed so far, from the start of the request.
    position: usize,
    /// Bytes of an inline command searched for its end.
    searched: usize,
    spans: Vec<Span>,
    /// Unescaped words of an inline command.
    inline: Vec<u8>,
    is_inline: bool,
    /// A request has been started.
    is_begun: bool,
}

#[derive(Debug, Default, Clone, Copy)]
enum State {
    #[default]
    Start,
    /// At the `$` of an argument, with `remaining` to follow.
    Length { remaining: usize },
    /// At the first byte of an argument.
    Body { remaining: usize, length: usize },
}

impl Parser {
    /// Continues with `input`, which starts with the first byte of the request.
    ///
    /// # Errors
    /// If the request is malformed; the connection should report it and close.
    #[inline]
    pub fn parse(&mut self, input: &[u8], limits: &Limits) -> Result<ParseStatus, ProtocolError> {
        loop {
            match self.state {
                State::Start => match input.first() {
                    None => return Ok(ParseStatus::Incomplete),
                    Some(b'*') => {
                        self.begin(false);
                        let wrong = ProtocolError::MultibulkLength;
                        let Some(count) = self.count_line(input, wrong.clone())? else {
                            return Ok(ParseStatus::Incomplete);
                        };
                        if count > limits.max_arguments as i64 {
                            return Err(wrong);
                        }
                        if count > MAX_UNAUTHENTICATED_ARGUMENTS && !limits.authenticated {
                            return Err(ProtocolError::UnauthenticatedMultibulk);
                        }
                        if count <= 0 {
                            return Ok(self.finish());
                        }
                        self.state = State::Length { remaining: count as usize };
                    }
                    Some(_) => return self.inline(input),
                },
                State::Length { remaining } => {
                    match input.get(self.position) {
                        None => return Ok(ParseStatus::Incomplete),
                        Some(b'$') => {}
                        Some(other) => return Err(ProtocolError::ExpectedBulk(*other)),
                    }
                    let wrong = ProtocolError::BulkLength;
                    let Some(length) = self.count_line(input, wrong.clone())? else {
                        return Ok(ParseStatus::Incomplete);
                    };
                    let length = usize::try_from(length).map_err(|_| wrong.clone())?;
                    if length > limits.max_request_bytes {
                        return Err(wrong);
                    }
                    if length as i64 > MAX_UNAUTHENTICATED_BULK_BYTES && !limits.authenticated {
                        return Err(ProtocolError::UnauthenticatedBulk);
                    }
                    if self.position + length + 2 > limits.max_request_bytes {
                        return Err(ProtocolError::RequestTooBig(limits.max_request_bytes));
                    }
                    self.state = State::Body { remaining, length };
                }
                State::Body { remaining, length } => {
                    let (start, end) = (self.position, self.position + length);
                    let Some(terminator) = input.get(end..end + 2) else {
                        return Ok(ParseStatus::Incomplete);
                    };
                    if terminator != b"\r\n" {
                        return Err(ProtocolError::ExpectedEnd);
                    }
                    self.spans.push(Span { start, end });
                    self.position = end + 2;
                    if remaining == 1 {
                        return Ok(self.finish());
                    }
                    self.state = State::Length { remaining: remaining - 1 };
                }
            }
        }
    }

    /// Arguments of the request just found in `input`.
    pub fn args<'a>(&'a self, input: &'a [u8]) -> Args<'a> {
        Args::new(if self.is_inline { &self.inline } else { input }, &self.spans)
    }

    /// Forgets the request that has been started.
    pub(crate) fn restart(&mut self) {
        self.state = State::Start;
        self.is_begun = false;
    }

    /// Whether no request has been started.
    pub fn is_idle(&self) -> bool {
        !self.is_begun
    }

    /// Memory used besides the input, in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.spans.capacity() * size_of::<Span>() + self.inline.capacity()
    }

    /// Releases memory used by a large request.
    pub fn shrink(&mut self) {
        if self.memory_bytes() > 16 << 10 && self.is_idle() {
            self.spans = Vec::new();
            self.inline = Vec::new();
        }
    }

    fn begin(&mut self, is_inline: bool) {
        if !self.is_begun {
            self.spans.clear();
            self.inline.clear();
            self.position = 0;
            self.searched = 0;
            self.is_inline = is_inline;
            self.is_begun = true;
        }
    }

    fn finish(&mut self) -> ParseStatus {
        let consumed = self.position;
        self.state = State::Start;
        self.is_begun = false;
        ParseStatus::Request { consumed }
    }

    /// Parses `Xnumber\r\n` at the position and advances; `None` while it is incomplete.
    #[inline]
    fn count_line(
        &mut self,
        input: &[u8],
        wrong: ProtocolError,
    ) -> Result<Option<i64>, ProtocolError> {
        let line = &input[self.position + 1..];
        if let Some((count, digits)) = short_count(line) {
            self.position += digits + 3;
            return Ok(Some(count));
        }
        let window = &line[..line.len().min(MAX_COUNT_LINE_BYTES)];
        let Some(end) = window.iter().position(|byte| *byte == b'\n') else {
            if window.len() == MAX_COUNT_LINE_BYTES {
                return Err(wrong);
            }
            return Ok(None);
        };
        let digits = line[..end].strip_suffix(b"\r").ok_or(wrong.clone())?;
        let count = number::parse_i64(digits).ok_or(wrong)?;
        self.position += end + 2;
        Ok(Some(count))
    }

    fn inline(&mut self, input: &[u8]) -> Result<ParseStatus, ProtocolError> {
        self.begin(true);
        let found = input[self.searched..].iter().position(|byte| *byte == b'\n');
        let Some(end) = found.map(|at| self.searched + at) else {
            self.searched = input.len();
            if input.len() > MAX_INLINE_BYTES {
                return Err(ProtocolError::InlineTooBig);
            }
            return Ok(ParseStatus::Incomplete);
        };
        if end > MAX_INLINE_BYTES {
            return Err(ProtocolError::InlineTooBig);
        }
        let line = input[..end].strip_suffix(b"\r").unwrap_or(&input[..end]);
        if !inline::split(line, &mut self.inline, &mut self.spans) {
            return Err(ProtocolError::UnbalancedQuotes);
        }
        if self.spans.first().is_some_and(|word| is_http(&self.inline[word.start..word.end])) {
            return Err(ProtocolError::Http);
        }
        self.position = end + 1;
        Ok(self.finish())
    }
}

/// A number of few digits at the start of a complete line, as almost all counts are, and how many
/// digits it has.
#[inline]
fn short_count(line: &[u8]) -> Option<(i64, usize)> {
    const MAX_DIGITS: usize = 4;
    let mut count = 0;
    for (at, &byte) in line.iter().take(MAX_DIGITS + 1).enumerate() {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            let is_strict = at == 1 || at > 1 && line[0] != b'0';
            let is_complete = byte == b'\r' && line.get(at + 1) == Some(&b'\n');
            return (is_strict && is_complete).then_some((count, at));
        }
        count = 10 * count + i64::from(digit);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_count_is_that_of_the_strict_parser_or_none() {
        for line in ["0\r\n", "7\r\n$", "42\r\n", "999\r\n", "1000\r\n", "9999\r\n"] {
            let digits = line.find('\r').unwrap();
            let strict = number::parse_i64(&line.as_bytes()[..digits]).unwrap();
            assert_eq!(short_count(line.as_bytes()), Some((strict, digits)), "{line:?}");
        }
        for line in ["", "1", "12\r", "\r\n", "-1\r\n", "01\r\n", "1\n", "1 \r\n", "10000\r\n"] {
            assert_eq!(short_count(line.as_bytes()), None, "{line:?}");
        }
    }
}
