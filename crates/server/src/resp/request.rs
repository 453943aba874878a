//! Finds the arguments of a command in a connection's input.
//!
//! The parser is given the unconsumed input, always from the first byte of the request it is at,
//! and remembers how far it came. It answers with *spans*: arguments stay where they arrived.
//!
//! ```text
//! *2\r\n  $3\r\nGET\r\n  $1\r\nk\r\n          spans: 8..11, 17..18     consumed: 20
//! ```
//!
//! Invariant: nothing is allocated by an announced length. A span is stored only for an argument
//! that has arrived whole, so what the parser holds is at most a fixed multiple of what came in;
//! what a request may be is refused from its announcement, before its bytes come.
//!
//! Source: the Redis serialization protocol specification; the words of the errors are those that
//! clients of Redis match on.

use std::fmt;

use super::{inline, number};

/// The longest inline command, in bytes.
pub const MAX_INLINE_BYTES: usize = 64 << 10;
/// The longest line that announces a count or a length: any 64-bit number fits.
const MAX_COUNT_LINE: usize = 32;
/// What a client may send before it has given the password.
const UNAUTHENTICATED_ARGUMENTS: i64 = 10;
const UNAUTHENTICATED_BULK: i64 = 16 << 10;

/// How large a request may be.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Bytes of a request, framing included.
    pub max_request_bytes: usize,
    /// Arguments of a request, the command's name included.
    pub max_arguments: usize,
    /// Whether the client may send more than it takes to authenticate.
    pub authenticated: bool,
}

/// Where an argument lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// Its first byte.
    pub start: usize,
    /// The byte after its last.
    pub end: usize,
}

/// What a step of parsing came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// The request goes on beyond the input.
    Incomplete,
    /// The request takes this many bytes; its arguments are in [`Parser::args`]. It may have none
    /// (an empty line), which asks for no reply.
    Request {
        /// Bytes to drop from the input before the next step.
        consumed: usize,
    },
}

/// Why the input is no request. The connection cannot go on: where the next request begins is
/// unknown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProtocolError {
    /// The count of arguments is no number, or over the limit.
    MultibulkLength,
    /// The length of an argument is no number, negative, or over the limit.
    BulkLength,
    /// More arguments than a client may send before it authenticates.
    UnauthenticatedMultibulk,
    /// A longer argument than a client may send before it authenticates.
    UnauthenticatedBulk,
    /// An argument does not begin with `$`.
    ExpectedBulk(u8),
    /// An argument is not followed by CRLF.
    ExpectedEnd,
    /// A line without end.
    InlineTooBig,
    /// A quote that is not closed.
    UnbalancedQuotes,
    /// A request of a browser, which any page can make it send: what follows may look like commands.
    Http,
    /// The request is over the limit, given here in bytes.
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
                write!(f, "request is over the limit of {limit} bytes; send it in smaller parts")
            }
        }
    }
}

impl std::error::Error for ProtocolError {}

/// Whether a line that begins with this word is HTTP's: each of its requests that has a body is a POST from a
/// page, or names a host before the body.
pub(crate) fn is_http(word: &[u8]) -> bool {
    word.eq_ignore_ascii_case(b"post") || word.eq_ignore_ascii_case(b"host:")
}

/// The arguments of one command, borrowed from the input. The first is the command's name.
#[derive(Debug, Clone, Copy)]
pub struct Args<'a> {
    bytes: &'a [u8],
    spans: &'a [Span],
}

impl<'a> Args<'a> {
    /// The parts of `bytes` that `spans` name.
    pub fn new(bytes: &'a [u8], spans: &'a [Span]) -> Self {
        Args { bytes, spans }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.spans.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// The argument at `index`, if there is one.
    pub fn get(&self, index: usize) -> Option<&'a [u8]> {
        self.spans.get(index).map(|span| &self.bytes[span.start..span.end])
    }

    /// The arguments in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &'a [u8]> + Clone + use<'a> {
        let bytes = self.bytes;
        self.spans.iter().map(move |span| &bytes[span.start..span.end])
    }

    /// The arguments from `index` on.
    pub fn from(&self, index: usize) -> Args<'a> {
        Args { bytes: self.bytes, spans: self.spans.get(index..).unwrap_or_default() }
    }
}

impl std::ops::Index<usize> for Args<'_> {
    type Output = [u8];

    /// The argument at `index`; a command's arity has been checked before its handler indexes.
    fn index(&self, index: usize) -> &[u8] {
        let span = self.spans[index];
        &self.bytes[span.start..span.end]
    }
}

/// The state of one connection's request.
#[derive(Debug, Default)]
pub struct Parser {
    state: State,
    /// How far the request has been understood, from its first byte.
    position: usize,
    /// How far an inline command has been searched for its end.
    searched: usize,
    spans: Vec<Span>,
    /// The unescaped words of an inline command.
    inline: Vec<u8>,
    is_inline: bool,
    /// Some of the request has been seen.
    is_begun: bool,
}

#[derive(Debug, Default, Clone, Copy)]
enum State {
    #[default]
    Start,
    /// At the `$` of an argument, with this many to come.
    Length { to_come: usize },
    /// At the first byte of an argument.
    Body { to_come: usize, length: usize },
}

impl Parser {
    /// Goes on with `input`, which begins with the first byte of the request.
    ///
    /// # Errors
    /// What makes it no request; the connection should say so and close.
    #[inline]
    pub fn parse(&mut self, input: &[u8], limits: &Limits) -> Result<Progress, ProtocolError> {
        loop {
            match self.state {
                State::Start => match input.first() {
                    None => return Ok(Progress::Incomplete),
                    Some(b'*') => {
                        self.begin(false);
                        let wrong = ProtocolError::MultibulkLength;
                        let Some(count) = self.count_line(input, wrong.clone())? else {
                            return Ok(Progress::Incomplete);
                        };
                        if count > limits.max_arguments as i64 {
                            return Err(wrong);
                        }
                        if count > UNAUTHENTICATED_ARGUMENTS && !limits.authenticated {
                            return Err(ProtocolError::UnauthenticatedMultibulk);
                        }
                        if count <= 0 {
                            return Ok(self.finish());
                        }
                        self.state = State::Length { to_come: count as usize };
                    }
                    Some(_) => return self.inline(input),
                },
                State::Length { to_come } => {
                    match input.get(self.position) {
                        None => return Ok(Progress::Incomplete),
                        Some(b'$') => {}
                        Some(other) => return Err(ProtocolError::ExpectedBulk(*other)),
                    }
                    let wrong = ProtocolError::BulkLength;
                    let Some(length) = self.count_line(input, wrong.clone())? else {
                        return Ok(Progress::Incomplete);
                    };
                    let length = usize::try_from(length).map_err(|_| wrong.clone())?;
                    if length > limits.max_request_bytes {
                        return Err(wrong);
                    }
                    if length as i64 > UNAUTHENTICATED_BULK && !limits.authenticated {
                        return Err(ProtocolError::UnauthenticatedBulk);
                    }
                    if self.position + length + 2 > limits.max_request_bytes {
                        return Err(ProtocolError::RequestTooBig(limits.max_request_bytes));
                    }
                    self.state = State::Body { to_come, length };
                }
                State::Body { to_come, length } => {
                    let (start, end) = (self.position, self.position + length);
                    let Some(terminator) = input.get(end..end + 2) else {
                        return Ok(Progress::Incomplete);
                    };
                    if terminator != b"\r\n" {
                        return Err(ProtocolError::ExpectedEnd);
                    }
                    self.spans.push(Span { start, end });
                    self.position = end + 2;
                    if to_come == 1 {
                        return Ok(self.finish());
                    }
                    self.state = State::Length { to_come: to_come - 1 };
                }
            }
        }
    }

    /// The arguments of the request that was just found in `input`.
    pub fn args<'a>(&'a self, input: &'a [u8]) -> Args<'a> {
        Args { bytes: if self.is_inline { &self.inline } else { input }, spans: &self.spans }
    }

    /// Whether it stands between requests: of the next one nothing has been seen.
    pub fn is_idle(&self) -> bool {
        !self.is_begun
    }

    /// Bytes held beside the input.
    pub fn held_bytes(&self) -> usize {
        self.spans.capacity() * size_of::<Span>() + self.inline.capacity()
    }

    /// Gives back what a large request made the parser hold.
    pub fn shrink(&mut self) {
        if self.held_bytes() > 16 << 10 && self.is_idle() {
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

    fn finish(&mut self) -> Progress {
        let consumed = self.position;
        self.state = State::Start;
        self.is_begun = false;
        Progress::Request { consumed }
    }

    /// Reads `Xnumber\r\n` at the position and moves past it; `None` while its end is to come.
    #[inline]
    fn count_line(
        &mut self,
        input: &[u8],
        wrong: ProtocolError,
    ) -> Result<Option<i64>, ProtocolError> {
        let line = &input[self.position + 1..];
        let window = &line[..line.len().min(MAX_COUNT_LINE)];
        let Some(end) = window.iter().position(|byte| *byte == b'\n') else {
            if window.len() == MAX_COUNT_LINE {
                return Err(wrong);
            }
            return Ok(None);
        };
        let digits = line[..end].strip_suffix(b"\r").ok_or(wrong.clone())?;
        let count = number::parse_i64(digits).ok_or(wrong)?;
        self.position += end + 2;
        Ok(Some(count))
    }

    fn inline(&mut self, input: &[u8]) -> Result<Progress, ProtocolError> {
        self.begin(true);
        let found = input[self.searched..].iter().position(|byte| *byte == b'\n');
        let Some(end) = found.map(|at| self.searched + at) else {
            self.searched = input.len();
            if input.len() > MAX_INLINE_BYTES {
                return Err(ProtocolError::InlineTooBig);
            }
            return Ok(Progress::Incomplete);
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
